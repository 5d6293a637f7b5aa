//! Opens the sockets of all workers for a list of addresses.
//!
//! `SO_REUSEPORT` lets any process of the same user join a port, so a second server would take half of the queries
//! without a word. The usual guard, a trial bind without the option, leaves a moment between the trial and the real
//! bind. Here the first socket of a group *is* the trial: it is bound without the option, which fails when anybody
//! else has the port, and given the option afterwards, which lets the others join
//! (`reuseport_add_sock` in net/core/sock_reuseport.c makes the group then).

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Degraded, NetError, Transport};
use crate::steer::{self, Steer};
use crate::udp::{UdpEngine, UdpSocketConfig};

/// How often another port is tried when the one that the kernel chose for UDP is taken for TCP.
const PORT_ATTEMPTS: usize = 32;

/// What to open for each address.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    /// The CPU of each worker; its length is the number of workers. Needed by [`Steer::Cpu`].
    pub worker_cpus: Vec<usize>,
    /// Buffers of the UDP sockets.
    pub udp: UdpSocketConfig,
    /// Connections that may wait to be accepted, for each listener; the kernel caps it at `net.core.somaxconn`.
    pub tcp_backlog: i32,
    /// How the kernel spreads datagrams over the workers. Connections always go by the kernel's hash: the runtime that
    /// accepts them is not bound to CPUs.
    pub steer: Steer,
}

impl ListenConfig {
    /// The usual configuration for `n_workers` workers on the CPUs from 0 on.
    pub fn for_workers(n_workers: usize) -> Self {
        Self {
            worker_cpus: (0..n_workers).collect(),
            udp: UdpSocketConfig::default(),
            // Linux's own default limit for somaxconn since 5.4.
            tcp_backlog: 4096,
            steer: Steer::Hash,
        }
    }
}

/// The sockets of one address, in the order of the workers.
#[derive(Debug)]
pub struct Listeners {
    /// The address, with the port that the kernel chose where 0 was asked for.
    pub address: SocketAddr,
    /// A UDP socket a worker.
    pub udp: Vec<UdpEngine>,
    /// A TCP listener a worker, not blocking.
    pub tcp: Vec<TcpListener>,
    /// What the kernel refused and the group does without; options of the UDP sockets are listed once.
    pub degraded: Vec<Degraded>,
}

/// What [`open`] opened, and what this host cannot offer.
#[derive(Debug)]
pub struct Opened {
    /// The addresses that are served, in the order asked for.
    pub listeners: Vec<Listeners>,
    /// IPv6 addresses on a host without IPv6: always [`NetError::Ipv6Unavailable`].
    pub skipped: Vec<NetError>,
}

/// The sockets of one worker, one of each kind an address.
#[derive(Debug, Default)]
pub struct WorkerSockets {
    /// UDP sockets, in the order of the addresses.
    pub udp: Vec<UdpEngine>,
    /// TCP listeners, in the order of the addresses.
    pub tcp: Vec<TcpListener>,
}

/// Opens a UDP socket and a TCP listener for every worker on every address.
///
/// An address that is listed twice is opened once. A wildcard address and a specific one may share a port. Port 0 takes
/// a port that is free for UDP and TCP, a different one for each address.
///
/// # Errors
/// The first address that cannot be opened, except for IPv6 on a host without it, which is reported in
/// [`Opened::skipped`]. Nothing stays open then.
pub fn open(addresses: &[SocketAddr], config: &ListenConfig) -> Result<Opened, NetError> {
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.retain(|&i| !addresses[..i].contains(&addresses[i]) || addresses[i].port() == 0);
    // Wildcards first: when they are bound without SO_REUSEPORT, nobody else holds a specific address on their port.
    order.sort_by_key(|&i| !addresses[i].ip().is_unspecified());
    let mut opened: Vec<(usize, Listeners)> = Vec::with_capacity(order.len());
    let mut skipped = Vec::new();
    for i in order {
        let covered = opened.iter().any(|(_, listeners)| covers(listeners.address, addresses[i]));
        match Listeners::open(addresses[i], config, covered) {
            Ok(listeners) => opened.push((i, listeners)),
            Err(error @ NetError::Ipv6Unavailable { .. }) => skipped.push(error),
            Err(error) => return Err(error),
        }
    }
    opened.sort_by_key(|(i, _)| *i);
    Ok(Opened { listeners: opened.into_iter().map(|(_, listeners)| listeners).collect(), skipped })
}

