//! Character strings: with and without quotes, `\X` and `\DDD` for special octets (RFC 1035 section 5.1).

use super::fields::FieldReader;
use super::scanner::{Form, Stop, Token};
use memchr::memchr;

/// One string of at most 255 octets behind its length octet.
pub(super) fn string<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    let token = reader.required(token, "a text")?;
    let length_at = reader.out.len();
    reader.out.push(0);
    append(reader, token)?;
    reader.end_string(length_at)
}

/// One string or more, to the end of the entry.
pub(super) fn strings<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    string(reader, token)?;
    while let Some(token) = reader.scanner.token()? {
        string(reader, Some(token))?;
    }
    Ok(())
}

/// One text of any length, without a length octet.
pub(super) fn text<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    let token = reader.required(token, "a text")?;
    append(reader, token)
}

fn append(reader: &mut FieldReader<'_, '_>, token: Token<'_>) -> Result<(), Stop> {
    match unescape(token, reader.out) {
        Some(()) => Ok(()),
        None => Err(reader.scanner.wrong("escape", BAD_ESCAPE)),
    }
}

/// What is wrong with a text that [`unescape`] refuses.
pub(super) const BAD_ESCAPE: &str =
    "a backslash must be followed by a character or by three digits up to 255";

/// Appends the octets that `token` stands for; `None` when an escape is malformed.
pub(super) fn unescape(token: Token<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = token.text;
    if token.form == Form::Plain {
        out.extend_from_slice(rest);
        return Some(());
    }
    while let Some(len) = memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at_checked(len)?;
        out.extend_from_slice(plain);
        let (octet, after) = escaped_octet(escape.get(1..)?)?;
        out.push(octet);
        rest = after;
    }
    out.extend_from_slice(rest);
    Some(())
}

/// The octet that the text after a backslash stands for, and the text after the escape.
fn escaped_octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let (&first, after) = text.split_first()?;
    if !first.is_ascii_digit() {
        return Some((first, after));
    }
    let (digits, after) = text.split_at_checked(3)?;
    let value = digits.iter().try_fold(0u16, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + u16::from(digit - b'0'))
    })?;
    Some((u8::try_from(value).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        unescape(Token { text: text.as_bytes(), form: Form::Quoted }, &mut out).map(|()| out)
    }

    #[test]
    fn escapes_stand_for_octets() {
        assert_eq!(octets(r#"a\"b\\c\;\065\255"#), Some(b"a\"b\\c;A\xff".to_vec()));
        assert_eq!(octets(""), Some(Vec::new()));
        for text in [r"\256", r"\1", r"\12", r"\1a2"] {
            assert_eq!(octets(text), None, "{text}");
        }
    }
}
