//! Record types and classes by number and mnemonic.

use std::fmt;
use std::str::FromStr;

/// A record type or query type (RFC 1035 section 3.2.2, RFC 6895 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rtype(pub u16);

/// A class (RFC 1035 section 3.2.4, RFC 6895 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u16);

macro_rules! mnemonics {
    ($of:ident, $table:ident, $generic:literal, $($constant:ident = $number:literal $text:literal),+ $(,)?) => {
        impl $of {
            $(#[doc = concat!("`", $text, "`, number ", stringify!($number), ".")]
            pub const $constant: $of = $of($number);)+

            /// The registered mnemonic, where there is one.
            pub fn mnemonic(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)+
                    _ => None,
                }
            }
        }

        const $table: &[(&str, $of)] = &[$(($text, $of($number))),+];

        /// The mnemonic, or the generic form of RFC 3597 section 5.
        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.mnemonic() {
                    Some(mnemonic) => f.write_str(mnemonic),
                    None => write!(f, concat!($generic, "{}"), self.0),
                }
            }
        }

        impl fmt::Debug for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        /// Reads a mnemonic in any case, or the generic form of RFC 3597 section 5.
        impl FromStr for $of {
            type Err = UnknownMnemonic;

            fn from_str(text: &str) -> Result<Self, UnknownMnemonic> {
                if let Some((_, found)) = $table.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
                    return Ok(*found);
                }
                generic_number(text, $generic).map($of).ok_or(UnknownMnemonic)
            }
        }
    };
}

/// The text names neither a registered mnemonic nor the generic form of RFC 3597.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMnemonic;

impl fmt::Display for UnknownMnemonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown mnemonic")
    }
}

impl std::error::Error for UnknownMnemonic {}

mnemonics!(Class, CLASSES, "CLASS",
    IN = 1 "IN", CH = 3 "CH", HS = 4 "HS", NONE = 254 "NONE", ANY = 255 "ANY",
);

mnemonics!(Rtype, RTYPES, "TYPE",
    A = 1 "A", NS = 2 "NS", MD = 3 "MD", MF = 4 "MF", CNAME = 5 "CNAME", SOA = 6 "SOA", MB = 7 "MB", MG = 8 "MG",
    MR = 9 "MR", NULL = 10 "NULL", WKS = 11 "WKS", PTR = 12 "PTR", HINFO = 13 "HINFO", MINFO = 14 "MINFO",
    MX = 15 "MX", TXT = 16 "TXT", RP = 17 "RP", AFSDB = 18 "AFSDB", X25 = 19 "X25", ISDN = 20 "ISDN", RT = 21 "RT",
    NSAP = 22 "NSAP", NSAP_PTR = 23 "NSAP-PTR", SIG = 24 "SIG", KEY = 25 "KEY", PX = 26 "PX", GPOS = 27 "GPOS",
    AAAA = 28 "AAAA", LOC = 29 "LOC", NXT = 30 "NXT", EID = 31 "EID", NIMLOC = 32 "NIMLOC", SRV = 33 "SRV",
    ATMA = 34 "ATMA", NAPTR = 35 "NAPTR", KX = 36 "KX", CERT = 37 "CERT", A6 = 38 "A6", DNAME = 39 "DNAME",
    SINK = 40 "SINK", OPT = 41 "OPT", APL = 42 "APL", DS = 43 "DS", SSHFP = 44 "SSHFP", IPSECKEY = 45 "IPSECKEY",
    RRSIG = 46 "RRSIG", NSEC = 47 "NSEC", DNSKEY = 48 "DNSKEY", DHCID = 49 "DHCID", NSEC3 = 50 "NSEC3",
    NSEC3PARAM = 51 "NSEC3PARAM", TLSA = 52 "TLSA", SMIMEA = 53 "SMIMEA", HIP = 55 "HIP", NINFO = 56 "NINFO",
    RKEY = 57 "RKEY", TALINK = 58 "TALINK", CDS = 59 "CDS", CDNSKEY = 60 "CDNSKEY", OPENPGPKEY = 61 "OPENPGPKEY",
    CSYNC = 62 "CSYNC", ZONEMD = 63 "ZONEMD", SVCB = 64 "SVCB", HTTPS = 65 "HTTPS", DSYNC = 66 "DSYNC",
    HHIT = 67 "HHIT", BRID = 68 "BRID", SPF = 99 "SPF", UINFO = 100 "UINFO", UID = 101 "UID", GID = 102 "GID",
    UNSPEC = 103 "UNSPEC", NID = 104 "NID", L32 = 105 "L32", L64 = 106 "L64", LP = 107 "LP", EUI48 = 108 "EUI48",
    EUI64 = 109 "EUI64", NXNAME = 128 "NXNAME", TKEY = 249 "TKEY", TSIG = 250 "TSIG", IXFR = 251 "IXFR",
    AXFR = 252 "AXFR", MAILB = 253 "MAILB", MAILA = 254 "MAILA", ANY = 255 "ANY", URI = 256 "URI", CAA = 257 "CAA",
    AVC = 258 "AVC", DOA = 259 "DOA", AMTRELAY = 260 "AMTRELAY", RESINFO = 261 "RESINFO", WALLET = 262 "WALLET",
    CLA = 263 "CLA", IPN = 264 "IPN", TA = 32768 "TA", DLV = 32769 "DLV",
);

impl Rtype {
    /// Whether the number can only stand in a question or in a message's own records, never in a zone
    /// (RFC 6895 section 3.1: meta types and query types, 128 to 255, and OPT).
    pub fn is_meta(self) -> bool {
        matches!(self.0, 0 | 41 | 128..=255)
    }
}

fn generic_number(text: &str, prefix: &str) -> Option<u16> {
    let (head, digits) = text.split_at_checked(prefix.len())?;
    let well_formed = head.eq_ignore_ascii_case(prefix) && digits.bytes().all(|octet| octet.is_ascii_digit());
    if well_formed { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mnemonics_read_in_any_case_and_print_in_capitals() {
        assert_eq!("nSec3Param".parse(), Ok(Rtype::NSEC3PARAM));
        assert_eq!("nsap-ptr".parse(), Ok(Rtype::NSAP_PTR));
        assert_eq!(Rtype(51).to_string(), "NSEC3PARAM");
    }

    #[test]
    fn unregistered_numbers_use_the_generic_form() {
        assert_eq!("type65280".parse(), Ok(Rtype(65280)));
        assert_eq!(Rtype(65280).to_string(), "TYPE65280");
        assert_eq!("CLASS32".parse(), Ok(Class(32)));
        assert_eq!("TYPE65536".parse::<Rtype>(), Err(UnknownMnemonic));
        assert_eq!("TYPE+1".parse::<Rtype>(), Err(UnknownMnemonic));
        assert_eq!("TYPE".parse::<Rtype>(), Err(UnknownMnemonic));
    }
}
