//! A whole server under fire: malformed packets, idle connections, reloads, signals.
//!
//! Needs nothing but the server itself; takes a minute: `cargo test -p weir-testkit --features scenarios`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use weir_testkit::client;
use weir_testkit::message::{Answer, Name, Query};
use weir_testkit::process::{PATIENCE, raise_own_file_limit};
use weir_testkit::random::Random;
use weir_testkit::weir::{self, Weir};

/// How long an answer may take while the server is under fire.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn malformed_packets_leave_the_server_up_and_responses_get_no_answer() {
    const PACKETS: usize = 100_000;
    let folder = folder_with("test", "192.0.2.1", 1);
    let server = Weir::serve(folder.path(), &[]);
    let mut random = Random::new(100_000);
    let queries = loopback_socket(server.address);
    let responses = loopback_socket(server.address);
    let mut n_answers = 0;
    for n in 0..PACKETS {
        let packet = malformed(&mut random);
        if packet.len() > 2 && packet[2] & 0x80 != 0 {
            responses.send(&packet).expect("the server's port is open");
        } else {
            queries.send(&packet).expect("the server's port is open");
        }
        // In step with the server, so that its queue does not drop what it is to be shown.
        if n % 64 == 63 {
            n_answers += drain(&queries, &mut random);
        }
    }
    // Packets of one socket are taken in order: if any response was answered, that comes before the answer to this.
    assert_eq!(drain(&responses, &mut Random::new(1)), 0, "a response was answered");
    assert!(n_answers > 1_000, "hardly any packet was near enough to a query to be answered: {n_answers}");
    assert_eq!(address_of("host.test", server.address), "192.0.2.1");
    let (status, log) = server.stop();
    assert!(status.success(), "weir leaves with {status}:\n{log}");
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn malformed_tcp_streams_leave_the_server_up() {
    let folder = folder_with("test", "192.0.2.1", 1);
    let server = Weir::serve(folder.path(), &[]);
    let mut random = Random::new(500);
    for _ in 0..500 {
        let mut stream = TcpStream::connect(server.address).expect("connections are taken");
        let packet = malformed(&mut random);
        let length = u16::try_from(packet.len()).expect("packets are short");
        // The length tells the truth, less, or more than ever comes.
        let claimed = length.wrapping_add(*random.pick(&[0, 0, 1, 100, u16::MAX]));
        let _ = stream.write_all(&[&claimed.to_be_bytes()[..], &packet].concat());
        // Left in the middle of whatever it was.
    }
    assert_eq!(address_of("host.test", server.address), "192.0.2.1");
    let (status, log) = server.stop();
    assert!(status.success(), "weir leaves with {status}:\n{log}");
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn two_thousand_idle_connections_keep_nobody_else_from_an_answer() {
    raise_own_file_limit(4_096);
    let folder = folder_with("test", "192.0.2.1", 1);
    let server = Weir::serve(folder.path(), &[]);
    let idle: Vec<TcpStream> = (0..2_000)
        .map(|_| TcpStream::connect_timeout(&server.address, SOON).expect("connections are taken"))
        .collect();
    let query = Query::new(Name::from_text("host.test"), 1);
    for id in 0..50 {
        let request = query.to_wire(id);
        let over_udp = client::exchange_udp(server.address, &request, SOON).expect("an answer over UDP");
        let over_tcp =
            client::exchange_tcp(server.address, &request, SOON).expect("an answer over a new connection");
        for reply in [over_udp, over_tcp] {
            assert_eq!(Answer::from_wire(&reply).expect("a whole message").answer.len(), 1);
        }
    }
    drop(idle);
    let (status, log) = server.stop();
    assert!(status.success(), "weir leaves with {status}:\n{log}");
}

#[test]
fn aliases_that_never_end_are_answered_within_bounds() {
    let folder = folder_with("test", "192.0.2.1", 1);
    let loops = "a DNAME x.b\nb DNAME a\nc CNAME d\nd CNAME c\n*.e CNAME f.g.e\n";
    let text = fs::read_to_string(folder.path().join("test.zone")).unwrap() + loops;
    fs::write(folder.path().join("test.zone"), text).unwrap();
    let server = Weir::serve(folder.path(), &[]);
    for name in ["n.a.test", "n.b.test", "c.test", "n.e.test"] {
        let request = Query::new(Name::from_text(name), 1).to_wire(5);
        let reply = client::exchange_tcp(server.address, &request, SOON).expect("an answer");
        let answer = Answer::from_wire(&reply).expect("a whole message");
        let n_aliases = answer.answer.iter().filter(|r| r.rtype == 5).count();
        assert!((1..=32).contains(&n_aliases), "{name}: {answer:?}");
    }
    assert_eq!(address_of("host.test", server.address), "192.0.2.1");
}

#[test]
fn hup_swaps_the_data_and_a_zone_that_became_bad_keeps_its_old_data() {
    let folder = folder_with("test", "192.0.2.1", 1);
    write_zone(folder.path(), "other", "192.0.2.2", 1);
    let server = Weir::serve(folder.path(), &[]);
    assert_eq!(address_of("host.test", server.address), "192.0.2.1");

    write_zone(folder.path(), "test", "192.0.2.11", 2);
    write_zone(folder.path(), "third", "192.0.2.3", 1);
    server.process.signal("HUP");
    until("the changed zone", || address_of("host.test", server.address) == "192.0.2.11");
    until("the new zone", || address_of("host.third", server.address) == "192.0.2.3");

    fs::write(folder.path().join("test.zone"), "$TTL 1\n@ SOA ns h 3 1 1 1 1\nhost A not-an-address\n")
        .unwrap();
    write_zone(folder.path(), "other", "192.0.2.22", 2);
    let before = server.process.n_lines();
    server.process.signal("HUP");
    until("the other zone", || address_of("host.other", server.address) == "192.0.2.22");
    server.process.wait_for_line(before, |line| line.contains("test.zone:3:8"));
    assert_eq!(address_of("host.test", server.address), "192.0.2.11");

    fs::remove_file(folder.path().join("third.zone")).unwrap();
    write_zone(folder.path(), "test", "192.0.2.12", 4);
    server.process.signal("HUP");
    until("the mended zone", || address_of("host.test", server.address) == "192.0.2.12");
    until("the removed zone", || address_of("host.third", server.address) == "rcode 5");
    let (status, log) = server.stop();
    assert!(status.success(), "weir leaves with {status}:\n{log}");
}

#[test]
fn a_second_server_on_the_same_port_is_refused_with_a_hint() {
    let folder = folder_with("test", "192.0.2.1", 1);
    let mut first = Weir::serve(folder.path(), &[]);
    let zones = folder.path().to_str().expect("temporary folders have plain names");
    let second = weir::run(&["serve", "--zones", zones, "--listen", &first.address.to_string()]);
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).to_lowercase();
    assert!(said.contains(&first.address.to_string()), "the address is named: {said}");
    assert!(said.contains("in use") || said.contains("another"), "the reason is named: {said}");
    assert!(first.process.is_running());
    assert_eq!(address_of("host.test", first.address), "192.0.2.1");
}

