//! Groups of sockets on one port: who may join, who gets what, and which ports are taken.

use std::collections::HashSet;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weir_netio::NetError;
use weir_netio::affinity;
use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::error::Transport;
use weir_netio::reuseport::{self, ListenConfig, Listeners};
use weir_netio::steer::Steer;
use weir_netio::udp::{UdpEngine, UdpSocketConfig, Wait};

fn open(addresses: &[&str], n_workers: usize) -> Result<Vec<Listeners>, NetError> {
    let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    reuseport::open(&addresses, &ListenConfig::for_workers(n_workers)).map(|opened| opened.listeners)
}

fn open_one(n_workers: usize) -> Listeners {
    open(&["127.0.0.1:0"], n_workers).unwrap().remove(0)
}

/// Sends one datagram from each of `n_clients` ports and yields how many each worker got.
fn spread(group: &mut [UdpEngine], n_clients: usize) -> Vec<usize> {
    let address = group[0].address();
    for _ in 0..n_clients {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"q", address).unwrap();
    }
    let mut batch = Batch::new(BatchConfig { capacity: 1024, query_octets: 64, answer_octets: 64 });
    group.iter_mut().map(|engine| engine.receive(&mut batch, Wait::No).unwrap()).collect()
}

#[test]
fn every_worker_gets_sockets_on_the_same_port_and_all_see_traffic() {
    let mut group = open_one(4);
    assert_ne!(group.address.port(), 0);
    assert_eq!((group.udp.len(), group.tcp.len()), (4, 4));
    assert!(group.udp.iter().all(|engine| engine.address() == group.address));
    assert!(group.tcp.iter().all(|listener| listener.local_addr().unwrap() == group.address));
    let counts = spread(&mut group.udp, 400);
    assert_eq!(counts.iter().sum::<usize>(), 400);
    // By a fair hash a quarter each; none below 40 but once in 10^13.
    assert!(counts.iter().all(|count| *count > 40), "{counts:?}");
}

