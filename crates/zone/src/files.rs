//! Zone files on disk: opening them safely.

use std::fs::File;
use std::path::Path;

/// Opens a regular file, or says why it cannot be read.
///
/// A folder, a pipe or a device is refused before it is opened: opening a pipe would wait for its writer.
pub(crate) fn open_regular(path: &Path) -> Result<File, String> {
    let metadata = path.metadata().map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Err("this is a folder, not a file".to_owned());
    }
    if !metadata.is_file() {
        return Err("this is neither a file nor a link to one".to_owned());
    }
    File::open(path).map_err(|error| error.to_string())
}
