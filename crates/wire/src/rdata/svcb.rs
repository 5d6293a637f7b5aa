//! Service parameters of SVCB and HTTPS (RFC 9460): their keys and what each key's value may be.

use std::fmt;

/// A service parameter key (IANA "Service Parameter Keys (SvcParamKeys)").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SvcKey(pub u16);

/// What a key's value looks like, on the wire and in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SvcValue {
    /// A list of keys, ascending (RFC 9460 section 8).
    Keys,
    /// A list of one or more strings of 1 to 255 octets (RFC 9460 section 7.1.1).
    Strings,
    /// A list of any number of such strings (`docpath`).
    MaybeStrings,
    /// No value (RFC 9460 section 7.1.1, RFC 9540 section 4).
    Nothing,
    /// A port (RFC 9460 section 7.2).
    Port,
    /// One or more IPv4 addresses (RFC 9460 section 7.3).
    Ipv4List,
    /// One or more IPv6 addresses (RFC 9460 section 7.3).
    Ipv6List,
    /// Octets in base64 (RFC 9848 section 3).
    Base64,
    /// A URI template in UTF-8 with the variable `dns` (RFC 9461 section 5).
    DohPath,
    /// A list of numbers of two octets, each once (`tls-supported-groups`).
    Numbers,
    /// Any octets (RFC 9460 section 2.1).
    Any,
}

impl SvcKey {
    /// Keys that a client must understand (RFC 9460 section 8).
    pub const MANDATORY: SvcKey = SvcKey(0);
    /// Protocols on offer (RFC 9460 section 7.1).
    pub const ALPN: SvcKey = SvcKey(1);
    /// The default protocol is not on offer (RFC 9460 section 7.1).
    pub const NO_DEFAULT_ALPN: SvcKey = SvcKey(2);

    /// What the key's value looks like.
    pub fn value(self) -> SvcValue {
        match self.0 {
            0 => SvcValue::Keys,
            1 => SvcValue::Strings,
            2 | 8 => SvcValue::Nothing,
            3 => SvcValue::Port,
            4 => SvcValue::Ipv4List,
            5 => SvcValue::Base64,
            6 => SvcValue::Ipv6List,
            7 => SvcValue::DohPath,
            9 => SvcValue::Numbers,
            10 => SvcValue::MaybeStrings,
            _ => SvcValue::Any,
        }
    }

    /// Reads a registered key or `keyNNNNN`; names are in lower case (RFC 9460 section 2.1).
    pub fn from_text(text: &[u8]) -> Option<SvcKey> {
        if let Some(number) =
            (0u16..).zip(KEY_NAMES).find_map(|(n, name)| (name.as_bytes() == text).then_some(n))
        {
            return Some(SvcKey(number));
        }
        let digits = text.strip_prefix(b"key")?;
        let no_leading_zero = digits.len() == 1 || digits.first() != Some(&b'0');
        let number = std::str::from_utf8(digits)
            .ok()
            .filter(|text| text.bytes().all(|octet| octet.is_ascii_digit()))?;
        number.parse().ok().filter(|_| no_leading_zero).map(SvcKey)
    }
}

/// Registered keys, by number from 0.
const KEY_NAMES: [&str; 11] = [
    "mandatory",
    "alpn",
    "no-default-alpn",
    "port",
    "ipv4hint",
    "ech",
    "ipv6hint",
    "dohpath",
    "ohttp",
    "tls-supported-groups",
    "docpath",
];

impl fmt::Display for SvcKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match KEY_NAMES.get(usize::from(self.0)) {
            Some(name) => f.write_str(name),
            None => write!(f, "key{}", self.0),
        }
    }
}

/// Why service parameters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SvcbError {
    /// A parameter ends before its length says.
    TooShort,
    /// Keys are not in strictly ascending order: out of order or given twice (RFC 9460 section 2.2).
    Order,
    /// A value has not the form that its key demands.
    Value(SvcKey),
    /// A mandatory key is not among the parameters (RFC 9460 section 8).
    MandatoryMissing(SvcKey),
    /// `no-default-alpn` without `alpn` (RFC 9460 section 7.1.1).
    AlpnMissing,
    /// Key 65535, which is reserved (RFC 9460 section 14.3.2).
    ReservedKey,
}

impl fmt::Display for SvcbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SvcbError::TooShort => f.write_str("a service parameter ends too early"),
            SvcbError::Order => f.write_str("service parameters are out of order or given twice"),
            SvcbError::Value(key) => write!(f, "the value of {key} has not the form that this key demands"),
            SvcbError::MandatoryMissing(key) => write!(f, "{key} is listed as mandatory and missing"),
            SvcbError::AlpnMissing => f.write_str("no-default-alpn needs alpn beside it"),
            SvcbError::ReservedKey => f.write_str("key65535 is reserved"),
        }
    }
}

/// The parameters of `octets` in order; malformed octets end the iteration.
#[derive(Clone)]
pub struct SvcParams<'a> {
    rest: &'a [u8],
}

/// The parameters that start at `octets` and run to their end.
pub fn params(octets: &[u8]) -> SvcParams<'_> {
    SvcParams { rest: octets }
}

impl<'a> Iterator for SvcParams<'a> {
    type Item = (SvcKey, &'a [u8]);

    fn next(&mut self) -> Option<(SvcKey, &'a [u8])> {
        let [k0, k1, l0, l1, after @ ..] = self.rest else { return None };
        let (value, rest) = after.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])))?;
        self.rest = rest;
        Some((SvcKey(u16::from_be_bytes([*k0, *k1])), value))
    }
}

