//! Packet rings beside sockets, in network namespaces of their own making: who answers what, and that it is answered
//! once. Needs root and `ip` (iproute2).
//!
//! Each test moves its thread into a new network namespace with a veth pair in it. One end, `server`, has the addresses;
//! the other, `client`, has none, and the test plays the network there, frame by frame, with a packet socket.
//!
//! Longer than other files: the wire, the frames and the server that most of it is are of use to these tests together only.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::event::EventFd;
use weir_netio::fanout::{Fanout, FanoutConfig};
use weir_netio::ingress::Ingress;
use weir_netio::reuseport::{self, ListenConfig, Opened};
use weir_netio::ring::{RingEngine, RingSize};
use weir_netio::steer::Steer;
use weir_netio::udp::UdpSocketConfig;

const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing has to come for it to count as nothing.
const SILENCE: Duration = Duration::from_millis(150);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xC];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x5];
const SERVER_V4: &str = "10.9.0.1:53";
const SERVER_V6: &str = "[fd09::1]:53";

fn ip(arguments: &str) {
    let words = arguments.split_whitespace();
    assert!(Command::new("ip").args(words).status().unwrap().success(), "ip {arguments}");
}

/// What `ip` shows.
fn shown(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Moves this thread into a namespace with the veth pair; `carrier` is what gets the addresses.
fn network(carrier: &str, prepare: &[&str]) {
    // SAFETY: takes a number; other threads keep their namespace.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "these tests need root: {}", io::Error::last_os_error());
    ip("link set lo up");
    ip("link add server address 02:00:00:00:00:05 type veth peer name client address 02:00:00:00:00:0c");
    prepare.iter().for_each(|command| ip(command));
    // Without a broadcast address: the kernel knows the network's last address as one all the same.
    ip(&format!("addr add 10.9.0.1/24 dev {carrier}"));
    ip(&format!("addr add fd09::1/64 dev {carrier} nodad"));
    ip("link set server up");
    ip("link set client up");
    ip(&format!("link set {carrier} up"));
    for address in ["10.9.0.2", "fd09::2"] {
        ip(&format!("neigh add {address} lladdr 02:00:00:00:00:0c dev {carrier} nud permanent"));
    }
}

/// The network's end of the pair.
struct Wire {
    socket: OwnedFd,
}

impl Wire {
    fn open(interface: &str) -> Wire {
        let protocol = u16::try_from(libc::ETH_P_ALL).unwrap().to_be();
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: opened just now.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = std::ffi::CString::new(interface).unwrap();
        // SAFETY: a string with its end that outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: a C structure of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = 17;
        address.sll_protocol = protocol;
        address.sll_ifindex = index.cast_signed();
        for (level, option, value) in [
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1),
            (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
        ] {
            // SAFETY: the kernel reads four octets of a local.
            let result = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), 4) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
        }
        let size = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
        // SAFETY: the kernel reads a local of the announced size.
        let result = unsafe { libc::bind(fd, (&raw const address).cast(), size) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Wire { socket }
    }

    /// Sends a frame; `joined` is the length of each query when it holds several.
    fn send(&self, frame: &[u8], joined: u16) {
        // struct virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset.
        let mut octets = vec![0; 10];
        if joined > 0 {
            let ip_octets: u16 = if frame[12] == 8 { 20 } else { 40 };
            octets[0] = 1;
            octets[1] = 5;
            octets[2..4].copy_from_slice(&(14 + ip_octets + 8).to_ne_bytes());
            octets[4..6].copy_from_slice(&joined.to_ne_bytes());
            octets[6..8].copy_from_slice(&(14 + ip_octets).to_ne_bytes());
            octets[8..10].copy_from_slice(&6_u16.to_ne_bytes());
        }
        octets.extend(frame);
        // SAFETY: the kernel reads the slice.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), octets.as_ptr().cast(), octets.len(), 0) };
        assert_eq!(usize::try_from(sent).ok(), Some(octets.len()), "{}", io::Error::last_os_error());
    }

    /// The next frame, within `limit`.
    fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd is announced and given.
        let ready = unsafe { libc::poll(&raw mut poll, 1, i32::try_from(limit.as_millis()).unwrap()) };
        if ready != 1 {
            return None;
        }
        let mut octets = vec![0; 65_600];
        // SAFETY: the kernel writes into the vector, at most its length.
        let n = unsafe { libc::recv(self.socket.as_raw_fd(), octets.as_mut_ptr().cast(), octets.len(), 0) };
        octets.truncate(usize::try_from(n).unwrap());
        Some(octets.split_off(10))
    }

    /// Payloads of UDP frames from the server's port that come until there is silence.
    fn answers(&self) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        while let Some(frame) = self.receive(SILENCE) {
            answers.extend(answer_in(&frame));
        }
        answers
    }
}

