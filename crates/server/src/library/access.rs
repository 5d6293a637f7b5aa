//! Which files another user could not open: asked before root is given up, when it is still possible to act on it.
//!
//! The kernel is asked, not permission bits: links, access control lists and security modules have their say as well.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

use weir_netio::privilege;
use weir_zone::files::open_without_waiting;

/// Octets of a line in which the name of an included file is looked for; a path has at most 4096 (`PATH_MAX`).
const LINE_OCTETS: u64 = 8 << 10;
/// Octets that are read of a file at a time.
const BUFFER_OCTETS: usize = 64 << 10;

/// Paths that are worth a thread.
const LEAST_SHARE: usize = 1_000;

/// A path that is closed to a user, and what closes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// What the user cannot open.
    pub(crate) path: PathBuf,
    /// The path itself, or a folder on the way to it.
    pub(crate) by: PathBuf,
}

/// The first of `paths`, and of what the zone files among them include, that root can open and user `uid` of group
/// `gid`, with no other groups and no capability, cannot.
///
/// The threads that look are gone when this returns.
pub(crate) fn first_closed(paths: &[&Path], uid: u32, gid: u32, n_threads: usize) -> Option<Closed> {
    // Without the right to ask there is none to become that user either: `None`.
    let look = |paths: &[&Path]| privilege::with_access_of(uid, gid, || closed_among(paths));
    let share = paths.len().div_ceil(n_threads.max(1)).max(LEAST_SHARE);
    let mut shares = paths.chunks(share);
    let own = shares.next().unwrap_or_default();
    let closed = std::thread::scope(|scope| {
        let threads: Vec<_> =
            shares.map(|share| scope.spawn(move || look(share).unwrap_or_default())).collect();
        let mut closed = look(own).unwrap_or_default();
        // The scope alone waits for the work only: rights are dropped when no other thread is there any more.
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        closed.extend(threads.into_iter().flat_map(join));
        closed
    });
    closed.into_iter().find(|closed| closed.path.exists() && !is_denied(&open(&closed.path)))
}

/// What is closed of `paths` and of what is included by them. Each file is opened once, and what it includes is read
/// from it by the way: there may be many.
fn closed_among(paths: &[&Path]) -> Vec<Closed> {
    let (mut closed, mut included) = (Vec::new(), HashSet::new());
    for path in paths {
        let mut to_read = vec![path.to_path_buf()];
        while let Some(path) = to_read.pop() {
            match open(&path) {
                // What cannot be read is found out when it is loaded.
                Ok(Some(file)) => {
                    let found = included_by(&path, &file).unwrap_or_default();
                    to_read.extend(found.into_iter().filter(|path| included.insert(path.clone())));
                }
                opened if is_denied(&opened) => closed.push(Closed { by: barrier(&path), path }),
                _ => {}
            }
        }
    }
    closed
}

/// Opens a path to see whether that is allowed; yields the file when it is one.
fn open(path: &Path) -> io::Result<Option<File>> {
    let metadata = path.metadata()?;
    if metadata.is_dir() {
        return path.read_dir().map(|_| None);
    }
    // Opening what is no file may wait; no zone is read from it anyway.
    if metadata.is_file() { open_without_waiting(path).map(Some) } else { Ok(None) }
}

