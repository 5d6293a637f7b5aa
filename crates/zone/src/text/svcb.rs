//! Service parameters from presentation form (RFC 9460 section 2.1 and appendix A).

use super::fields::FieldReader;
use super::number::{decimal, ipv4, ipv6};
use super::scanner::{Form, Stop, Token};
use super::strings::{BAD_ESCAPE, unescape};
use std::ops::Range;
use weir_wire::rdata::encoding::Base64Decoder;
use weir_wire::rdata::svcb::{SvcKey, SvcValue};

/// A parameter that was read: its value lies in the scratch octets.
pub(super) struct Param {
    key: SvcKey,
    value: Range<usize>,
}

/// Parameters in any order to the end of the entry, written in the order of their keys.
pub(super) fn params<'t>(reader: &mut FieldReader<'_, 't>, first: Option<Token<'t>>) -> Result<(), Stop> {
    reader.scratch.params.clear();
    reader.scratch.octets.clear();
    let mut next = first;
    while let Some(token) = next {
        param(reader, token)?;
        next = reader.scanner.token()?;
    }
    reader.scratch.params.sort_by_key(|param| param.key);
    for Param { key, value } in &reader.scratch.params {
        let value = reader.scratch.octets.get(value.clone()).unwrap_or(&[]);
        let Ok(len) = u16::try_from(value.len()) else {
            return Err(reader
                .scanner
                .wrong("svcb", format!("the value of {key} is longer than 65535 octets")));
        };
        reader.out.extend_from_slice(&key.0.to_be_bytes());
        reader.out.extend_from_slice(&len.to_be_bytes());
        reader.out.extend_from_slice(value);
    }
    Ok(())
}

/// `key`, `key=value`, or `key="value"`, which the scanner sees as `key=` with a quoted token directly behind.
fn param<'t>(reader: &mut FieldReader<'_, 't>, token: Token<'t>) -> Result<(), Stop> {
    let n_key = token.text.iter().position(|&octet| octet == b'=').unwrap_or(token.text.len());
    let key_text = token.text.get(..n_key).unwrap_or(&[]);
    let Some(key) = SvcKey::from_text(key_text).filter(|_| token.form != Form::Quoted) else {
        return Err(reader.expected("a service parameter such as alpn=h2 or key65280=text", token));
    };
    if reader.scratch.params.iter().any(|param| param.key == key) {
        return Err(reader.scanner.wrong("svcb", format!("the parameter {key} is given twice")));
    }
    let value = match token.text.get(n_key + 1..) {
        Some([]) if reader.scanner.is_glued_to_quote() => reader.scanner.token()?,
        Some(text) => Some(Token { text, form: token.form }),
        None => None,
    };
    let mut octets = Vec::new();
    if unescape(value.unwrap_or(Token { text: b"", form: Form::Plain }), &mut octets).is_none() {
        return Err(reader.scanner.wrong("escape", BAD_ESCAPE));
    }
    let start = reader.scratch.octets.len();
    // A key by number takes its value as it stands on the wire (RFC 9460 section 2.1).
    let by_number =
        key_text.strip_prefix(b"key").is_some_and(|digits| digits.first().is_some_and(u8::is_ascii_digit));
    let kind = if by_number { SvcValue::Any } else { key.value() };
    if !push_value(kind, &octets, &mut reader.scratch.octets) {
        return Err(reader.scanner.wrong("svcb", format!("the value of {key} must be {}", form_of(kind))));
    }
    let value = start..reader.scratch.octets.len();
    reader.scratch.params.push(Param { key, value });
    Ok(())
}

fn form_of(kind: SvcValue) -> &'static str {
    match kind {
        SvcValue::Keys => "a list of other keys with commas, each once",
        SvcValue::Strings | SvcValue::MaybeStrings => "a list of texts with commas",
        SvcValue::Nothing => "left out",
        SvcValue::Port => "a port",
        SvcValue::Ipv4List => "a list of IPv4 addresses with commas",
        SvcValue::Ipv6List => "a list of IPv6 addresses with commas",
        SvcValue::Base64 => "base64",
        SvcValue::DohPath => "a path with the variable dns, such as /dns-query{?dns}",
        SvcValue::Numbers => "a list of numbers with commas, each once",
        SvcValue::Any => "octets",
    }
}

/// Appends the wire form of a value; says whether the text was right.
fn push_value(kind: SvcValue, text: &[u8], out: &mut Vec<u8>) -> bool {
    match kind {
        SvcValue::Keys => push_keys(text, out).is_some(),
        SvcValue::Strings => !text.is_empty() && push_strings(text, out).is_some(),
        SvcValue::MaybeStrings => text.is_empty() || push_strings(text, out).is_some(),
        SvcValue::Nothing => text.is_empty(),
        SvcValue::Port => push_u16(text, out).is_some(),
        SvcValue::Ipv4List => items(text).all(|item| ipv4(item).map(|address| out.extend(address)).is_some()),
        SvcValue::Ipv6List => items(text).all(|item| ipv6(item).map(|address| out.extend(address)).is_some()),
        SvcValue::Base64 => {
            let mut decoder = Base64Decoder::default();
            !text.is_empty() && decoder.push(text, out).and_then(|()| decoder.finish()).is_ok()
        }
        SvcValue::Numbers => items(text).all(|item| push_u16(item, out).is_some()),
        SvcValue::DohPath | SvcValue::Any => {
            out.extend_from_slice(text);
            true
        }
    }
}

fn items(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&octet| octet == b',')
}

fn push_u16(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let number = u16::try_from(decimal(text)?).ok()?;
    out.extend_from_slice(&number.to_be_bytes());
    Some(())
}

/// Keys in ascending order (RFC 9460 section 8), whatever the order they are written in.
fn push_keys(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut keys: Vec<SvcKey> = items(text).map(SvcKey::from_text).collect::<Option<_>>()?;
    keys.sort_unstable();
    let n_written = keys.len();
    keys.dedup();
    out.extend(keys.iter().flat_map(|key| key.0.to_be_bytes()));
    (n_written == keys.len()).then_some(())
}

/// A value list: a backslash takes the next octet with it, a comma parts the items (RFC 9460 appendix A.1).
fn push_strings(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = text;
    loop {
        let length_at = out.len();
        out.push(0);
        let mut more = false;
        while let Some((&octet, after)) = rest.split_first() {
            rest = after;
            match octet {
                b',' => {
                    more = true;
                    break;
                }
                b'\\' => {
                    let (&escaped, after) = rest.split_first()?;
                    out.push(escaped);
                    rest = after;
                }
                _ => out.push(octet),
            }
        }
        let len = u8::try_from(out.len() - length_at - 1).ok().filter(|len| *len > 0)?;
        *out.get_mut(length_at)? = len;
        if !more {
            return Some(());
        }
    }
}
