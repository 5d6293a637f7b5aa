//! Opens every socket before rights are dropped and threads are started, and explains what cannot be opened.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use tracing::{info, warn};
use weir_netio::NetError;
use weir_netio::reuseport::{self, ListenConfig, Listeners, Opened};
use weir_netio::steer;
use weir_netio::udp::UdpSocketConfig;

use crate::config::{Config, DNS_PORT, MetricsAddress, Octets, Server, Steer};
use crate::failure::Failure;

/// Opens UDP and TCP sockets for a worker on each of `worker_cpus`, on every address of the configuration.
pub(crate) fn open_dns(config: &Config, worker_cpus: Vec<usize>) -> Result<Opened, Failure> {
    let addresses = addresses(config);
    let listen = ListenConfig {
        steer: match config.ingress.steer {
            Steer::Hash => steer::Steer::Hash,
            Steer::Cpu => steer::Steer::Cpu,
        },
        udp: UdpSocketConfig {
            receive_buffer_octets: as_usize(config.ingress.receive_buffer),
            join_answers: config.ingress.join_answers,
            busy_poll_us: u32::try_from(config.ingress.busy_poll.0.as_micros()).unwrap_or(u32::MAX),
            ..UdpSocketConfig::default()
        },
        worker_cpus,
        ..ListenConfig::for_workers(1)
    };
    let opened = reuseport::open(&addresses, &listen).map_err(|error| Failure::new(explain(&error)))?;
    // The default address may be missing on the host; one that was asked for may not.
    if config.server.listen.is_some() && !opened.skipped.is_empty() {
        return Err(Failure::of_lines(opened.skipped.iter().map(explain)));
    }
    for skipped in &opened.skipped {
        info!("{skipped}; answering over IPv4 only");
    }
    for listeners in &opened.listeners {
        for degraded in &listeners.degraded {
            info!("{}: {} not as asked: {}", listeners.address, degraded.option, degraded.reason);
        }
    }
    Ok(opened)
}

/// As [`open_dns`], with one socket an address that all workers receive from: what a server was before SO_REUSEPORT, for
/// comparison.
pub(crate) fn open_shared(config: &Config, worker_cpus: &[usize]) -> Result<Opened, Failure> {
    let mut opened = open_dns(config, worker_cpus.iter().copied().take(1).collect())?;
    for listeners in &mut opened.listeners {
        let Listeners { udp, tcp, address, .. } = listeners;
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("cannot share {address}: {error}"));
        let (Some(first_udp), Some(first_tcp)) = (udp.pop(), tcp.pop()) else { continue };
        for _ in worker_cpus {
            udp.push(first_udp.try_clone().map_err(|error| failed(&error))?);
            tcp.push(first_tcp.try_clone().map_err(|error| failed(&error))?);
        }
    }
    Ok(opened)
}

/// Where the configuration has the server listen.
pub(crate) fn addresses(config: &Config) -> Vec<SocketAddr> {
    match &config.server.listen {
        Some(listen) => listen.iter().map(|address| address.0).collect(),
        None => vec![(Ipv4Addr::UNSPECIFIED, DNS_PORT).into(), (Ipv6Addr::UNSPECIFIED, DNS_PORT).into()],
    }
}

fn as_usize(octets: Octets) -> usize {
    usize::try_from(octets.0).unwrap_or(usize::MAX)
}

/// What cannot be opened, and what to do about it.
fn explain(error: &NetError) -> String {
    let advice = match error {
        NetError::AddressInUse { address, .. } if address.port() == DNS_PORT => {
            "; is it another weir, or systemd-resolved (DNSStubListener=no in /etc/systemd/resolved.conf)? \
             `ss -lntup sport = :53` shows it; or choose another address with --listen"
        }
        NetError::AddressInUse { .. } => {
            "; is another weir running? `ss -lntup` shows who holds it; or choose another address with --listen"
        }
        NetError::PermissionDenied { .. } => {
            "; start as root (which is given up once the port is open), or set the sysctl \
             net.ipv4.ip_unprivileged_port_start=53, or choose a port from 1024 on with --listen"
        }
        NetError::AddressUnavailable { .. } => "; `ip address` shows those there are",
        NetError::Ipv6Unavailable { .. } => "; leave the address out of --listen",
        // EMFILE and ENFILE, of which std makes no kind of its own.
        NetError::Call { source, .. } if matches!(source.raw_os_error(), Some(23 | 24)) => {
            "; every worker has a socket for each address and transport: allow more files (`ulimit -n`, LimitNOFILE= \
             of the unit), or start fewer workers with --workers"
        }
        NetError::Call { .. } => "",
    };
    format!("cannot listen: {error}{advice}")
}

/// Opens the listener of metrics and health, unless it is switched off.
///
/// The default address may be taken by another server on the host: Weir then serves without it and says so.
pub(crate) fn open_http(config: &Config) -> Result<Option<TcpListener>, Failure> {
    let MetricsAddress(Some(address)) = config.server.metrics else { return Ok(None) };
    let opened = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match opened {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if config.server.metrics == Server::default().metrics => {
            warn!(
                "no metrics: {address}: {error}; choose another address with --metrics, or `--metrics off`"
            );
            Ok(None)
        }
        Err(error) => Err(Failure::new(format!(
            "cannot serve metrics on {address}: {error}; choose another address with --metrics, or `--metrics off`"
        ))),
    }
}
