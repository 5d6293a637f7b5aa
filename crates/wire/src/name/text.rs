//! Names in presentation form (RFC 1035 section 5.1): dots between labels, `\X` and `\DDD` for special octets.

use super::{Folded, FoldedArc, FoldedBuf, MAX_LABEL_LEN, MAX_NAME_LEN, Name, NameBuf};
use std::fmt;

/// Why text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameTextError {
    /// No text at all.
    Empty,
    /// Two dots in a row, or a dot in front.
    EmptyLabel,
    /// A label of over 63 octets.
    LabelTooLong,
    /// A name of over 255 octets, the origin included.
    NameTooLong,
    /// `\DDD` with fewer than three digits or a number above 255, or a backslash at the end.
    BadEscape,
    /// A relative name where there is no origin to complete it.
    Relative,
}

impl fmt::Display for NameTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameTextError::Empty => "a name is missing",
            NameTextError::EmptyLabel => "the name has an empty label (two dots in a row or a leading dot)",
            NameTextError::LabelTooLong => "a label is longer than 63 octets",
            NameTextError::NameTooLong => "the name is longer than 255 octets",
            NameTextError::BadEscape => {
                "a backslash must be followed by a character or by three digits up to 255"
            }
            NameTextError::Relative => "the name is relative and there is no origin",
        })
    }
}

impl std::error::Error for NameTextError {}

impl NameBuf {
    /// Reads a name from presentation form; one without a trailing dot is completed by `origin`.
    ///
    /// ```
    /// use weir_wire::name::{Name, NameBuf};
    /// let name = NameBuf::from_text(b"a\\.b.example.", None).unwrap();
    /// assert_eq!(name.name().octets(), b"\x03a.b\x07example\x00");
    /// ```
    pub fn from_text(text: &[u8], origin: Option<Name<'_>>) -> Result<NameBuf, NameTextError> {
        match text {
            b"" => return Err(NameTextError::Empty),
            b"." => return Ok(NameBuf::root()),
            b"@" => return origin.map(Name::to_buf).ok_or(NameTextError::Relative),
            _ => {}
        }
        let mut writer =
            LabelWriter { buf: NameBuf { len: 0, octets: [0; MAX_NAME_LEN] }, label_at: 0, at: 1 };
        let mut rest = text;
        let mut absolute = false;
        while let Some((&octet, after)) = rest.split_first() {
            absolute = false;
            rest = match octet {
                b'.' => {
                    writer.end_label()?;
                    absolute = true;
                    after
                }
                b'\\' => {
                    let (value, after) = unescape(after).ok_or(NameTextError::BadEscape)?;
                    writer.push(value)?;
                    after
                }
                _ => {
                    writer.push(octet)?;
                    after
                }
            };
        }
        if absolute {
            return writer.finish(Name::ROOT);
        }
        writer.end_label()?;
        writer.finish(origin.ok_or(NameTextError::Relative)?)
    }
}

impl FoldedBuf {
    /// Reads an absolute name from presentation form, with or without its trailing dot, and folds it.
    pub fn from_text(text: &str) -> Result<FoldedBuf, NameTextError> {
        NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).map(|name| name.name().fold())
    }
}

/// The octet that the text after a backslash stands for, and the text after the escape.
fn unescape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (&first, rest) = text.split_first()?;
    if !first.is_ascii_digit() {
        return Some((first, rest));
    }
    let (digits, rest) = text.split_at_checked(3)?;
    let value = digits.iter().try_fold(0u16, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + u16::from(digit - b'0'))
    })?;
    u8::try_from(value).ok().map(|value| (value, rest))
}

/// Writes labels into a name: the length octet is filled in when the label ends.
struct LabelWriter {
    buf: NameBuf,
    label_at: usize,
    at: usize,
}

