//! Signing a zone with a key made for the occasion.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::shell::finish;

/// How a zone proves what it does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// RFC 4034.
    Nsec,
    /// RFC 5155, without salt or further iterations (RFC 9276).
    Nsec3,
}

/// Signs the zone file in place: algorithm 13 (ECDSA P-256), one key for everything, valid until 2036.
///
/// Needs `dnssec-keygen` and `dnssec-signzone` (Debian: bind9-utils).
pub(crate) fn sign(zone: &Path, origin: &str, denial: Denial) -> anyhow::Result<()> {
    let work = tempfile::tempdir()?;
    let mut keygen = Command::new("dnssec-keygen");
    keygen.args(["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K"]).arg(work.path()).arg(origin);
    let key = finish(&mut keygen)?.trim().to_owned();
    let signed = work.path().join("signed");
    // The zone file names no origin for its keys: they are added by -S.
    let mut signzone = Command::new("dnssec-signzone");
    signzone.args(["-q", "-S", "-z", "-P", "-o", origin, "-s", "20260101000000", "-e", "20360101000000"]);
    if denial == Denial::Nsec3 {
        signzone.args(["-3", "-", "-H", "0"]);
    }
    signzone.arg("-K").arg(work.path()).arg("-f").arg(&signed).arg(zone).current_dir(work.path());
    finish(&mut signzone).with_context(|| format!("key {key}"))?;
    fs::copy(&signed, zone)?;
    Ok(())
}
