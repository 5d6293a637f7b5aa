//! The server's memory under a flood of random subdomains, which is flat.
//!
//! `cargo test -p weir-testkit --features scenarios --test memory` floods for some seconds; the long form sets
//! `WEIR_FLOOD_SECONDS`, such as 600, and prints a line every ten seconds with `-- --nocapture`.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use weir_testkit::message::{Name, Query};
use weir_testkit::process::PATIENCE;
use weir_testkit::random::Random;
use weir_testkit::weir::{Weir, workspace};

/// Queries on their way at once: fewer than a socket's queue holds.
const N_IN_FLIGHT: u16 = 64;
/// Queries until everything that is allocated once is there: caches are full, buffers have grown.
const N_WARM_UP: u64 = 300_000;
/// How much the memory may grow by after that: noise of the allocator, less than one answer in a thousand would leave
/// behind if it were kept.
const MAX_GROWTH_OCTETS: u64 = 2 << 20;
const CACHE_OCTETS: u64 = 8 << 20;

#[test]
fn memory_is_flat_under_a_flood_of_random_subdomains() {
    let seconds = std::env::var("WEIR_FLOOD_SECONDS").map_or(5, |text| text.parse().expect("whole seconds"));
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let zone = workspace().join("zones/corpus/nsec3.txt");
    fs::copy(zone, folder.path().join("example.net.zone")).expect("the zone is in the repository");
    let server = Weir::serve(folder.path(), &["--workers", "1", "--cache-size", &format!("{CACHE_OCTETS}")]);
    let mut flood = Flood::new(&server);
    while flood.n_asked < N_WARM_UP {
        flood.ask_some();
    }
    let (before, start) = (resident_octets(&server), Instant::now());
    let (mut most, mut told) = (before, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..100 {
            flood.ask_some();
        }
        most = most.max(resident_octets(&server));
        if start.elapsed() > told {
            told += Duration::from_secs(10);
            println!("{:>4} s  {} queries  {most} octets at most", start.elapsed().as_secs(), flood.n_asked);
        }
    }
    println!("{} queries; from {before} to at most {most} octets", flood.n_asked);
    assert!(most <= before + MAX_GROWTH_OCTETS, "it grew from {before} to {most} octets");
    let cached = server.sample("weir_cache_octets");
    assert!(cached <= CACHE_OCTETS, "{cached} octets in the cache");
    server.stop();
}

/// Denials to ask for: most are of names that are never asked for again, the others of a few thousand.
struct Flood {
    socket: UdpSocket,
    random: Random,
    n_asked: u64,
}

impl Flood {
    fn new(server: &Weir) -> Flood {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback port is free");
        socket.connect(server.address).expect("loopback can be reached");
        socket.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        Flood { socket, random: Random::new(7), n_asked: 0 }
    }

    fn ask_some(&mut self) {
        for id in 0..N_IN_FLIGHT {
            let range = if self.random.one_in(4) { 4000 } else { usize::MAX };
            let name = Name::from_text(&format!("r{}.example.net", self.random.below(range)));
            let query = Query { name, rtype: 1, edns: Some(1232), dnssec_ok: true, case: 0 };
            self.socket.send(&query.to_wire(id)).expect("the server's port is open");
        }
        let mut buffer = [0; 4096];
        for _ in 0..N_IN_FLIGHT {
            self.socket.recv(&mut buffer).expect("the server answers each");
        }
        self.n_asked += u64::from(N_IN_FLIGHT);
    }
}

/// Memory of the server (proc(5), VmRSS).
fn resident_octets(server: &Weir) -> u64 {
    let path = format!("/proc/{}/status", server.process.pid());
    let status = fs::read_to_string(path).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let n_kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    n_kib.expect("Linux says so") << 10
}
