//! Zone files on disk: which zones a folder holds, and opening a file safely.

use crate::diagnostic::Diagnostic;
use std::collections::{HashMap, HashSet};
use std::fs::{DirEntry, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_wire::name::{FoldedArc, FoldedBuf, Name, NameBuf, NameTextError};
use weir_wire::rdata::encoding::hex_digit;

/// What a zone file's name ends in.
const EXTENSION: &str = ".zone";
/// The name, without its extension, of the file that holds the root zone.
const ROOT_STEM: &str = "root";

/// A zone and the file that holds it.
#[derive(Clone, Debug)]
pub struct ZoneFile {
    /// The zone's name, by the file's name.
    pub origin: FoldedArc,
    /// The file, as it is reached from the folder that was searched.
    pub path: PathBuf,
}

/// What a folder holds.
#[derive(Debug, Default)]
pub struct FoundZones {
    /// Every zone once, in the order of the paths.
    pub zones: Vec<ZoneFile>,
    /// Folders that cannot be read, names that are no names, zones that two files hold.
    pub problems: Vec<Diagnostic>,
}

/// Finds every `*.zone` file in a folder and the folders in it.
///
/// Symbolic links are followed, each folder is searched once whatever leads to it, and what starts with a dot or
/// ends in `~` is passed over. Of two files for one zone the first is listed and a problem names both. Files are
/// not opened; one that cannot be read is listed.
///
/// # Errors
/// When the folder itself cannot be read.
pub fn find_zones(folder: &Path) -> io::Result<FoundZones> {
    let mut walk = Walk::default();
    let mut paths = walk.entries(folder)?;
    // Depth first, in the order of the paths: the next one is last.
    while let Some((path, is_folder)) = paths.pop() {
        if !is_folder {
            walk.file(path);
            continue;
        }
        match walk.entries(&path) {
            Ok(below) => paths.extend(below),
            Err(error) => walk.problem(&path, format!("this folder cannot be searched: {error}")),
        }
    }
    Ok(walk.found)
}

/// The zone that a file holds by its name, or `None` when it is no zone file.
///
/// `%2F` stands for a slash (RFC 2317), as every `%` and two hexadecimal digits stand for an octet; so does `\DDD`.
///
/// ```
/// use weir_zone::files::origin_of;
/// assert_eq!(origin_of("example.com.zone").unwrap().unwrap().to_string(), "example.com.");
/// assert_eq!(origin_of("0%2F26.2.0.192.in-addr.arpa.zone").unwrap().unwrap().to_string(), "0/26.2.0.192.in-addr.arpa.");
/// assert!(origin_of("example.com.zone~").is_none());
/// ```
pub fn origin_of(file_name: &str) -> Option<Result<FoldedBuf, NameTextError>> {
    let stem = file_name.strip_suffix(EXTENSION).filter(|stem| !stem.starts_with('.') && !stem.is_empty())?;
    // It stands for an origin, and a file's name has none.
    if stem == "@" {
        return Some(Err(NameTextError::Relative));
    }
    if stem == ROOT_STEM {
        return Some(Ok(FoldedBuf::root()));
    }
    let text = unpercent(stem.as_bytes());
    Some(NameBuf::from_text(&text, Some(Name::ROOT)).map(|name| name.name().fold()))
}

/// Replaces `%` and two hexadecimal digits by the octet's escape; anything else stays.
fn unpercent(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&octet, after)) = rest.split_first() {
        let value = match after {
            [high, low, ..] if octet == b'%' => {
                hex_digit(*high).zip(hex_digit(*low)).map(|(high, low)| high << 4 | low)
            }
            _ => None,
        };
        match value {
            Some(value) => {
                out.extend_from_slice(format!("\\{value:03}").as_bytes());
                rest = after.get(2..).unwrap_or(&[]);
            }
            None => {
                out.push(octet);
                rest = after;
            }
        }
    }
    out
}

#[derive(Default)]
struct Walk {
    found: FoundZones,
    /// Index of each zone found, by its name in wire form.
    by_name: HashMap<Vec<u8>, usize>,
    /// Device and inode of each folder that was searched: what keeps circles of links from going on.
    searched: HashSet<(u64, u64)>,
}

impl Walk {
    /// Paths in a folder that matter, each with whether it is a folder, in falling order.
    fn entries(&mut self, folder: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let metadata = folder.metadata()?;
        if !self.searched.insert((metadata.dev(), metadata.ino())) {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in folder.read_dir()? {
            let entry = entry?;
            let name = entry.file_name();
            let octets = name.as_encoded_bytes();
            if octets.starts_with(b".") || octets.ends_with(b"~") {
                continue;
            }
            let is_zone = octets.ends_with(EXTENSION.as_bytes());
            if is_zone || is_folder(&entry) {
                names.push((name, !is_zone));
            }
        }
        // By name: paths of one folder differ in nothing else, and compare part by part.
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names.into_iter().map(|(name, is_folder)| (folder.join(name), is_folder)).collect())
    }

    fn file(&mut self, path: PathBuf) {
        let name = path.file_name().and_then(|name| name.to_str());
        let origin = match name.and_then(origin_of) {
            Some(Ok(origin)) => origin,
            Some(Err(error)) => {
                return self.problem(&path, format!("the file's name names no zone: {error}"));
            }
            None => return self.problem(&path, "the file's name names no zone: it is not UTF-8".to_owned()),
        };
        let key = origin.folded().octets().to_vec();
        let first = self.by_name.get(&key).and_then(|&at| self.found.zones.get(at));
        if let Some(first) = first.map(|zone| zone.path.clone()) {
            if !is_same_file(&first, &path) {
                let message = format!("zone {origin} has a file already: {}; remove one", first.display());
                self.problem(&path, message);
            }
            return;
        }
        self.by_name.insert(key, self.found.zones.len());
        self.found.zones.push(ZoneFile { origin: origin.into(), path });
    }

