//! The query file: lines of `name type`, turned into packets that lack nothing but their id.
//!
//! The format is that of queryperf and dnsperf: one query a line, empty lines and lines that start with `;` or `#` are
//! passed over, and so is what follows a `;` behind the type.

use std::io::{self, BufRead};

use weir_wire::edns::OPT_LEN;
use weir_wire::header::{Flags, HEADER_LEN};
use weir_wire::name::{MAX_NAME_LEN, Name, NameBuf, NameTextError};
use weir_wire::query::{self, QUESTION_TAIL_LEN};
use weir_wire::rtype::Rtype;

/// The longest query that is ever sent.
pub(crate) const MAX_QUERY_OCTETS: usize = HEADER_LEN + MAX_NAME_LEN + QUESTION_TAIL_LEN + OPT_LEN;

/// The longest line that can be a query: a name of 255 octets, each written as `\DDD`, and room for type and comment.
const MAX_LINE_OCTETS: u64 = 4096;

/// Octets of all packets together: their places are 32 bits wide.
const MAX_OCTETS: usize = u32::MAX as usize;

/// What every query says besides its question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// Octets of UDP payload to announce by EDNS; `None` sends no OPT record.
    pub(crate) edns_payload: Option<u16>,
    /// Whether DNSSEC records are asked for; needs an OPT record.
    pub(crate) dnssec_ok: bool,
    /// Whether the RD bit is set.
    pub(crate) recursion_desired: bool,
}

