//! DNS over TCP as a whole: pipelining, idle connections, the cap, slow and half-closed clients.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use common::{A, Server, folder, framed, framed_query, read_framed, write_zone, zone};
use tempfile::TempDir;
use weir_testkit::message::{Name, Query};

const HOST: &str = "host.example.com";

fn serve(toml: &str) -> (TempDir, Server) {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let config = place.path().join("weir.toml");
    std::fs::write(&config, format!("[server]\nzones = \".\"\n{toml}")).unwrap();
    let mut command = common::weir();
    command.args(["serve", "--config"]).arg(&config);
    let server = Server::start_command(command, &[]);
    (place, server)
}

/// Whether the server has closed the connection: waits for what comes first, the end or an answer.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(n_octets) => n_octets == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Asks on a connection and takes the answer.
fn converse(stream: &mut TcpStream, id: u16) {
    stream.write_all(&framed_query(id, HOST)).unwrap();
    let answer = read_framed(stream).unwrap();
    assert_eq!((answer.id, answer.rcode(), answer.answer.len()), (id, 0, 1));
}

#[test]
fn pipelined_queries_are_all_answered_in_their_order() {
    let (_place, server) = serve("");
    let mut stream = server.connect();
    let queries: Vec<u8> = (0..2_000).flat_map(|id| framed_query(id, HOST)).collect();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&queries).unwrap());
    for id in 0..2_000 {
        assert_eq!(read_framed(&mut stream).unwrap().id, id);
    }
    writing.join().unwrap();
    server.stop();
}

#[test]
fn a_query_that_arrives_octet_by_octet_is_answered() {
    let (_place, server) = serve("");
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    for octet in framed_query(3, HOST) {
        stream.write_all(&[octet]).unwrap();
    }
    assert_eq!(read_framed(&mut stream).unwrap().id, 3);
    server.stop();
}

#[test]
fn a_client_that_closes_its_half_still_gets_its_answers() {
    let (_place, server) = serve("");
    let mut stream = server.connect();
    stream.write_all(&[framed_query(1, HOST), framed_query(2, HOST)].concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_framed(&mut stream).unwrap().id, 1);
    assert_eq!(read_framed(&mut stream).unwrap().id, 2);
    assert!(is_closed(&mut stream));
    server.stop();
}

#[test]
fn at_the_cap_the_connection_that_was_idle_longest_is_closed() {
    let (_place, server) = serve("[tcp]\nmax_connections = 3\nidle_timeout = \"1h\"\n");
    let mut early: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    // All have asked; the second one's question is the oldest.
    for (id, number) in (0..).zip([1, 0, 2]) {
        converse(&mut early[number], id);
    }
    let mut late = server.connect();
    converse(&mut late, 9);
    assert!(is_closed(&mut early[1]));
    for number in [0, 2] {
        converse(&mut early[number], 10);
    }
    assert_eq!(server.sample("weir_tcp_connections_closed_total{reason=\"cap\"}"), 1);
    server.wait_for_sample("weir_tcp_connections_open", 3);
    server.stop();
}

#[test]
fn a_connection_without_queries_is_closed_after_the_idle_timeout() {
    let (_place, server) = serve("[tcp]\nidle_timeout = \"50ms\"\n");
    let mut stream = server.connect();
    assert!(is_closed(&mut stream));
    // Half a query is none: sending an octet now and then keeps no connection open.
    let mut trickling = server.connect();
    trickling.write_all(&framed_query(1, HOST)[..5]).unwrap();
    assert!(is_closed(&mut trickling));
    server.wait_for_sample("weir_tcp_connections_closed_total{reason=\"idle\"}", 2);
    server.stop();
}

#[test]
fn two_thousand_idle_connections_do_not_keep_others_from_being_answered() {
    let (_place, server) = serve("[tcp]\nidle_timeout = \"1h\"\n");
    let mut idle = Vec::new();
    // The test itself may have fewer files than the server: then it opens as many as it can.
    while idle.len() < 2_000 {
        match TcpStream::connect(server.address) {
            Ok(stream) => idle.push(stream),
            Err(error) if error.raw_os_error() == Some(24) => break,
            Err(error) => panic!("{error} after {} connections", idle.len()),
        }
    }
    assert!(idle.len() >= 200, "{} connections prove nothing", idle.len());
    idle.truncate(idle.len() - 10);
    assert_eq!(server.ask_tcp(HOST, A).answer.len(), 1);
    assert_eq!(server.ask(HOST, A).answer.len(), 1);
    server.stop();
}

#[test]
fn a_client_that_takes_no_answers_is_closed() {
    let (_place, server) = serve("[tcp]\nwrite_timeout = \"50ms\"\n");
    let mut stream = server.connect();
    // Far more answers than the buffers of both sides hold (a few MiB), none of them read.
    let queries: Vec<u8> = (0..1_000).flat_map(|id| framed_query(id, HOST)).collect();
    let refused = (0..10_000).find_map(|_| stream.write_all(&queries).err());
    let kind = refused.expect("the server does not take queries without end").kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind}");
    server.wait_for_sample("weir_tcp_connections_closed_total{reason=\"failed\"}", 1);
    assert_eq!(server.ask_tcp(HOST, A).answer.len(), 1);
    server.stop();
}

#[test]
fn a_message_without_octets_ends_the_connection() {
    let (_place, server) = serve("");
    let mut stream = server.connect();
    stream.write_all(&framed(b"")).unwrap();
    assert!(is_closed(&mut stream));
    server.stop();
}

#[test]
fn an_answer_of_over_60_000_octets_arrives_whole() {
    let place = folder();
    let strings = "\"".to_owned() + &"x".repeat(250) + "\"";
    let records: String = (0..220).map(|n| format!("big TXT {strings} \"{n}\"\n")).collect();
    write_zone(place.path(), "example.com", &(zone(1, "192.0.2.1") + &records));
    let server = Server::start(place.path(), &[]);
    let mut stream = server.connect();
    let query = Query::new(Name::from_text("big.example.com"), common::TXT);
    stream.write_all(&[framed(&query.to_wire(1)), framed(&query.to_wire(2))].concat()).unwrap();
    for id in [1, 2] {
        let answer = read_framed(&mut stream).unwrap();
        assert_eq!((answer.id, answer.answer.len(), answer.is_truncated()), (id, 220, false));
        assert!(answer.octets > 55_000, "{} octets", answer.octets);
    }
    server.stop();
}

#[test]
fn queries_that_have_arrived_are_answered_before_the_end() {
    let (_place, server) = serve("");
    let mut stream = server.connect();
    converse(&mut stream, 1);
    server.process.signal("STOP");
    stream.write_all(&framed_query(2, HOST)).unwrap();
    server.process.signal("TERM");
    server.process.signal("CONT");
    assert_eq!(read_framed(&mut stream).unwrap().id, 2);
    assert!(is_closed(&mut stream));
    let (status, log) = server.process.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}
