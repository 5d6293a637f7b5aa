//! Zones signed by Debian's signers: `ldns-signzone` (ldnsutils) and `dnssec-signzone` (bind9-utils).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::generate::Denial;
use crate::message::Name;

/// Signatures are good from here on, and until after every test (2080).
const INCEPTION: &str = "20260101000000";
const EXPIRATION: &str = "20800101000000";

/// Who signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// `ldns-signzone`.
    Ldns,
    /// `dnssec-signzone`.
    Bind,
}

/// One ECDSA key that signs any number of zones: made for a run, thrown away with its folder.
#[derive(Debug)]
pub struct Key {
    folder: tempfile::TempDir,
    /// The DNSKEY record from its type on.
    public: String,
    private: String,
    /// What follows the zone's name in the names of its files.
    suffix: String,
}

impl Key {
    /// Makes a key.
    ///
    /// # Panics
    /// When dnssec-keygen (bind9-utils) is not there.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let mut keygen = Command::new("dnssec-keygen");
        // Algorithm 13 (RFC 6605) is quick; with the flag of a key-signing key it signs everything.
        keygen.args(["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K"]).arg(folder.path()).arg("any.test");
        let name = run(&mut keygen);
        let name = name.trim();
        let read = |ending: &str| {
            fs::read_to_string(folder.path().join(format!("{name}.{ending}"))).expect("the key was written")
        };
        let public = read("key");
        let public = public.lines().find_map(|line| line.split_once(" IN DNSKEY ")).expect("a DNSKEY").1;
        let suffix = name.strip_prefix("Kany.test.").expect("named after its zone").to_owned();
        let (public, private) = (public.to_owned(), read("private"));
        Key { folder, public, private, suffix }
    }

    /// The DNSKEY record's data, as a trust anchor has it.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Signs the master file `text` and gives the signed one. The tag of a key does not depend on its owner, so that
    /// the files are copied under the zone's name.
    ///
    /// # Panics
    /// When the signer is not there or refuses the zone; the message holds what it says.
    pub fn sign(&self, signer: Signer, origin: &Name, text: &str, denial: Denial) -> String {
        let folder = tempfile::tempdir_in(self.folder.path()).expect("there is a temporary folder");
        let base = folder.path().join(format!("K{origin}{}", self.suffix));
        let with_ending = |ending: &str| PathBuf::from(format!("{}.{ending}", base.display()));
        let unsigned = folder.path().join("unsigned");
        let signed = folder.path().join("signed");
        fs::write(with_ending("key"), format!("{origin} IN DNSKEY {}\n", self.public)).expect("written");
        fs::write(with_ending("private"), &self.private).expect("written");
        fs::write(&unsigned, text).expect("written");
        let mut command = match signer {
            Signer::Ldns => ldns(denial, origin, &signed, &unsigned, &base),
            Signer::Bind => bind(denial, origin, &signed, &unsigned, folder.path()),
        };
        run(command.current_dir(folder.path()));
        fs::read_to_string(&signed).expect("the signed zone was written")
    }
}

impl Default for Key {
    fn default() -> Self {
        Key::new()
    }
}

fn ldns(denial: Denial, origin: &Name, signed: &Path, unsigned: &Path, key: &Path) -> Command {
    let mut command = Command::new("ldns-signzone");
    command.args(["-i", INCEPTION, "-e", EXPIRATION, "-o", &origin.to_string(), "-f"]).arg(signed);
    if let Denial::Nsec3 { opt_out } = denial {
        command.args(["-n", "-t", "0"]);
        if opt_out {
            command.arg("-p");
        }
    }
    command.arg(unsigned).arg(key);
    command
}

fn bind(denial: Denial, origin: &Name, signed: &Path, unsigned: &Path, keys: &Path) -> Command {
    let mut command = Command::new("dnssec-signzone");
    command.args([
        "-q",
        "-P",
        "-S",
        "-z",
        "-s",
        INCEPTION,
        "-e",
        EXPIRATION,
        "-o",
        &origin.to_string(),
        "-K",
    ]);
    command.arg(keys).arg("-f").arg(signed);
    if let Denial::Nsec3 { opt_out } = denial {
        // A salt and iterations, which are out of use (RFC 9276) and answered nevertheless.
        command.args(["-3", "beef", "-H", "2"]);
        if opt_out {
            command.arg("-A");
        }
    }
    command.arg(unsigned);
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("cannot start {:?}: {e}", command.get_program()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} leaves with {}:\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
