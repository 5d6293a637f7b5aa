//! Weir itself, as a child process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::OnceLock;

use crate::process::Process;

/// A running `weir serve`. Dropping it ends it.
#[derive(Debug)]
pub struct Weir {
    /// Where it answers, over UDP and TCP.
    pub address: SocketAddr,
    /// The process.
    pub process: Process,
}

impl Weir {
    /// Starts `weir serve` for a folder of zones on a loopback port that it picks itself, and waits until it listens.
    /// `more` is added to its arguments. The binary is [`weir_binary`].
    ///
    /// # Panics
    /// When it ends before it listens; the message holds its log.
    pub fn serve(zones: &Path, more: &[&str]) -> Self {
        Self::start(weir_binary(), zones, more)
    }

    /// As [`Weir::serve`], for tests of the `weir` package itself, which know their binary:
    /// `Weir::start(Path::new(env!("CARGO_BIN_EXE_weir")), ...)`.
    ///
    /// # Panics
    /// As [`Weir::serve`].
    pub fn start(binary: &Path, zones: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(binary);
        command.arg("serve").arg("--zones").arg(zones);
        command
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json"])
            .args(more);
        let process = Process::start("weir", &mut command);
        // The port is picked once for UDP and TCP, and the address is logged when both are open.
        let (_, line) = process.wait_for_line(0, |l| l.contains("\"listening\""));
        let address = address_in(&line).unwrap_or_else(|| panic!("no address in the line {line}"));
        Weir { address, process }
    }

    /// Where metrics and health are served, as the log says.
    pub fn metrics(&self) -> SocketAddr {
        let (_, line) = self.process.wait_for_line(0, |l| l.contains("metrics") && address_in(l).is_some());
        address_in(&line).expect("it was just found")
    }

    /// Sends TERM and gives the exit status and the log.
    pub fn stop(self) -> (ExitStatus, String) {
        self.process.terminate()
    }
}

/// Runs `weir` with these arguments to its end.
pub fn run(arguments: &[&str]) -> Output {
    Command::new(weir_binary()).args(arguments).output().expect("the binary can be started")
}

/// The `weir` binary under test: `WEIR_BIN`, or what `cargo build --package weir` makes beside the running test.
///
/// # Panics
/// When it cannot be built.
pub fn weir_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("WEIR_BIN").map_or_else(build, PathBuf::from))
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("the crate lies in crates/")
}

fn build() -> PathBuf {
    // A test lies in <target>/<profile>/deps, the binary in <target>/<profile>.
    let test = std::env::current_exe().expect("the test knows where it lies");
    let profile = test.parent().and_then(Path::parent).expect("tests lie in <target>/<profile>/deps");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "weir"]).current_dir(workspace());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(profile.parent().expect("a profile has a target folder"));
    assert!(cargo.status().expect("cargo can be started").success(), "weir does not build");
    profile.join("weir")
}

/// The last socket address in a line of the log.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split(|c: char| c.is_whitespace() || "\"=,{}()".contains(c))
        .filter_map(|word| word.parse().ok())
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::address_in;

    #[test]
    fn an_address_is_found_in_json_and_in_text() {
        let expected = Some("127.0.0.1:4321".parse().unwrap());
        assert_eq!(address_in(r#"{"message":"listening","address":"127.0.0.1:4321","workers":2}"#), expected);
        assert_eq!(address_in("INFO listening address=127.0.0.1:4321 workers=2"), expected);
        assert_eq!(address_in("INFO listening"), None);
    }
}
