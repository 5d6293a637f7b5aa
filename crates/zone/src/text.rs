//! Master files (RFC 1035 section 5) to records, one at a time; docs/FORMAT.md states the dialect.
//!
//! Reading order: the scanner makes tokens of octets and knows no DNS; fields make RDATA of tokens by the table of
//! [`weir_wire::rdata`]; the reader holds what carries over from entry to entry (origin, owner, TTL), follows
//! directives and hands records to a [`RecordSink`].
//!
//! invariant: memory does not grow with a file. A window of 256 KiB moves over it, and grows for an entry that is
//! larger, up to 16 MiB.
//!
//! invariant: nothing is allocated a record, once the buffers have their size.

use crate::diagnostic::{Diagnostic, Files, Findings, Location};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use weir_wire::name::Name;
use weir_wire::rtype::{Class, Rtype};

mod bitmap;
mod composite;
mod entry;
mod fields;
mod generate;
mod include;
mod input;
mod location;
mod masks;
mod name;
mod number;
mod reader;
mod scanner;
mod strings;
mod svcb;

use input::{BLOCK_LEN, Input};
use masks::Masks;
use reader::Reader;
use scanner::{Mark, Scanner};

/// A record as it stands in a zone file.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The owner in the case it was written in.
    pub owner: Name<'a>,
    /// The class, which is that of the zone.
    pub class: Class,
    /// Seconds that the record may be kept, at most 2^31 - 1 (RFC 2181 section 8).
    pub ttl: u32,
    /// The type.
    pub rtype: Rtype,
    /// The data, names uncompressed and in the case they were written in; checked for the type.
    pub rdata: &'a [u8],
    /// Where the record starts.
    pub at: Location,
}

/// Why a sink does not take a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

/// Takes records in the order of the file.
pub trait RecordSink {
    /// Takes a record, or says why not; the refusal is reported as an error at the record's place.
    fn record(&mut self, record: Record<'_>) -> Result<(), Refusal>;
}

/// Any function over records takes them all.
impl<F: FnMut(Record<'_>)> RecordSink for F {
    fn record(&mut self, record: Record<'_>) -> Result<(), Refusal> {
        self(record);
        Ok(())
    }
}

/// How a zone file is read.
#[derive(Clone, Debug)]
pub struct Options {
    /// The zone's class: a record of another class is an error.
    pub class: Class,
    /// Errors that are reported before reading is given up.
    pub max_errors: usize,
    /// Whether `$INCLUDE` may open files.
    pub includes: bool,
    /// Most records that one `$GENERATE` may make; 0 refuses the directive.
    pub max_generated: u64,
    /// Counts the octets that were read, for those who wait.
    pub n_read: Option<Arc<AtomicU64>>,
}

impl Default for Options {
    fn default() -> Self {
        Options { class: Class::IN, max_errors: 20, includes: true, max_generated: 1_000_000, n_read: None }
    }
}

/// Where a zone's text comes from.
pub enum Source<'s> {
    /// A regular file, or a symbolic link to one.
    Path(&'s Path),
    /// A reader with a name for messages; `$INCLUDE` is relative to the current directory.
    Reader(&'s str, Box<dyn Read + 's>),
    /// Octets in memory with a name for messages.
    Octets(&'s str, &'s [u8]),
}

impl<'s> Source<'s> {
    /// The same text once more, when it can be read twice.
    pub(crate) fn again(&self) -> Option<Source<'s>> {
        match *self {
            Source::Path(path) => Some(Source::Path(path)),
            Source::Octets(name, octets) => Some(Source::Octets(name, octets)),
            Source::Reader(..) => None,
        }
    }
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Path(path) => write!(f, "Path({})", path.display()),
            Source::Reader(name, _) | Source::Octets(name, _) => write!(f, "{name}"),
        }
    }
}

/// What came of reading a zone's text, beside the records.
#[derive(Debug)]
pub struct Reading {
    /// The files that were read, for the places of later findings.
    pub files: Files,
    /// What was found so far, errors and warnings.
    pub findings: Findings,
}

/// Reads a zone's text and hands its records to `sink`; relative names start out relative to `origin`.
///
/// All errors are reported up to [`Options::max_errors`]; after an error reading goes on with the next entry.
///
/// ```
/// use weir_wire::name::NameBuf;
/// use weir_zone::text::{Options, Record, Source, read};
/// let origin = NameBuf::from_text(b"example.", None).unwrap();
/// let mut lines = Vec::new();
/// let mut sink = |record: Record<'_>| lines.push(format!("{} {} {}", record.owner, record.ttl, record.rtype));
/// let source = Source::Octets("inline", b"$TTL 1h\n@ MX 10 mx\nmx A 192.0.2.1\n");
/// let reading = read(source, origin.name(), &mut sink, &Options::default());
/// assert!(!reading.findings.has_errors());
/// assert_eq!(lines, ["example. 3600 MX", "mx.example. 3600 A"]);
/// ```
pub fn read(source: Source<'_>, origin: Name<'_>, sink: &mut dyn RecordSink, options: &Options) -> Reading {
    read_in_blocks(source, origin, sink, options, BLOCK_LEN)
}

/// Number of tokens in a text: what the scanner costs without fields, names and records around it, for benchmarks.
///
/// The same window as that of [`read`] moves over the text. Counting ends at the first thing that is wrong.
pub fn count_tokens(octets: &[u8]) -> u64 {
    let mut masks = Masks::default();
    let (mut n_tokens, mut rest, mut line) = (0, octets, 1);
    loop {
        let window = rest.get(..BLOCK_LEN).unwrap_or(rest);
        masks.fill(window);
        let is_last = window.len() == rest.len();
        let mut scanner = Scanner::new(window, &masks, is_last, line);
        let (mark, n_found) = count_in_window(&mut scanner);
        n_tokens += n_found;
        if is_last || mark.at == 0 {
            return n_tokens;
        }
        rest = rest.get(mark.at..).unwrap_or(&[]);
        line = mark.line;
    }
}

/// The tokens of the entries that end in the window, and where the first one starts that does not.
fn count_in_window(scanner: &mut Scanner<'_>) -> (Mark, u64) {
    let mut n_tokens = 0;
    loop {
        let start = scanner.mark();
        scanner.begin_entry();
        let mut n_in_entry = 0;
        loop {
            match scanner.token() {
                Ok(Some(_)) => n_in_entry += 1,
                Ok(None) => break,
                Err(_) => return (start, n_tokens),
            }
        }
        n_tokens += n_in_entry;
        if scanner.has_file_ended() {
            return (start, n_tokens);
        }
    }
}

fn read_in_blocks(
    source: Source<'_>,
    origin: Name<'_>,
    sink: &mut dyn RecordSink,
    options: &Options,
    block_len: usize,
) -> Reading {
    let mut reader = Reader::new(origin, sink, options, block_len);
    match source {
        Source::Path(path) => reader.path(path),
        Source::Reader(name, from) => reader.input(Path::new(name), Input::blocks(from, block_len)),
        Source::Octets(name, octets) => reader.input(Path::new(name), Input::Octets(octets)),
    }
    reader.finish()
}

impl Reading {
    /// The findings: all of them as the error when one is an error, the warnings otherwise.
    pub fn into_result(self) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
        let has_errors = self.findings.has_errors();
        let list = self.findings.into_list();
        if has_errors { Err(list) } else { Ok(list) }
    }
}

#[cfg(test)]
mod tests;
