//! Batches over loopback: what arrives, what goes out, and what is left out.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weir_netio::NetError;
use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::event::EventFd;
use weir_netio::ingress::Ingress;
use weir_netio::udp::{SendReport, UdpEngine, UdpSocketConfig, Wait};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Datagrams are on the other socket's queue when a send over loopback returns, so nothing more comes after this.
const SILENCE: Duration = Duration::from_millis(50);

fn engine(address: &str) -> UdpEngine {
    UdpEngine::bind(address.parse().unwrap(), &UdpSocketConfig::default()).unwrap()
}

fn client(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn answer_to(client: &UdpSocket) -> Vec<u8> {
    let mut octets = vec![0; 65536];
    let n_octets = client.recv(&mut octets).unwrap();
    octets.truncate(n_octets);
    octets
}

fn assert_silent(client: &UdpSocket) {
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let error = client.recv(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// Receives until a batch has `count` queries at once; all of them must be queued already.
fn receive_exactly(engine: &mut UdpEngine, batch: &mut Batch, count: usize) {
    assert_eq!(engine.receive(batch, Wait::No).unwrap(), count);
    assert_eq!(batch.len(), count);
}

/// Answers every query with its octets in reverse.
fn answer_reversed(batch: &mut Batch) {
    for i in 0..batch.len() {
        let exchange = batch.exchange(i);
        let n_octets = exchange.query.len();
        for (to, from) in exchange.answer.iter_mut().zip(exchange.query.iter().rev()) {
            *to = *from;
        }
        batch.answer(i, n_octets);
    }
}

fn echo_on(address: &str) {
    let mut engine = engine(address);
    let client = client(engine.address());
    let mut batch = Batch::new(BatchConfig { capacity: 8, ..BatchConfig::default() });
    for n_octets in [1, 12, 512, 4096, 33] {
        client.send(&vec![7; n_octets]).unwrap();
    }
    receive_exactly(&mut engine, &mut batch, 5);
    assert_eq!(batch.peer(4).socket_addr(), client.local_addr().unwrap());
    assert_eq!(batch.peer(0).port(), client.local_addr().unwrap().port());
    assert_eq!(batch.local(0), None);
    assert!(!batch.truncated(3));
    answer_reversed(&mut batch);
    assert_eq!(engine.send(&mut batch).unwrap(), SendReport { sent: 5, ..SendReport::default() });
    for n_octets in [1, 12, 512, 4096, 33] {
        assert_eq!(answer_to(&client), vec![7; n_octets]);
    }
}

#[test]
fn a_batch_is_answered_over_ipv4() {
    echo_on("127.0.0.1:0");
}

#[test]
fn a_batch_is_answered_over_ipv6_where_the_host_has_it() {
    if UdpSocket::bind("[::1]:0").is_ok() {
        echo_on("[::1]:0");
    } else {
        let refused = UdpEngine::bind("[::]:0".parse().unwrap(), &UdpSocketConfig::default());
        assert!(matches!(refused, Err(NetError::Ipv6Unavailable { .. })), "{refused:?}");
    }
}

#[test]
fn a_wildcard_socket_answers_from_the_address_asked() {
    let mut engine = engine("0.0.0.0:0");
    let port = engine.address().port();
    let asked = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 9, 9, 9), Ipv4Addr::LOCALHOST];
    // A connected socket takes datagrams from the address it is connected to, and from no other.
    let clients = asked.map(|ip| client((ip, port).into()));
    for client in &clients {
        client.send(b"abc").unwrap();
    }
    let mut batch = Batch::new(BatchConfig::default());
    receive_exactly(&mut engine, &mut batch, 3);
    for (i, ip) in asked.into_iter().enumerate() {
        assert_eq!(batch.local(i), Some(IpAddr::V4(ip)));
    }
    answer_reversed(&mut batch);
    assert_eq!(engine.send(&mut batch).unwrap().sent, 3);
    for client in &clients {
        assert_eq!(answer_to(client), b"cba");
    }
}

#[test]
fn an_ipv6_wildcard_socket_answers_and_takes_no_ipv4() {
    if UdpSocket::bind("[::1]:0").is_err() {
        let refused = UdpEngine::bind("[::]:0".parse().unwrap(), &UdpSocketConfig::default());
        assert!(matches!(refused, Err(NetError::Ipv6Unavailable { .. })), "{refused:?}");
        return;
    }
    let mut engine = engine("[::]:0");
    let port = engine.address().port();
    let client = client(format!("[::1]:{port}").parse().unwrap());
    client.send(b"six").unwrap();
    let mut batch = Batch::new(BatchConfig::default());
    receive_exactly(&mut engine, &mut batch, 1);
    assert_eq!(batch.local(0), Some("::1".parse().unwrap()));
    assert!(batch.peer(0).is_ipv6());
    answer_reversed(&mut batch);
    assert_eq!(engine.send(&mut batch).unwrap().sent, 1);
    assert_eq!(answer_to(&client), b"xis");
    // IPV6_V6ONLY: the same port is free for IPv4.
    UdpEngine::bind(format!("0.0.0.0:{port}").parse().unwrap(), &UdpSocketConfig::default()).unwrap();
}

#[test]
fn a_datagram_longer_than_the_buffer_is_cut_and_marked() {
    let mut engine = engine("127.0.0.1:0");
    let client = client(engine.address());
    let mut batch = Batch::new(BatchConfig { query_octets: 100, ..BatchConfig::default() });
    for n_octets in [100, 101, 0] {
        client.send(&vec![1; n_octets]).unwrap();
    }
    receive_exactly(&mut engine, &mut batch, 3);
    let seen = [0, 1, 2].map(|i| (batch.query(i).len(), batch.truncated(i), batch.exchange(i).truncated));
    assert_eq!(seen, [(100, false, false), (100, true, true), (0, false, false)]);
}

#[test]
fn queries_without_an_answer_and_answers_taken_back_are_not_sent() {
    let mut engine = engine("127.0.0.1:0");
    let clients = [0; 4].map(|_| client(engine.address()));
    for client in &clients {
        client.send(b"q").unwrap();
    }
    let mut batch = Batch::new(BatchConfig::default());
    receive_exactly(&mut engine, &mut batch, 4);
    for i in [0, 1, 3] {
        batch.exchange(i).answer[0] = u8::try_from(i).unwrap();
        batch.answer(i, 1);
    }
    batch.answer(0, 0);
    assert_eq!(engine.send(&mut batch).unwrap(), SendReport { sent: 2, ..SendReport::default() });
    assert_eq!(answer_to(&clients[1]), [1]);
    assert_eq!(answer_to(&clients[3]), [3]);
    assert_silent(&clients[0]);
    assert_silent(&clients[2]);
}

#[test]
fn an_answer_that_the_kernel_refuses_does_not_stop_the_others() {
    let mut engine = engine("127.0.0.1:0");
    let clients = [0; 4].map(|_| client(engine.address()));
    for client in &clients {
        client.send(b"q").unwrap();
    }
    let mut batch = Batch::new(BatchConfig { answer_octets: 65535, ..BatchConfig::default() });
    receive_exactly(&mut engine, &mut batch, 4);
    // 65507 octets are the most that UDP over IPv4 carries; 65536 is beyond the buffer.
    for (i, n_octets) in [65530, 3, 65536, 5].into_iter().enumerate() {
        batch.answer(i, n_octets);
    }
    assert_eq!(engine.send(&mut batch).unwrap(), SendReport { sent: 2, failed: 2, ..SendReport::default() });
    assert_eq!(answer_to(&clients[1]).len(), 3);
    assert_eq!(answer_to(&clients[3]).len(), 5);
    assert_silent(&clients[0]);
}

#[test]
fn a_round_leaves_nothing_behind_for_the_next() {
    let mut engine = engine("127.0.0.1:0");
    let client = client(engine.address());
    let mut batch = Batch::new(BatchConfig { capacity: 4, query_octets: 64, answer_octets: 64 });
    for round in 0_u8..20 {
        let count = usize::from(round) % 4 + 1;
        for i in 0..count {
            client.send(&vec![round; 80 - usize::from(round) * 3 + i]).unwrap();
        }
        receive_exactly(&mut engine, &mut batch, count);
        for i in 0..count {
            let n_octets = 80 - usize::from(round) * 3 + i;
            assert_eq!(batch.query(i), vec![round; n_octets.min(64)]);
            assert_eq!(batch.truncated(i), n_octets > 64);
        }
        // Only the first is answered: a length left over from the round before would be sent too.
        batch.exchange(0).answer[0] = round;
        batch.answer(0, 1);
        assert_eq!(engine.send(&mut batch).unwrap().sent, 1);
        assert_eq!(answer_to(&client), [round]);
    }
}

#[test]
fn one_batch_serves_wildcard_and_specific_sockets_in_turn() {
    let mut wildcard = engine("0.0.0.0:0");
    let mut specific = engine("127.0.0.3:0");
    let to_wildcard = client(SocketAddr::from(([127, 0, 0, 2], wildcard.address().port())));
    let to_specific = client(specific.address());
    let mut batch = Batch::new(BatchConfig { capacity: 3, ..BatchConfig::default() });
    for _ in 0..3 {
        for (engine, client, local) in [
            (&mut wildcard, &to_wildcard, Some(IpAddr::from([127, 0, 0, 2]))),
            (&mut specific, &to_specific, None),
        ] {
            client.send(b"ab").unwrap();
            client.send(b"cd").unwrap();
            receive_exactly(engine, &mut batch, 2);
            assert_eq!([batch.local(0), batch.local(1)], [local, local]);
            answer_reversed(&mut batch);
            assert_eq!(engine.send(&mut batch).unwrap().sent, 2);
            assert_eq!(answer_to(client), b"ba");
            assert_eq!(answer_to(client), b"dc");
        }
    }
}

#[test]
fn an_empty_queue_yields_an_empty_batch_and_nothing_to_send() {
    let mut engine = engine("127.0.0.1:0");
    let mut batch = Batch::new(BatchConfig::default());
    receive_exactly(&mut engine, &mut batch, 0);
    assert!(batch.is_empty());
    assert_eq!(engine.send(&mut batch).unwrap(), SendReport::default());
    engine.set_receive_timeout(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(engine.receive(&mut batch, Wait::ForOne).unwrap(), 0);
}

#[test]
#[should_panic(expected = "the batch holds 0 queries")]
fn a_query_that_was_not_received_cannot_be_asked_for() {
    let _ = Batch::new(BatchConfig::default()).query(0);
}

#[test]
fn a_queue_that_overflows_is_seen_by_its_drops() {
    let config = UdpSocketConfig { receive_buffer_octets: 1, ..UdpSocketConfig::default() };
    let engine = UdpEngine::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let monitor = engine.monitor().unwrap();
    assert_eq!(monitor.read().unwrap().drops, 0);
    let client = client(engine.address());
    for _ in 0..1000 {
        client.send(&[0; 100]).unwrap();
    }
    let memory = monitor.read().unwrap();
    // The smallest buffer that the kernel gives holds a handful of datagrams.
    assert!((900..1000).contains(&memory.drops), "{memory:?}");
    assert!(memory.fill() > 0.5, "{memory:?}");
}

#[test]
fn a_worker_with_several_sockets_answers_on_each() {
    let engines = ["127.0.0.1:0", "127.0.0.2:0", "0.0.0.0:0"].map(engine);
    let clients = [0, 1, 2].map(|i| client(engines[i].address()));
    let mut ingress = Ingress::new(engines.into(), &EventFd::new().unwrap(), PATIENCE).unwrap();
    let mut batch = Batch::new(BatchConfig { capacity: 2, ..BatchConfig::default() });
    for round in 0..50_u8 {
        for client in &clients {
            for i in 0..3 {
                client.send(&[round, i]).unwrap();
            }
        }
        let mut n_answered = 0;
        while n_answered < 9 {
            assert_ne!(ingress.receive(&mut batch).unwrap(), 0);
            answer_reversed(&mut batch);
            n_answered += ingress.send(&mut batch).unwrap().sent;
        }
        for client in &clients {
            assert_eq!([0; 3].map(|_| answer_to(client)), [[0, round], [1, round], [2, round]]);
        }
    }
}

#[test]
fn a_flooded_socket_does_not_starve_its_sibling() {
    let engines = ["127.0.0.1:0", "127.0.0.1:0"].map(engine);
    let flood = client(engines[0].address());
    let quiet = client(engines[1].address());
    let mut ingress = Ingress::new(engines.into(), &EventFd::new().unwrap(), PATIENCE).unwrap();
    let mut batch = Batch::new(BatchConfig { capacity: 1, ..BatchConfig::default() });
    flood.send(b"f").unwrap();
    assert_eq!(ingress.receive(&mut batch).unwrap(), 1);
    quiet.send(b"q").unwrap();
    for n_batches in 0.. {
        flood.send(b"f").unwrap();
        flood.send(b"f").unwrap();
        assert_eq!(ingress.receive(&mut batch).unwrap(), 1);
        if ingress.current() == 1 {
            break;
        }
        assert!(n_batches < 10, "the quiet socket was kept waiting for {n_batches} batches");
    }
}

#[test]
fn a_notification_wakes_a_worker_with_several_sockets() {
    let wake = EventFd::new().unwrap();
    let remote = wake.try_clone().unwrap();
    let engines = ["127.0.0.1:0", "127.0.0.2:0"].map(engine);
    let mut ingress = Ingress::new(engines.into(), &wake, Duration::from_secs(60)).unwrap();
    let mut batch = Batch::new(BatchConfig::default());
    let started = Instant::now();
    let notifier = std::thread::spawn(move || remote.notify().unwrap());
    assert_eq!(ingress.receive(&mut batch).unwrap(), 0);
    assert!(started.elapsed() < PATIENCE);
    assert!(wake.clear().unwrap());
    notifier.join().unwrap();
}

#[test]
fn an_idle_worker_returns_after_its_interval() {
    for addresses in [&["127.0.0.1:0"][..], &["127.0.0.1:0", "127.0.0.1:0"]] {
        let engines = addresses.iter().map(|address| engine(address)).collect();
        let wake = EventFd::new().unwrap();
        let mut ingress = Ingress::new(engines, &wake, Duration::from_millis(20)).unwrap();
        let started = Instant::now();
        assert_eq!(ingress.receive(&mut Batch::new(BatchConfig::default())).unwrap(), 0);
        // Jiffies and slack: a little earlier or later is the kernel's right.
        assert!(started.elapsed() > Duration::from_millis(10), "{:?}", started.elapsed());
        assert!(started.elapsed() < PATIENCE);
    }
}

#[test]
fn batches_keep_their_bounds_whatever_is_asked() {
    assert_eq!(Batch::new(BatchConfig { capacity: 0, ..BatchConfig::default() }).capacity(), 1);
    let largest = BatchConfig { capacity: usize::MAX, query_octets: 0, answer_octets: 0 };
    assert_eq!(Batch::new(largest).capacity(), weir_netio::batch::MAX_CAPACITY);
}

#[test]
fn a_second_handle_takes_from_the_same_queue() {
    let mut first = engine("127.0.0.1:0");
    let mut second = first.try_clone().unwrap();
    let client = client(first.address());
    client.send(b"1").unwrap();
    let mut batch = Batch::new(BatchConfig::default());
    receive_exactly(&mut second, &mut batch, 1);
    receive_exactly(&mut first, &mut batch, 0);
}
