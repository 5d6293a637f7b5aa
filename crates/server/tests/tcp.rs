//! DNS over TCP as a whole: pipelining, idle connections, the cap, slow and half-closed clients.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{A, Server, folder, framed, framed_query, read_framed, until, write_zone, zone};
use tempfile::TempDir;
use weir_testkit::client;
use weir_testkit::message::{Answer, Name, Query};
use weir_testkit::process::raise_own_file_limit;

const HOST: &str = "host.example.com";

fn serve(toml: &str) -> (TempDir, Server) {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve_config(place.path(), &format!("[server]\nzones = \".\"\n{toml}"));
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
fn two_thousand_idle_connections_keep_nobody_else_from_an_answer() {
    const SOON: Duration = Duration::from_secs(2);
    raise_own_file_limit(4_096);
    let (_place, server) = serve("[tcp]\nidle_timeout = \"1h\"\n");
    let idle: Vec<TcpStream> = (0..2_000).map(|_| server.connect()).collect();
    server.wait_for_sample("weir_tcp_connections_open", 2_000);
    for id in 0..50 {
        let query = Query::new(Name::from_text(HOST), A).to_wire(id);
        let over_udp = client::exchange_udp(server.address, &query, SOON).expect("an answer over UDP");
        let over_tcp =
            client::exchange_tcp(server.address, &query, SOON).expect("an answer over a new connection");
        for answer in [over_udp, over_tcp] {
            assert_eq!(Answer::from_wire(&answer).unwrap().answer.len(), 1);
        }
    }
    drop(idle);
    server.stop();
}

/// The memory that belongs to the server alone, in octets (proc_pid_smaps_rollup).
fn memory_octets(server: &Server) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", server.process.pid())).unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn an_idle_connection_that_has_asked_costs_less_than_eight_kib() {
    const N: u16 = 2_000;
    raise_own_file_limit(4_096);
    let (_place, server) = serve("user = \"keep\"\n[tcp]\nidle_timeout = \"1h\"\n");
    converse(&mut server.connect(), 0);
    let before = memory_octets(&server);
    let mut idle: Vec<TcpStream> = (0..N).map(|_| server.connect()).collect();
    for (id, stream) in (0..N).zip(&mut idle) {
        converse(stream, id);
    }
    let each = memory_octets(&server).saturating_sub(before) / u64::from(N);
    assert!(each < 8 << 10, "{each} octets a connection");
    drop(idle);
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

/// Octets that the kernel holds of the server's end of a connection: answers that were not taken and queries that were
/// not read. `None` once it has forgotten the connection (proc_net_tcp.txt).
fn held_by_kernel(server: &Server, stream: &TcpStream) -> Option<(u64, u64)> {
    let port = |port: u16| format!(":{port:04X}");
    let (ours, theirs) = (port(server.address.port()), port(stream.local_addr().unwrap().port()));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&ours) && fields.get(2)?.ends_with(&theirs);
        let (sent, received) = fields.get(4)?.split_once(':')?;
        let octets = |text: &str| u64::from_str_radix(text, 16).ok();
        is_it.then_some((octets(sent)?, octets(received)?))
    })
}

#[test]
fn the_kernel_holds_little_for_a_client_that_reads_nothing_and_forgets_it_with_the_connection() {
    let (_place, server) = serve("[tcp]\nwrite_timeout = \"3s\"\n");
    let mut stream = server.connect();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let queries: Vec<u8> = (0..1_000).flat_map(|id| framed_query(id, HOST)).collect();
    // Until the server reads no more because nobody takes its answers.
    let error = (0..10_000).find_map(|_| stream.write_all(&queries).err()).expect("it blocks");
    if let Some((unsent, unread)) = held_by_kernel(&server, &stream) {
        assert!(unsent < 256 << 10 && unread < 256 << 10, "{unsent} and {unread} octets are held, {error}");
    }
    server.wait_for_sample("weir_tcp_connections_closed_total{reason=\"failed\"}", 1);
    until("the kernel to forget", || held_by_kernel(&server, &stream).is_none());
    let told = stream.read_to_end(&mut Vec::new());
    assert!(told.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), "the client hears of it");
    server.stop();
}

