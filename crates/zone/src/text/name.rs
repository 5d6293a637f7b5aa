//! Names from presentation form straight to the end of a buffer.

use weir_wire::name::{MAX_LABEL_LEN, MAX_NAME_LEN, Name, NameBuf, NameTextError};

use super::masks::Masks;
use super::scanner::{Form, Scanner, Token};

/// Appends the name that `token` writes to `out`, completed by `origin` where it is relative.
///
/// `token` is the one that `scanner` scanned last.
#[inline]
pub(super) fn push_name(
    token: Token<'_>,
    scanner: &Scanner<'_>,
    origin: Name<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NameTextError> {
    match token.text {
        b"@" => out.extend_from_slice(origin.octets()),
        b"." => out.push(0),
        [] => return Err(NameTextError::Empty),
        text if token.form == Form::Plain => {
            let (masks, text_at) = scanner.token_masks();
            return push_plain(text, masks, text_at, origin, out);
        }
        text => {
            let name = NameBuf::from_text(text, Some(origin))?;
            out.extend_from_slice(name.name().octets());
        }
    }
    Ok(())
}

/// Text and wire form have the same length but for one octet: each dot stands where the next label's length goes.
#[inline]
fn push_plain(
    text: &[u8],
    masks: &Masks,
    text_at: usize,
    origin: Name<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NameTextError> {
    let start = out.len();
    out.push(0);
    out.extend_from_slice(text);
    let wire = out.get_mut(start..).unwrap_or(&mut []);
    let mut label_at = 0;
    let mut dot = masks.next_dot(text_at);
    while dot < text_at + text.len() {
        let at = dot - text_at + 1;
        end_label(wire, label_at, at)?;
        label_at = at;
        dot = masks.next_dot(dot + 1);
    }
    if label_at == text.len() {
        // The last dot becomes the root label.
        if let Some(root) = wire.last_mut() {
            *root = 0;
        }
    } else {
        end_label(wire, label_at, text.len() + 1)?;
        out.extend_from_slice(origin.octets());
    }
    if out.len() - start > MAX_NAME_LEN { Err(NameTextError::NameTooLong) } else { Ok(()) }
}

/// Writes the length of the label between `label_at` and `end` in front of it.
#[inline]
fn end_label(wire: &mut [u8], label_at: usize, end: usize) -> Result<(), NameTextError> {
    let label_len = end - label_at - 1;
    if label_len == 0 {
        return Err(NameTextError::EmptyLabel);
    }
    if label_len > MAX_LABEL_LEN {
        return Err(NameTextError::LabelTooLong);
    }
    if let (Some(length_octet), Ok(label_len)) = (wire.get_mut(label_at), u8::try_from(label_len)) {
        *length_octet = label_len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_names_read_as_the_slow_reader_reads_them(text in "[a.]{0,6}|([a-z]{0,64}\\.?){0,6}") {
            let origin = NameBuf::from_text(b"example.", None).unwrap();
            let expected = NameBuf::from_text(text.as_bytes(), Some(origin.name()));
            let mut out = b"in front".to_vec();
            let mut masks = Masks::default();
            masks.fill(text.as_bytes());
            let mut scanner = Scanner::new(text.as_bytes(), &masks, true, 1);
            let token = scanner.token().unwrap().unwrap_or(Token { text: b"", form: Form::Plain });
            let read = push_name(token, &scanner, origin.name(), &mut out);
            match expected {
                Ok(name) => {
                    prop_assert_eq!(read, Ok(()));
                    prop_assert_eq!(&out[8..], name.name().octets());
                }
                Err(error) => prop_assert_eq!(read.is_err(), true, "{}", error),
            }
        }
    }
}
