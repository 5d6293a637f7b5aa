//! The length of each field on the wire, and with it the check of RDATA octets.

use super::{Field, RdataError, bitmap, composite, fields, svcb};
use crate::name::Name;
use crate::rtype::Rtype;

/// Checks that `rdata`, whose names are uncompressed, is RDATA of `rtype`.
///
/// RFC 3597 section 5: data of a known type that a zone file gives as octets has to be what the type demands.
/// Any octets are right for a type without a row in the table.
pub fn check(rtype: Rtype, rdata: &[u8]) -> Result<(), RdataError> {
    let mut rest = rdata;
    for &field in fields(rtype) {
        let len = field_len(field, rest)?;
        rest = rest.get(len..).ok_or(RdataError::TooShort)?;
    }
    if !rest.is_empty() {
        return Err(RdataError::TrailingOctets);
    }
    match rtype {
        Rtype::DS | Rtype::CDS | Rtype::TA | Rtype::DLV => check_ds_digest(rdata),
        Rtype::ZONEMD => check_zonemd_digest(rdata),
        _ => Ok(()),
    }
}

/// Octets of `field` at the start of `rest`, which runs to the end of the RDATA; checks what is in them.
pub(super) fn field_len(field: Field, rest: &[u8]) -> Result<usize, RdataError> {
    match field {
        Field::Name(_) => name_len(rest),
        Field::U8 | Field::Algorithm | Field::DsyncScheme => fixed(1, rest),
        Field::U16 | Field::RecordType | Field::CertType => fixed(2, rest),
        Field::U32 | Field::Period | Field::Timestamp | Field::Ipv4 => fixed(4, rest),
        Field::Eui48 => fixed(6, rest),
        Field::U64 | Field::Locator64 | Field::Eui64 => fixed(8, rest),
        Field::Ipv6 => fixed(16, rest),
        Field::String | Field::Salt => string_len(rest),
        Field::OptionalString if rest.is_empty() => Ok(0),
        Field::OptionalString => string_len(rest),
        Field::NextHash => match string_len(rest)? {
            1 => Err(RdataError::Empty),
            len => Ok(len),
        },
        Field::Strings => strings_len(rest),
        Field::Tag => tag_len(rest),
        Field::Hex | Field::Base64 | Field::Nsap if rest.is_empty() => Err(RdataError::Empty),
        Field::Hex | Field::Base64 | Field::Nsap => Ok(rest.len()),
        Field::Text | Field::OptionalBase64 | Field::Base64OrDash | Field::Opaque => Ok(rest.len()),
        Field::TypeBitmap => bitmap::check(rest),
        Field::NxtBitmap => bitmap::check_nxt(rest),
        Field::SvcParams => Ok(svcb::check(rest)?),
        Field::Apl => composite::check_apl(rest),
        Field::Loc => composite::check_loc(rest),
        Field::IpsecGateway => composite::ipsec_gateway_len(rest),
        Field::AmtRelay => composite::amt_relay_len(rest),
        Field::Hip => composite::check_hip(rest),
        Field::Atma => composite::check_atma(rest),
    }
}

fn fixed(len: usize, rest: &[u8]) -> Result<usize, RdataError> {
    if rest.len() < len { Err(RdataError::TooShort) } else { Ok(len) }
}

pub(super) fn name_len(rest: &[u8]) -> Result<usize, RdataError> {
    let (name, _) = Name::parse(rest)?;
    Ok(name.octets().len())
}

fn string_len(rest: &[u8]) -> Result<usize, RdataError> {
    let len = usize::from(*rest.first().ok_or(RdataError::TooShort)?);
    fixed(1 + len, rest)
}

fn strings_len(rest: &[u8]) -> Result<usize, RdataError> {
    let mut at = string_len(rest)?;
    while let Some(after) = rest.get(at..).filter(|after| !after.is_empty()) {
        at += string_len(after)?;
    }
    Ok(at)
}

fn tag_len(rest: &[u8]) -> Result<usize, RdataError> {
    let len = string_len(rest)?;
    let tag = rest.get(1..len).unwrap_or(&[]);
    if tag.is_empty() {
        return Err(RdataError::Empty);
    }
    if tag.iter().all(u8::is_ascii_alphanumeric) { Ok(len) } else { Err(RdataError::BadTag) }
}

/// RFC 4034 section 5.1.4, RFC 4509, RFC 5933, RFC 6605: a digest type fixes the digest's length.
fn check_ds_digest(rdata: &[u8]) -> Result<(), RdataError> {
    let expected = match rdata.get(3) {
        Some(1) => 20,
        Some(2 | 3) => 32,
        Some(4) => 48,
        _ => return Ok(()),
    };
    if rdata.len() == 4 + expected { Ok(()) } else { Err(RdataError::BadDigestLength) }
}

/// RFC 8976 section 2.2.4: at least 12 octets; the known hash algorithms fix the length.
fn check_zonemd_digest(rdata: &[u8]) -> Result<(), RdataError> {
    let digest_len = rdata.len().saturating_sub(6);
    let right = match rdata.get(5) {
        Some(1) => digest_len == 48,
        Some(2) => digest_len == 64,
        _ => digest_len >= 12,
    };
    if right { Ok(()) } else { Err(RdataError::BadDigestLength) }
}
