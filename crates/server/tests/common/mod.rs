//! What the whole-server tests share: a folder of zones and messages over TCP.

#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "each test binary uses its own part of this module"
)]

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weir_testkit::message::{Answer, Name, Query};

pub(crate) use weir_testkit::process::until;
pub(crate) use weir_testkit::weir::{Weir as Server, command as weir};

pub(crate) const A: u16 = 1;
pub(crate) const SOA: u16 = 6;
pub(crate) const TXT: u16 = 16;

/// A folder that the unprivileged user which root becomes can read.
pub(crate) fn folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

/// The text of a zone with one host.
pub(crate) fn zone(serial: u32, host: &str) -> String {
    format!(
        "$TTL 60\n@ SOA ns hostmaster {serial} 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\nhost A {host}\n"
    )
}

/// Writes `text` to `NAME.zone` as an editor does: aside, then in place of the old file.
pub(crate) fn write_zone(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (aside, path) = (folder.join(format!("{name}.new")), folder.join(format!("{name}.zone")));
    fs::write(&aside, text).unwrap();
    fs::rename(&aside, &path).unwrap();
    path
}

/// A message with its length in front (RFC 1035 section 4.2.2).
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap();
    [&length.to_be_bytes()[..], message].concat()
}

/// Reads one message with its length in front.
pub(crate) fn read_framed(stream: &mut TcpStream) -> std::io::Result<Answer> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    Answer::from_wire(&message).map_err(std::io::Error::other)
}

/// The query for a name's address, with its length in front.
pub(crate) fn framed_query(id: u16, name: &str) -> Vec<u8> {
    framed(&Query::new(Name::from_text(name), A).to_wire(id))
}
