//! Reading zone files, and noticing that they changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::Zone;
use weir_zone::diagnostic::Diagnostic;
use weir_zone::load::{self, LoadOptions};

use super::Source;

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    /// `None` when there was no such file.
    state: Option<FileState>,
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
    pub(super) fn of(path: &Path) -> Stamp {
        let state = std::fs::metadata(path).ok().map(|meta| FileState {
            device: meta.dev(),
            inode: meta.ino(),
            n_octets: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        });
        Stamp { path: path.to_path_buf(), state }
    }

    pub(super) fn is_current(&self) -> bool {
        self.state.is_some() && *self == Stamp::of(&self.path)
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
pub(crate) fn load(source: &Source, seed: HashSeed) -> Loaded {
    let start = SystemTime::now();
    let loaded = load::load_file(&source.path, source.origin.folded(), seed, &LoadOptions::default());
    match loaded {
        Ok(loaded) => Loaded {
            stamps: stamps_since(start, &source.path, &loaded.files),
            zone: Some(Arc::new(loaded.zone)),
            findings: loaded.warnings,
        },
        Err(findings) => Loaded { zone: None, findings, stamps: Vec::new() },
    }
}

/// Loads a zone from standard input.
pub(crate) fn load_from_stdin(origin: &FoldedBuf, seed: HashSeed) -> Loaded {
    match load::load_stdin(origin.folded(), seed, &LoadOptions::default()) {
        Ok(loaded) => {
            Loaded { zone: Some(Arc::new(loaded.zone)), findings: loaded.warnings, stamps: Vec::new() }
        }
        Err(findings) => Loaded { zone: None, findings, stamps: Vec::new() },
    }
}

/// The state of a zone's files, its own first; none when one was changed after `start`, because it is not known then
/// which state was read.
fn stamps_since(start: SystemTime, path: &Path, files: &[Arc<Path>]) -> Vec<Stamp> {
    let start = start.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let included = files.iter().filter(|file| ***file != *path).map(|file| Stamp::of(file));
    let stamps: Vec<Stamp> = std::iter::once(Stamp::of(path)).chain(included).collect();
    let is_settled = |stamp: &Stamp| stamp.state.is_some_and(|state| state.modified.0 < start);
    if stamps.iter().all(is_settled) { stamps } else { Vec::new() }
}
