//! RDATA by descriptor: what fields a type has, where names stand in them.
//!
//! [`fields`] is the one table. The check of octets ([`check`]), the places of names ([`names`]), the canonical form
//! ([`canonical`]), printing ([`display`]) and the zone-file reader all walk it; a new type is a new row.
//! A type without a row is opaque (RFC 3597 section 3): any octets, no names, written as `\# LENGTH HEX`.

use crate::name::NameError;
use crate::rtype::Rtype;
use std::fmt;

mod bitmap;
mod composite;
mod display;
pub mod encoding;
mod names;
pub mod svcb;
mod walk;

pub use bitmap::{BitmapTypes, MAX_BITMAP_LEN, bitmap_types};
pub use composite::{LOC_LEN, LocSize, MAX_LOC_ALTITUDE_CM};
pub use display::{CharacterString, Presentation, Timestamp, display};
pub use names::{NameSpan, Names, canonical, names};
pub use walk::check;

/// How a name in RDATA may be changed without changing what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// May be compressed (RFC 3597 section 4: the types of RFC 1035), lower case in canonical form.
    Compressible,
    /// Never compressed, lower case in canonical form (RFC 4034 section 6.2, RFC 6840 section 5.1).
    Folded,
    /// Never compressed, its case kept in canonical form.
    Verbatim,
}

/// One field of RDATA: its octets on the wire and its presentation form.
///
/// A field that says "to the end" is the last of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// An uncompressed name.
    Name(NameRule),
    /// One octet, a decimal number.
    U8,
    /// Two octets, a decimal number.
    U16,
    /// Four octets, a decimal number.
    U32,
    /// Eight octets, a decimal number (IPN).
    U64,
    /// Four octets, seconds as a number or with units (`1h30m`).
    Period,
    /// Four octets, seconds since 1970 as `YYYYMMDDHHmmSS` or a number (RFC 4034 section 3.2).
    Timestamp,
    /// Two octets, a type's mnemonic.
    RecordType,
    /// One octet, a DNSSEC algorithm's number or mnemonic (RFC 4034 appendix A.1).
    Algorithm,
    /// Two octets, a certificate type's number or mnemonic (RFC 4398 section 2.1).
    CertType,
    /// One octet, a DSYNC scheme's number or mnemonic (RFC 9859 section 2.1).
    DsyncScheme,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A length octet and that many octets of text (RFC 1035 section 3.3).
    String,
    /// A character string that may be left out.
    OptionalString,
    /// One or more character strings, to the end.
    Strings,
    /// A character string of letters and digits only (the tag of CAA, RFC 8659 section 4.1).
    Tag,
    /// Octets to the end, written as one quoted string without a limit of 255.
    Text,
    /// One or more octets to the end, in hexadecimal digits that white space may part.
    Hex,
    /// One or more octets to the end, in base64 that white space may part.
    Base64,
    /// Octets to the end in base64, or nothing.
    OptionalBase64,
    /// Octets to the end in base64, or `-` for nothing (DOA).
    Base64OrDash,
    /// A length octet and that many octets, in hexadecimal digits or `-` for none (RFC 5155 section 3.3).
    Salt,
    /// A length octet and that many octets, in base32hex without padding (RFC 5155 section 3.3).
    NextHash,
    /// A set of types in windows, to the end (RFC 4034 section 4.1.2).
    TypeBitmap,
    /// A set of types up to 127, to the end (RFC 2535 section 5.2).
    NxtBitmap,
    /// Service parameters, to the end (RFC 9460 section 2.2).
    SvcParams,
    /// Address prefixes, to the end (RFC 3123 section 4).
    Apl,
    /// A position on Earth (RFC 1876 section 2).
    Loc,
    /// Precedence, gateway type, algorithm, gateway (RFC 4025 section 2.1).
    IpsecGateway,
    /// Precedence, discovery flag, relay type, relay (RFC 8777 section 4.2).
    AmtRelay,
    /// Host identity tag, key and rendezvous servers, to the end (RFC 8005 section 5).
    Hip,
    /// Eight octets as four groups of hexadecimal digits with colons (RFC 6742 section 2.1.2).
    Locator64,
    /// Six octets in hexadecimal with hyphens (RFC 7043 section 3.2).
    Eui48,
    /// Eight octets in hexadecimal with hyphens (RFC 7043 section 4.2).
    Eui64,
    /// Octets to the end as `0x` and hexadecimal digits with dots anywhere (RFC 1706 section 5).
    Nsap,
    /// A format octet and an ATM address to the end (ATM Forum af-dans-0152 section 2.3).
    Atma,
    /// Any octets to the end, without a presentation form of their own (NULL, RFC 1035 section 3.3.10).
    Opaque,
}

const ANY_NAME: &[Field] = &[Field::Name(NameRule::Compressible)];
const STRINGS: &[Field] = &[Field::Strings];
const DIGEST: &[Field] = &[Field::U16, Field::Algorithm, Field::U8, Field::Hex];
const KEY: &[Field] = &[Field::U16, Field::U8, Field::Algorithm, Field::Base64];

