//! Which files another user could not open: asked before root is given up, when it is still possible to act on it.
//!
//! The kernel is asked, not permission bits: links, access control lists and security modules have their say as well.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use weir_netio::privilege;

/// Octets of a line in which the name of an included file is looked for; a path has at most 4096 (`PATH_MAX`).
const LINE_OCTETS: u64 = 8 << 10;

/// The first of `paths`, and of what the zone files among them include, that root can open and user `uid` of group
/// `gid`, with no other groups and no capability, cannot.
pub(super) fn first_closed(paths: impl IntoIterator<Item = PathBuf>, uid: u32, gid: u32) -> Option<PathBuf> {
    let all = with_included(paths);
    let closed = privilege::with_access_of(uid, gid, || {
        all.into_iter().filter(|path| is_closed(path)).collect::<Vec<_>>()
    });
    // Without the right to ask there is none to become that user either.
    closed?.into_iter().find(|path| path.exists() && !is_closed(path))
}

/// Whether the path is there and permission to read it is not.
fn is_closed(path: &Path) -> bool {
    let opened = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => path.read_dir().map(drop),
        // Opening what is no file may wait; no zone is read from it anyway.
        Ok(metadata) if !metadata.is_file() => Ok(()),
        Ok(_) => File::open(path).map(drop),
        Err(error) => Err(error),
    };
    opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// `paths` in their order, each followed by the files that it includes, directly or not.
fn with_included(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for path in paths {
        let mut to_read = vec![path];
        while let Some(path) = to_read.pop() {
            if seen.insert(path.clone()) {
                if path.is_file() {
                    // What cannot be read is found out when it is loaded.
                    to_read.extend(included_by(&path).unwrap_or_default());
                }
                all.push(path);
            }
        }
    }
    all
}

/// Files that the zone file at `path` seems to include: directives are looked for without reading what is around them,
/// so one too many may be found, as in a text, and one with an escape in its name is not.
fn included_by(path: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut text = BufReader::new(File::open(path)?);
    let (mut included, mut line) = (Vec::new(), Vec::new());
    // A file that goes on without end, as some of /proc do, is empty by its size.
    let mut text = text.by_ref().take(path.metadata()?.len());
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
    fn included_files_are_found_through_each_other_and_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(
            at("a.zone"),
            "$TTL 60\n$INCLUDE b ; text\n$include \"sub/c d\" example.\nx TXT \"$INCLUDE\"\n",
        )
        .expect("written");
        fs::write(at("b"), "$GENERATE 1-2 a$ A 192.0.2.$\n$INCLUDE a.zone\n$INCLUDED no\n$INCLUDE")
            .expect("written");
        let found = with_included([at("a.zone"), at("b")]);
        assert_eq!(found, [at("a.zone"), at("sub/c d"), at("b")]);
    }

    #[test]
    fn a_file_in_a_closed_folder_is_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("a.zone");
        fs::write(&file, "").expect("written");
        let set = |mode| fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).expect("ours");
        let nobody = 4_000_000_000;
        let closed = || first_closed([folder.path().to_path_buf(), file.clone()], nobody, nobody);
        set(0o755);
        assert_eq!(closed(), None);
        set(0o700);
        // Whoever is not root cannot ask for others.
        let is_told = privilege::with_access_of(nobody, nobody, || ()).is_some();
        assert_eq!(closed(), is_told.then(|| folder.path().to_path_buf()));
        assert_eq!(first_closed([folder.path().join("missing")], nobody, nobody), None);
    }
}
