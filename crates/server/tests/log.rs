//! The log, whatever becomes of whoever reads it: the server answers, rereads and ends as ever.

mod common;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use common::{A, SOA, folder, until, weir, write_zone, zone};
use weir_testkit::client;
use weir_testkit::message::{Name, Query};

/// A server whose log the test reads, or does not.
struct Server {
    child: Child,
    log: Option<BufReader<ChildStderr>>,
    address: SocketAddr,
}

impl Server {
    /// Starts one and reads its log until it is ready.
    fn start(zones: &Path) -> Server {
        let mut command = weir();
        command.args(["serve", "--listen", "127.0.0.1:0", "--metrics", "off", "--zones"]).arg(zones);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut address = None;
        let mut line = String::new();
        while !line.ends_with("ready\n") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended");
            let listening = line.split("listening on ").nth(1).and_then(|rest| rest.split(' ').next());
            address = listening.map(|text| text.parse().unwrap()).or(address);
        }
        Server { child, log: Some(log), address: address.expect("it said where it listens") }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]).status();
        assert!(sent.unwrap().success(), "the server is gone");
    }

    fn serial(&self) -> Vec<u8> {
        let answers = client::ask_tcp(self.address, &[Query::new(Name::from_text("example.com"), SOA)]);
        answers[0].answer[0].rdata[..].to_vec()
    }

    /// Rereads zones until the answer is another one.
    fn reload(&self) {
        let before = self.serial();
        self.signal("HUP");
        until("new data", || self.serial() != before);
        let over_udp = client::ask_udp(self.address, &[Query::new(Name::from_text("host.example.com"), A)]);
        assert_eq!(over_udp[0].answer.len(), 1);
    }

    fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_log_reader_that_goes_away_takes_nothing_with_it() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let mut server = Server::start(zones.path());
    drop(server.log.take());
    for serial in 2..5 {
        write_zone(zones.path(), "example.com", &zone(serial, "192.0.2.1"));
        server.reload();
    }
    server.stop();
}

#[test]
fn a_log_reader_that_stops_reading_holds_nothing_up() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    // Some 40 KB of log lines each time: a pipe holds 64.
    for n in 0..20 {
        write_zone(zones.path(), &format!("bad{n}.test"), &"no-such-type X\n".repeat(20));
    }
    let server = Server::start(zones.path());
    for serial in 2..12 {
        write_zone(zones.path(), "example.com", &zone(serial, "192.0.2.1"));
        server.reload();
    }
    server.stop();
}
