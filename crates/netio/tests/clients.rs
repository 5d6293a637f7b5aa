//! The client side over loopback: what goes out in batches, what comes back, and who has something to read.

use std::net::UdpSocket;
use std::time::{Duration, SystemTime};

use weir_netio::client::{ClientSocket, Watch, tcp_socket};
use weir_netio::datagrams::{Inbox, Outbox};
use weir_netio::udp::{UdpSocketConfig, Wait};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(5);

fn server(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn client(server: &UdpSocket) -> ClientSocket {
    let socket =
        ClientSocket::connect(server.local_addr().unwrap(), None, &UdpSocketConfig::default()).unwrap();
    socket.set_receive_timeout(PATIENCE).unwrap();
    socket
}

fn exchange_on(address: &str) {
    let server = server(address);
    let mut client = client(&server);
    let mut outbox = Outbox::new(8, 512);
    for n_octets in [1, 512, 33] {
        outbox.push(&vec![0; n_octets]).unwrap()[0] = 7;
    }
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(client.send(&mut outbox, 0..3).unwrap(), 3);
    for n_octets in [1, 512, 33] {
        let mut octets = [1; 600];
        let (n, peer) = server.recv_from(&mut octets).unwrap();
        assert_eq!((n, octets[0], peer), (n_octets, 7, client.local()));
        server.send_to(&octets[..n], peer).unwrap();
    }
    let mut inbox = Inbox::new(8, 100);
    assert_eq!(client.receive(&mut inbox, Wait::ForOne).unwrap(), 3);
    assert_eq!(inbox.datagram(0).octets, [7]);
    assert_eq!((inbox.datagram(1).octets.len(), inbox.datagram(1).n_octets), (100, 512));
    assert_eq!((inbox.datagram(2).octets.len(), inbox.datagram(2).n_octets), (33, 33));
    let arrived = inbox.datagram(0).arrived.unwrap();
    assert!(arrived >= before && arrived < before + PATIENCE, "{arrived:?}");
    assert_eq!(client.receive(&mut inbox, Wait::No).unwrap(), 0);
    assert!(inbox.is_empty());
}

#[test]
fn datagrams_go_out_and_come_back_with_the_time_of_their_arrival() {
    exchange_on("127.0.0.1:0");
}

#[test]
fn datagrams_go_out_and_come_back_over_ipv6() {
    exchange_on("[::1]:0");
}

#[test]
fn part_of_an_outbox_goes_out_by_another_socket() {
    let server = server("127.0.0.1:0");
    let mut clients = [client(&server), client(&server)];
    let mut outbox = Outbox::new(4, 16);
    for number in 0..4 {
        outbox.push(&[number]).unwrap();
    }
    assert_eq!(clients[0].send(&mut outbox, 0..1).unwrap(), 1);
    assert_eq!(clients[1].send(&mut outbox, 1..4).unwrap(), 3);
    for number in 0..4 {
        let mut octet = [9];
        let (_, peer) = server.recv_from(&mut octet).unwrap();
        assert_eq!((octet[0], peer), (number, clients[usize::from(number > 0)].local()));
    }
}

#[test]
fn the_sockets_that_can_be_read_are_named() {
    let server = server("127.0.0.1:0");
    let clients: Vec<ClientSocket> = (0..3).map(|_| client(&server)).collect();
    let mut watch = Watch::new(&clients).unwrap();
    assert_eq!(watch.wait(Duration::ZERO).unwrap(), 0);
    server.send_to(b"x", clients[1].local()).unwrap();
    assert_eq!(watch.wait(PATIENCE).unwrap(), 1);
    assert_eq!(watch.ready(0), 1);
}

#[test]
fn a_port_where_nobody_listens_is_counted_and_does_not_stop_the_client() {
    let closed = server("127.0.0.1:0");
    let mut client = client(&closed);
    drop(closed);
    let mut outbox = Outbox::new(2, 16);
    outbox.push(b"a").unwrap();
    outbox.push(b"b").unwrap();
    let sent = client.send(&mut outbox, 0..2).unwrap() + client.send(&mut outbox, 0..2).unwrap();
    assert!(sent > 0 && client.n_refused() > 0, "sent {sent}, refused {}", client.n_refused());
}

#[test]
fn sockets_start_from_the_address_that_is_asked_for() {
    let server = server("127.0.0.1:0");
    let address = server.local_addr().unwrap();
    let local = "127.0.0.9".parse().unwrap();
    let udp = ClientSocket::connect(address, Some(local), &UdpSocketConfig::default()).unwrap();
    assert_eq!(udp.local().ip(), local);
    let tcp = std::net::TcpStream::from(tcp_socket(address, Some(local)).unwrap());
    assert_eq!(tcp.local_addr().unwrap().ip(), local);
}
