//! What carries over from entry to entry, and the loop over a file's entries.

use super::fields::Scratch;
use super::include::FileId;
use super::input::{Input, MAX_ENTRY_LEN, RefillError};
use super::masks::Masks;
use super::scanner::{Fault, Mark, Scanner, Stop};
use super::{Options, Reading, RecordSink};
use crate::diagnostic::{Diagnostic, Files, Findings, Location, Severity};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use weir_wire::name::{Name, NameBuf};

/// UTF-8's byte order mark, which some editors put in front of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads entries and hands records to a sink.
pub(super) struct Reader<'s> {
    pub(super) zone: NameBuf,
    pub(super) sink: &'s mut dyn RecordSink,
    pub(super) options: &'s Options,
    pub(super) block_len: usize,
    pub(super) files: Files,
    pub(super) findings: Findings,
    /// Index of the file that is being read.
    pub(super) file: u16,
    /// That file and those that include it, to find cycles.
    pub(super) open_files: Vec<(PathBuf, FileId)>,
    pub(super) state: State,
    pub(super) scratch: Scratch,
    pub(super) rdata: Vec<u8>,
    /// The owner of the entry at hand, until it is known to be a name.
    pub(super) new_owner: Vec<u8>,
    /// Where a directive stands that makes records: they are all reported there.
    pub(super) made_at: Option<Location>,
}

/// What an entry leaves to the next.
pub(super) struct State {
    pub(super) origin: NameBuf,
    /// Whether names relative to the origin lie in the zone.
    pub(super) origin_in_zone: bool,
    /// The last owner in wire form; empty before the first.
    pub(super) owner: Vec<u8>,
    pub(super) owner_in_zone: bool,
    /// What `$TTL` says (RFC 2308 section 4).
    pub(super) default_ttl: Option<u32>,
    /// The TTL of the record before (RFC 1035 section 5.1).
    pub(super) last_ttl: Option<u32>,
    pub(super) warned_of_last_ttl: bool,
}

/// What an entry was.
pub(super) enum Entry {
    /// A record, a directive that is done, or an empty line.
    Done,
    /// `$INCLUDE`, to be followed now that the entry has ended.
    Include(Box<Inclusion>),
    /// The file has ended.
    End,
}

/// A file to read in the place of a directive.
pub(super) struct Inclusion {
    pub(super) path: PathBuf,
    pub(super) origin: NameBuf,
    pub(super) at: Location,
}

impl<'s> Reader<'s> {
    pub(super) fn new(
        origin: Name<'_>,
        sink: &'s mut dyn RecordSink,
        options: &'s Options,
        block_len: usize,
    ) -> Reader<'s> {
        Reader {
            zone: origin.to_buf(),
            sink,
            options,
            block_len,
            files: Files::default(),
            findings: Findings::new(options.max_errors),
            file: 0,
            open_files: Vec::new(),
            state: State {
                origin: origin.to_buf(),
                origin_in_zone: true,
                owner: Vec::new(),
                owner_in_zone: true,
                default_ttl: None,
                last_ttl: None,
                warned_of_last_ttl: false,
            },
            scratch: Scratch::default(),
            rdata: Vec::new(),
            new_owner: Vec::new(),
            made_at: None,
        }
    }

    pub(super) fn finish(self) -> Reading {
        Reading { files: self.files, findings: self.findings }
    }

    /// Reads a file that is open.
    pub(super) fn input(&mut self, name: &Path, mut input: Input<'_>) {
        let Some(file) = self.files.add(name) else {
            self.findings.push(Diagnostic::of_file(name, "include", "too many files are included"));
            return;
        };
        let includer = std::mem::replace(&mut self.file, file);
        self.entries(name, &mut input);
        self.file = includer;
    }

    fn entries(&mut self, name: &Path, input: &mut Input<'_>) {
        let mut masks = Masks::default();
        let mut line = 1;
        let mut n_done = 0;
        let mut is_start = true;
        loop {
            match input.refill(n_done) {
                Ok(()) => {}
                Err(RefillError::Io(error)) => {
                    let message = format!("reading failed: {error}");
                    return self.findings.push(Diagnostic::of_file(name, "file", message));
                }
                Err(RefillError::EntryTooLong) => return self.entry_too_long(line),
            }
            let (window, is_last) = input.window();
            let mut n_skipped = 0;
            if is_start {
                if !is_last && window.len() < BYTE_ORDER_MARK.len() {
                    n_done = 0;
                    continue;
                }
                is_start = false;
                n_skipped = if window.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            }
            let window = window.get(n_skipped..).unwrap_or(&[]);
            masks.fill(window);
            match self.entries_of_window(Scanner::new(window, &masks, is_last, line)) {
                Some(mark) => {
                    (n_done, line) = (n_skipped + mark.at, mark.line);
                    if let Some(n_read) = &self.options.n_read {
                        n_read.fetch_add(n_done as u64, Ordering::Relaxed);
                    }
                }
                None => return,
            }
        }
    }

    /// Reads the entries that end in the window; yields where to go on, or `None` when the file is done with.
    fn entries_of_window(&mut self, mut scanner: Scanner<'_>) -> Option<Mark> {
        loop {
            let start = scanner.mark();
            scanner.begin_entry();
            match self.entry(&mut scanner) {
                Ok(Entry::Done) => {}
                Ok(Entry::End) => return None,
                Ok(Entry::Include(inclusion)) => self.include(&inclusion),
                Err(Stop::More) => return Some(start),
                Err(Stop::Wrong(fault)) if fault.is_fatal => {
                    self.report(*fault);
                    return None;
                }
                Err(Stop::Wrong(fault)) => match scanner.skip_entry() {
                    // The entry is read again, and fails again, once its end is in the window.
                    Err(Stop::More) => return Some(start),
                    _ => self.report(*fault),
                },
            }
            if self.findings.is_full() {
                return None;
            }
        }
    }

    /// Keeps an error that the scanner or a field found.
    pub(super) fn report(&mut self, fault: Fault) {
        let at = self.made_at.unwrap_or(Location { file: self.file, line: fault.line, column: fault.column });
        self.error(at, fault.rule, fault.message);
    }

    pub(super) fn error(&mut self, at: Location, rule: &'static str, message: String) {
        self.findings.push(self.files.diagnostic(Severity::Error, at, rule, message));
    }

    pub(super) fn warn(&mut self, at: Location, rule: &'static str, message: String) {
        self.findings.push(self.files.diagnostic(Severity::Warning, at, rule, message));
    }

    fn entry_too_long(&mut self, line: u32) {
        let message = format!(
            "the entry that starts here has over {} MiB: is a quote or parenthesis never closed?",
            MAX_ENTRY_LEN >> 20
        );
        self.error(Location { file: self.file, line, column: 1 }, "entry-length", message);
    }
}
