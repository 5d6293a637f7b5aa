//! Weir under the load of queryperf: what both counted agrees to the packet.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::Report;
use weir_testkit::weir::Weir;

const PATIENCE: Duration = Duration::from_secs(10);

/// The value of one sample of the metrics.
fn sample(metrics: SocketAddr, name: &str) -> u64 {
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: weir\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no sample {name} in\n{text}"))
}

/// Waits until the sample has the value: a worker shows its counts after the batch.
fn assert_sample(metrics: SocketAddr, name: &str, expected: usize) {
    let deadline = Instant::now() + PATIENCE;
    while sample(metrics, name) != expected as u64 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(sample(metrics, name), expected as u64, "{name}");
}

#[test]
fn counts_agree_with_the_servers_own_to_the_packet() {
    let folder = tempfile::tempdir().unwrap();
    let zone = "$TTL 60\n@ SOA ns hostmaster 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n*.wild A 192.0.2.2\n";
    fs::write(folder.path().join("example.zone"), zone).unwrap();
    let server = Weir::serve(folder.path(), &["--workers", "2"]);
    let metrics = server.metrics();
    let queries = "ns.example A\na.wild.example A\nmissing.example AAAA\nother.test A\n";

    let udp = Report::of(server.address, queries, &["-n", "5000", "-c", "20"]);
    assert_eq!(udp.counts(["sent", "answered", "lost", "doubled", "wrong"]), [20_000, 20_000, 0, 0, 0]);
    assert_sample(metrics, "weir_queries_total{transport=\"udp\"}", 20_000);

    let tcp = Report::of(server.address, queries, &["-n", "500", "-m", "tcp", "-c", "4"]);
    assert_eq!(tcp.counts(["sent", "answered", "lost", "doubled", "wrong"]), [2000, 2000, 0, 0, 0]);
    assert_sample(metrics, "weir_queries_total{transport=\"tcp\"}", 2000);

    for (rcode, expected) in [("NOERROR", 11_000), ("NXDOMAIN", 5500), ("REFUSED", 5500)] {
        let counted = [&udp, &tcp].map(|report| report.value("rcodes")[rcode].as_u64().unwrap());
        assert_eq!(counted.iter().sum::<u64>(), expected);
        let expected = usize::try_from(expected).unwrap();
        assert_sample(metrics, &format!("weir_answers_total{{rcode=\"{rcode}\"}}"), expected);
    }
}
