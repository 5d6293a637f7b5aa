//! Weir itself, as a child process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::client;
use crate::message::{Answer, Name, Query};
use crate::process::{PATIENCE, Process, until};

/// A running `weir serve`. Dropping it ends it.
#[derive(Debug)]
pub struct Weir {
    /// The process.
    pub process: Process,
    /// Where it answers, over UDP and TCP.
    pub address: SocketAddr,
    /// Where metrics and health are served.
    pub metrics: SocketAddr,
}

impl Weir {
    /// Starts `weir serve` for a folder of zones on loopback ports that it picks itself, and waits until it answers.
    /// `more` is added to its arguments. The binary is [`weir_binary`].
    ///
    /// # Panics
    /// When it ends before it answers; the message holds its log.
    pub fn serve(zones: &Path, more: &[&str]) -> Self {
        let mut serve = command();
        serve.arg("serve").arg("--zones").arg(zones);
        Self::serve_command(serve, more)
    }

    /// As [`Weir::serve`] for a configuration of this text, which is written to `weir.toml` in a folder.
    ///
    /// # Panics
    /// As [`Weir::serve`].
    pub fn serve_config(folder: &Path, text: &str) -> Self {
        let file = folder.join("weir.toml");
        std::fs::write(&file, text).expect("the folder can be written to");
        let mut serve = command();
        serve.args(["serve", "--config"]).arg(file);
        Self::serve_command(serve, &[])
    }

    /// As [`Weir::serve`] for a command that says itself what is served.
    ///
    /// # Panics
    /// As [`Weir::serve`].
    pub fn serve_command(command: Command, more: &[&str]) -> Self {
        let weir = Self::listen(command, more);
        weir.process.wait_for_line(0, is_ready);
        weir
    }

    /// As [`Weir::serve_command`], but does not wait until zones are loaded.
    ///
    /// # Panics
    /// When it ends before it listens; the message holds its log.
    pub fn listen(mut command: Command, more: &[&str]) -> Self {
        command
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json"])
            .args(more);
        let process = Process::start("weir", &mut command);
        let address_after = |message: &str| {
            let message = format!("\"message\":\"{message}\"");
            let (_, line) = process.wait_for_line(0, |line| line.contains(&message));
            address_in(&line).unwrap_or_else(|| panic!("no address in the line {line}"))
        };
        let (metrics, address) = (address_after("metrics"), address_after("listening"));
        Weir { process, address, metrics }
    }

    /// Starts `command`, which serves something on addresses that it was given, and waits until it answers.
    ///
    /// # Panics
    /// As [`Weir::serve`].
    pub fn started(mut command: Command, address: SocketAddr, metrics: SocketAddr) -> Self {
        let process = Process::start("weir", &mut command);
        process.wait_for_line(0, is_ready);
        Weir { process, address, metrics }
    }

    /// Asks over UDP.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn ask(&self, name: &str, rtype: u16) -> Answer {
        client::ask_udp(self.address, &[Query::new(Name::from_text(name), rtype)]).remove(0)
    }

    /// Asks over TCP.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn ask_tcp(&self, name: &str, rtype: u16) -> Answer {
        client::ask_tcp(self.address, &[Query::new(Name::from_text(name), rtype)]).remove(0)
    }

    /// A TCP connection whose reads give up in the end.
    ///
    /// # Panics
    /// When there is none to be had.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connections are taken");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream
    }

    /// Sends HUP and waits until the reload is over; yields the log since.
    ///
    /// # Panics
    /// When the reload does not end.
    pub fn reload(&self) -> String {
        let before = self.process.n_lines();
        self.process.signal("HUP");
        let (end, _) = self.process.wait_for_line(before, |line| line.contains("reloaded: "));
        self.process.log().lines().take(end + 1).skip(before).collect::<Vec<_>>().join("\n")
    }

    /// The status of an HTTP answer, and its body.
    ///
    /// # Panics
    /// When there is none.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.metrics).expect("connections are taken");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
            .expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer is text");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").expect("the head ends");
        (status.expect("there is a status"), body.to_owned())
    }

    /// The value of a sample of /metrics, by its name and labels as they are written there; 0 when it is not there.
    ///
    /// # Panics
    /// When there are no metrics.
    pub fn sample(&self, sample: &str) -> u64 {
        let (_, body) = self.get("/metrics");
        let value = body.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().expect("a sample is a number"))
    }

    /// Waits until a sample of /metrics has a value.
    ///
    /// # Panics
    /// When it does not come to have it.
    pub fn wait_for_sample(&self, sample: &str, wanted: u64) {
        until(&format!("{sample} to be {wanted}"), || self.sample(sample) == wanted);
    }

    /// Sends TERM and waits for the end; yields the log.
    ///
    /// # Panics
    /// When it does not end, or with another exit code than 0.
    pub fn stop(self) -> String {
        let (status, log) = self.process.terminate();
        assert_eq!(status.code(), Some(0), "weir leaves with {status}:\n{log}");
        log
    }
}

fn is_ready(line: &str) -> bool {
    line.contains("\"message\":\"ready\"")
}

/// The `weir` binary without what the environment of the test run says about Weir: that is not for its servers.
pub fn command() -> Command {
    let mut command = Command::new(weir_binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") {
            command.env_remove(name);
        }
    }
    command
}

/// What `weir serve` says of a folder of zones that it cannot serve at an address.
///
/// # Panics
/// When it does not end with exit code 1.
pub fn refusal(zones: &Path, listen: &str) -> String {
    let mut serve = command();
    serve.args(["serve", "--listen", listen, "--metrics", "off", "--zones"]).arg(zones);
    let output = serve.stdin(Stdio::null()).output().expect("the binary can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// Runs `weir` with these arguments to its end.
pub fn run(arguments: &[&str]) -> Output {
    command().args(arguments).output().expect("the binary can be started")
}

/// The `weir` binary under test: `WEIR_BIN`; in tests of the `weir` package the one that cargo built for them; else what
/// `cargo build --package weir` makes beside the running test.
///
/// # Panics
/// When it cannot be built.
pub fn weir_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let known = || std::env::var_os("WEIR_BIN").or_else(|| std::env::var_os("CARGO_BIN_EXE_weir"));
    BINARY.get_or_init(|| known().map_or_else(build, PathBuf::from))
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
