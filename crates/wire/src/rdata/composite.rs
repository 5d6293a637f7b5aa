//! Fields whose parts depend on each other: gateways, host identities, address prefixes, places, ATM addresses.

use super::RdataError;
use super::walk::name_len;
use crate::name::Name;

/// Octets of a location (RFC 1876 section 2).
pub const LOC_LEN: usize = 16;
/// The altitude that an altitude field of zero stands for is 100 km below the reference: in centimetres.
pub(super) const LOC_ALTITUDE_BASE_CM: i64 = 10_000_000;
/// The highest altitude that fits the field: 2^32 - 1 cm above 100 km below the reference.
pub const MAX_LOC_ALTITUDE_CM: i64 = u32::MAX as i64 - LOC_ALTITUDE_BASE_CM;
/// Thousandths of a second of arc from the equator to a pole.
const QUARTER_TURN: u32 = 90 * 3_600_000;

/// What stands behind precedence, type and algorithm: nothing, an address or a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gateway<'a> {
    None,
    Ipv4([u8; 4]),
    Ipv6([u8; 16]),
    Name(Name<'a>),
}

impl<'a> Gateway<'a> {
    pub(super) fn parse(gateway_type: u8, octets: &'a [u8]) -> Result<Gateway<'a>, RdataError> {
        Ok(match gateway_type {
            0 => Gateway::None,
            1 => Gateway::Ipv4(*octets.first_chunk().ok_or(RdataError::TooShort)?),
            2 => Gateway::Ipv6(*octets.first_chunk().ok_or(RdataError::TooShort)?),
            3 => Gateway::Name(Name::parse(octets)?.0),
            _ => return Err(RdataError::BadGateway),
        })
    }

    fn len(self) -> usize {
        match self {
            Gateway::None => 0,
            Gateway::Ipv4(_) => 4,
            Gateway::Ipv6(_) => 16,
            Gateway::Name(name) => name.octets().len(),
        }
    }
}

pub(super) fn ipsec_gateway_len(rest: &[u8]) -> Result<usize, RdataError> {
    let [_, gateway_type, _, gateway @ ..] = rest else { return Err(RdataError::TooShort) };
    Ok(3 + Gateway::parse(*gateway_type, gateway)?.len())
}

pub(super) fn amt_relay_len(rest: &[u8]) -> Result<usize, RdataError> {
    let [_, discovery_and_type, relay @ ..] = rest else { return Err(RdataError::TooShort) };
    Ok(2 + Gateway::parse(discovery_and_type & 0x7f, relay)?.len())
}

/// The parts of a HIP record: algorithm, host identity tag, public key, rendezvous servers.
pub(super) struct Hip<'a> {
    pub(super) algorithm: u8,
    pub(super) tag: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) servers: &'a [u8],
}

impl<'a> Hip<'a> {
    pub(super) fn parse(octets: &'a [u8]) -> Result<Hip<'a>, RdataError> {
        let [tag_len, algorithm, k0, k1, rest @ ..] = octets else { return Err(RdataError::TooShort) };
        let key_len = usize::from(u16::from_be_bytes([*k0, *k1]));
        let (tag, rest) = rest.split_at_checked(usize::from(*tag_len)).ok_or(RdataError::TooShort)?;
        let (key, servers) = rest.split_at_checked(key_len).ok_or(RdataError::TooShort)?;
        if tag.is_empty() || key.is_empty() {
            return Err(RdataError::Empty);
        }
        Ok(Hip { algorithm: *algorithm, tag, key, servers })
    }
}

pub(super) fn check_hip(rest: &[u8]) -> Result<usize, RdataError> {
    let mut servers = Hip::parse(rest)?.servers;
    while !servers.is_empty() {
        servers = servers.get(name_len(servers)?..).ok_or(RdataError::TooShort)?;
    }
    Ok(rest.len())
}

/// One item of an address prefix list: family 1 is IPv4, 2 is IPv6 (RFC 3123 section 4).
pub(super) struct AddressPrefix<'a> {
    pub(super) family: u16,
    pub(super) prefix_len: u8,
    pub(super) negated: bool,
    pub(super) address: &'a [u8],
}

impl<'a> AddressPrefix<'a> {
    /// Reads the item at the start of `octets`; yields it and what follows.
    pub(super) fn parse(octets: &'a [u8]) -> Result<(AddressPrefix<'a>, &'a [u8]), RdataError> {
        let [f0, f1, prefix_len, flag_and_len, rest @ ..] = octets else { return Err(RdataError::TooShort) };
        let address_len = usize::from(flag_and_len & 0x7f);
        let (address, rest) = rest.split_at_checked(address_len).ok_or(RdataError::TooShort)?;
        let family = u16::from_be_bytes([*f0, *f1]);
        let (max_octets, max_bits) = match family {
            1 => (4, 32),
            2 => (16, 128),
            _ => return Err(RdataError::BadAddressPrefix),
        };
        // Trailing zero octets of the address are left out.
        if address.len() > max_octets || *prefix_len > max_bits || address.last() == Some(&0) {
            return Err(RdataError::BadAddressPrefix);
        }
        let negated = flag_and_len & 0x80 != 0;
        Ok((AddressPrefix { family, prefix_len: *prefix_len, negated, address }, rest))
    }
}

