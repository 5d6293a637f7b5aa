//! RDATA in presentation form.

use super::composite::{AddressPrefix, Gateway, Hip, Loc, LocSize};
use super::encoding::{Base32Hex, Base64, Hex};
use super::svcb::{self, SvcKey, SvcValue};
use super::walk::{check, field_len};
use super::{Field, bitmap, fields};
use crate::name::Name;
use crate::rtype::Rtype;
use std::fmt::{self, Display as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Presentation form of `rdata`, whose names are uncompressed.
///
/// Octets that are not RDATA of the type, and types without a presentation form, are printed in the generic form
/// of RFC 3597 section 5; a zone file reads either back to the same octets.
///
/// ```
/// use weir_wire::rdata::display;
/// use weir_wire::rtype::Rtype;
/// assert_eq!(display(Rtype::MX, b"\x00\x0a\x02mx\x00").to_string(), "10 mx.");
/// assert_eq!(display(Rtype(65280), b"\x00\x0a").to_string(), r"\# 2 000a");
/// ```
pub fn display(rtype: Rtype, rdata: &[u8]) -> Presentation<'_> {
    Presentation { rtype, rdata }
}

/// RDATA that prints itself: what [`display`] yields.
#[derive(Clone, Copy)]
pub struct Presentation<'a> {
    rtype: Rtype,
    rdata: &'a [u8],
}

impl fmt::Display for Presentation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = fields(self.rtype);
        if fields.contains(&Field::Opaque) || check(self.rtype, self.rdata).is_err() {
            return generic(self.rdata, f);
        }
        let mut rest = self.rdata;
        for (n, &field) in fields.iter().enumerate() {
            let Some((octets, after)) =
                field_len(field, rest).ok().and_then(|len| rest.split_at_checked(len))
            else {
                return Err(fmt::Error);
            };
            rest = after;
            if n > 0 && (!octets.is_empty() || prints_when_empty(field)) {
                f.write_str(" ")?;
            }
            print_field(field, octets, f)?;
        }
        Ok(())
    }
}

fn generic(rdata: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "\\# {}", rdata.len())?;
    if rdata.is_empty() { Ok(()) } else { write!(f, " {}", Hex(rdata)) }
}

fn prints_when_empty(field: Field) -> bool {
    matches!(field, Field::Text | Field::Base64OrDash)
}

fn print_field(field: Field, octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match field {
        Field::Name(_) => print_name(octets, f),
        Field::U8 | Field::U16 | Field::U32 | Field::U64 | Field::Period => write!(f, "{}", number(octets)),
        Field::Algorithm | Field::CertType => write!(f, "{}", number(octets)),
        Field::DsyncScheme if octets == [1] => f.write_str("NOTIFY"),
        Field::DsyncScheme => write!(f, "{}", number(octets)),
        Field::Timestamp => Timestamp(u32::try_from(number(octets)).unwrap_or(0)).fmt(f),
        Field::RecordType => Rtype(u16::try_from(number(octets)).unwrap_or(0)).fmt(f),
        Field::Ipv4 | Field::Ipv6 => print_address(octets, f),
        Field::String | Field::OptionalString | Field::Strings => print_strings(octets, f),
        Field::Tag => CharacterString::bare(octets.get(1..).unwrap_or(&[])).fmt(f),
        Field::Text => CharacterString(octets).fmt(f),
        Field::Hex => Hex(octets).fmt(f),
        Field::Base64OrDash if octets.is_empty() => f.write_str("-"),
        Field::Base64 | Field::OptionalBase64 | Field::Base64OrDash => Base64(octets).fmt(f),
        Field::Salt => match octets.get(1..) {
            Some(salt) if !salt.is_empty() => Hex(salt).fmt(f),
            _ => f.write_str("-"),
        },
        Field::NextHash => Base32Hex(octets.get(1..).unwrap_or(&[])).fmt(f),
        Field::TypeBitmap => print_spaced(bitmap::bitmap_types(octets), f),
        Field::NxtBitmap => print_spaced(bitmap::nxt_types(octets), f),
        Field::SvcParams => print_svc_params(octets, f),
        Field::Apl => print_apl(octets, f),
        Field::Loc => Loc::parse(octets).map_err(|_| fmt::Error)?.fmt(f),
        Field::IpsecGateway => print_ipsec_gateway(octets, f),
        Field::AmtRelay => print_amt_relay(octets, f),
        Field::Hip => print_hip(octets, f),
        Field::Locator64 => print_groups(octets, 2, ':', f),
        Field::Eui48 | Field::Eui64 => print_groups(octets, 1, '-', f),
        Field::Nsap => write!(f, "0x{}", Hex(octets)),
        Field::Atma => match octets.split_first() {
            Some((1, number)) => write!(f, "+{}", CharacterString::bare(number)),
            _ => Hex(octets.get(1..).unwrap_or(&[])).fmt(f),
        },
        Field::Opaque => generic(octets, f),
    }
}

/// Up to eight octets as a number.
fn number(octets: &[u8]) -> u64 {
    octets.iter().take(8).fold(0, |number, &octet| number << 8 | u64::from(octet))
}