#[test]
fn queries_before_a_message_without_octets_are_answered() {
    let (_place, server) = serve("");
    let mut stream = server.connect();
    stream.write_all(&[framed_query(4, HOST), framed(b"")].concat()).unwrap();
    assert_eq!(read_framed(&mut stream).unwrap().id, 4);
    assert!(is_closed(&mut stream));
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
    let server = Server::serve(place.path(), &[]);
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

/// The connections that are over, whatever the reason.
fn n_closed(server: &Server) -> u64 {
    let reasons = ["done", "idle", "cap", "memory", "failed"];
    let sample = |reason| server.sample(&format!("weir_tcp_connections_closed_total{{reason=\"{reason}\"}}"));
    reasons.into_iter().map(sample).sum()
}

#[test]
fn the_cap_holds_for_clients_that_take_no_answers_and_every_end_is_counted_once() {
    let (_place, server) =
        serve("[tcp]\nmax_connections = 10\nidle_timeout = \"1h\"\nwrite_timeout = \"1h\"\n");
    // Far more answers than the buffers of both sides hold, none of them read.
    let queries: Vec<u8> = (0..1_000).flat_map(|id| framed_query(id, HOST)).collect();
    let blocked: Vec<TcpStream> = (0..12)
        .map(|_| {
            let mut stream = server.connect();
            stream.set_nonblocking(true).unwrap();
            // The server has stopped reading when there is no more room on the way for long.
            let mut n_refused = 0;
            while n_refused < 100 {
                match stream.write(&queries) {
                    Ok(_) => n_refused = 0,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => n_refused += 1,
                    Err(error) => panic!("{error}"),
                }
                std::thread::yield_now();
            }
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(server.ask_tcp(HOST, A).answer.len(), 1);
        assert!(server.sample("weir_tcp_connections_open") <= 10);
    }
    let n_accepted = 22;
    server.wait_for_sample("weir_tcp_connections_accepted_total", n_accepted);
    drop(blocked);
    server.wait_for_sample("weir_tcp_connections_open", 0);
    until("every end to be counted", || n_closed(&server) == n_accepted);
    assert!(server.sample("weir_tcp_connections_closed_total{reason=\"cap\"}") >= 2);
    server.stop();
}

#[test]
fn clients_that_never_finish_their_queries_keep_nobody_else_from_an_answer() {
    const N_GREEDY: usize = 1_200;
    raise_own_file_limit(4_096);
    let (_place, server) = serve("[tcp]\nidle_timeout = \"1h\"\n");
    // Each of them is owed one octet of the longest message there is: 73 of the 64 MiB that there are for all.
    let mut almost = vec![0xff; 2];
    almost.resize(2 + 65_534, 0);
    let greedy: Vec<TcpStream> = (0..N_GREEDY)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&almost).unwrap();
            stream
        })
        .collect();
    let n_gone = || server.sample("weir_tcp_connections_closed_total{reason=\"memory\"}");
    until("the memory to be used up", || n_gone() > 0);

    // A query in two segments: what is short concerns it not at all.
    let mut honest = server.connect();
    let query = framed_query(7, HOST);
    honest.write_all(&query[..9]).unwrap();
    assert_eq!(server.ask_tcp(HOST, A).answer.len(), 1);
    honest.write_all(&query[9..]).unwrap();
    assert_eq!(read_framed(&mut honest).unwrap().id, 7);

    // Long ones in many segments, more than is left for them: whoever holds more goes.
    let n_gone_before = n_gone();
    let mut long = Query::new(Name::from_text(HOST), A).to_wire(8);
    long.resize(60_000, 0);
    let long = framed(&long);
    let mut patient: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    patient.iter_mut().for_each(|stream| stream.write_all(&long[..59_000]).unwrap());
    until("larger backlogs to go", || n_gone() > n_gone_before);
    for stream in &mut patient {
        stream.write_all(&long[59_000..]).unwrap();
        assert_eq!(read_framed(stream).unwrap().id, 8);
    }
    drop(greedy);
    server.stop();
}

#[test]
fn a_client_that_never_stops_asking_does_not_hold_back_the_end() {
    let (_place, server) = serve("");
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    let asking = std::thread::spawn(move || {
        let queries: Vec<u8> = (0..1_000).flat_map(|id| framed_query(id, HOST)).collect();
        while writer.write_all(&queries).is_ok() {}
    });
    read_framed(&mut stream).unwrap();
    let reading = std::thread::spawn(move || while read_framed(&mut stream).is_ok() {});
    let told = Instant::now();
    server.stop();
    assert!(told.elapsed() < Duration::from_secs(4), "it took {:?}", told.elapsed());
    asking.join().unwrap();
    reading.join().unwrap();
}

#[test]
fn a_server_that_is_out_of_files_says_so_once_and_closes_idle_connections_for_new_ones() {
    // Only a process of the same user may set the limit of another one.
    let (_place, server) = serve("user = \"keep\"\n[tcp]\nidle_timeout = \"1h\"\n");
    let pid = server.process.pid();
    let n_files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let limit = format!("--nofile={}", n_files + 3);
    let limited = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
    assert!(limited.unwrap().success());
    let mut idle: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    server.process.wait_for_line(0, |line| line.contains("cannot be accepted"));
    for _ in 0..5 {
        assert_eq!(server.ask_tcp(HOST, A).answer.len(), 1);
    }
    assert!(is_closed(&mut idle[0]));
    let log = server.stop();
    assert_eq!(log.matches("cannot be accepted").count(), 1, "{log}");
}
