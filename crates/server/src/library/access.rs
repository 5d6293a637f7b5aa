//! Whether another user could read a file: asked before root is given up, when it is still possible to act on it.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Permission to read a file or list a directory, and to pass through a directory.
const READ: u32 = 0o4;
const PASS: u32 = 0o1;

/// Whether user `uid` of group `gid`, with no other groups and no capability, may read the file or list the directory
/// at `path`, by the permission bits of it and of every directory on the way there.
///
/// Access control lists and security modules are not looked at. What does not exist is nobody's to read.
pub(super) fn may_read(path: &Path, uid: u32, gid: u32) -> bool {
    let may = |path: &Path, wanted| std::fs::metadata(path).is_ok_and(|meta| allows(&meta, uid, gid, wanted));
    let wanted = if path.is_dir() { READ | PASS } else { READ };
    may(path, wanted) && directories_on_the_way(path).all(|directory| may(&directory, PASS))
}

/// The directories that opening `path` passes through. A relative path starts at the working directory, which has to be
/// passed through itself, but not what lies above it.
fn directories_on_the_way(path: &Path) -> impl Iterator<Item = PathBuf> {
    let start = if path.is_absolute() { None } else { Some(PathBuf::from(".")) };
    let mut so_far = PathBuf::new();
    let components: Vec<Component<'_>> = path.components().collect();
    let on_the_way = components.len().saturating_sub(1);
    let prefixes: Vec<PathBuf> = components
        .into_iter()
        .take(on_the_way)
        .map(|component| {
            so_far.push(<Component<'_> as AsRef<OsStr>>::as_ref(&component));
            so_far.clone()
        })
        .collect();
    start.into_iter().chain(prefixes)
}

/// Which of the three sets of permission bits applies is decided by the first match (path_resolution(7)).
fn allows(meta: &Metadata, uid: u32, gid: u32, wanted: u32) -> bool {
    bits_allow(meta.mode(), (meta.uid(), meta.gid()), (uid, gid), wanted)
}

fn bits_allow(mode: u32, owner: (u32, u32), user: (u32, u32), wanted: u32) -> bool {
    let bits = if owner.0 == user.0 {
        mode >> 6
    } else if owner.1 == user.1 {
        mode >> 3
    } else {
        mode
    };
    user.0 == 0 || bits & wanted == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_set_of_bits_that_fits_decides() {
        let weir = (65532, 65532);
        assert!(bits_allow(0o644, (0, 0), weir, READ));
        assert!(!bits_allow(0o640, (0, 0), weir, READ));
        assert!(bits_allow(0o640, (0, 65532), weir, READ));
        assert!(bits_allow(0o400, (65532, 0), weir, READ));
        assert!(!bits_allow(0o044, (65532, 65532), weir, READ), "the owner's bits go before the others'");
        assert!(bits_allow(0o000, (7, 7), (0, 0), READ | PASS), "root may do everything");
        assert!(!bits_allow(0o644, (0, 0), weir, READ | PASS));
    }

    #[test]
    fn a_relative_path_passes_the_working_directory_and_not_what_is_above() {
        let on_the_way = |path: &str| directories_on_the_way(Path::new(path)).collect::<Vec<_>>();
        assert_eq!(on_the_way("zones/a.zone"), [PathBuf::from("."), PathBuf::from("zones")]);
        assert_eq!(on_the_way("/srv/zones"), [PathBuf::from("/"), PathBuf::from("/srv")]);
    }

    #[test]
    fn a_file_in_a_closed_folder_is_not_readable_for_others() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("a.zone");
        std::fs::write(&file, "").expect("written");
        let set =
            |mode| std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).expect("ours");
        let nobody = 4_000_000_000;
        set(0o755);
        assert!(may_read(&file, nobody, nobody) && may_read(folder.path(), nobody, nobody));
        set(0o700);
        assert!(!may_read(&file, nobody, nobody) && !may_read(folder.path(), nobody, nobody));
    }
}
