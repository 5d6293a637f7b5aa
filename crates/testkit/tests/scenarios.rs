//! A whole server under fire: malformed packets and streams, aliases without end.
//!
//! Needs nothing but the server itself; takes a minute: `cargo test -p weir-testkit --features scenarios`.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use weir_testkit::client;
use weir_testkit::message::{Answer, Name, Query};
use weir_testkit::random::Random;
use weir_testkit::weir::Weir;

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
    let log = server.stop();
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
    let log = server.stop();
    assert!(!log.contains("panic"), "{log}");
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