/// Sorts the sockets by worker: element `i` has worker `i`'s socket of every address.
pub fn by_worker(listeners: Vec<Listeners>) -> Vec<WorkerSockets> {
    let n_workers = listeners.iter().map(|group| group.udp.len()).max().unwrap_or(0);
    let mut workers: Vec<WorkerSockets> = (0..n_workers).map(|_| WorkerSockets::default()).collect();
    for group in listeners {
        for (worker, (udp, tcp)) in workers.iter_mut().zip(group.udp.into_iter().zip(group.tcp)) {
            worker.udp.push(udp);
            worker.tcp.push(tcp);
        }
    }
    workers
}

/// Whether a wildcard address that is already ours takes in `address`: then the port is ours, and the kernel would
/// refuse a bind without `SO_REUSEPORT` because of our own sockets. IPv6 sockets take no IPv4 (`IPV6_V6ONLY`).
fn covers(ours: SocketAddr, address: SocketAddr) -> bool {
    ours.ip().is_unspecified() && ours.is_ipv4() == address.is_ipv4() && ours.port() == address.port()
}

impl Listeners {
    fn open(address: SocketAddr, config: &ListenConfig, covered: bool) -> Result<Self, NetError> {
        let mut last = None;
        let attempts = if address.port() == 0 { PORT_ATTEMPTS } else { 1 };
        // Sockets of failed attempts are kept until the end, so that the kernel chooses another port.
        let mut taken = Vec::new();
        for _ in 0..attempts {
            let udp = udp_group(address, config, covered)?;
            let Some(bound) = udp.first().map(UdpEngine::address) else { break };
            match tcp_group(bound, config, covered) {
                Ok(tcp) => return Ok(Self::assemble(bound, udp, tcp, config)),
                Err(error @ NetError::AddressInUse { .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
            taken.push(udp);
        }
        Err(last.unwrap_or(NetError::Call {
            call: "open",
            address: Some(address),
            source: std::io::Error::new(std::io::ErrorKind::InvalidInput, "no worker"),
        }))
    }

    fn assemble(
        address: SocketAddr,
        mut udp: Vec<UdpEngine>,
        tcp: Vec<TcpListener>,
        config: &ListenConfig,
    ) -> Self {
        let mut degraded = udp.first_mut().map(UdpEngine::take_degraded).unwrap_or_default();
        if config.steer == Steer::Cpu
            && udp.len() > 1
            && let Err(error) = steer::attach_cpu(udp[0].as_fd(), &config.worker_cpus)
        {
            degraded.push(Degraded { option: "SO_ATTACH_REUSEPORT_CBPF", reason: error.to_string() });
        }
        Self { address, udp, tcp, degraded }
    }
}

/// The UDP sockets of one address. `covered`: the port is known to be ours, so that the first bind need not prove it.
fn udp_group(address: SocketAddr, config: &ListenConfig, covered: bool) -> Result<Vec<UdpEngine>, NetError> {
    let n_workers = config.worker_cpus.len();
    let mut group = Vec::with_capacity(n_workers);
    let mut address = address;
    for worker in 0..n_workers {
        let joins = covered || worker > 0;
        let engine = UdpEngine::bind_in(address, &config.udp, joins)?;
        if !joins {
            engine.share_port()?;
            address = engine.address();
        }
        group.push(engine);
    }
    Ok(group)
}

/// The TCP listeners of one address; as for UDP, the first is bound alone.
fn tcp_group(
    address: SocketAddr,
    config: &ListenConfig,
    covered: bool,
) -> Result<Vec<TcpListener>, NetError> {
    (0..config.worker_cpus.len())
        .map(|worker| tcp_listener(address, config.tcp_backlog, covered || worker > 0))
        .collect()
}

fn tcp_listener(address: SocketAddr, backlog: i32, joins: bool) -> Result<TcpListener, NetError> {
    let opening = |call| NetError::opening(call, address, Transport::Tcp);
    let call = |call| NetError::call(call, address);
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM.cloexec().nonblocking(), Some(Protocol::TCP))
            .map_err(opening("socket"))?;
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(call("setsockopt IPV6_V6ONLY"))?;
    }
    // Connections of a server that was stopped linger in TIME-WAIT and would hold the port; a listener still does.
    socket.set_reuse_address(true).map_err(call("setsockopt SO_REUSEADDR"))?;
    if joins {
        socket.set_reuse_port(true).map_err(call("setsockopt SO_REUSEPORT"))?;
    }
    socket.bind(&address.into()).map_err(opening("bind"))?;
    if !joins {
        // Before listen: a listener joins its group there.
        socket.set_reuse_port(true).map_err(call("setsockopt SO_REUSEPORT"))?;
    }
    socket.listen(backlog).map_err(opening("listen"))?;
    Ok(socket.into())
}
