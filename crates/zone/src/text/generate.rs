//! `$GENERATE START-STOP[/STEP] OWNER [TTL] [CLASS] TYPE DATA`: BIND's directive for runs of records.
//!
//! In owner and data `$` stands for the number at hand, `${OFFSET,WIDTH,BASE}` for that number plus an offset, at
//! least so many digits wide, in base `d`, `o`, `x`, `X` or in nibbles (`n`, `N`); `\$` and `$$` stand for a dollar.

use super::fields::shown;
use super::masks::Masks;
use super::number::decimal;
use super::reader::{Entry, Reader};
use super::scanner::{Form, Scanner, Stop};
use crate::diagnostic::Location;

/// Most digits that a number can be made wide: a label has 63 octets.
const MAX_WIDTH: usize = 63;

/// The numbers of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: i64,
    stop: i64,
    step: i64,
}

impl Reader<'_> {
    /// Makes the records that the directive stands for.
    pub(super) fn generate_directive(&mut self, scanner: &mut Scanner<'_>) -> Result<Entry, Stop> {
        let (line, column) = scanner.place();
        let at = Location { file: self.file, line, column };
        let range = self.range(scanner)?;
        let template = scanner.rest_of_entry()?;
        let (mut text, mut masks) = (Vec::new(), Masks::default());
        self.made_at = Some(at);
        let mut number = range.start;
        while number <= range.stop {
            text.clear();
            if substitute(template, number, &mut text).is_none() {
                let message = format!(
                    "a $ is followed by a brace that is not ${{OFFSET,WIDTH,BASE}} with a base of d, o, x, X, n or N, or the number {number} does not fit"
                );
                self.error(at, "generate", message);
                break;
            }
            masks.fill(&text);
            let mut made = Scanner::new(&text, &masks, true, line);
            if let Err(Stop::Wrong(mut fault)) = self.entry(&mut made) {
                fault.message = format!("{} (in the record made for {number})", fault.message);
                self.report(*fault);
                break;
            }
            if self.findings.is_full() {
                break;
            }
            number += range.step;
        }
        self.made_at = None;
        Ok(Entry::Done)
    }

    fn range(&self, scanner: &mut Scanner<'_>) -> Result<Range, Stop> {
        let Some(token) = scanner.token()? else {
            return Err(scanner.wrong("generate", "$GENERATE needs a range such as 1-100"));
        };
        let Some(range) = range_of(token.text).filter(|_| token.form == Form::Plain) else {
            let message = format!(
                "{} is not a range: write START-STOP or START-STOP/STEP, with START no larger than STOP, and STOP no \
                 larger than {}",
                shown(token),
                i32::MAX
            );
            return Err(scanner.wrong("generate", message));
        };
        let n_records = (range.stop - range.start) / range.step + 1;
        if u64::try_from(n_records).is_ok_and(|n_records| n_records <= self.options.max_generated) {
            return Ok(range);
        }
        let max = self.options.max_generated;
        Err(scanner
            .wrong("generate", format!("{n_records} records are more than the {max} of one $GENERATE")))
    }
}

fn range_of(text: &[u8]) -> Option<Range> {
    let number = |text: &[u8]| decimal(text).and_then(|number| i32::try_from(number).ok()).map(i64::from);
    let (range, step) = match text.iter().position(|&octet| octet == b'/') {
        Some(at) => (text.get(..at)?, number(text.get(at + 1..)?)?),
        None => (text, 1),
    };
    let dash = range.iter().position(|&octet| octet == b'-')?;
    let (start, stop) = (number(range.get(..dash)?)?, number(range.get(dash + 1..)?)?);
    (start <= stop && step > 0).then_some(Range { start, stop, step })
}

/// Appends the template with `number` in the place of each dollar; `None` where a modifier is malformed.
fn substitute(template: &[u8], number: i64, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = template;
    while let Some((&octet, after)) = rest.split_first() {
        rest = after;
        match (octet, after.first()) {
            (b'\\', Some(&escaped)) => {
                out.extend([octet, escaped]);
                rest = after.get(1..)?;
            }
            (b'$', Some(b'$')) => {
                out.push(b'$');
                rest = after.get(1..)?;
            }
            (b'$', Some(b'{')) => {
                let end = after.iter().position(|&octet| octet == b'}')?;
                push_modified(after.get(1..end)?, number, out)?;
                rest = after.get(end + 1..)?;
            }
            (b'$', _) => out.extend_from_slice(number.to_string().as_bytes()),
            _ => out.push(octet),
        }
    }
    Some(())
}

/// `OFFSET[,WIDTH[,BASE]]`.
fn push_modified(modifier: &[u8], number: i64, out: &mut Vec<u8>) -> Option<()> {
    let mut parts = std::str::from_utf8(modifier).ok()?.split(',');
    let offset: i32 = parts.next()?.parse().ok()?;
    let width: usize = parts.next().map_or(Ok(0), str::parse).ok()?;
    let base = parts.next().unwrap_or("d");
    if parts.next().is_some() || width > MAX_WIDTH {
        return None;
    }
    let value = u32::try_from(number + i64::from(offset)).ok()?;
    let text = match base {
        "d" => format!("{value:0width$}"),
        "o" => format!("{value:0width$o}"),
        "x" => format!("{value:0width$x}"),
        "X" => format!("{value:0width$X}"),
        "n" => nibbles(value, width),
        "N" => nibbles(value, width).to_ascii_uppercase(),
        _ => return None,
    };
    out.extend_from_slice(text.as_bytes());
    Some(())
}

/// Hexadecimal digits from the lowest on, with dots between them that count for the width.
fn nibbles(value: u32, width: usize) -> String {
    let mut text = String::new();
    let mut left = value;
    loop {
        text.push(char::from_digit(left & 15, 16).unwrap_or('0'));
        left >>= 4;
        if left == 0 && text.len() >= width {
            return text;
        }
        text.push('.');
        if left == 0 && text.len() >= width {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(template: &str, number: i64) -> Option<String> {
        let mut out = Vec::new();
        substitute(template.as_bytes(), number, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn dollars_become_numbers_with_offset_width_and_base() {
        assert_eq!(made("host$ A 192.0.2.$", 7).unwrap(), "host7 A 192.0.2.7");
        assert_eq!(made("${-5}.${10,4}", 7).unwrap(), "2.0017");
        assert_eq!(made("${0,3,x} ${0,3,X} ${0,3,o}", 250).unwrap(), "0fa 0FA 372");
        assert_eq!(made("${0,0,n}", 0x1a2).unwrap(), "2.a.1");
        assert_eq!(made("${0,7,N}", 0x1a).unwrap(), "A.1.0.0");
        assert_eq!(made(r"a\$b$$c", 1).unwrap(), r"a\$b$c");
    }

    #[test]
    fn malformed_modifiers_are_refused() {
        for template in ["${", "${}", "${1", "${1,2,q}", "${1,2,d,4}", "${0,64}", "${-2}"] {
            assert_eq!(made(template, 1), None, "{template}");
        }
    }

    #[test]
    fn ranges_run_upwards() {
        assert_eq!(range_of(b"1-10"), Some(Range { start: 1, stop: 10, step: 1 }));
        assert_eq!(range_of(b"0-255/16"), Some(Range { start: 0, stop: 255, step: 16 }));
        for text in ["1", "2-1", "1-2/0", "-1-2", "1-2147483648", "1-2/x", "a-b"] {
            assert_eq!(range_of(text.as_bytes()), None, "{text}");
        }
    }
}