#[test]
fn every_tcp_listener_of_a_group_accepts() {
    let group = open_one(2);
    let connections: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(group.address).unwrap()).collect();
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut accepted = [0; 2];
    while accepted.iter().sum::<usize>() < connections.len() {
        assert!(Instant::now() < deadline, "{accepted:?}");
        for (count, listener) in accepted.iter_mut().zip(&group.tcp) {
            match listener.accept() {
                Ok(_) => *count += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }
    assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
}

#[test]
fn a_second_server_on_the_port_is_refused() {
    let first = open_one(2);
    for address in [first.address.to_string(), format!("0.0.0.0:{}", first.address.port())] {
        let error = open(&[&address], 2).unwrap_err();
        assert!(matches!(error, NetError::AddressInUse { transport: Transport::Udp, .. }), "{error}");
    }
    // Nor can a socket that does not ask to share.
    assert_eq!(UdpSocket::bind(first.address).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(TcpListener::bind(first.address).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_port_that_is_taken_for_tcp_alone_is_refused_too() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    let error = open(&[&address.to_string()], 2).unwrap_err();
    assert!(
        matches!(error, NetError::AddressInUse { transport: Transport::Tcp, address: a } if a == address),
        "{error}"
    );
    assert_eq!(error.to_string(), format!("TCP {address} is in use by another process"));
    // Nothing of the attempt is left.
    UdpSocket::bind(address).unwrap();
}

#[test]
fn a_wildcard_server_finds_one_on_a_specific_address() {
    let holder = UdpSocket::bind("127.0.0.7:0").unwrap();
    let error = open(&[&format!("0.0.0.0:{}", holder.local_addr().unwrap().port())], 1).unwrap_err();
    assert!(matches!(error, NetError::AddressInUse { transport: Transport::Udp, .. }), "{error}");
}

#[test]
fn a_wildcard_and_a_specific_address_share_a_port_in_either_order_and_doubles_are_one() {
    let port = open_one(1).address.port();
    let (specific, wildcard) = (format!("127.0.0.1:{port}"), format!("0.0.0.0:{port}"));
    let mut groups = open(&[&specific, &wildcard, &specific], 2).unwrap();
    let addresses: Vec<String> = groups.iter().map(|group| group.address.to_string()).collect();
    assert_eq!(addresses, [specific, wildcard]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"specific", ("127.0.0.1", port)).unwrap();
    client.send_to(b"other", ("127.0.0.2", port)).unwrap();
    let mut batch = Batch::new(BatchConfig::default());
    let seen = groups.iter_mut().map(|group| {
        group.udp.iter_mut().map(|engine| engine.receive(&mut batch, Wait::No).unwrap()).sum::<usize>()
    });
    assert_eq!(seen.collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_server_starts_again_while_its_old_connections_linger() {
    let group = open_one(2);
    let address = group.address;
    let mut client = TcpStream::connect(address).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let accepted = loop {
        match group.tcp.iter().find_map(|listener| listener.accept().ok()) {
            Some((stream, _)) => break stream,
            None => assert!(Instant::now() < deadline),
        }
    };
    // The side that closes first is the one in TIME-WAIT.
    drop(accepted);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    drop(client);
    drop(group);
    let again = open(&[&address.to_string()], 2).unwrap();
    assert_eq!(again[0].address, address);
}

#[test]
fn each_address_with_port_zero_has_a_port_of_its_own() {
    let groups = open(&["127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0"], 2).unwrap();
    let addresses: HashSet<SocketAddr> = groups.iter().map(|group| group.address).collect();
    assert_eq!(addresses.len(), 3);
}

#[test]
fn sockets_are_handed_out_by_worker() {
    let groups = open(&["127.0.0.1:0", "127.0.0.2:0"], 3).unwrap();
    let addresses: Vec<SocketAddr> = groups.iter().map(|group| group.address).collect();
    let workers = reuseport::by_worker(groups);
    assert_eq!(workers.len(), 3);
    for worker in workers {
        assert_eq!(worker.udp.iter().map(UdpEngine::address).collect::<Vec<_>>(), addresses);
        assert_eq!(worker.tcp.len(), 2);
    }
}

#[test]
fn steering_by_cpu_gives_a_datagram_to_the_worker_of_the_cpu_that_received_it() {
    let cpus = affinity::allowed_cpus().unwrap();
    let here = cpus[0];
    // Loopback receives on the CPU that sends. The worker of this CPU is the third, which the number alone would not say;
    // the others run on CPUs that send nothing here.
    let worker_cpus = vec![here + 5, here + 6, here, here + 7];
    let config = ListenConfig { worker_cpus, steer: Steer::Cpu, ..ListenConfig::for_workers(0) };
    let mut group = reuseport::open(&["127.0.0.1:0".parse().unwrap()], &config).unwrap().listeners.remove(0);
    assert!(group.degraded.iter().all(|degraded| degraded.option != "SO_ATTACH_REUSEPORT_CBPF"));
    affinity::pin_current_thread(here).unwrap();
    assert_eq!(spread(&mut group.udp, 100), [0, 0, 100, 0]);
}

#[test]
fn steering_by_cpu_in_order_takes_the_cpu_modulo_the_workers() {
    let cpu = *affinity::allowed_cpus().unwrap().last().unwrap();
    let config = ListenConfig { steer: Steer::Cpu, ..ListenConfig::for_workers(3) };
    let mut group = reuseport::open(&["127.0.0.1:0".parse().unwrap()], &config).unwrap().listeners.remove(0);
    affinity::pin_current_thread(cpu).unwrap();
    let mut expected = [0; 3];
    expected[cpu % 3] = 50;
    assert_eq!(spread(&mut group.udp, 50), expected);
}

#[test]
fn no_worker_and_foreign_addresses_are_errors_that_name_the_address() {
    let error = open(&["127.0.0.1:0"], 0).unwrap_err();
    assert_eq!(error.to_string(), "open for 127.0.0.1:0: no worker");
    // TEST-NET-1 (RFC 5737): no host has it.
    let error = open(&["192.0.2.1:0"], 1).unwrap_err();
    assert!(matches!(error, NetError::AddressUnavailable { .. }), "{error}");
}

#[test]
fn a_buffer_beyond_the_limit_of_the_system_is_given_or_reported() {
    let wanted = 256 << 20;
    let config = UdpSocketConfig { receive_buffer_octets: wanted, ..UdpSocketConfig::default() };
    let engine = UdpEngine::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let reported = engine.degraded().iter().any(|degraded| degraded.option == "SO_RCVBUF");
    assert_eq!(engine.receive_buffer_octets() < 2 * wanted, reported, "{engine:?}");
}
