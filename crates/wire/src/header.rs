//! The twelve octets in front of every message (RFC 1035 section 4.1.1).

/// Octets of a message header.
pub const HEADER_LEN: usize = 12;

/// The operation asked for (RFC 1035 section 4.1.1, RFC 6895 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// A standard query.
    pub const QUERY: Opcode = Opcode(0);
    /// A primary's word that a zone changed (RFC 1996).
    pub const NOTIFY: Opcode = Opcode(4);
    /// A dynamic update (RFC 2136).
    pub const UPDATE: Opcode = Opcode(5);
}

/// A response code, extended to twelve bits by EDNS (RFC 6891 section 6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rcode(pub u16);

impl Rcode {
    /// No error.
    pub const NOERROR: Rcode = Rcode(0);
    /// The query could not be read.
    pub const FORMERR: Rcode = Rcode(1);
    /// The server failed, for instance on a zone that it could not load.
    pub const SERVFAIL: Rcode = Rcode(2);
    /// The name does not exist.
    pub const NXDOMAIN: Rcode = Rcode(3);
    /// The kind of query is not implemented.
    pub const NOTIMP: Rcode = Rcode(4);
    /// The server does not answer for this name.
    pub const REFUSED: Rcode = Rcode(5);
    /// A DNAME substitution made the name too long (RFC 6672 section 2.2).
    pub const YXDOMAIN: Rcode = Rcode(6);
    /// An UPDATE or NOTIFY names a zone that the server does not hold (RFC 2136 section 3.1.1).
    pub const NOTAUTH: Rcode = Rcode(9);
    /// The EDNS version is not supported (RFC 6891 section 9).
    pub const BADVERS: Rcode = Rcode(16);

    /// The server wants a cookie that it can check (RFC 7873 section 5.2.3).
    pub const BADCOOKIE: Rcode = Rcode(23);

    /// The registered name, or `None` for a number without one.
    pub fn mnemonic(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "NOERROR",
            1 => "FORMERR",
            2 => "SERVFAIL",
            3 => "NXDOMAIN",
            4 => "NOTIMP",
            5 => "REFUSED",
            6 => "YXDOMAIN",
            7 => "YXRRSET",
            8 => "NXRRSET",
            9 => "NOTAUTH",
            10 => "NOTZONE",
            16 => "BADVERS",
            22 => "BADTRUNC",
            23 => "BADCOOKIE",
            _ => return None,
        })
    }
}

/// The second pair of octets of a header: flags, opcode and the low four bits of the response code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// The message is a response.
    pub const QR: u16 = 0x8000;
    /// The answer is authoritative.
    pub const AA: u16 = 0x0400;
    /// The answer was truncated.
    pub const TC: u16 = 0x0200;
    /// Recursion is desired; copied into the response.
    pub const RD: u16 = 0x0100;
    /// Recursion is available.
    pub const RA: u16 = 0x0080;
    /// The data were validated (RFC 4035 section 3.1.6); never set by an authoritative server.
    pub const AD: u16 = 0x0020;
    /// Checking is disabled (RFC 4035 section 3.1.6); cleared in an authoritative answer.
    pub const CD: u16 = 0x0010;

    /// Whether the message is a response.
    pub fn is_response(self) -> bool {
        self.0 & Self::QR != 0
    }

    /// The operation asked for.
    pub fn opcode(self) -> Opcode {
        Opcode(self.0.to_be_bytes()[0] >> 3 & 0x0f)
    }

    /// The flags that every response to this query starts from: QR, the opcode and RD as asked
    /// (RFC 1035 section 4.1.1).
    pub fn of_response(self) -> Flags {
        Flags(Self::QR | self.0 & (0x7800 | Self::RD))
    }
}
