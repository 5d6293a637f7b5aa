//! Servers that misbehave on purpose, and queryperf as a child process.

#![allow(dead_code, clippy::allow_attributes, reason = "each test program uses a part of this")]

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

/// How often a responder looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// A query as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Counted from 1.
    pub(crate) number: usize,
    pub(crate) packet: Vec<u8>,
    pub(crate) peer: SocketAddr,
}

impl Seen {
    /// The packet as its own answer.
    pub(crate) fn answer(&self) -> Vec<u8> {
        let mut answer = self.packet.clone();
        answer[2] |= 0x80;
        answer
    }

    /// The octets of the question and what follows it.
    pub(crate) fn question(&self) -> &[u8] {
        &self.packet[12..]
    }

    /// The answer when `number` is no multiple of `n`, else nothing.
    pub(crate) fn unless_every(&self, n: usize) -> Vec<Vec<u8>> {
        if self.number.is_multiple_of(n) { Vec::new() } else { vec![self.answer()] }
    }
}

/// A server on a loopback port of its own. Dropping it ends it.
pub(crate) struct Responder {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Answers each datagram with what `reply` makes of it, in the order in which they come.
    pub(crate) fn udp(reply: impl FnMut(&Seen) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        Self::udp_on("127.0.0.1:0", reply)
    }

    /// As [`Responder::udp`] on an address of choice.
    pub(crate) fn udp_on(
        address: &str,
        mut reply: impl FnMut(&Seen) -> Vec<Vec<u8>> + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let address = socket.local_addr().unwrap();
        Self::start(address, move |seen, stop| {
            let mut octets = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                let Ok((n, peer)) = socket.recv_from(&mut octets) else { continue };
                for answer in reply(&note(&seen, octets[..n].to_vec(), peer)) {
                    socket.send_to(&answer, peer).unwrap();
                }
            }
        })
    }

    /// Takes one connection after the other, and answers each message with what `reply` makes of it; closes a
    /// connection for which it yields `None`. Each connection has a thread of its own.
    pub(crate) fn tcp(reply: impl Fn(&Seen) -> Option<Vec<Vec<u8>>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reply = Arc::new(reply);
        Self::start(address, move |seen, stop| {
            std::thread::scope(|scope| {
                while !stop.load(Ordering::Relaxed) {
                    let (stream, peer) = listener.accept().unwrap();
                    let (seen, stop, reply) = (&seen, &stop, Arc::clone(&reply));
                    scope.spawn(move || converse(&stream, peer, seen, stop, &*reply));
                }
            });
        })
    }

    fn start(
        address: SocketAddr,
        work: impl FnOnce(Arc<Mutex<Vec<Seen>>>, Arc<AtomicBool>) + Send + 'static,
    ) -> Self {
        let (seen, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            move || work(seen, stop)
        });
        Self { address, seen, stop, thread: Some(thread) }
    }

    /// The queries so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Whoever waits for a connection gets one; a UDP server looks at the word to stop now and then.
        let _ = TcpStream::connect(self.address);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the responder panicked");
    }
}

fn note(seen: &Mutex<Vec<Seen>>, packet: Vec<u8>, peer: SocketAddr) -> Seen {
    let mut seen = seen.lock().unwrap();
    let query = Seen { number: seen.len() + 1, packet, peer };
    seen.push(query.clone());
    query
}

fn converse(
    mut stream: &TcpStream,
    peer: SocketAddr,
    seen: &Mutex<Vec<Seen>>,
    stop: &AtomicBool,
    reply: &dyn Fn(&Seen) -> Option<Vec<Vec<u8>>>,
) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LOOK)).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let mut length = [0; 2];
        match stream.peek(&mut length) {
            Ok(2) => {}
            Ok(0) => return,
            Ok(_) | Err(_) => continue,
        }
        let _ = stream.read_exact(&mut length);
        let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut packet).is_err() {
            return;
        }
        let Some(answers) = reply(&note(seen, packet, peer)) else { return };
        for answer in answers {
            let length = u16::try_from(answer.len()).unwrap();
            if stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).is_err() {
                return;
            }
        }
    }
}

/// A query file with names that differ.
pub(crate) fn names(n: usize) -> String {
    (0..n).fold(String::new(), |mut text, i| {
        writeln!(text, "host{i}.example. A").unwrap();
        text
    })
}

/// Runs queryperf against `server` with a query file on its standard input.
pub(crate) fn queryperf(server: SocketAddr, queries: &str, arguments: &[&str]) -> Output {
    let (ip, port) = (server.ip().to_string(), server.port().to_string());
    run(&[&["-s", &ip, "-p", &port], arguments].concat(), queries)
}

/// Runs queryperf with `queries` on its standard input.
pub(crate) fn run(arguments: &[&str], queries: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_queryperf"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(queries.as_bytes());
    child.wait_with_output().unwrap()
}

/// The object that `--json` prints.
pub(crate) struct Report(Value);

impl Report {
    /// Runs queryperf with `--json`; it must succeed.
    pub(crate) fn of(server: SocketAddr, queries: &str, arguments: &[&str]) -> Self {
        let output = queryperf(server, queries, &[arguments, &["--json"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        Self(serde_json::from_slice(&output.stdout).unwrap())
    }

    /// A count.
    pub(crate) fn count(&self, key: &str) -> usize {
        let value = self.0[key].as_u64().unwrap_or_else(|| panic!("no count `{key}` in {}", self.0));
        usize::try_from(value).unwrap()
    }

    /// Several counts.
    pub(crate) fn counts<const N: usize>(&self, keys: [&str; N]) -> [usize; N] {
        keys.map(|key| self.count(key))
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> f64 {
        self.0[key].as_f64().unwrap_or_else(|| panic!("no number `{key}` in {}", self.0))
    }

    /// Whatever is there.
    pub(crate) fn value(&self, key: &str) -> &Value {
        &self.0[key]
    }
}
