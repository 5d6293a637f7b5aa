//! Lines of the commands that serve nothing, on standard output and standard error.
//!
//! A reader that is gone is no failure of the command (`weir checkzone ... | grep -q OK`); a full disk is.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write as _, stderr, stdout};

use crate::failure::Failure;

/// Writes a line to standard output.
///
/// # Errors
/// It cannot be written, for another reason than that nobody reads.
pub(crate) fn out(line: impl fmt::Display) -> Result<(), Failure> {
    out_text(&format!("{}\n", escape_controls(&line.to_string())))
}

/// Writes text of several lines, with their ends, to standard output as it is.
///
/// # Errors
/// As [`out`].
pub(crate) fn out_text(text: &str) -> Result<(), Failure> {
    let mut output = stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error, if that is possible.
pub(crate) fn err(line: impl fmt::Display) {
    let line = format!("{}\n", escape_controls(&line.to_string()));
    // There is nobody left to tell.
    let _: io::Result<()> = stderr().write_all(line.as_bytes());
}

/// A number and what it counts, which `s` makes several of: `1 zone`, `2 zones`.
pub(crate) fn count<N: Copy + fmt::Display + PartialEq + From<u8>>(n: N, thing: &str) -> String {
    let plural = if n == N::from(1) { "" } else { "s" };
    format!("{n} {thing}{plural}")
}

/// `text` with its control characters written out: a file's name may hold line ends, and what drives a terminal.
pub(crate) fn escape_controls(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if character.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\x{:02x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_in_the_singular() {
        assert_eq!([0u8, 1, 2].map(|n| count(n, "zone")), ["0 zones", "1 zone", "2 zones"]);
    }

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(escape_controls("zön.zone"), "zön.zone");
        assert_eq!(escape_controls("a\nb\r\x1b[2J\x7f\u{9b}"), "a\\x0ab\\x0d\\x1b[2J\\x7f\\x9b");
    }
}