/// Why a query file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line is not a query; the number counts from 1.
    #[error("line {line}: {mistake}")]
    Line { line: usize, mistake: Mistake },
    /// No line is a query.
    #[error("no query in it; a line is a name and a type, such as `www.example.com A`")]
    Empty,
    /// The packets do not fit into 4 GiB.
    #[error("more than 4 GiB of queries; split the file")]
    TooLarge,
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mistake {
    #[error("{0}")]
    Name(#[from] NameTextError),
    #[error("a type must follow the name")]
    NoType,
    #[error("`{0}` is no record type; an unregistered one is written TYPE65280")]
    Type(String),
    #[error("nothing may follow the type")]
    Trailing,
    #[error("longer than {MAX_LINE_OCTETS} octets")]
    TooLong,
}

/// The queries of a file, as packets one after the other.
#[derive(Debug)]
pub(crate) struct Queries {
    octets: Vec<u8>,
    /// Where each packet starts, and where the last one ends.
    starts: Vec<u32>,
    /// Octets of each packet behind its question.
    tail_len: usize,
}

impl Queries {
    /// Reads a file to its end; the first line that is not a query ends it with an error.
    pub(crate) fn read(mut input: impl BufRead, shape: Shape) -> Result<Queries, QueryFileError> {
        let tail_len = if shape.edns_payload.is_some() { OPT_LEN } else { 0 };
        let mut queries = Queries { octets: Vec::new(), starts: vec![0], tail_len };
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let n_octets = io::Read::take(&mut input, MAX_LINE_OCTETS).read_until(b'\n', &mut line)?;
            if n_octets == 0 {
                break;
            }
            let whole = line.ends_with(b"\n") || (n_octets as u64) < MAX_LINE_OCTETS;
            let parsed = if whole { parse_line(&line) } else { Err(Mistake::TooLong) };
            match parsed {
                Ok(None) => {}
                Ok(Some((name, qtype))) => queries.push(name.name(), qtype, shape)?,
                Err(mistake) => return Err(QueryFileError::Line { line: number, mistake }),
            }
        }
        if queries.len() == 0 { Err(QueryFileError::Empty) } else { Ok(queries) }
    }

    /// How many there are: at least one.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).unwrap_or(u32::MAX)
    }

    /// The packet of query `i`, with an id of zero.
    ///
    /// # Panics
    /// When `i` is not below [`Queries::len`].
    #[inline]
    pub(crate) fn packet(&self, i: u32) -> &[u8] {
        let i = i as usize;
        &self.octets[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    /// The question section of query `i`.
    #[inline]
    pub(crate) fn question(&self, i: u32) -> &[u8] {
        let packet = self.packet(i);
        &packet[HEADER_LEN..packet.len() - self.tail_len]
    }

    fn push(&mut self, name: Name<'_>, qtype: Rtype, shape: Shape) -> Result<(), QueryFileError> {
        let mut packet = [0; MAX_QUERY_OCTETS];
        let n_octets =
            query::write(&mut packet, 0, name, qtype, shape.edns_payload).ok_or(QueryFileError::TooLarge)?;
        let packet = &mut packet[..n_octets];
        if shape.recursion_desired {
            packet[2] |= Flags::RD.to_be_bytes()[0];
        }
        if shape.dnssec_ok && shape.edns_payload.is_some() {
            // The flags of the OPT record stand in front of its length of zero (RFC 6891 section 6.1.3); DO is the first.
            packet[n_octets - 4] |= 0x80;
        }
        let end = self.octets.len() + n_octets;
        if end > MAX_OCTETS {
            return Err(QueryFileError::TooLarge);
        }
        self.octets.extend_from_slice(packet);
        self.starts.push(u32::try_from(end).map_err(|_| QueryFileError::TooLarge)?);
        Ok(())
    }
}

/// The name and type of a line; `None` for a line without any.
fn parse_line(line: &[u8]) -> Result<Option<(NameBuf, Rtype)>, Mistake> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b";") || line.starts_with(b"#") {
        return Ok(None);
    }
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or_default();
    let qtype = words.next().filter(|word| !word.starts_with(b";")).ok_or(Mistake::NoType)?;
    if words.next().is_some_and(|word| !word.starts_with(b";")) {
        return Err(Mistake::Trailing);
    }
    let qtype = String::from_utf8_lossy(qtype);
    let rtype = qtype.parse().map_err(|_| Mistake::Type(qtype.into_owned()))?;
    Ok(Some((NameBuf::from_text(name, Some(Name::ROOT))?, rtype)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Queries, QueryFileError> {
        Queries::read(text.as_bytes(), Shape::default())
    }

    fn mistake_in(text: &str) -> (usize, Mistake) {
        match read(text) {
            Err(QueryFileError::Line { line, mistake }) => (line, mistake),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn comments_and_blank_lines_are_passed_over() {
        let queries =
            read("; a comment\n# a directive\n\n  \t\nexample.com A\r\n\twww.example. aaaa ; why\n").unwrap();
        assert_eq!(queries.len(), 2);
        assert_eq!(queries.question(0), b"\x07example\x03com\x00\x00\x01\x00\x01");
        assert_eq!(queries.question(1), b"\x03www\x07example\x00\x00\x1c\x00\x01");
    }

    #[test]
    fn types_are_read_in_any_case_and_by_number() {
        let queries = read("a.example ns\na.example NsEc3\na.example TYPE65280\n. type2").unwrap();
        let types: Vec<&[u8]> =
            (0..4).map(|i| queries.question(i).last_chunk::<4>().unwrap()[..2].as_ref()).collect();
        assert_eq!(types, [[0, 2], [0, 50], [0xff, 0], [0, 2]]);
    }

    #[test]
    fn a_line_that_is_no_query_is_named_by_its_number() {
        assert_eq!(mistake_in("a. A\nb.\n"), (2, Mistake::NoType));
        assert_eq!(mistake_in("b. ; A\n"), (1, Mistake::NoType));
        assert_eq!(mistake_in(";\n\na. WWW\n"), (3, Mistake::Type("WWW".to_owned())));
        assert_eq!(mistake_in("a. A IN\n"), (1, Mistake::Trailing));
        assert_eq!(mistake_in("a..b A\n"), (1, Mistake::Name(NameTextError::EmptyLabel)));
        assert_eq!(mistake_in(&"a".repeat(5000)), (1, Mistake::TooLong));
        assert!(matches!(read("; nothing\n"), Err(QueryFileError::Empty)));
    }

    #[test]
    fn packets_carry_what_is_asked_for_besides_the_question() {
        let shape = Shape { edns_payload: Some(1232), dnssec_ok: true, recursion_desired: true };
        let queries = Queries::read(&b"a. A"[..], shape).unwrap();
        let packet = b"\0\0\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\x80\0\0\0";
        assert_eq!(queries.packet(0), packet);
        assert_eq!(queries.question(0), b"\x01a\0\0\x01\0\x01");
    }
}