/// Whether a path is there and permission to read it is not.
fn is_denied<T>(opened: &io::Result<T>) -> bool {
    opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Which part of a path that may not be opened is in the way: a folder that may not be entered, on the path as it is
/// named or where its links lead; else the path itself.
pub(crate) fn barrier(path: &Path) -> PathBuf {
    let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let ways = [named.clone(), followed(&named)];
    let folders = ways.iter().flat_map(|way| way.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev());
    let mut barred = folders.filter(|folder| is_denied(&folder.join(".").metadata()));
    barred.next().map_or_else(|| path.to_owned(), Path::to_owned)
}

/// Where the last link on a path leads that can be read: a link in a folder that may not be entered cannot.
fn followed(path: &Path) -> PathBuf {
    let mut folders: Vec<&Path> = path.ancestors().collect();
    folders.reverse();
    let mut at = PathBuf::new();
    for folder in folders {
        let next = folder.file_name().map_or_else(|| folder.to_owned(), |name| at.join(name));
        at = match next.read_link() {
            Ok(target) => at.join(target),
            Err(_) => next,
        };
    }
    at
}

/// Files that the zone file at `path` seems to include: directives are looked for without reading what is around them,
/// so one too many may be found, as in a text, and one with an escape in its name is not.
fn included_by(path: &Path, file: &File) -> io::Result<Vec<PathBuf>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let (mut included, mut line) = (Vec::new(), Vec::new());
    // A file that goes on without end, as some of /proc do, is empty by its size.
    let n_octets = file.metadata()?.len();
    let room = usize::try_from(n_octets).unwrap_or(BUFFER_OCTETS).min(BUFFER_OCTETS);
    let mut text = BufReader::with_capacity(room, file).take(n_octets);
    while text.skip_until(b'$')? > 0 {
        line.clear();
        text.by_ref().take(LINE_OCTETS).read_until(b'\n', &mut line)?;
        included.extend(included_path(&line).map(|path| folder.join(path)));
    }
    Ok(included)
}

/// The file that a line names which starts behind a dollar.
fn included_path(line: &[u8]) -> Option<&Path> {
    let line = std::str::from_utf8(line).ok()?;
    let (directive, rest) = line.split_at_checked("INCLUDE".len())?;
    if !directive.eq_ignore_ascii_case("INCLUDE") || !rest.starts_with([' ', '\t']) {
        return None;
    }
    let rest = rest.trim_start();
    let name = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split([' ', '\t', ';', '\r', '\n']).next(),
    };
    name.filter(|name| !name.is_empty()).map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn included_files_are_found_through_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let included = |name: &str| included_by(&at(name), &File::open(at(name)).expect("it is there"));
        fs::write(
            at("a.zone"),
            "$TTL 60\n$INCLUDE b ; text\n$include \"sub/c d\" example.\nx TXT \"$INCLUDE\"\n",
        )
        .expect("written");
        fs::write(at("b"), "$GENERATE 1-2 a$ A 192.0.2.$\n$INCLUDE a.zone\n$INCLUDED no\n$INCLUDE")
            .expect("written");
        assert_eq!(included("a.zone").expect("it is text"), [at("b"), at("sub/c d")]);
        assert_eq!(included("b").expect("it is text"), [at("a.zone")]);
        assert_eq!(closed_among(&[&at("a.zone"), &at("b")]), [], "circles end");
    }

    #[test]
    fn what_is_closed_is_told_with_the_folder_that_bars_the_way() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = place.path().join("closed");
        fs::create_dir(&folder).expect("created");
        let (file, link, linking) =
            (folder.join("a.txt"), place.path().join("b.zone"), place.path().join("c.zone"));
        fs::write(&file, "").expect("written");
        symlink("closed/a.txt", &link).expect("linked");
        fs::write(&linking, "$INCLUDE closed/a.txt\n").expect("written");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("ours");
        };
        let nobody = 4_000_000_000;
        let first = |path: &Path| first_closed(&[path], nobody, nobody, 2);
        // Whoever is not root cannot ask for others.
        let is_told = privilege::with_access_of(nobody, nobody, || ()).is_some();
        let closed =
            |path: &Path, by: &Path| is_told.then(|| Closed { path: path.to_owned(), by: by.to_owned() });
        set(place.path(), 0o755);
        set(&folder, 0o755);
        assert_eq!((first(&folder), first(&file), first(&link), first(&linking)), (None, None, None, None));
        set(&folder, 0o700);
        assert_eq!(first(&folder), closed(&folder, &folder));
        assert_eq!(first(&file), closed(&file, &folder));
        assert_eq!(first(&link), closed(&link, &folder));
        assert_eq!(first(&linking), closed(&file, &folder));
        // Enough for several threads.
        let mut many = vec![place.path(); 3 * LEAST_SHARE];
        many.push(&file);
        assert_eq!(first_closed(&many, nobody, nobody, 2), closed(&file, &folder));
        set(&folder, 0o755);
        set(&file, 0o600);
        assert_eq!(first(&link), closed(&link, &link));
        assert_eq!(first(&place.path().join("missing")), None);
    }
}
