//! The line that a finding is about, with what is wrong underlined.

use std::io::{BufRead, BufReader, Read};

use weir_zone::diagnostic::Diagnostic;
use weir_zone::files::open_without_waiting;

/// Octets of a line that are looked at: columns behind them are not shown.
const MAX_LINE_LEN: u64 = 64 << 10;
/// Characters in front of the place and behind it that are shown at most.
const N_CONTEXT: usize = 60;

/// Two lines to show below a finding; `None` when it has no line, or the line is not there any more.
pub(super) fn of(finding: &Diagnostic) -> Option<String> {
    let line = usize::try_from(finding.line).ok().filter(|line| *line > 0)?;
    let meta = std::fs::metadata(&finding.file).ok().filter(std::fs::Metadata::is_file)?;
    let mut reader = BufReader::new(open_without_waiting(&finding.file).ok()?.take(meta.len()));
    for _ in 1..line {
        reader.skip_until(b'\n').ok().filter(|n_octets| *n_octets > 0)?;
    }
    let mut octets = Vec::new();
    reader.take(MAX_LINE_LEN).read_until(b'\n', &mut octets).ok()?;
    let column = usize::try_from(finding.column).ok()?;
    underlined(&octets, column)
}

/// The part of a line around a column (from 1, in octets; 0 is the whole line), and a line that marks the token there.
fn underlined(line: &[u8], column: usize) -> Option<String> {
    let line = line.trim_ascii_end();
    let start = column.saturating_sub(1);
    let (before, rest) = line.split_at_checked(start)?;
    let token_len = match rest.first()? {
        _ if column == 0 => rest.len(),
        b'"' => rest.iter().skip(1).position(|&octet| octet == b'"').map_or(rest.len(), |at| at + 2),
        _ => rest.iter().position(|octet| b" \t;()\r".contains(octet)).unwrap_or(rest.len()).max(1),
    };
    let (token, after) = rest.split_at_checked(token_len)?;
    let (before, token, after) = (shown(before), shown(token), shown(after));
    let before: String = before.chars().skip(before.chars().count().saturating_sub(N_CONTEXT)).collect();
    let token: String = token.chars().take(N_CONTEXT).collect();
    let after: String = after.chars().take(N_CONTEXT).collect();
    let indent = before.chars().count();
    let marks = "~".repeat(token.chars().count().saturating_sub(1));
    Some(format!("    {before}{token}{after}\n    {}^{marks}", " ".repeat(indent)))
}

/// Text that a terminal shows as it is, a character for each: no control characters.
fn shown(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_at_the_column_is_underlined() {
        let line = b"www\tA 192.0.2.256 ; wrong\n";
        let expected = "    www A 192.0.2.256 ; wrong\n          ^~~~~~~~~~~";
        assert_eq!(underlined(line, 7).as_deref(), Some(expected));
        assert_eq!(
            underlined(line, 0).as_deref(),
            Some("    www A 192.0.2.256 ; wrong\n    ^~~~~~~~~~~~~~~~~~~~~~~~~")
        );
        assert_eq!(underlined(line, 70), None);
    }

    #[test]
    fn long_lines_are_cut_and_control_characters_are_not_sent_to_the_terminal() {
        let line = [&[b'x'; 500][..], b" bad\x1b[31m ", &[b'y'; 500]].concat();
        let shown = underlined(&line, 502).unwrap();
        assert!(shown.lines().all(|line| line.chars().count() <= 4 + 3 * N_CONTEXT), "{shown}");
        assert!(!shown.contains('\x1b') && shown.ends_with("^~~~~~~~"), "{shown}");
    }
}
