//! Reading zone files, and noticing that they changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::Zone;
use weir_zone::checks::Limits;
use weir_zone::diagnostic::{Diagnostic, OpenedFile};
use weir_zone::load::{self, LoadOptions};
use weir_zone::text;

use super::Source;
use crate::config::Checks;

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    state: FileState,
}

/// What tells whether a file was changed: one of these differs after an edit, a copy over it, or a swapped link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    n_octets: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of_opened(file: &OpenedFile) -> Stamp {
        Stamp { path: file.path.to_path_buf(), state: FileState::of(&file.metadata) }
    }

    /// Whether the path leads to the same file, unchanged.
    pub(super) fn is_current(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|now| self.state == FileState::of(&now))
    }
}

impl FileState {
    fn of(meta: &Metadata) -> FileState {
        FileState {
            device: meta.dev(),
            inode: meta.ino(),
            n_octets: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// A zone that was read, or what kept it from being read.
pub(crate) struct Loaded {
    /// The zone, unless its data are bad.
    pub(crate) zone: Option<Arc<Zone>>,
    /// Everything that is wrong with it if they are, else warnings.
    pub(crate) findings: Vec<Diagnostic>,
    /// The files as they were read; none when they may have changed since.
    pub(super) stamps: Vec<Stamp>,
}

/// Loads a zone from its file.
pub(crate) fn load(source: &Source, seed: HashSeed, checks: &Checks) -> Loaded {
    load_with(source, seed, &options(checks))
}

/// How zones are loaded: by the operator's limits, and signatures by the clock.
pub(crate) fn options(checks: &Checks) -> LoadOptions {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    let limits = Limits { now, max_iterations: checks.max_nsec3_iterations, ..Limits::default() };
    let text = text::Options { max_generated: u64::from(checks.max_generated), ..text::Options::default() };
    LoadOptions { limits, text, ..LoadOptions::default() }
}

/// Loads a zone from its file in another way than usual.
pub(crate) fn load_with(source: &Source, seed: HashSeed, options: &LoadOptions) -> Loaded {
    let start = SystemTime::now();
    match load::load_file(&source.path, source.origin.folded(), seed, options) {
        Ok(loaded) => Loaded {
            stamps: stamps_since(start, &loaded.opened),
            zone: Some(Arc::new(loaded.zone)),
            findings: loaded.warnings,
        },
        Err(findings) => Loaded { zone: None, findings, stamps: Vec::new() },
    }
}

/// Loads a zone from standard input.
pub(crate) fn load_from_stdin(origin: &FoldedBuf, seed: HashSeed, options: &LoadOptions) -> Loaded {
    match load::load_stdin(origin.folded(), seed, options) {
        Ok(loaded) => {
            Loaded { zone: Some(Arc::new(loaded.zone)), findings: loaded.warnings, stamps: Vec::new() }
        }
        Err(findings) => Loaded { zone: None, findings, stamps: Vec::new() },
    }
}

/// The state of a zone's files when each was opened; none when one was changed after `start`, because it is not known
/// then which state was read. Asking the path afterwards would be too late: another file may be there by then.
fn stamps_since(start: SystemTime, opened: &[OpenedFile]) -> Vec<Stamp> {
    let start = start.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let stamps: Vec<Stamp> = opened.iter().map(Stamp::of_opened).collect();
    // Times of change are as coarse as a second on some file systems, and unlike times of modification cannot be set.
    let is_settled = |stamp: &Stamp| stamp.state.modified.0 < start && stamp.state.changed.0 < start;
    if stamps.iter().all(is_settled) { stamps } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::Duration;

    fn opened(path: &Path) -> OpenedFile {
        let metadata = File::open(path).and_then(|file| file.metadata()).expect("it is there");
        OpenedFile { path: path.into(), metadata }
    }

    #[test]
    fn a_file_that_took_the_place_of_the_one_that_was_read_is_not_taken_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, aside) = (folder.path().join("a.zone"), folder.path().join("a.new"));
        fs::write(&path, "old").expect("written");
        fs::write(&aside, "new").expect("written");
        let read = opened(&path);
        // Long before the load, as far as its clock goes.
        let later = SystemTime::now() + Duration::from_secs(10);
        let stamps = stamps_since(later, std::slice::from_ref(&read));
        assert!(stamps.iter().all(Stamp::is_current) && stamps.len() == 1, "{stamps:?}");
        // Moved there while the old one was read, with times of its own that say nothing.
        let long_ago = SystemTime::now() - Duration::from_secs(1_000_000);
        File::options().append(true).open(&aside).and_then(|file| file.set_modified(long_ago)).expect("set");
        fs::rename(&aside, &path).expect("moved");
        let stamps = stamps_since(later, &[read]);
        assert!(stamps.len() == 1 && !stamps.iter().any(Stamp::is_current), "{stamps:?}");
    }

    #[test]
    fn a_file_that_changed_in_the_second_of_the_load_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.zone");
        fs::write(&path, "text").expect("written");
        let long_ago = SystemTime::now() - Duration::from_secs(1_000_000);
        File::options().append(true).open(&path).and_then(|file| file.set_modified(long_ago)).expect("set");
        let start = SystemTime::now() - Duration::from_secs(10);
        assert!(stamps_since(start, &[opened(&path)]).is_empty(), "the time of modification was set back");
    }
}
