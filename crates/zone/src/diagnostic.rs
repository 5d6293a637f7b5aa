//! What is wrong with a zone, and where: file, line, column, rule, sentence.

use std::fmt;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The zone is served all the same.
    Warning,
    /// The zone cannot be served.
    Error,
}

/// One finding in a zone's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the zone can be served in spite of it.
    pub severity: Severity,
    /// The file as it was named: by the operator, or by the path that an `$INCLUDE` gave.
    pub file: Arc<Path>,
    /// Line from 1; 0 when the finding is about the file as a whole.
    pub line: u32,
    /// Column from 1, in octets; 0 when the finding is about the line or the file as a whole.
    pub column: u32,
    /// The rule's name, as docs/FORMAT.md lists it.
    pub rule: &'static str,
    /// What is wrong and what to do, in a sentence without a full stop.
    pub message: String,
}

impl Diagnostic {
    /// An error about a file as a whole.
    pub fn of_file(file: &Path, rule: &'static str, message: impl Into<String>) -> Diagnostic {
        let message = message.into();
        Diagnostic { severity: Severity::Error, file: file.into(), line: 0, column: 0, rule, message }
    }

    /// Whether the zone cannot be served.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `FILE:LINE:COLUMN: message`, the numbers left out where there is none.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        for number in [self.line, self.column] {
            if number > 0 {
                write!(f, ":{number}")?;
            }
        }
        let severity = if self.is_error() { "" } else { "warning: " };
        write!(f, ": {severity}{}", self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// A place in one of a zone's files, small enough to keep one a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Index into [`Files`].
    pub file: u16,
    /// Line from 1.
    pub line: u32,
    /// Column from 1, in octets.
    pub column: u32,
}

/// The files that a zone is read from: the zone's own first, then each `$INCLUDE` as it is met.
#[derive(Clone, Debug, Default)]
pub struct Files {
    paths: Vec<Arc<Path>>,
    opened: Vec<OpenedFile>,
}

/// A file as it was when it had been opened and nothing of it had been read.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// The path that it was opened by.
    pub path: Arc<Path>,
    /// What the open file said of itself, whatever became of the path since.
    pub metadata: Metadata,
}

impl Files {
    /// Adds a file; yields its index, or `None` when 65,535 are listed.
    pub(crate) fn add(&mut self, path: &Path) -> Option<u16> {
        let index = u16::try_from(self.paths.len()).ok()?;
        self.paths.push(path.into());
        Some(index)
    }

    /// Notes what an open file says of itself before it is read.
    pub(crate) fn note_opened(&mut self, path: &Path, metadata: Metadata) {
        self.opened.push(OpenedFile { path: path.into(), metadata });
    }

    /// The files that were opened, in that order; none of them for text that came from elsewhere.
    pub fn opened(&self) -> &[OpenedFile] {
        &self.opened
    }

    /// The paths of all files in the order they were met.
    pub fn paths(&self) -> &[Arc<Path>] {
        &self.paths
    }

    /// The path of a file.
    pub fn path(&self, file: u16) -> Arc<Path> {
        self.paths.get(usize::from(file)).cloned().unwrap_or_else(|| PathBuf::new().into())
    }

    /// A finding at a place.
    pub fn diagnostic(
        &self,
        severity: Severity,
        at: Location,
        rule: &'static str,
        message: String,
    ) -> Diagnostic {
        Diagnostic { severity, file: self.path(at.file), line: at.line, column: at.column, rule, message }
    }
}

/// Findings in the order they were made, bounded: a file of nonsense does not fill the memory.
#[derive(Debug)]
pub struct Findings {
    list: Vec<Diagnostic>,
    n_errors: usize,
    n_warnings: usize,
    max_errors: usize,
}

/// Warnings kept of one zone; the rest are counted.
const MAX_WARNINGS: usize = 100;

impl Findings {
    /// No findings yet; at most `max_errors` errors will be kept.
    pub fn new(max_errors: usize) -> Findings {
        Findings { list: Vec::new(), n_errors: 0, n_warnings: 0, max_errors }
    }

    /// Keeps a finding, or counts it when there are too many of its kind.
    pub fn push(&mut self, finding: Diagnostic) {
        let (n, max) = match finding.severity {
            Severity::Error => (&mut self.n_errors, self.max_errors),
            Severity::Warning => (&mut self.n_warnings, MAX_WARNINGS),
        };
        *n += 1;
        if *n <= max {
            self.list.push(finding);
        }
    }

    /// Whether so many errors were found that reading on is of no use.
    pub fn is_full(&self) -> bool {
        self.n_errors > self.max_errors
    }

    /// Whether the zone cannot be served.
    pub fn has_errors(&self) -> bool {
        self.n_errors > 0
    }

    /// The findings in order, with a last line about those that were too many.
    pub fn into_list(mut self) -> Vec<Diagnostic> {
        let Some(last) = self.list.last().cloned() else { return self.list };
        if self.n_errors > self.max_errors {
            let message = format!("too many errors, giving up after {}", self.max_errors);
            self.list.push(Diagnostic { severity: Severity::Error, message, rule: "too-many", ..last });
        } else if self.n_warnings > MAX_WARNINGS {
            let message = format!("{} more warnings are not shown", self.n_warnings - MAX_WARNINGS);
            self.list.push(Diagnostic {
                severity: Severity::Warning,
                message,
                rule: "too-many",
                line: 0,
                column: 0,
                ..last
            });
        }
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_prints_its_place_in_front() {
        let file: Arc<Path> = Path::new("example.zone").into();
        let at = |line, column| Diagnostic {
            severity: Severity::Error,
            file: file.clone(),
            line,
            column,
            rule: "type",
            message: "no such type".to_owned(),
        };
        assert_eq!(at(3, 7).to_string(), "example.zone:3:7: no such type");
        assert_eq!(at(0, 0).to_string(), "example.zone: no such type");
        let warning = Diagnostic { severity: Severity::Warning, ..at(3, 7) };
        assert_eq!(warning.to_string(), "example.zone:3:7: warning: no such type");
    }

    #[test]
    fn errors_past_the_limit_are_summed_up_in_one_line() {
        let mut findings = Findings::new(2);
        for _ in 0..5 {
            findings.push(Diagnostic::of_file(Path::new("a.zone"), "syntax", "wrong"));
        }
        assert!(findings.is_full());
        let list = findings.into_list();
        assert_eq!(list.len(), 3);
        assert_eq!(list[2].to_string(), "a.zone: too many errors, giving up after 2");
    }
}
