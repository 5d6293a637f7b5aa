//! Where names lie in RDATA, and what record types are called.

/// A piece of RDATA, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// A domain name, which may be compressed in a message.
    Name,
    /// So many octets.
    Octets(usize),
    /// A character string: a length octet and as many octets.
    Text,
    /// All that is left.
    Rest,
}

use Piece::{Name, Octets, Rest, Text};

/// The pieces of a type whose RDATA holds names that are compared without case, or `[Rest]`.
///
/// These are the types of RFC 4034 section 6.2 (as changed by RFC 6840 section 5.1, which concerns NSEC's place in that
/// list for signing only): all of them may be met in compressed form. No type defined later may be compressed (RFC 3597,
/// section 4), and the names in SVCB and HTTPS are not.
pub fn pieces(rtype: u16) -> &'static [Piece] {
    match rtype {
        // NS MD MF CNAME MB MG MR PTR DNAME
        2 | 3 | 4 | 5 | 7 | 8 | 9 | 12 | 39 => &[Name],
        // SOA
        6 => &[Name, Name, Octets(20)],
        // MINFO RP
        14 | 17 => &[Name, Name],
        // MX AFSDB RT KX
        15 | 18 | 21 | 36 => &[Octets(2), Name],
        // SIG RRSIG
        24 | 46 => &[Octets(18), Name, Rest],
        // PX
        26 => &[Octets(2), Name, Name],
        // NXT NSEC
        30 | 47 => &[Name, Rest],
        // SRV
        33 => &[Octets(6), Name],
        // NAPTR
        35 => &[Octets(4), Text, Text, Text, Name],
        _ => &[Rest],
    }
}

/// Mnemonics of the types that tests ask for (IANA, DNS parameters).
const MNEMONICS: &[(u16, &str)] = &[
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (13, "HINFO"),
    (15, "MX"),
    (16, "TXT"),
    (28, "AAAA"),
    (29, "LOC"),
    (33, "SRV"),
    (35, "NAPTR"),
    (39, "DNAME"),
    (41, "OPT"),
    (43, "DS"),
    (44, "SSHFP"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (63, "ZONEMD"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (252, "AXFR"),
    (255, "ANY"),
    (257, "CAA"),
];

/// What a type is called: its mnemonic, or `TYPEn` (RFC 3597, section 5).
pub fn type_text(rtype: u16) -> String {
    MNEMONICS
        .iter()
        .find(|(n, _)| *n == rtype)
        .map_or_else(|| format!("TYPE{rtype}"), |(_, m)| (*m).to_owned())
}
