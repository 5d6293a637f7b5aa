//! Weir under the load of queryperf: what both counted agrees to the packet.

mod common;

use std::fs;

use common::Report;
use weir_testkit::weir::Weir;

#[test]
fn counts_agree_with_the_servers_own_to_the_packet() {
    let folder = tempfile::tempdir().unwrap();
    let zone = "$TTL 60\n@ SOA ns hostmaster 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n*.wild A 192.0.2.2\n";
    fs::write(folder.path().join("example.zone"), zone).unwrap();
    let server = Weir::serve(folder.path(), &["--workers", "2"]);
    let queries = "ns.example A\na.wild.example A\nmissing.example AAAA\nother.test A\n";

    let udp = Report::of(server.address, queries, &["-n", "5000", "-c", "20"]);
    assert_eq!(udp.counts(["sent", "answered", "lost", "doubled", "wrong"]), [20_000, 20_000, 0, 0, 0]);
    server.wait_for_sample("weir_queries_total{transport=\"udp\"}", 20_000);

    let tcp = Report::of(server.address, queries, &["-n", "500", "-m", "tcp", "-c", "4"]);
    assert_eq!(tcp.counts(["sent", "answered", "lost", "doubled", "wrong"]), [2000, 2000, 0, 0, 0]);
    server.wait_for_sample("weir_queries_total{transport=\"tcp\"}", 2000);

    for (rcode, expected) in [("NOERROR", 11_000), ("NXDOMAIN", 5500), ("REFUSED", 5500)] {
        let counted = [&udp, &tcp].map(|report| report.value("rcodes")[rcode].as_u64().unwrap());
        assert_eq!(counted.iter().sum::<u64>(), expected);
        server.wait_for_sample(&format!("weir_answers_total{{rcode=\"{rcode}\"}}"), expected);
    }
}
