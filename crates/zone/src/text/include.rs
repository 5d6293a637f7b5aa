//! `$INCLUDE` and the opening of files.

use super::entry::ends;
use super::input::Input;
use super::reader::{Entry, Inclusion, Reader};
use super::scanner::{Form, Scanner, Stop, Token};
use super::strings::unescape;
use crate::diagnostic::{Diagnostic, Location};
use crate::files::open_regular;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files that may be open within each other: BIND's limit is of the same order, and a cycle is found before.
const MAX_DEPTH: usize = 20;

impl Reader<'_> {
    /// Reads the zone's own file.
    pub(super) fn path(&mut self, path: &Path) {
        match open_regular(path) {
            Err(error) => self.findings.push(Diagnostic::of_file(path, "file", error.to_string())),
            Ok((file, metadata)) => {
                self.open_files.push((path.to_owned(), id_of(&metadata)));
                self.file(path, &file, metadata);
                self.open_files.pop();
            }
        }
    }

    /// Reads a file that was opened just now and said `metadata` of itself; half of an old text and half of a new one is
    /// an error.
    fn file(&mut self, path: &Path, file: &File, metadata: Metadata) {
        // What says it is empty is not read: files of /proc say so, and some of them never end.
        let text: Box<dyn Read + '_> =
            if metadata.len() == 0 { Box::new(io::empty()) } else { Box::new(file) };
        let before = Version::of(&metadata);
        self.files.note_opened(path, metadata);
        // One octet more than there are, so that the end shows at once.
        let n_octets = usize::try_from(before.n_octets).unwrap_or(usize::MAX);
        let block_len = self.block_len.min(n_octets.saturating_add(1));
        self.input(path, Input::blocks(text, block_len));
        if file.metadata().map_or(true, |after| before != Version::of(&after)) {
            let message = "the file changed while it was read: load it again when it is complete";
            self.findings.push(Diagnostic::of_file(path, "file", message));
        }
    }

    /// `$INCLUDE FILE [ORIGIN]`.
    pub(super) fn include_directive(&mut self, scanner: &mut Scanner<'_>) -> Result<Entry, Stop> {
        let (line, column) = scanner.place();
        let at = Location { file: self.file, line, column };
        let token = scanner.token()?;
        let path = include_path(scanner, token)?;
        if !self.options.includes {
            return Err(scanner.wrong("include", "$INCLUDE is not allowed here"));
        }
        let origin = match scanner.token()? {
            None => self.state.origin,
            token => {
                let origin = self.name_of(scanner, token, "")?;
                ends(scanner)?;
                origin
            }
        };
        Ok(Entry::Include(Box::new(Inclusion { path, origin, at })))
    }

    /// Reads an included file. Origin and owner are what they were before when it is done; `$TTL` stays.
    pub(super) fn include(&mut self, inclusion: &Inclusion) {
        let at = inclusion.at;
        let path = match self.open_files.last().and_then(|(includer, _)| includer.parent()) {
            Some(folder) => folder.join(&inclusion.path),
            None => inclusion.path.clone(),
        };
        if self.open_files.len() > MAX_DEPTH {
            let message = format!("files include each other more than {MAX_DEPTH} deep");
            return self.error(at, "include", message);
        }
        let (file, metadata) = match open_regular(&path) {
            Ok(opened) => opened,
            Err(error) => {
                return self.error(at, "include", format!("cannot include {}: {error}", path.display()));
            }
        };
        let id = id_of(&metadata);
        if let Some(cycle) = self.cycle(id, &path) {
            return self.error(at, "include", format!("files include each other in a circle: {cycle}"));
        }
        let before = (self.state.origin, self.state.owner.clone(), self.state.owner_in_zone);
        self.set_origin(inclusion.origin);
        self.open_files.push((path.clone(), id));
        self.file(&path, &file, metadata);
        self.open_files.pop();
        self.set_origin(before.0);
        (self.state.owner, self.state.owner_in_zone) = (before.1, before.2);
    }

    /// The files from the one that is included on, when it is open already, and `path`, by which it is included.
    fn cycle(&self, id: FileId, path: &Path) -> Option<String> {
        let first = self.open_files.iter().position(|(_, open)| *open == id)?;
        let open = self.open_files.iter().skip(first).map(|(open, _)| open.as_path());
        let names: Vec<String> = open.chain([path]).map(|path| path.display().to_string()).collect();
        Some(names.join(" -> "))
    }
}

/// Device and inode: which file it is, whatever links lead to it.
pub(super) type FileId = (u64, u64);

fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// What changes when a file is written to.
#[derive(PartialEq, Eq)]
struct Version {
    n_octets: u64,
    modified: Option<SystemTime>,
}

impl Version {
    fn of(metadata: &Metadata) -> Version {
        Version { n_octets: metadata.len(), modified: metadata.modified().ok() }
    }
}

fn include_path(scanner: &Scanner<'_>, token: Option<Token<'_>>) -> Result<PathBuf, Stop> {
    let Some(token) = token else {
        return Err(scanner.wrong("include", "$INCLUDE needs the name of a file"));
    };
    let mut octets = Vec::new();
    let form = if token.form == Form::Plain { Form::Plain } else { Form::Quoted };
    let path =
        unescape(Token { text: token.text, form }, &mut octets).and_then(|()| String::from_utf8(octets).ok());
    path.map(PathBuf::from).ok_or_else(|| scanner.wrong("include", "the file's name is malformed"))
}
