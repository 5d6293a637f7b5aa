//! What the whole-server tests share: a folder of zones, and a `weir` that serves it on a loopback port.

#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its own part of this module")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_testkit::client;
use weir_testkit::message::{Answer, Name, Query};
use weir_testkit::process::{PATIENCE, Process};

pub(crate) const A: u16 = 1;
pub(crate) const SOA: u16 = 6;
pub(crate) const TXT: u16 = 16;

/// The `weir` that was built with these tests.
pub(crate) fn weir() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    // What the environment of the test run says about Weir is not for its servers.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") {
            command.env_remove(name);
        }
    }
    command
}

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

/// A running server and where it is reached.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

impl Server {
    /// Serves `zones`; `more` is added to the arguments.
    pub(crate) fn start(zones: &Path, more: &[&str]) -> Server {
        let mut command = weir();
        command.arg("serve").arg("--zones").arg(zones);
        Server::start_command(command, more)
    }

    /// Starts `command`, which serves something, on loopback ports.
    pub(crate) fn start_command(mut command: Command, more: &[&str]) -> Server {
        command
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json"])
            .args(more);
        let process = Process::start("weir", &mut command);
        let said = |message: &str| {
            let (_, line) =
                process.wait_for_line(0, |line| line.contains(&format!("\"message\":\"{message}\"")));
            line
        };
        let address_of = |line: String| {
            let (_, rest) = line.split_once("\"address\":\"").expect("the line has an address");
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let (metrics, address) = (address_of(said("metrics")), address_of(said("listening")));
        said("ready");
        Server { process, address, metrics }
    }

    /// Asks over UDP.
    pub(crate) fn ask(&self, name: &str, rtype: u16) -> Answer {
        client::ask_udp(self.address, &[Query::new(Name::from_text(name), rtype)]).remove(0)
    }

    /// Asks over TCP.
    pub(crate) fn ask_tcp(&self, name: &str, rtype: u16) -> Answer {
        client::ask_tcp(self.address, &[Query::new(Name::from_text(name), rtype)]).remove(0)
    }

    /// A TCP connection whose reads give up in the end.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends HUP and waits until the reload is over; yields the log since.
    pub(crate) fn reload(&self) -> String {
        let before = self.process.n_lines();
        self.process.signal("HUP");
        let (end, _) = self.process.wait_for_line(before, |line| line.contains("reloaded: "));
        self.process.log().lines().take(end + 1).skip(before).collect::<Vec<_>>().join("\n")
    }

    /// The body of an HTTP answer, and its status.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, body.to_owned())
    }

    /// The value of a sample of /metrics, by its name and labels as they are written there; 0 when it is not there.
    pub(crate) fn sample(&self, sample: &str) -> u64 {
        let (_, body) = self.get("/metrics");
        let value = body.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Waits until a sample of /metrics has a value.
    pub(crate) fn wait_for_sample(&self, sample: &str, wanted: u64) {
        until(&format!("{sample} to be {wanted}"), || self.sample(sample) == wanted);
    }

    /// Sends TERM; the server has to exit with code 0.
    pub(crate) fn stop(self) -> String {
        let (status, log) = self.process.terminate();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }
}

/// Tries until it holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
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