fn print_name(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    Name::from_octets(octets).map_err(|_| fmt::Error)?.fmt(f)
}

fn print_address(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Ok(address) = <[u8; 4]>::try_from(octets) {
        return Ipv4Addr::from(address).fmt(f);
    }
    Ipv6Addr::from(<[u8; 16]>::try_from(octets).map_err(|_| fmt::Error)?).fmt(f)
}

fn print_spaced(items: impl Iterator<Item = impl fmt::Display>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, item) in items.enumerate() {
        write!(f, "{}{item}", if n == 0 { "" } else { " " })?;
    }
    Ok(())
}

fn print_strings(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    print_spaced(svcb::strings(octets).map(CharacterString), f)
}

fn print_groups(octets: &[u8], width: usize, between: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, group) in octets.chunks(width).enumerate() {
        if n > 0 {
            f.write_char(between)?;
        }
        Hex(group).fmt(f)?;
    }
    Ok(())
}

/// A character string in quotes, with `"` and `\` escaped and octets outside printable ASCII as `\DDD`.
#[derive(Clone, Copy)]
pub struct CharacterString<'a>(pub &'a [u8]);

impl CharacterString<'_> {
    /// The same without quotes, for octets that need none.
    fn bare(octets: &[u8]) -> impl fmt::Display {
        octets.iter().map(|&octet| char::from(octet)).collect::<String>()
    }
}

impl fmt::Display for CharacterString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        self.0.iter().try_for_each(|&octet| print_octet(octet, f))?;
        f.write_char('"')
    }
}

fn print_octet(octet: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match octet {
        b'"' | b'\\' => write!(f, "\\{}", char::from(octet)),
        0x20..=0x7e => f.write_char(char::from(octet)),
        _ => write!(f, "\\{octet:03}"),
    }
}

/// Seconds since 1970 that print as `YYYYMMDDHHmmSS` (RFC 4034 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub u32);

impl Timestamp {
    /// Reads `YYYYMMDDHHmmSS` between 1970 and 2106.
    pub fn from_calendar(text: &[u8]) -> Option<Timestamp> {
        let text = std::str::from_utf8(text).ok()?;
        if text.len() != 14 || !text.bytes().all(|octet| octet.is_ascii_digit()) {
            return None;
        }
        let part = |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse::<i64>().ok());
        let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
        let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
        if !(1..=12).contains(&month) || day < 1 || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let n_days = days_since_1970(year, month, day);
        let is_day_of_month = civil(n_days) == (year, month, day);
        let seconds = n_days * 86_400 + hour * 3_600 + minute * 60 + second;
        u32::try_from(seconds).ok().filter(|_| is_day_of_month).map(Timestamp)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(i64::from(self.0 / 86_400));
        let second = self.0 % 86_400;
        write!(f, "{year:04}{month:02}{day:02}")?;
        write!(f, "{:02}{:02}{:02}", second / 3_600, second / 60 % 60, second % 60)
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; years start in March here, so that the leap day is last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// Year, month and day of a day counted from 1970-01-01.
fn civil(n_days: i64) -> (i64, i64, i64) {
    let n_days = n_days + 719_468;
    let (era, day_of_era) = (n_days.div_euclid(146_097), n_days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

fn print_svc_params(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, (key, value)) in svcb::params(octets).enumerate() {
        write!(f, "{}{key}", if n == 0 { "" } else { " " })?;
        if !value.is_empty() {
            f.write_char('=')?;
            print_svc_value(key, value, f)?;
        }
    }
    Ok(())
}

fn print_svc_value(key: SvcKey, value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match key.value() {
        SvcValue::Keys => print_listed(svcb::numbers(value).map(SvcKey), f),
        SvcValue::Strings | SvcValue::MaybeStrings => print_string_list(value, f),
        SvcValue::Port | SvcValue::Numbers => print_listed(svcb::numbers(value), f),
        SvcValue::Ipv4List => print_listed(value.as_chunks::<4>().0.iter().map(|&a| Ipv4Addr::from(a)), f),
        SvcValue::Ipv6List => print_listed(value.as_chunks::<16>().0.iter().map(|&a| Ipv6Addr::from(a)), f),
        SvcValue::Base64 => Base64(value).fmt(f),
        SvcValue::Nothing | SvcValue::DohPath | SvcValue::Any => CharacterString(value).fmt(f),
    }
}

fn print_listed(items: impl Iterator<Item = impl fmt::Display>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, item) in items.enumerate() {
        write!(f, "{}{item}", if n == 0 { "" } else { "," })?;
    }
    Ok(())
}

/// A value list: its own escapes for commas and backslashes inside of the escapes of a character string
/// (RFC 9460 appendix A.1).
fn print_string_list(value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for (n, string) in svcb::strings(value).enumerate() {
        if n > 0 {
            f.write_char(',')?;
        }
        for &octet in string {
            match octet {
                b',' => f.write_str("\\\\,")?,
                b'\\' => f.write_str("\\\\\\\\")?,
                _ => print_octet(octet, f)?,
            }
        }
    }
    f.write_char('"')
}

fn print_apl(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rest = octets;
    while let Ok((prefix, after)) = AddressPrefix::parse(rest) {
        if rest.len() < octets.len() {
            f.write_char(' ')?;
        }
        write!(f, "{}{}:", if prefix.negated { "!" } else { "" }, prefix.family)?;
        let mut address = [0; 16];
        address.iter_mut().zip(prefix.address).for_each(|(to, from)| *to = *from);
        print_address(address.get(..if prefix.family == 1 { 4 } else { 16 }).unwrap_or(&[]), f)?;
        write!(f, "/{}", prefix.prefix_len)?;
        rest = after;
    }
    Ok(())
}

impl fmt::Display for Gateway<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gateway::None => f.write_str("."),
            Gateway::Ipv4(address) => Ipv4Addr::from(*address).fmt(f),
            Gateway::Ipv6(address) => Ipv6Addr::from(*address).fmt(f),
            Gateway::Name(name) => name.fmt(f),
        }
    }
}