/// Checks parameters as RFC 9460 demands of a zone; yields their length in octets.
pub fn check(octets: &[u8]) -> Result<usize, SvcbError> {
    let mut last = None;
    let mut all = params(octets);
    let mut n_octets = 0;
    for (key, value) in all.by_ref() {
        if last.is_some_and(|last| last >= key) {
            return Err(SvcbError::Order);
        }
        if key.0 == u16::MAX {
            return Err(SvcbError::ReservedKey);
        }
        if !value_is_right(key, value) {
            return Err(SvcbError::Value(key));
        }
        last = Some(key);
        n_octets += 4 + value.len();
    }
    if n_octets != octets.len() {
        return Err(SvcbError::TooShort);
    }
    check_together(octets)?;
    Ok(n_octets)
}

/// Rules between parameters: mandatory keys are there, no-default-alpn has alpn beside it.
fn check_together(octets: &[u8]) -> Result<(), SvcbError> {
    let has = |wanted: SvcKey| params(octets).any(|(key, _)| key == wanted);
    let mandatory = params(octets).find(|(key, _)| *key == SvcKey::MANDATORY);
    for key in mandatory.iter().flat_map(|(_, value)| numbers(value)).map(SvcKey) {
        if !has(key) {
            return Err(SvcbError::MandatoryMissing(key));
        }
    }
    if has(SvcKey::NO_DEFAULT_ALPN) && !has(SvcKey::ALPN) {
        return Err(SvcbError::AlpnMissing);
    }
    Ok(())
}

/// Numbers of two octets.
pub fn numbers(octets: &[u8]) -> impl Iterator<Item = u16> + Clone {
    octets.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair))
}

/// Strings with a length octet each; malformed octets end the iteration.
pub fn strings(octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let (&len, after) = rest.split_first()?;
        let (string, after) = after.split_at_checked(usize::from(len))?;
        rest = after;
        Some(string)
    })
}

fn value_is_right(key: SvcKey, value: &[u8]) -> bool {
    let filled = |unit: usize| !value.is_empty() && value.len().is_multiple_of(unit);
    match key.value() {
        SvcValue::Keys => filled(2) && ascending(value) && numbers(value).next() != Some(0),
        SvcValue::Strings => !value.is_empty() && are_strings(value),
        SvcValue::MaybeStrings => are_strings(value),
        SvcValue::Nothing => value.is_empty(),
        SvcValue::Port => value.len() == 2,
        SvcValue::Ipv4List => filled(4),
        SvcValue::Ipv6List => filled(16),
        SvcValue::Base64 => !value.is_empty(),
        SvcValue::DohPath => {
            std::str::from_utf8(value).is_ok_and(|path| path.starts_with('/') && names_variable_dns(path))
        }
        SvcValue::Numbers => filled(2) && all_different(value),
        SvcValue::Any => true,
    }
}

fn ascending(value: &[u8]) -> bool {
    numbers(value).zip(numbers(value).skip(1)).all(|(left, right)| left < right)
}

fn all_different(value: &[u8]) -> bool {
    // A list of every group that exists is below a hundred long; a longer one is refused rather than searched.
    value.len() <= 512
        && numbers(value)
            .enumerate()
            .all(|(at, number)| numbers(value).take(at).all(|earlier| earlier != number))
}

fn are_strings(value: &[u8]) -> bool {
    let n_octets: usize = strings(value).map(|string| 1 + string.len()).sum();
    n_octets == value.len() && strings(value).all(|string| !string.is_empty())
}

/// RFC 9461 section 5: the template has the variable `dns` in some expression.
fn names_variable_dns(template: &str) -> bool {
    template
        .split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}'))
        .flat_map(|(expression, _)| {
            expression.trim_start_matches(['?', '&', '+', '#', '.', '/', ';']).split(',')
        })
        .any(|variable| variable == "dns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_and_print_alike() {
        for number in [0u16, 1, 9, 10, 11, 65534] {
            assert_eq!(SvcKey::from_text(SvcKey(number).to_string().as_bytes()), Some(SvcKey(number)));
        }
        assert_eq!(SvcKey::from_text(b"key03"), None);
        assert_eq!(SvcKey::from_text(b"key3"), Some(SvcKey(3)));
        assert_eq!(SvcKey::from_text(b"ALPN"), None);
    }

    #[test]
    fn parameters_that_break_a_rule_of_rfc_9460_are_refused() {
        let alpn = b"\x00\x01\x00\x03\x02h2";
        let port = b"\x00\x03\x00\x02\x00\x35";
        let wrong: [(&[&[u8]], SvcbError); 7] = [
            (&[port, alpn], SvcbError::Order),
            (&[alpn, alpn], SvcbError::Order),
            (&[b"\x00\x02\x00\x00", port], SvcbError::AlpnMissing),
            (&[b"\x00\x00\x00\x02\x00\x04", port], SvcbError::MandatoryMissing(SvcKey(4))),
            (&[b"\x00\x00\x00\x02\x00\x00"], SvcbError::Value(SvcKey(0))),
            (&[b"\x00\x04\x00\x00"], SvcbError::Value(SvcKey(4))),
            (&[b"\x00\x03\x00\x05\x00"], SvcbError::TooShort),
        ];
        for (parts, error) in wrong {
            assert_eq!(check(&parts.concat()), Err(error), "{parts:?}");
        }
        assert_eq!(check(&[&alpn[..], port].concat()), Ok(13));
        assert_eq!(check(b"\x00\x07\x00\x10/dns-query{?dns}"), Ok(20));
        assert!(check(b"\x00\x07\x00\x10/dns-query{?dnx}").is_err());
    }
}