#[test]
fn term_and_int_end_the_server_with_exit_code_0() {
    for signal in ["TERM", "INT"] {
        let folder = folder_with("test", "192.0.2.1", 1);
        let server = Weir::serve(folder.path(), &[]);
        // An open connection must not hold it back.
        let mut idle = TcpStream::connect(server.address).expect("connections are taken");
        server.process.signal(signal);
        let (status, log) = server.process.wait();
        assert_eq!(status.code(), Some(0), "after {signal}:\n{log}");
        idle.set_read_timeout(Some(SOON)).expect("the time is not zero");
        assert!(matches!(idle.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}

#[test]
fn healthcheck_tells_by_its_exit_code_whether_the_server_answers() {
    let folder = folder_with("test", "192.0.2.1", 1);
    let server = Weir::serve(folder.path(), &[]);
    let address = server.address.to_string();
    assert_eq!(weir::run(&["healthcheck", "--server", &address]).status.code(), Some(0));
    drop(server);
    assert_eq!(weir::run(&["healthcheck", "--server", &address]).status.code(), Some(1));
}

/// A packet that is wrong in one of many ways, or not at all, or a response.
fn malformed(random: &mut Random) -> Vec<u8> {
    let mut packet = query(random);
    match random.below(6) {
        0 => packet = (0..random.below(600)).map(|_| random.octet()).collect(),
        1 => packet.truncate(random.below(packet.len())),
        2 => {
            for _ in 0..=random.below(8) {
                let at = random.below(packet.len());
                packet[at] ^= 1 << random.below(8);
            }
        }
        3 => {
            // Section counts that lie.
            let at = 4 + random.below(8);
            packet[at] = random.octet();
        }
        4 => {
            // A length that lies: of a label, an option or RDATA.
            let at = 12 + random.below(packet.len() - 12);
            packet[at] = *random.pick(&[0, 1, 63, 64, 127, 192, 255]);
        }
        _ => {
            packet[2] |= 0x80;
            let octets = random.below(40);
            packet.extend((0..octets).map(|_| random.octet()));
        }
    }
    packet
}

fn query(random: &mut Random) -> Vec<u8> {
    let names: [&str; 6] = ["test", "host.test", "x.y.z.host.test", "elsewhere.example", "*.test", ""];
    let edns = *random.pick(&[None, Some(0), Some(512), Some(1232), Some(u16::MAX)]);
    let name = Name::from_text(names[random.below(names.len())]);
    let rtype = *random.pick(&[1, 2, 6, 28, 251, 252, 255, 41, 0, 65_535]);
    Query { name, rtype, edns, dnssec_ok: random.one_in(2), case: random.next_u64() }
        .to_wire(u16::from(random.octet()))
}

/// Asks something that is answered for certain, reads until that answer comes, and gives how many came before it. Every
/// one of them has to be a whole message, and a response.
fn drain(socket: &UdpSocket, random: &mut Random) -> usize {
    let id = 0x8000 | u16::from(random.octet());
    socket.send(&Query::new(Name::from_text("host.test"), 1).to_wire(id)).expect("the server's port is open");
    let mut buffer = [0; 4096];
    let mut n_answers = 0;
    loop {
        let n = socket.recv(&mut buffer).expect("the server still answers");
        let answer = Answer::from_wire(&buffer[..n]).expect("what it sends is a whole message");
        assert!(answer.flags & 0x8000 != 0, "the server sent a query: {answer:?}");
        if answer.id == id && answer.rcode() == 0 && answer.answer.len() == 1 {
            return n_answers;
        }
        n_answers += 1;
    }
}

fn loopback_socket(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback port is free");
    socket.connect(server).expect("loopback can be reached");
    socket.set_read_timeout(Some(SOON)).expect("the time is not zero");
    socket
}

/// The first address of a name over UDP as text, or the response code.
fn address_of(name: &str, server: SocketAddr) -> String {
    let request = Query::new(Name::from_text(name), 1).to_wire(77);
    let reply = client::exchange_udp(server, &request, SOON).expect("the server answers");
    let answer = Answer::from_wire(&reply).expect("a whole message");
    match answer.answer.first().map(|r| &r.rdata[..]) {
        Some([a, b, c, d]) => format!("{a}.{b}.{c}.{d}"),
        _ => format!("rcode {}", answer.rcode()),
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn folder_with(zone: &str, address: &str, serial: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    write_zone(folder.path(), zone, address, serial);
    folder
}

fn write_zone(folder: &Path, zone: &str, address: &str, serial: u32) {
    let text =
        format!("$TTL 60\n@ SOA ns h {serial} 60 60 60 60\n@ NS ns\nns A 192.0.2.53\nhost A {address}\n");
    fs::write(folder.join(format!("{zone}.zone")), text).expect("the folder can be written to");
}