/// The payload, if it is UDP from port 53.
fn answer_in(frame: &[u8]) -> Option<Vec<u8>> {
    let udp = match (frame[12], frame[13]) {
        (8, 0) if frame[23] == 17 => 34,
        (0x86, 0xDD) if frame[20] == 17 => 54,
        _ => return None,
    };
    (frame[udp..udp + 2] == [0, 53]).then(|| frame[udp + 8..].to_vec())
}

fn checksum(octets: &[u8]) -> u16 {
    let mut total = 0_u32;
    for pair in octets.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total & 0xFFFF) + (total >> 16);
    }
    u16::try_from(total).unwrap()
}

/// A frame with right checksums, its pieces between the headers free to choose.
#[derive(Clone)]
struct Crafted {
    from: SocketAddr,
    to: SocketAddr,
    /// Options of IPv4, or an extension header of IPv6 of which the first octet is to be the next header.
    extra: Vec<u8>,
    payload: Vec<u8>,
}

impl Crafted {
    fn query(from: &str, to: &str, payload: &[u8]) -> Crafted {
        Crafted {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            extra: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    fn pseudo_header(&self, n_octets: usize) -> Vec<u8> {
        let mut octets = Vec::new();
        for address in [self.from.ip(), self.to.ip()] {
            match address {
                IpAddr::V4(v4) => octets.extend(v4.octets()),
                IpAddr::V6(v6) => octets.extend(v6.octets()),
            }
        }
        octets.extend(u32::try_from(n_octets).unwrap().to_be_bytes());
        octets.extend([0, 0, 0, 17]);
        octets
    }

    fn udp(&self) -> Vec<u8> {
        let n_octets = self.payload.len() + 8;
        let mut udp = [self.from.port().to_be_bytes(), self.to.port().to_be_bytes()].concat();
        udp.extend(u16::try_from(n_octets).unwrap().to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(&self.payload);
        let sum = !checksum(&[self.pseudo_header(n_octets), udp.clone()].concat());
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        udp
    }

    /// The frame around `part` of the packet's payload, which starts at octet `offset` of it (IPv4 alone).
    fn around(&self, part: &[u8], offset: usize, more: bool) -> Vec<u8> {
        let mut frame = [SERVER_MAC, CLIENT_MAC].concat();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let n_header = 20 + self.extra.len();
                frame.extend([8, 0, 0x40 | u8::try_from(n_header / 4).unwrap(), 0]);
                frame.extend(u16::try_from(n_header + part.len()).unwrap().to_be_bytes());
                let fragment = u16::try_from(offset / 8).unwrap() | if more { 0x2000 } else { 0 };
                frame.extend([0x12, 0x34]);
                frame.extend(fragment.to_be_bytes());
                frame.extend([64, 17, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
                frame.extend(&self.extra);
                let sum = !checksum(&frame[14..14 + n_header]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
                frame.extend(u16::try_from(self.extra.len() + part.len()).unwrap().to_be_bytes());
                // 60: destination options.
                frame.extend([if self.extra.is_empty() { 17 } else { 60 }, 64]);
                frame.extend(from.octets());
                frame.extend(to.octets());
                frame.extend(&self.extra);
            }
            _ => panic!("mixed families"),
        }
        frame.extend(part);
        frame
    }

    fn frame(&self) -> Vec<u8> {
        self.around(&self.udp(), 0, false)
    }
}

/// An echo server with sockets and rings.
struct Server {
    fanout: Fanout,
    rings: Vec<mpsc::Sender<Option<RingEngine>>>,
    returned: mpsc::Receiver<RingEngine>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// Answers from rings and from sockets.
    by_ring: Arc<AtomicU64>,
    by_socket: Arc<AtomicU64>,
    /// Answers are so long.
    stalled: Arc<AtomicBool>,
}

fn config(exact: bool) -> FanoutConfig {
    FanoutConfig {
        size: RingSize { slots: 1024, slot_octets: 512 },
        steer: Steer::Hash,
        rollover: true,
        answer_by_socket: false,
        exact,
        engagements: 2,
        interfaces: Vec::new(),
    }
}

impl Server {
    /// Starts `n_workers` workers on every address; worker 0 can be stopped.
    fn start(n_workers: usize, config: FanoutConfig) -> Server {
        Server::on(&["0.0.0.0:53", "[::]:53"], n_workers, config)
    }

    fn on(addresses: &[&str], n_workers: usize, config: FanoutConfig) -> Server {
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        // On the wire joined answers are one frame: it would have to be cut apart to be counted.
        let udp = UdpSocketConfig { join_answers: false, ..UdpSocketConfig::default() };
        let listen = ListenConfig { udp, ..ListenConfig::for_workers(n_workers) };
        let opened: Opened = reuseport::open(&addresses, &listen).unwrap();
        let fanout = Fanout::open(&opened.listeners, config).unwrap();
        let (stop, stalled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (by_ring, by_socket) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (give_back, returned) = mpsc::channel();
        let (mut rings, mut threads) = (Vec::new(), Vec::new());
        for (number, sockets) in reuseport::by_worker(opened.listeners).into_iter().enumerate() {
            let (sender, receiver) = mpsc::channel();
            rings.push(sender);
            let worker = EchoWorker {
                ingress: Ingress::new(sockets.udp, &EventFd::new().unwrap(), Duration::from_millis(5))
                    .unwrap(),
                rings: receiver,
                give_back: give_back.clone(),
                stop: Arc::clone(&stop),
                stalled: (number == 0).then(|| Arc::clone(&stalled)),
                by_ring: Arc::clone(&by_ring),
                by_socket: Arc::clone(&by_socket),
            };
            threads.push(std::thread::spawn(move || worker.run()));
        }
        Server { fanout, rings, returned, threads, stop, by_ring, by_socket, stalled }
    }

    fn engage(&mut self) {
        for (ring, worker) in self.fanout.engage().unwrap().into_iter().zip(&self.rings) {
            worker.send(Some(ring)).unwrap();
        }
    }

    fn release(&mut self) {
        if self.fanout.release() {
            self.rings.iter().for_each(|worker| worker.send(None).unwrap());
            let rings = self.rings.iter().map(|_| self.returned.recv_timeout(PATIENCE).unwrap()).collect();
            self.fanout.retire(rings).unwrap();
        }
    }

    /// Answers by ring and by socket so far.
    fn counts(&self) -> (u64, u64) {
        (self.by_ring.load(Ordering::Relaxed), self.by_socket.load(Ordering::Relaxed))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.stalled.store(false, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

struct EchoWorker {
    ingress: Ingress,
    rings: mpsc::Receiver<Option<RingEngine>>,
    give_back: mpsc::Sender<RingEngine>,
    stop: Arc<AtomicBool>,
    stalled: Option<Arc<AtomicBool>>,
    by_ring: Arc<AtomicU64>,
    by_socket: Arc<AtomicU64>,
}

impl EchoWorker {
    fn run(mut self) {
        let mut batch = Batch::new(BatchConfig::default());
        while !self.stop.load(Ordering::Relaxed) {
            match self.rings.try_recv() {
                Ok(Some(ring)) => self.ingress.add_ring(ring).unwrap(),
                Ok(None) => {
                    while self.ingress.receive_left(&mut batch) > 0 {
                        self.echo(&mut batch);
                    }
                    let ring = self.ingress.remove_ring().unwrap().unwrap();
                    self.give_back.send(ring).unwrap();
                }
                Err(_) => {}
            }
            while self.stalled.as_ref().is_some_and(|stalled| stalled.load(Ordering::Relaxed)) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if self.ingress.receive(&mut batch).unwrap() > 0 {
                self.echo(&mut batch);
            }
        }
    }

    /// Answers with the query itself; one that starts with `L` asks for a long answer.
    fn echo(&mut self, batch: &mut Batch) {
        let n_queries = batch.len();
        for i in 0..n_queries {
            let exchange = batch.exchange(i);
            let n_octets = exchange.query.len();
            exchange.answer[..n_octets].copy_from_slice(exchange.query);
            let n_answer = if exchange.query.first() == Some(&b'L') { 2000 } else { n_octets };
            batch.answer(i, n_answer);
        }
        let counter = if self.ingress.is_from_ring() { &self.by_ring } else { &self.by_socket };
        counter.fetch_add(n_queries as u64, Ordering::Relaxed);
        assert_eq!(self.ingress.send(batch).unwrap().dropped, 0);
    }
}

const V4: (&str, &str) = ("10.9.0.2:4000", SERVER_V4);
const V6: (&str, &str) = ("[fd09::2]:4000", SERVER_V6);

/// What the server answers to one frame, and whether rings or sockets did.
fn ask(wire: &Wire, server: &Server, frame: &[u8]) -> (Vec<Vec<u8>>, (u64, u64)) {
    let before = server.counts();
    wire.send(frame, 0);
    let answers = wire.answers();
    let after = server.counts();
    (answers, (after.0 - before.0, after.1 - before.1))
}

const BY_RING: (u64, u64) = (1, 0);
const BY_SOCKET: (u64, u64) = (0, 1);
const BY_NOBODY: (u64, u64) = (0, 0);

fn plain_queries_are_answered_once_by_rings(exact: bool) {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(2, config(exact));
    assert_eq!(server.fanout.is_exact(), exact);
    for (from, to) in [V4, V6] {
        let frame = Crafted::query(from, to, b"before").frame();
        assert_eq!(ask(&wire, &server, &frame), (vec![b"before".to_vec()], BY_SOCKET));
    }
    for _ in 0..4 {
        server.engage();
        for (from, to) in [V4, V6] {
            let frame = Crafted::query(from, to, b"engaged").frame();
            assert_eq!(ask(&wire, &server, &frame), (vec![b"engaged".to_vec()], BY_RING));
        }
        server.release();
        for (from, to) in [V4, V6] {
            let frame = Crafted::query(from, to, b"after").frame();
            assert_eq!(ask(&wire, &server, &frame), (vec![b"after".to_vec()], BY_SOCKET));
        }
    }
}

#[test]
fn plain_queries_are_answered_once_by_rings_with_the_exact_switch() {
    plain_queries_are_answered_once_by_rings(true);
}

#[test]
fn plain_queries_are_answered_once_by_rings_with_the_classic_switch() {
    plain_queries_are_answered_once_by_rings(false);
}

#[test]
fn answers_from_rings_have_the_frame_that_sockets_would_send() {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(1, config(true));
    for (from, to) in [V4, V6] {
        let frame = Crafted::query(from, to, b"question").frame();
        let mut replies = Vec::new();
        for engaged in [false, true] {
            if engaged {
                server.engage();
            }
            wire.send(&frame, 0);
            let reply = loop {
                let reply = wire.receive(PATIENCE).unwrap();
                if answer_in(&reply).is_some() {
                    break reply;
                }
            };
            replies.push(reply);
            if engaged {
                server.release();
            }
        }
        let [by_socket, by_ring] = &mut replies[..] else { panic!() };
        assert_eq!(by_ring[..6], CLIENT_MAC);
        assert_eq!(by_ring[6..12], SERVER_MAC);
        if by_ring[12] == 8 {
            assert_eq!(checksum(&by_ring[14..34]), 0xFFFF);
            // Identification, flags and the checksum over them may differ.
            for reply in [&mut *by_socket, &mut *by_ring] {
                reply[18..22].fill(0);
                reply[24..26].fill(0);
            }
        } else {
            // So may the flow label.
            by_socket[15..18].fill(0);
        }
        // By either way the sum over the datagram is left to hardware, which veth does not have.
        assert_eq!(by_socket, by_ring);
    }
}

#[test]
fn answers_go_back_by_the_link_or_where_the_routing_table_says() {
    const ANOTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0D];
    network("server", &[]);
    let wire = Wire::open("client");
    for (answer_by_socket, expected) in [(false, ANOTHER_MAC), (true, CLIENT_MAC)] {
        let mut server = Server::start(1, FanoutConfig { answer_by_socket, ..config(true) });
        server.engage();
        let before = server.counts();
        for (from, to) in [V4, V6] {
            // As by a router that is not the way back: the neighbour's address is known to be another.
            let mut frame = Crafted::query(from, to, b"question").frame();
            frame[6..12].copy_from_slice(&ANOTHER_MAC);
            wire.send(&frame, 0);
            let reply = loop {
                let reply = wire.receive(PATIENCE).unwrap();
                if answer_in(&reply).is_some() {
                    break reply;
                }
            };
            assert_eq!(reply[..6], expected, "{from}");
        }
        assert_eq!((server.counts().0 - before.0, server.counts().1 - before.1), (2, 0));
    }
}

fn odd_frames_are_answered_once_by_sockets(exact: bool) {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(2, config(exact));
    server.engage();
    let (v4, v6) = (Crafted::query(V4.0, V4.1, b"odd"), Crafted::query(V6.0, V6.1, b"odd"));
    // No operation, three times, and the end of options.
    let options = Crafted { extra: vec![1, 1, 1, 0], ..v4.clone() };
    // Next header UDP, no further octets, a padding option of six.
    let extension = Crafted { extra: vec![17, 0, 1, 4, 0, 0, 0, 0], ..v6.clone() };
    let mut to_all = v4.frame();
    to_all[..6].fill(0xFF);
    for frame in [options.frame(), extension.frame(), to_all] {
        assert_eq!(ask(&wire, &server, &frame), (vec![b"odd".to_vec()], BY_SOCKET));
    }
    // Longer than a slot, which is larger with the classic switch.
    for (from, to) in [V4, V6] {
        let long = Crafted::query(from, to, &[7; 1400]);
        let by = if exact { BY_SOCKET } else { BY_RING };
        assert!(ask(&wire, &server, &long.frame()) == (vec![vec![7; 1400]], by));
    }
    // A query of 2,000 octets in two fragments.
    let large = Crafted::query(V4.0, V4.1, &[8; 2000]);
    let packet = large.udp();
    wire.send(&large.around(&packet[..1400], 0, true), 0);
    let (_, by) = ask(&wire, &server, &large.around(&packet[1400..], 1400, false));
    assert_eq!(by, BY_SOCKET);
    // Small fragments, which nobody sends in earnest: the exact switch leaves them to sockets too.
    if exact {
        let small = Crafted::query(V4.0, V4.1, b"a query in two pieces");
        let packet = small.udp();
        wire.send(&small.around(&packet[..16], 0, true), 0);
        let answered = ask(&wire, &server, &small.around(&packet[16..], 16, false));
        assert_eq!(answered, (vec![small.payload.clone()], BY_SOCKET));
    }
}

#[test]
fn odd_frames_are_answered_once_by_sockets_with_the_exact_switch() {
    odd_frames_are_answered_once_by_sockets(true);
}

#[test]
fn odd_frames_are_answered_once_by_sockets_with_the_classic_switch() {
    odd_frames_are_answered_once_by_sockets(false);
}

#[test]
fn frames_that_deserve_no_answer_get_none() {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(1, config(true));
    server.engage();
    for (from, to) in [V4, V6] {
        let good = Crafted::query(from, to, b"question").frame();
        let mut damaged = good.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let mut other_host = good.clone();
        other_host[5] ^= 1;
        for frame in [damaged, other_host] {
            assert_eq!(ask(&wire, &server, &frame), (vec![], BY_NOBODY));
        }
        assert_eq!(ask(&wire, &server, &good), (vec![b"question".to_vec()], BY_RING));
    }
    for (from, to) in [
        ("10.9.0.255:4000", SERVER_V4),
        ("255.255.255.255:4000", SERVER_V4),
        ("224.0.0.1:4000", SERVER_V4),
        ("0.0.0.0:4000", SERVER_V4),
        ("10.9.0.1:4000", SERVER_V4),
        ("10.9.0.2:0", SERVER_V4),
        ("[ff02::1]:4000", SERVER_V6),
        // A router's ring must not answer what the host only forwards.
        ("10.9.0.2:4000", "192.0.2.99:53"),
    ] {
        let frame = Crafted::query(from, to, b"question").frame();
        // Where the ring leaves the frame to the kernel, that refuses to answer.
        let (answers, (by_ring, _)) = ask(&wire, &server, &frame);
        assert!(answers.is_empty() && by_ring == 0, "{from} to {to}");
    }
}

#[test]
fn queries_that_were_joined_on_their_way_are_answered_one_by_one() {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(1, config(true));
    server.engage();
    for (from, to) in [V4, V6] {
        let query = Crafted::query(from, to, b"first...second..third");
        let mut frame = query.frame();
        // The field holds the sum of the pseudo-header when hardware is to finish it.
        let at = frame.len() - query.payload.len() - 2;
        let sum = checksum(&query.pseudo_header(query.payload.len() + 8));
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let before = server.counts();
        wire.send(&frame, 8);
        assert_eq!(wire.answers(), [&b"first..."[..], b"second..", b"third"]);
        assert_eq!(server.counts().0 - before.0, 3);
    }
}

#[test]
fn an_answer_longer_than_the_link_carries_goes_by_the_socket() {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(2, config(true));
    server.engage();
    let before = server.counts();
    wire.send(&Crafted::query(V4.0, V4.1, b"Long").frame(), 0);
    // Two fragments; the first shows ports.
    let fragment = || loop {
        // The namespace has IPv6 and talks of it.
        let frame = wire.receive(PATIENCE).unwrap();
        if frame[12..14] == [8, 0] {
            break frame;
        }
    };
    let (first, second) = (fragment(), fragment());
    assert_eq!((first[20] & 0x20, &first[34..38]), (0x20, &[0, 53, 0x0F, 0xA0][..]));
    assert_eq!(first.len() + second.len(), 2 * 34 + 8 + 2000);
    assert_eq!(server.counts().0 - before.0, 1);
}

#[test]
fn with_a_bridge_no_query_is_seen_twice() {
    let ports = [
        "link add br0 type bridge",
        "link set br0 address 02:00:00:00:00:05",
        "link set server master br0",
        "link add server2 type veth peer name client2",
        "link set server2 master br0",
        "link set server2 up",
        "link set client2 up",
    ];
    network("br0", &ports);
    // A port forwards once the kernel has noticed that its link is there.
    let until = Instant::now() + PATIENCE;
    while !shown("-d link show dev server").contains("state forwarding") {
        assert!(Instant::now() < until, "the port does not forward");
    }
    let wire = Wire::open("client");
    let mut server = Server::start(2, config(true));
    let taken = server.fanout.interfaces();
    assert!(taken.contains("br0") && !taken.contains("server"), "{taken}");
    server.engage();
    for (from, to) in [V4, V6] {
        let frame = Crafted::query(from, to, b"question").frame();
        assert_eq!(ask(&wire, &server, &frame), (vec![b"question".to_vec()], BY_RING));
    }
}

#[test]
fn rings_take_no_interface_but_those_that_are_chosen() {
    const SECOND: [&str; 5] = [
        "link add server2 address 02:00:00:00:00:05 type veth peer name client2 address 02:00:00:00:00:0c",
        "addr add 10.8.0.1/24 dev server2",
        "link set server2 up",
        "link set client2 up",
        "neigh add 10.8.0.2 lladdr 02:00:00:00:00:0c dev server2 nud permanent",
    ];
    network("server", &SECOND);
    for exact in [true, false] {
        let chosen = vec!["server2".to_owned(), "later".to_owned()];
        let mut server = Server::start(1, FanoutConfig { interfaces: chosen, ..config(exact) });
        assert_eq!(
            (server.fanout.interfaces(), server.fanout.missing_interfaces()),
            ("server2".into(), vec!["later".into()])
        );
        server.engage();
        for (wire, from, to, by) in [
            ("client2", "10.8.0.2:4000", "10.8.0.1:53", BY_RING),
            ("client", "10.9.0.2:4000", "10.9.0.1:53", BY_SOCKET),
        ] {
            let frame = Crafted::query(from, to, b"question").frame();
            assert_eq!(ask(&Wire::open(wire), &server, &frame), (vec![b"question".to_vec()], by), "{wire}");
        }
    }
}

#[test]
fn an_address_that_comes_later_is_taken_after_a_refresh() {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(1, config(true));
    server.engage();
    ip("addr add 10.9.0.77/24 dev server");
    let frame = Crafted::query("10.9.0.2:4000", "10.9.0.77:53", b"question").frame();
    assert_eq!(ask(&wire, &server, &frame), (vec![b"question".to_vec()], BY_SOCKET));
    assert!(server.fanout.refresh().unwrap());
    assert_eq!(ask(&wire, &server, &frame), (vec![b"question".to_vec()], BY_RING));
    assert!(!server.fanout.refresh().unwrap());
}

/// Gives up the capabilities of this thread, as a server that runs as a user has.
fn without_capabilities() {
    // SAFETY: capset(2) reads a header of two words and two sets of three words, which outlive the call; it acts on this
    // thread alone.
    let result =
        unsafe { libc::syscall(libc::SYS_capset, [0x2008_0522_u32, 0].as_ptr(), [0_u32; 6].as_ptr()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

#[test]
fn the_switch_stays_exact_when_addresses_change_after_rights_were_dropped() {
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::start(2, config(true));
    server.engage();
    // One address, for which the table has room; then more than it has, for which the classic filters take over.
    for (addresses, stays_exact) in [(60..61, true), (61..100, false)] {
        for number in addresses.clone() {
            ip(&format!("addr add 10.9.0.{number}/24 dev server"));
        }
        let fanout = &mut server.fanout;
        let refresh = || {
            without_capabilities();
            (fanout.refresh().unwrap(), fanout.is_exact())
        };
        let outcome = std::thread::scope(|scope| scope.spawn(refresh).join().unwrap());
        assert_eq!(outcome, (true, stays_exact));
        for number in [1, addresses.end - 1] {
            let frame = Crafted::query("10.9.0.2:4000", &format!("10.9.0.{number}:53"), b"question").frame();
            assert_eq!(ask(&wire, &server, &frame), (vec![b"question".to_vec()], BY_RING), "{number}");
        }
    }
}

#[test]
fn a_stalled_worker_holds_back_no_more_than_its_ring() {
    const N_QUERIES: u32 = 4000;
    network("server", &[]);
    let wire = Wire::open("client");
    let slots = 64;
    let mut server =
        Server::start(4, FanoutConfig { size: RingSize { slots, slot_octets: 512 }, ..config(true) });
    server.stalled.store(true, Ordering::Relaxed);
    server.engage();
    let mut answered = 0;
    for i in 0..N_QUERIES {
        // Sixteen flows: one in four would be the stalled worker's.
        let from = format!("10.9.0.2:{}", 5000 + i % 16);
        wire.send(&Crafted::query(&from, SERVER_V4, &i.to_be_bytes()).frame(), 0);
        if i % 32 == 31 {
            while let Some(frame) = wire.receive(Duration::from_millis(1)) {
                answered += u32::from(answer_in(&frame).is_some());
            }
        }
    }
    answered += u32::try_from(wire.answers().len()).unwrap();
    let held_back = N_QUERIES - answered;
    assert!(held_back > 0 && held_back as usize <= slots, "{held_back} were held back");
    assert!(server.fanout.stats().rolled_over > 0);
    server.stalled.store(false, Ordering::Relaxed);
    // And those are answered late.
    let late = wire.answers().len();
    assert_eq!(late, held_back as usize);
}

/// What happened to the queries around each of many switches.
struct Outcome {
    n_queries: usize,
    lost: usize,
    /// Second answers, a number a switch, in ascending order.
    doubled: Vec<usize>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (total, n) = (self.doubled.iter().sum::<usize>(), self.doubled.len());
        let (median, most) = (self.doubled[n / 2], self.doubled[n - 1]);
        write!(
            f,
            "{n} switches, {} queries: {} lost; {total} doubled, a switch {:.2} on average, median {median}, most {most}",
            self.n_queries,
            self.lost,
            total as f64 / n as f64,
        )
    }
}

/// Switches `n_switches` times under load.
fn switch_under_load(n_workers: usize, exact: bool, n_switches: u32) -> Outcome {
    /// Queries a second, flows, and how many may be in flight: below what the slowest machine holds.
    const RATE: u64 = 50_000;
    const N_FLOWS: u32 = 200;
    const WINDOW: usize = 512;
    network("server", &[]);
    let wire = Wire::open("client");
    let mut server = Server::on(&[SERVER_V4], n_workers, config(exact));
    let done = Arc::new(AtomicBool::new(false));
    let switch = Arc::new(AtomicUsize::new(0));
    let sender = std::thread::spawn({
        let (done, switch) = (Arc::clone(&done), Arc::clone(&switch));
        move || load(&wire, &done, &switch, RATE, N_FLOWS, WINDOW)
    });
    for i in 0..n_switches {
        if i % 2 == 0 {
            server.engage();
        } else {
            server.release();
        }
        std::thread::sleep(Duration::from_millis(2));
        switch.fetch_add(1, Ordering::Relaxed);
    }
    done.store(true, Ordering::Relaxed);
    let answers = sender.join().unwrap();
    let mut doubled = vec![0; n_switches as usize + 1];
    for (switch, n_answers) in answers.values() {
        doubled[*switch] += usize::from(n_answers.saturating_sub(1));
    }
    doubled.pop();
    doubled.sort_unstable();
    let lost = answers.values().filter(|(_, n_answers)| *n_answers == 0).count();
    Outcome { n_queries: answers.len(), lost, doubled }
}

/// Sends numbered queries until `done`, and yields how often each was answered,
/// together with the number of the switch that was next.
fn load(
    wire: &Wire,
    done: &AtomicBool,
    switch: &AtomicUsize,
    rate: u64,
    n_flows: u32,
    window: usize,
) -> HashMap<u32, (usize, u8)> {
    let frames: Vec<Vec<u8>> = (0..n_flows)
        .map(|flow| Crafted::query(&format!("10.9.0.2:{}", 10_000 + flow), SERVER_V4, &[0; 32]).frame())
        .collect();
    let mut answers = HashMap::new();
    let (mut in_flight, started) = (0_usize, Instant::now());
    let note = |frame: &[u8], answers: &mut HashMap<u32, (usize, u8)>, in_flight: &mut usize| {
        let Some(payload) = answer_in(frame) else { return };
        let number = u32::from_be_bytes(payload[..4].try_into().unwrap());
        let (_, n_answers) = answers.get_mut(&number).unwrap();
        *in_flight = in_flight.saturating_sub(usize::from(*n_answers == 0));
        *n_answers += 1;
    };
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let mut frame = frames[(number % n_flows) as usize].clone();
        let at = frame.len() - 32;
        // No checksum: it need not be made anew for each.
        frame[at - 2..at].fill(0);
        frame[at..at + 4].copy_from_slice(&number.to_be_bytes());
        wire.send(&frame, 0);
        answers.insert(number, (switch.load(Ordering::Relaxed), 0));
        in_flight += 1;
        let due = started + Duration::from_micros(u64::from(number) * 1_000_000 / rate);
        while Instant::now() < due || in_flight >= window {
            match wire.receive(Duration::from_millis(if in_flight >= window { 1000 } else { 0 })) {
                Some(reply) => note(&reply, &mut answers, &mut in_flight),
                // Nothing for a second: those are lost.
                None if in_flight >= window => in_flight = 0,
                None => {}
            }
        }
    }
    while let Some(reply) = wire.receive(SILENCE) {
        note(&reply, &mut answers, &mut in_flight);
    }
    answers
}

fn outcome(n_workers: usize, exact: bool) -> Outcome {
    // In a thread of its own, which takes its namespace along when it ends.
    let outcome = std::thread::spawn(move || switch_under_load(n_workers, exact, 1000)).join().unwrap();
    println!("{}, {n_workers} listeners: {outcome}", if exact { "exact" } else { "classic" });
    assert!(outcome.n_queries > 10_000);
    outcome
}

#[test]
fn the_exact_switch_loses_and_doubles_nothing() {
    for n_workers in [1, 8] {
        let outcome = outcome(n_workers, true);
        assert_eq!((outcome.lost, outcome.doubled.last()), (0, Some(&0)));
    }
}

#[test]
fn the_classic_switch_loses_next_to_nothing_and_doubles_few() {
    for n_workers in [1, 8] {
        let outcome = outcome(n_workers, false);
        // The median: a switch that is interrupted half-way, on a machine that has other work, doubles hundreds.
        assert!(outcome.doubled[500] < 5);
        // One filter is put on while a packet is on its way to the other: a microsecond, unless a virtual CPU is stopped there.
        assert!(outcome.lost <= 10, "{} were lost", outcome.lost);
    }
}