    fn problem(&mut self, path: &Path, message: String) {
        self.found.problems.push(Diagnostic::of_file(path, "file", message));
    }
}

/// Whether the entry is a folder or a link to one; what cannot be told is none.
fn is_folder(entry: &DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => entry.path().is_dir(),
        Ok(kind) => kind.is_dir(),
        Err(_) => false,
    }
}

fn is_same_file(left: &Path, right: &Path) -> bool {
    match (left.metadata(), right.metadata()) {
        (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
        _ => false,
    }
}

/// Opens a regular file; yields what the open file says of itself as well.
///
/// A folder, a pipe or a device is refused before it is opened: opening a pipe would wait for its writer.
///
/// # Errors
/// What the system says, or which of those it is (`InvalidInput`).
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    refuse_irregular(&path.metadata()?)?;
    let file = open_without_waiting(path)?;
    let metadata = file.metadata()?;
    // What was a file may have become something else before it was opened.
    refuse_irregular(&metadata)?;
    Ok((file, metadata))
}

fn refuse_irregular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let kind = if metadata.is_dir() { "folder" } else { "pipe, socket or device" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("this is a {kind}, not a file")))
}

/// Has a pipe opened without its writer (asm-generic/fcntl.h); for a regular file it means nothing.
const O_NONBLOCK: i32 = 0o4000;

/// Opens a file for reading; should it be a pipe, which it was not a moment ago, that does not wait for its writer.
///
/// # Errors
/// As [`File::open`].
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    let opened = File::options().read(true).custom_flags(O_NONBLOCK).open(path);
    match opened {
        // Somebody has a lease on the file, which is broken by waiting (fcntl(2)).
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => File::open(path),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn a_pipe_that_took_the_place_of_a_file_is_opened_without_waiting_for_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("a.zone");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(!open_without_waiting(&pipe).unwrap().metadata().unwrap().is_file());
        assert!(open_regular(&pipe).unwrap_err().to_string().contains("pipe"));
    }

    fn listed(found: &FoundZones, below: &Path) -> Vec<String> {
        let show =
            |zone: &ZoneFile| format!("{} {}", zone.origin, zone.path.strip_prefix(below).unwrap().display());
        found.zones.iter().map(show).collect()
    }

    fn folder_with(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        folder
    }

    #[test]
    fn subfolders_are_searched_and_hidden_files_passed_over() {
        let folder = folder_with(&[
            "b.example.zone",
            "a/A.Example.zone",
            "a/b/root.zone",
            ".hidden.zone",
            "..data/c.example.zone",
            "d.example.zone~",
            "e.example.zone.swp",
            "README.md",
        ]);
        let found = find_zones(folder.path()).unwrap();
        assert_eq!(
            listed(&found, folder.path()),
            ["a.example. a/A.Example.zone", ". a/b/root.zone", "b.example. b.example.zone"]
        );
        assert!(found.problems.is_empty());
    }

    #[test]
    fn links_are_followed_and_circles_end() {
        // As Kubernetes mounts a ConfigMap: the files are links through a hidden link to a hidden folder.
        let folder = folder_with(&["..2026/a.example.zone"]);
        symlink("..2026", folder.path().join("..data")).unwrap();
        symlink("..data/a.example.zone", folder.path().join("a.example.zone")).unwrap();
        symlink(".", folder.path().join("circle")).unwrap();
        symlink("nowhere", folder.path().join("b.example.zone")).unwrap();
        let found = find_zones(folder.path()).unwrap();
        assert_eq!(listed(&found, folder.path()), ["a.example. a.example.zone", "b.example. b.example.zone"]);
        assert!(open_regular(&folder.path().join("a.example.zone")).is_ok());
        assert!(open_regular(&folder.path().join("b.example.zone")).is_err());
    }

    #[test]
    fn a_zone_that_two_files_hold_is_a_problem_that_names_both() {
        let folder = folder_with(&["a.example.zone", "sub/A.EXAMPLE.zone"]);
        let found = find_zones(folder.path()).unwrap();
        assert_eq!(found.zones.len(), 1);
        let problem = found.problems[0].to_string();
        assert!(problem.contains("a.example.zone") && problem.contains("A.EXAMPLE.zone"), "{problem}");
    }

    #[test]
    fn names_that_name_no_zone_are_problems() {
        let folder = folder_with(&["a..b.zone", "@.zone", "good.zone"]);
        let found = find_zones(folder.path()).unwrap();
        assert_eq!(listed(&found, folder.path()), ["good. good.zone"]);
        assert_eq!(found.problems.len(), 2);
        assert!(find_zones(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn slashes_in_names_are_written_in_two_ways() {
        for name in ["0%2F26.example.zone", "0%2f26.example.zone", "0\\04726.example.zone"] {
            assert_eq!(origin_of(name).unwrap().unwrap().to_string(), "0/26.example.");
        }
        for name in ["100%", "100%2", "100%+2", "100%2g"] {
            assert_eq!(origin_of(&format!("{name}.zone")).unwrap().unwrap().to_string(), format!("{name}."));
        }
    }

    #[test]
    fn folders_and_devices_are_not_opened() {
        let folder = folder_with(&["x.zone/a"]);
        assert!(open_regular(&folder.path().join("x.zone")).unwrap_err().to_string().contains("folder"));
        assert!(open_regular(Path::new("/dev/zero")).unwrap_err().to_string().contains("device"));
    }
}