/// The fields of a type's RDATA in order; [`Field::Opaque`] alone where the type has no row.
#[rustfmt::skip]
pub fn fields(rtype: Rtype) -> &'static [Field] {
    use Field::*;
    use NameRule::{Compressible, Folded, Verbatim};
    match rtype {
        Rtype::A => &[Ipv4],
        Rtype::AAAA => &[Ipv6],
        Rtype::NS | Rtype::MD | Rtype::MF | Rtype::CNAME | Rtype::MB | Rtype::MG | Rtype::MR | Rtype::PTR => ANY_NAME,
        Rtype::SOA => &[Name(Compressible), Name(Compressible), U32, Period, Period, Period, Period],
        Rtype::HINFO => &[String, String],
        Rtype::MINFO => &[Name(Compressible), Name(Compressible)],
        Rtype::MX => &[U16, Name(Compressible)],
        Rtype::TXT | Rtype::SPF | Rtype::AVC | Rtype::NINFO | Rtype::RESINFO | Rtype::WALLET | Rtype::CLA => STRINGS,
        Rtype::RP => &[Name(Folded), Name(Folded)],
        Rtype::AFSDB | Rtype::RT | Rtype::KX => &[U16, Name(Folded)],
        Rtype::X25 => &[String],
        Rtype::ISDN => &[String, OptionalString],
        Rtype::NSAP => &[Nsap],
        Rtype::NSAP_PTR => &[Name(Verbatim)],
        Rtype::SIG | Rtype::RRSIG => {
            &[RecordType, Algorithm, U8, U32, Timestamp, Timestamp, U16, Name(Folded), Base64]
        }
        Rtype::KEY => &[U16, U8, Algorithm, OptionalBase64],
        Rtype::PX => &[U16, Name(Folded), Name(Folded)],
        Rtype::GPOS => &[String, String, String],
        Rtype::LOC => &[Loc],
        Rtype::NXT => &[Name(Folded), NxtBitmap],
        Rtype::EID | Rtype::NIMLOC => &[Hex],
        Rtype::SRV => &[U16, U16, U16, Name(Folded)],
        Rtype::ATMA => &[Atma],
        Rtype::NAPTR => &[U16, U16, String, String, String, Name(Folded)],
        Rtype::CERT => &[CertType, U16, Algorithm, Base64],
        Rtype::DNAME => &[Name(Folded)],
        Rtype::APL => &[Apl],
        Rtype::DS | Rtype::CDS | Rtype::TA | Rtype::DLV => DIGEST,
        Rtype::SSHFP => &[U8, U8, Hex],
        Rtype::IPSECKEY => &[IpsecGateway, OptionalBase64],
        Rtype::NSEC => &[Name(Verbatim), TypeBitmap],
        Rtype::DNSKEY | Rtype::CDNSKEY | Rtype::RKEY => KEY,
        Rtype::DHCID | Rtype::OPENPGPKEY | Rtype::HHIT | Rtype::BRID => &[Base64],
        Rtype::NSEC3 => &[U8, U8, U16, Salt, NextHash, TypeBitmap],
        Rtype::NSEC3PARAM => &[U8, U8, U16, Salt],
        Rtype::TLSA | Rtype::SMIMEA => &[U8, U8, U8, Hex],
        Rtype::HIP => &[Hip],
        Rtype::TALINK => &[Name(Verbatim), Name(Verbatim)],
        Rtype::CSYNC => &[U32, U16, TypeBitmap],
        Rtype::ZONEMD => &[U32, U8, U8, Hex],
        Rtype::SVCB | Rtype::HTTPS => &[U16, Name(Verbatim), SvcParams],
        Rtype::DSYNC => &[RecordType, DsyncScheme, U16, Name(Verbatim)],
        Rtype::NID | Rtype::L64 => &[U16, Locator64],
        Rtype::L32 => &[U16, Ipv4],
        Rtype::LP => &[U16, Name(Verbatim)],
        Rtype::EUI48 => &[Eui48],
        Rtype::EUI64 => &[Eui64],
        Rtype::URI => &[U16, U16, Text],
        Rtype::CAA => &[U8, Tag, Text],
        Rtype::DOA => &[U32, U32, U8, String, Base64OrDash],
        Rtype::AMTRELAY => &[AmtRelay],
        Rtype::IPN => &[U64],
        _ => &[Opaque],
    }
}

/// Why octets are not the RDATA of their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdataError {
    /// The RDATA ends within a field or before one.
    TooShort,
    /// Octets follow the last field.
    TrailingOctets,
    /// A name is malformed.
    Name(NameError),
    /// A field that must hold something is empty.
    Empty,
    /// A tag holds other octets than letters and digits.
    BadTag,
    /// Windows out of order, empty, over 32 octets, or with a zero octet at their end.
    BadBitmap,
    /// Service parameters break a rule of RFC 9460.
    SvcParams(svcb::SvcbError),
    /// An address prefix has an unknown family, too many bits or a zero octet at its end.
    BadAddressPrefix,
    /// The version, a size or a coordinate is out of range.
    BadLocation,
    /// The gateway or relay type is not one of none, IPv4, IPv6 and name.
    BadGateway,
    /// A digest has not the length that its algorithm gives.
    BadDigestLength,
    /// An ATM address is not of a known format or has a length that the format forbids.
    BadAtmAddress,
}

impl fmt::Display for RdataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RdataError::TooShort => "the data ends too early for its type",
            RdataError::TrailingOctets => "octets follow the last field of the type",
            RdataError::Name(error) => return error.fmt(f),
            RdataError::Empty => "a field that must hold something is empty",
            RdataError::BadTag => "a tag holds letters and digits only",
            RdataError::BadBitmap => "the set of types is malformed",
            RdataError::SvcParams(error) => return error.fmt(f),
            RdataError::BadAddressPrefix => "an address prefix is malformed",
            RdataError::BadLocation => "the location is out of range",
            RdataError::BadGateway => "the gateway type is not 0, 1, 2 or 3",
            RdataError::BadDigestLength => "the digest has not the length of its algorithm",
            RdataError::BadAtmAddress => "the ATM address is malformed",
        })
    }
}

impl std::error::Error for RdataError {}

impl From<NameError> for RdataError {
    fn from(error: NameError) -> Self {
        RdataError::Name(error)
    }
}

impl From<svcb::SvcbError> for RdataError {
    fn from(error: svcb::SvcbError) -> Self {
        RdataError::SvcParams(error)
    }
}