pub(super) fn check_apl(octets: &[u8]) -> Result<usize, RdataError> {
    let mut rest = octets;
    while !rest.is_empty() {
        rest = AddressPrefix::parse(rest)?.1;
    }
    Ok(octets.len())
}

/// A size or precision in centimetres as LOC packs it: a digit and a power of ten, each in four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocSize(pub u8);

impl LocSize {
    /// The largest packed size not above `centimetres`, or `None` above 90,000 km (RFC 1876 section 2).
    pub fn from_centimetres(centimetres: u64) -> Option<LocSize> {
        let mut mantissa = centimetres;
        let mut exponent = 0u8;
        while mantissa > 9 {
            mantissa /= 10;
            exponent += 1;
        }
        let mantissa = u8::try_from(mantissa).ok()?;
        (exponent <= 9).then_some(LocSize(mantissa << 4 | exponent))
    }

    /// The size in centimetres.
    pub fn centimetres(self) -> u64 {
        u64::from(self.0 >> 4) * 10u64.pow(u32::from(self.0 & 0x0f))
    }

    fn is_valid(self) -> bool {
        self.0 >> 4 <= 9 && self.0 & 0x0f <= 9
    }
}

pub(super) fn check_loc(rest: &[u8]) -> Result<usize, RdataError> {
    let loc = Loc::parse(rest)?;
    let sizes_fit = [loc.size, loc.horizontal, loc.vertical].iter().all(|size| size.is_valid());
    let on_earth =
        loc.latitude.unsigned_abs() <= QUARTER_TURN && loc.longitude.unsigned_abs() <= 2 * QUARTER_TURN;
    if sizes_fit && on_earth { Ok(LOC_LEN) } else { Err(RdataError::BadLocation) }
}

/// The parts of a LOC record; coordinates in thousandths of a second of arc, north and east positive.
pub(super) struct Loc {
    pub(super) size: LocSize,
    pub(super) horizontal: LocSize,
    pub(super) vertical: LocSize,
    pub(super) latitude: i32,
    pub(super) longitude: i32,
    pub(super) altitude_cm: i64,
}

impl Loc {
    pub(super) fn parse(octets: &[u8]) -> Result<Loc, RdataError> {
        let octets: &[u8; LOC_LEN] = octets.first_chunk().ok_or(RdataError::TooShort)?;
        let [version, size, horizontal, vertical, a, b, c, d, e, f, g, h, i, j, k, l] = *octets;
        if version != 0 {
            return Err(RdataError::BadLocation);
        }
        Ok(Loc {
            size: LocSize(size),
            horizontal: LocSize(horizontal),
            vertical: LocSize(vertical),
            latitude: from_origin([a, b, c, d]),
            longitude: from_origin([e, f, g, h]),
            altitude_cm: i64::from(u32::from_be_bytes([i, j, k, l])) - LOC_ALTITUDE_BASE_CM,
        })
    }
}

/// The equator and the prime meridian stand at 2^31.
fn from_origin(octets: [u8; 4]) -> i32 {
    i32::from_be_bytes(octets).wrapping_add(i32::MIN)
}

/// Format 0 is an NSAP address of 20 octets, format 1 an E.164 number in digits.
pub(super) fn check_atma(rest: &[u8]) -> Result<usize, RdataError> {
    let right = match rest {
        [0, address @ ..] => address.len() == 20,
        [1, number @ ..] => !number.is_empty() && number.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if right { Ok(rest.len()) } else { Err(RdataError::BadAtmAddress) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_pack_as_in_rfc_1876() {
        assert_eq!(LocSize::from_centimetres(100), Some(LocSize(0x12)));
        assert_eq!(LocSize::from_centimetres(1_000_000), Some(LocSize(0x16)));
        assert_eq!(LocSize::from_centimetres(0), Some(LocSize(0x00)));
        assert_eq!(LocSize::from_centimetres(9_000_000_000), Some(LocSize(0x99)));
        assert_eq!(LocSize::from_centimetres(10_000_000_000), None);
        assert_eq!(LocSize(0x16).centimetres(), 1_000_000);
    }

    #[test]
    fn gateways_have_the_length_of_their_type() {
        assert_eq!(ipsec_gateway_len(b"\x0a\x00\x02"), Ok(3));
        assert_eq!(ipsec_gateway_len(b"\x0a\x01\x02\xc0\x00\x02\x01key"), Ok(7));
        assert_eq!(ipsec_gateway_len(b"\x0a\x03\x02\x01a\x00key"), Ok(6));
        assert_eq!(ipsec_gateway_len(b"\x0a\x04\x02"), Err(RdataError::BadGateway));
        assert_eq!(amt_relay_len(b"\x0a\x81\xc0\x00\x02\x01"), Ok(6));
    }
}
