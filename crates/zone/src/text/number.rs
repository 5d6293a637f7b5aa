//! Numbers, times to live with units, and addresses.

use std::net::Ipv6Addr;

/// A decimal number, or `None` when there is another octet than a digit, nothing, or a number past 2^64 - 1.
#[inline]
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for octet in text {
        let digit = octet.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Seconds as a number or as numbers with units: `1w2d3h4m5s`, in either case.
pub(super) fn period(text: &[u8]) -> Option<u64> {
    if let Some(seconds) = decimal(text) {
        return Some(seconds);
    }
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let n_digits = rest.iter().take_while(|octet| octet.is_ascii_digit()).count();
        let (digits, after) = rest.split_at_checked(n_digits)?;
        let (unit, after) = after.split_first()?;
        let seconds = match unit.to_ascii_lowercase() {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(decimal(digits)?.checked_mul(seconds)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

/// Four numbers with dots, without leading zeros.
#[inline]
pub(super) fn ipv4(text: &[u8]) -> Option<[u8; 4]> {
    let mut address = [0u8; 4];
    let mut rest = text;
    for (n, part) in address.iter_mut().enumerate() {
        if n > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let mut value = 0u16;
        let mut n_digits = 0;
        while let Some((digit, after)) = rest.split_first().filter(|(octet, _)| octet.is_ascii_digit()) {
            value = value * 10 + u16::from(digit - b'0');
            n_digits += 1;
            // A zero in front of other digits would be octal to some readers.
            if value > 255 || n_digits > 1 && value < 10 {
                return None;
            }
            rest = after;
        }
        if n_digits == 0 {
            return None;
        }
        *part = u8::try_from(value).ok()?;
    }
    rest.is_empty().then_some(address)
}

/// An IPv6 address in any form of RFC 4291 section 2.2, without a zone.
#[inline]
pub(super) fn ipv6(text: &[u8]) -> Option<[u8; 16]> {
    let address: Ipv6Addr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(address.octets())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    #[test]
    fn periods_add_their_units_up() {
        assert_eq!(period(b"1w2d3h4m5s"), Some(604_800 + 2 * 86_400 + 3 * 3_600 + 4 * 60 + 5));
        assert_eq!(period(b"1H"), Some(3_600));
        assert_eq!(period(b"90"), Some(90));
        for text in ["", "h", "1x", "1h2", "-1", "1hh", "99999999999999999999w"] {
            assert_eq!(period(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn addresses_read_as_the_standard_library_reads_them(text in "[0-9.]{5,16}|([0-9]{1,3}\\.){3}[0-9]{1,3}") {
            let expected = text.parse::<Ipv4Addr>().ok().map(|address| address.octets());
            prop_assert_eq!(ipv4(text.as_bytes()), expected);
        }
    }
}