fn print_ipsec_gateway(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [precedence, gateway_type, algorithm, gateway @ ..] = octets else { return Err(fmt::Error) };
    let gateway = Gateway::parse(*gateway_type, gateway).map_err(|_| fmt::Error)?;
    write!(f, "{precedence} {gateway_type} {algorithm} {gateway}")
}

fn print_amt_relay(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [precedence, discovery_and_type, relay @ ..] = octets else { return Err(fmt::Error) };
    let (discovery, relay_type) = (discovery_and_type >> 7, discovery_and_type & 0x7f);
    let relay = Gateway::parse(relay_type, relay).map_err(|_| fmt::Error)?;
    write!(f, "{precedence} {discovery} {relay_type} {relay}")
}

fn print_hip(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let hip = Hip::parse(octets).map_err(|_| fmt::Error)?;
    write!(f, "{} {} {}", hip.algorithm, Hex(hip.tag), Base64(hip.key))?;
    let mut servers = hip.servers;
    while let Ok((name, after)) = Name::parse(servers) {
        write!(f, " {name}")?;
        servers = after;
    }
    Ok(())
}

/// RFC 1876 section 3: degrees, minutes, seconds and hemisphere twice, then metres.
impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_angle(self.latitude, 'N', 'S', f)?;
        print_angle(self.longitude, 'E', 'W', f)?;
        let (sign, altitude) = (if self.altitude_cm < 0 { "-" } else { "" }, self.altitude_cm.unsigned_abs());
        write!(f, "{sign}{}.{:02}m", altitude / 100, altitude % 100)?;
        [self.size, self.horizontal, self.vertical].iter().try_for_each(|size| write!(f, " {size}"))
    }
}

fn print_angle(milliseconds: i32, positive: char, negative: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let hemisphere = if milliseconds < 0 { negative } else { positive };
    let total = milliseconds.unsigned_abs();
    let (degrees, minutes) = (total / 3_600_000, total / 60_000 % 60);
    let (seconds, thousandths) = (total / 1_000 % 60, total % 1_000);
    write!(f, "{degrees} {minutes} {seconds}.{thousandths:03} {hemisphere} ")
}

impl fmt::Display for LocSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let centimetres = self.centimetres();
        write!(f, "{}.{:02}m", centimetres / 100, centimetres % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamps_read_and_print_alike() {
        for text in ["19700101000000", "20040229235959", "20300509183619", "21060207062815"] {
            let timestamp = Timestamp::from_calendar(text.as_bytes()).unwrap();
            assert_eq!(timestamp.to_string(), text);
        }
        assert_eq!(Timestamp::from_calendar(b"20040509183619"), Some(Timestamp(1_084_127_779)));
        for text in ["20030229000000", "20031301000000", "20030100000000", "21060207062816", "2003010100000x"]
        {
            assert_eq!(Timestamp::from_calendar(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn data_that_is_not_of_its_type_prints_in_the_generic_form() {
        assert_eq!(display(Rtype::A, b"\xc0\x00\x02").to_string(), r"\# 3 c00002");
        assert_eq!(display(Rtype::NULL, b"").to_string(), r"\# 0");
        assert_eq!(display(Rtype::A, b"\xc0\x00\x02\x01").to_string(), "192.0.2.1");
    }

    #[test]
    fn commas_and_backslashes_in_protocol_ids_are_escaped_twice() {
        // RFC 9460 appendix D.2: the ids are `f\oo,bar` and `h2`.
        let params = b"\x00\x10\x00\x00\x01\x00\x0c\x08f\\oo,bar\x02h2";
        assert_eq!(display(Rtype::SVCB, params).to_string(), r#"16 . alpn="f\\\\oo\\,bar,h2""#);
    }

    proptest! {
        #[test]
        fn printing_any_octets_of_any_type_ends(rtype in 0u16..270, rdata in proptest::collection::vec(0u8..70, 0..120)) {
            prop_assert!(!display(Rtype(rtype), &rdata).to_string().is_empty() || rdata.is_empty());
        }
    }
}
