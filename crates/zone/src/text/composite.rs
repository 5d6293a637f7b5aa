//! Fields of rare types whose parts depend on each other.

use super::fields::FieldReader;
use super::number::{decimal, ipv4, ipv6};
use super::scanner::{Stop, Token};
use weir_wire::rdata::encoding::{Base64Decoder, HexDecoder, hex_digit};

/// Precedence, gateway type, algorithm, gateway (RFC 4025 section 3.1).
pub(super) fn ipsec_gateway<'t>(
    reader: &mut FieldReader<'_, 't>,
    token: Option<Token<'t>>,
) -> Result<(), Stop> {
    reader.push_number::<1>(token)?;
    let gateway_type = next_number(reader, u64::from(u8::MAX))?;
    reader.push_low_octets::<1>(gateway_type);
    let algorithm = reader.scanner.token()?;
    reader.push_number::<1>(algorithm)?;
    gateway(reader, gateway_type)
}

/// Precedence, discovery flag, relay type, relay (RFC 8777 section 4.3.1).
pub(super) fn amt_relay<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    reader.push_number::<1>(token)?;
    let discovery = next_number(reader, 1)?;
    let relay_type = next_number(reader, 127)?;
    reader.push_low_octets::<1>(discovery << 7 | relay_type);
    gateway(reader, relay_type)
}

fn next_number(reader: &mut FieldReader<'_, '_>, max: u64) -> Result<u64, Stop> {
    let token = reader.scanner.token()?;
    reader.number(token, max)
}

fn gateway(reader: &mut FieldReader<'_, '_>, gateway_type: u64) -> Result<(), Stop> {
    let token = reader.scanner.token()?;
    match gateway_type {
        0 => reader.parsed(token, |text| (text == b".").then_some(()), "a dot for no gateway"),
        1 => {
            let address = reader.parsed(token, ipv4, "an IPv4 address")?;
            reader.out.extend_from_slice(&address);
            Ok(())
        }
        2 => {
            let address = reader.parsed(token, ipv6, "an IPv6 address")?;
            reader.out.extend_from_slice(&address);
            Ok(())
        }
        3 => reader.name(token),
        _ => Err(reader.scanner.wrong("rdata", "the gateway type is not 0, 1, 2 or 3")),
    }
}

/// Algorithm, host identity tag, public key, rendezvous servers (RFC 8005 section 6).
pub(super) fn hip<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    let algorithm = reader.number(token, u64::from(u8::MAX))?;
    let head_at = reader.out.len();
    reader.out.extend_from_slice(&[0; 4]);
    let token = reader.scanner.token()?;
    let tag = reader.required(token, "a host identity tag in hexadecimal")?;
    let mut decoder = HexDecoder::default();
    let decoded = decoder.push(tag.text, reader.out).and_then(|()| decoder.finish());
    decoded.map_err(|_| reader.expected("a host identity tag in hexadecimal", tag))?;
    let tag_len = reader.out.len() - head_at - 4;
    let token = reader.scanner.token()?;
    let key = reader.required(token, "a public key in base64")?;
    let mut decoder = Base64Decoder::default();
    let decoded = decoder.push(key.text, reader.out).and_then(|()| decoder.finish());
    decoded.map_err(|_| reader.expected("a public key in base64 without white space", key))?;
    let key_len = reader.out.len() - head_at - 4 - tag_len;
    let (Ok(tag_len), Ok(key_len)) = (u8::try_from(tag_len), u16::try_from(key_len)) else {
        return Err(reader.scanner.wrong("rdata", "the tag or the key is too long"));
    };
    let [k0, k1] = key_len.to_be_bytes();
    let algorithm = u8::try_from(algorithm).unwrap_or(0);
    if let Some(head) = reader.out.get_mut(head_at..head_at + 4) {
        head.copy_from_slice(&[tag_len, algorithm, k0, k1]);
    }
    while let Some(server) = reader.scanner.token()? {
        reader.name(Some(server))?;
    }
    Ok(())
}

/// `[!]FAMILY:ADDRESS/PREFIX` items to the end of the entry (RFC 3123 section 5).
pub(super) fn apl<'t>(reader: &mut FieldReader<'_, 't>, first: Option<Token<'t>>) -> Result<(), Stop> {
    let mut next = first;
    while let Some(token) = next {
        let item = reader.parsed(
            Some(token),
            address_prefix,
            "a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32",
        )?;
        reader.out.extend_from_slice(&item.head);
        reader.out.extend_from_slice(item.address.get(..item.n_octets).unwrap_or(&[]));
        next = reader.scanner.token()?;
    }
    Ok(())
}

