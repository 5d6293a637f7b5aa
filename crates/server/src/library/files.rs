//! Zone files on disk: finding them, reading them, noticing that they changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::Zone;

use super::Source;

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) path: PathBuf,
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
    /// Errors if they are, else warnings.
    pub(crate) findings: Vec<Diagnostic>,
    pub(super) stamps: Vec<Stamp>,
}

pub(super) fn find_in(
    directory: &Path,
    found: &mut Vec<Source>,
    problems: &mut Vec<String>,
) -> Result<(), String> {
    let _ = problems;
    for entry in std::fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?.flatten()
    {
        let path = entry.path();
        if let Some(name) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".zone")) {
            if let Ok(name) = NameBuf::from_text(name.as_bytes(), Some(Name::ROOT)) {
                found.push(Source { origin: name.name().fold(), path });
            }
        }
    }
    Ok(())
}

// STUB
use weir_wire::name::{Name, NameBuf};
use weir_wire::rtype::{Class, Rtype};
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    pub(crate) file: Arc<Path>,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}
impl Diagnostic {
    pub(crate) fn is_error(&self) -> bool {
        true
    }
}
impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file.display(), self.line, self.column, self.message)
    }
}

pub(crate) fn load(source: &Source, seed: HashSeed) -> Loaded {
    let bad = |line: usize, message: String| Loaded {
        zone: None,
        findings: vec![Diagnostic {
            file: source.path.as_path().into(),
            line: line as u32,
            column: 1,
            message,
        }],
        stamps: vec![Stamp::of(&source.path)],
    };
    let stamps = vec![Stamp::of(&source.path)];
    let text = match std::fs::read_to_string(&source.path) {
        Ok(t) => t,
        Err(e) => return bad(0, e.to_string()),
    };
    let mut builder = weir_zone::ZoneBuilder::new(source.origin.folded(), Class::IN, seed);
    let origin = source.origin.folded().name();
    let mut tag = 0;
    for (n, line) in text.lines().enumerate() {
        let f: Vec<&str> = line.split_whitespace().collect();
        if f.len() < 3 || f[0].starts_with('$') {
            continue;
        }
        let name = |t: &str| {
            if t == "@" { Ok(origin.to_buf()) } else { NameBuf::from_text(t.as_bytes(), Some(origin)) }
        };
        let owner = name(f[0]).unwrap();
        let mut rdata = Vec::new();
        let rtype = match f[1] {
            "A" => {
                match f[2].parse::<std::net::Ipv4Addr>() {
                    Ok(a) => rdata.extend(a.octets()),
                    Err(_) => return bad(n + 1, "not an address".into()),
                }
                Rtype::A
            }
            "NS" => {
                rdata.extend(name(f[2]).unwrap().name().octets());
                Rtype::NS
            }
            "TXT" => {
                for part in f[2].as_bytes().chunks(255) {
                    rdata.push(part.len() as u8);
                    rdata.extend(part);
                }
                Rtype::TXT
            }
            "CNAME" => {
                rdata.extend(name(f[2]).unwrap().name().octets());
                Rtype::CNAME
            }
            "SOA" => {
                rdata.extend(name(f[2]).unwrap().name().octets());
                rdata.extend(name(f[3]).unwrap().name().octets());
                for v in &f[4..9] {
                    rdata.extend(v.parse::<u32>().unwrap().to_be_bytes());
                }
                Rtype::SOA
            }
            other => return bad(n + 1, format!("unknown type {other}")),
        };
        tag += 1;
        if builder.add(owner.name(), rtype, 300, &rdata, tag).is_err() {
            return bad(n + 1, "refused".into());
        }
    }
    match builder.finish() {
        Ok((zone, _)) => Loaded { zone: Some(Arc::new(zone)), findings: Vec::new(), stamps },
        Err(f) => bad(1, format!("{f:?}")),
    }
}

pub(crate) fn load_from_stdin(_: &FoldedBuf, _: HashSeed) -> Loaded {
    Loaded { zone: None, findings: Vec::new(), stamps: Vec::new() }
}