impl LabelWriter {
    fn push(&mut self, octet: u8) -> Result<(), NameTextError> {
        if self.at - self.label_at > MAX_LABEL_LEN {
            return Err(NameTextError::LabelTooLong);
        }
        *self.buf.octets.get_mut(self.at).ok_or(NameTextError::NameTooLong)? = octet;
        self.at += 1;
        Ok(())
    }

    fn end_label(&mut self) -> Result<(), NameTextError> {
        let label_len = self.at - self.label_at - 1;
        if label_len == 0 {
            return Err(NameTextError::EmptyLabel);
        }
        let length_octet = self.buf.octets.get_mut(self.label_at).ok_or(NameTextError::NameTooLong)?;
        *length_octet = u8::try_from(label_len).map_err(|_| NameTextError::LabelTooLong)?;
        self.label_at = self.at;
        self.at += 1;
        Ok(())
    }

    fn finish(mut self, suffix: Name<'_>) -> Result<NameBuf, NameTextError> {
        let end = self.label_at + suffix.octets().len();
        let space = self.buf.octets.get_mut(self.label_at..end).ok_or(NameTextError::NameTooLong)?;
        space.copy_from_slice(suffix.octets());
        self.buf.len = u8::try_from(end).map_err(|_| NameTextError::NameTooLong)?;
        Ok(self.buf)
    }
}

/// Presentation form with a trailing dot; octets that are not printable ASCII as `\DDD`.
impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                        write!(f, "\\{}", char::from(octet))
                    }
                    0x21..=0x7e => write!(f, "{}", char::from(octet)),
                    _ => write!(f, "\\{octet:03}"),
                }?;
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

macro_rules! display_as_name {
    ($($of:ty => |$this:ident| $name:expr),+ $(,)?) => {$(
        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $this = self;
                fmt::Display::fmt(&$name, f)
            }
        }

        impl fmt::Debug for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+};
}

display_as_name! {
    Folded<'_> => |this| this.name,
    NameBuf => |this| this.name(),
    FoldedBuf => |this| this.0.name(),
    FoldedArc => |this| this.folded().name(),
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn relative_names_are_completed_by_the_origin() {
        let origin = NameBuf::from_text(b"example.com.", None).unwrap();
        let name = NameBuf::from_text(b"www", Some(origin.name())).unwrap();
        assert_eq!(name.to_string(), "www.example.com.");
        assert_eq!(NameBuf::from_text(b"@", Some(origin.name())).unwrap().to_string(), "example.com.");
        assert_eq!(NameBuf::from_text(b"www", None).err(), Some(NameTextError::Relative));
    }

    #[test]
    fn names_that_break_a_limit_say_which() {
        let error = |text: &str| NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).err();
        assert_eq!(error("a..b."), Some(NameTextError::EmptyLabel));
        assert_eq!(error(".a."), Some(NameTextError::EmptyLabel));
        assert_eq!(error(&"a".repeat(64)), Some(NameTextError::LabelTooLong));
        assert_eq!(error(&"a".repeat(63)), None);
        assert_eq!(error(&"a.".repeat(128)), Some(NameTextError::NameTooLong));
        assert_eq!(error(&"a.".repeat(127)), None);
        assert_eq!(error("a\\25"), Some(NameTextError::BadEscape));
        assert_eq!(error("a\\256"), Some(NameTextError::BadEscape));
        assert_eq!(error("a\\"), Some(NameTextError::BadEscape));
    }

    proptest! {
        #[test]
        fn printing_a_name_and_reading_it_back_gives_the_same_octets(
            labels in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 0..10)
        ) {
            let mut octets = Vec::new();
            for label in &labels {
                octets.push(u8::try_from(label.len()).unwrap());
                octets.extend_from_slice(label);
            }
            octets.push(0);
            let name = Name::from_octets(&octets).unwrap();
            let again = NameBuf::from_text(name.to_string().as_bytes(), None).unwrap();
            prop_assert_eq!(again.name().octets(), name.octets());
        }
    }
}