struct AddressPrefix {
    head: [u8; 4],
    address: [u8; 16],
    n_octets: usize,
}

fn address_prefix(text: &[u8]) -> Option<AddressPrefix> {
    let (negated, text) = text.strip_prefix(b"!").map_or((0, text), |text| (0x80, text));
    let text = std::str::from_utf8(text).ok()?;
    let (family, text) = text.split_once(':')?;
    let (address_text, prefix_len) = text.rsplit_once('/')?;
    let mut address = [0; 16];
    let (family, max_bits) = match family {
        "1" => {
            address.first_chunk_mut::<4>()?.copy_from_slice(&ipv4(address_text.as_bytes())?);
            (1, 32)
        }
        "2" => {
            address = ipv6(address_text.as_bytes())?;
            (2, 128)
        }
        _ => return None,
    };
    let prefix_len = u8::try_from(decimal(prefix_len.as_bytes())?).ok().filter(|len| *len <= max_bits)?;
    // Trailing zero octets are left out (RFC 3123 section 4).
    let n_octets = address.iter().rposition(|&octet| octet != 0).map_or(0, |last| last + 1);
    let head = [0, family, prefix_len, negated | u8::try_from(n_octets).ok()?];
    Some(AddressPrefix { head, address, n_octets })
}

/// Four groups of one to four hexadecimal digits (RFC 6742 section 2.1.2).
pub(super) fn locator64<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    let value = reader.parsed(token, locator64_value, "four groups of hexadecimal digits with colons")?;
    reader.push_low_octets::<8>(value);
    Ok(())
}

fn locator64_value(text: &[u8]) -> Option<u64> {
    let mut value = 0;
    let mut n_groups = 0;
    for group in text.split(|&octet| octet == b':') {
        if !(1..=4).contains(&group.len()) {
            return None;
        }
        let group =
            group.iter().try_fold(0u64, |group, &digit| Some(group << 4 | u64::from(hex_digit(digit)?)))?;
        value = value << 16 | group;
        n_groups += 1;
    }
    (n_groups == 4).then_some(value)
}

/// `n_octets` octets in hexadecimal with hyphens (RFC 7043 sections 3.2 and 4.2).
pub(super) fn eui<'t>(
    reader: &mut FieldReader<'_, 't>,
    token: Option<Token<'t>>,
    n_octets: usize,
) -> Result<(), Stop> {
    let start = reader.out.len();
    let token = reader.required(token, "hexadecimal octets with hyphens")?;
    let groups_fit = token.text.split(|&octet| octet == b'-').all(|group| group.len() == 2);
    let mut decoder = HexDecoder::default();
    let decoded =
        token.text.split(|&octet| octet == b'-').try_for_each(|group| decoder.push(group, reader.out));
    if !groups_fit || decoded.is_err() || reader.out.len() - start != n_octets {
        return Err(reader.expected(&format!("{n_octets} hexadecimal octets with hyphens"), token));
    }
    Ok(())
}

/// `0x` and hexadecimal digits with dots anywhere (RFC 1706 section 5).
pub(super) fn nsap<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    let token = reader.required(token, "0x and hexadecimal digits")?;
    let digits = token.text.strip_prefix(b"0x").or_else(|| token.text.strip_prefix(b"0X"));
    if digits.and_then(|digits| dotted_hex(digits, reader.out)).is_none() {
        return Err(reader.expected("0x and pairs of hexadecimal digits", token));
    }
    Ok(())
}

/// An E.164 number as `+DIGITS`, or an NSAP address of 20 octets in hexadecimal with dots anywhere.
pub(super) fn atma<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    let token = reader.required(token, "an ATM address")?;
    if let Some(number) = token.text.strip_prefix(b"+") {
        reader.out.push(1);
        reader.out.extend(number.iter().filter(|octet| **octet != b'.'));
        return Ok(());
    }
    reader.out.push(0);
    match dotted_hex(token.text, reader.out) {
        Some(()) => Ok(()),
        None => Err(reader.expected("an ATM address: +DIGITS or hexadecimal digits", token)),
    }
}

fn dotted_hex(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut decoder = HexDecoder::default();
    text.split(|&octet| octet == b'.').try_for_each(|digits| decoder.push(digits, out)).ok()?;
    decoder.finish().ok()
}
