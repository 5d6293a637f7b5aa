//! Answers that leave together, over loopback: what arrives is what would arrive one by one.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use proptest::prelude::*;
use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::udp::{SendReport, UdpEngine, UdpSocketConfig, Wait};

fn engine(address: &str, join_answers: bool) -> UdpEngine {
    let config = UdpSocketConfig { join_answers, ..UdpSocketConfig::default() };
    UdpEngine::bind(address.parse().unwrap(), &config).unwrap()
}

fn client(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Query `i` of a round asks for an answer of `n_octets`; the answer is its number over and over.
#[derive(Clone, Copy, Debug)]
struct Asked {
    client: usize,
    n_octets: usize,
}

fn answer(i: usize, n_octets: usize) -> Vec<u8> {
    vec![u8::try_from(i).unwrap(); n_octets]
}

/// Sends all of `asked`, has them answered in one batch, and checks that each client gets its answers in order.
fn round(engine: &mut UdpEngine, clients: &[UdpSocket], asked: &[Asked]) -> SendReport {
    for query in asked {
        clients[query.client].send(b"?").unwrap();
    }
    let mut batch = Batch::new(BatchConfig::default());
    assert_eq!(engine.receive(&mut batch, Wait::No).unwrap(), asked.len());
    for (i, query) in asked.iter().enumerate() {
        batch.exchange(i).answer[..query.n_octets].copy_from_slice(&answer(i, query.n_octets));
        batch.answer(i, query.n_octets);
    }
    let report = engine.send(&mut batch).unwrap();
    let mut octets = vec![0; 65_536];
    for (number, client) in clients.iter().enumerate() {
        for (i, query) in asked.iter().enumerate().filter(|(_, query)| query.client == number) {
            let n_octets = client.recv(&mut octets).unwrap();
            assert_eq!(octets[..n_octets], answer(i, query.n_octets), "answer {i} of {asked:?}");
        }
    }
    report
}

fn all_of(n: usize, n_octets: usize) -> Vec<Asked> {
    vec![Asked { client: 0, n_octets }; n]
}

#[test]
fn answers_of_one_length_to_one_port_leave_together_and_arrive_apart() {
    let mut engine = engine("127.0.0.1:0", true);
    let clients = [client(engine.address())];
    let report = round(&mut engine, &clients, &all_of(64, 52));
    assert_eq!(report, SendReport { sent: 64, joined: 64, ..SendReport::default() });
}

#[test]
fn a_shorter_answer_is_the_last_of_its_message() {
    let mut engine = engine("127.0.0.1:0", true);
    let clients = [client(engine.address())];
    let lengths = [50, 50, 20, 50, 60];
    let asked = lengths.map(|n_octets| Asked { client: 0, n_octets });
    let report = round(&mut engine, &clients, &asked);
    assert_eq!(report.joined, 3, "50 and 60 after it are alone: the one is shorter than the next");
}

#[test]
fn answers_from_different_addresses_leave_apart() {
    let mut engine = engine("0.0.0.0:0", true);
    let port = engine.address().port();
    // One client port that asks two addresses: an unconnected socket.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let addresses = [[127, 0, 0, 2], [127, 0, 0, 3]].map(|ip| SocketAddr::from((ip, port)));
    for address in [addresses[0], addresses[1], addresses[0], addresses[1]] {
        socket.send_to(b"?", address).unwrap();
    }
    let mut batch = Batch::new(BatchConfig::default());
    assert_eq!(engine.receive(&mut batch, Wait::No).unwrap(), 4);
    for i in 0..4 {
        batch.exchange(i).answer[0] = u8::try_from(i).unwrap();
        batch.answer(i, 1);
    }
    assert_eq!(engine.send(&mut batch).unwrap().sent, 4);
    let mut seen: Vec<(u8, SocketAddr)> = (0..4)
        .map(|_| {
            let mut octets = [0; 2];
            let (n_octets, from) = socket.recv_from(&mut octets).unwrap();
            assert_eq!(n_octets, 1);
            (octets[0], from)
        })
        .collect();
    seen.sort_unstable();
    let expected = [(0, addresses[0]), (1, addresses[1]), (2, addresses[0]), (3, addresses[1])];
    assert_eq!(seen, expected);
}

#[test]
fn answers_longer_than_every_path_carries_leave_one_by_one() {
    let mut engine = engine("127.0.0.1:0", true);
    let clients = [client(engine.address())];
    assert_eq!(round(&mut engine, &clients, &all_of(4, 1233)).joined, 0);
    assert_eq!(round(&mut engine, &clients, &all_of(60, 1232)).joined, 60, "65,507 octets hold 53");
}

#[test]
fn nothing_is_joined_when_it_is_switched_off() {
    let mut engine = engine("127.0.0.1:0", false);
    let clients = [client(engine.address())];
    let report = round(&mut engine, &clients, &all_of(10, 52));
    assert_eq!(report, SendReport { sent: 10, ..SendReport::default() });
}

#[test]
fn where_the_kernel_refuses_joined_answers_they_leave_one_by_one_from_then_on() {
    let mut engine = engine("127.0.0.1:0", true);
    let clients = [0; 2].map(|_| client(engine.address()));
    // Without checksums there is no segmentation: EINVAL (udp_send_skb, net/ipv4/udp.c).
    let on: libc::c_int = 1;
    let fd = engine.as_fd().as_raw_fd();
    let size = libc::socklen_t::try_from(size_of_val(&on)).unwrap();
    // SAFETY: the option is an int, which outlives the call.
    let result =
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, (&raw const on).cast(), size) };
    assert_eq!(result, 0);
    let asked = [0, 1, 1, 0, 1, 0, 0].map(|client| Asked { client, n_octets: 33 + client });
    for n_refused in 1..=20 {
        let report = round(&mut engine, &clients, &asked);
        assert_eq!(report, SendReport { sent: 7, ..SendReport::default() });
        assert_eq!(engine.refuses_joined(), n_refused >= 16);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn each_client_gets_its_answers_in_order_however_they_are_mixed(
        asked in prop::collection::vec((0_usize..5, prop::sample::select(vec![1, 2, 40, 52, 1232, 1300])), 1..64)
    ) {
        let mut engine = engine("127.0.0.1:0", true);
        let clients: Vec<UdpSocket> = (0..5).map(|_| client(engine.address())).collect();
        let asked: Vec<Asked> = asked.into_iter().map(|(client, n_octets)| Asked { client, n_octets }).collect();
        let report = round(&mut engine, &clients, &asked);
        prop_assert_eq!((report.sent, report.dropped, report.failed), (asked.len(), 0, 0));
    }
}
