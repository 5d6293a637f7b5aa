//! From the command line to a load: resolves the server, reads the queries, and refuses what must not be.

use std::fs::File;
use std::io::{BufReader, stdin};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::cli::{Cli, Family, Mode};
use crate::load::{Load, Transport};
use crate::order::Popularity;
use crate::queries::{Queries, Shape};
use crate::ramp::Goal;
use crate::target;

/// As in dnsperf.
const DEFAULT_WINDOW: usize = 100;
/// As in dnsperf: long enough for a server that asks others.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// In a search what comes after a second is lost for whoever asked.
const RAMP_TIMEOUT: Duration = Duration::from_secs(1);
const RAMP_STEP: Duration = Duration::from_secs(2);
/// More than one, so that a server with a socket a core sees traffic on several.
const DEFAULT_CLIENTS: usize = 16;
/// Ports of one address.
const MOST_CLIENTS: usize = 65_535;
/// Descriptors besides the sockets.
const OTHER_FILES: u64 = 64;

/// The load that the command line asks for.
pub(crate) fn load(cli: &Cli) -> anyhow::Result<Load> {
    let server = resolve(cli)?;
    ensure!(
        cli.yes_really || target::is_ones_own(server.ip()),
        "{server} is not loopback, link-local, private or in 198.18.0.0/15: a load on it may harm others; \
         add --yes-really if it is yours"
    );
    let locals = locals(cli, server.ip())?;
    let n_threads = cli.threads.get();
    let open = cli.max_qps.is_some() || cli.ramp;
    let window = cli.outstanding.map(usize::from).or((!open).then_some(DEFAULT_WINDOW));
    let n_clients = cli.clients.map_or(DEFAULT_CLIENTS, usize::from);
    // A connection carries at least one query.
    let n_useful = if cli.mode == Mode::Tcp { window.unwrap_or(usize::MAX) } else { usize::MAX };
    let n_ports = n_clients.min(n_useful).max(n_threads);
    ensure!(n_ports <= MOST_CLIENTS, "at most {MOST_CLIENTS} clients");
    allow_files(n_ports)?;
    let queries = queries(cli)?;
    let popularity = cli.zipf.map(|exponent| Arc::new(Popularity::zipf(queries.len(), exponent)));
    let runs = cli.runs.or((cli.time_limit.is_none() && !cli.ramp).then_some(1));
    Ok(Load {
        server,
        transport: match cli.mode {
            Mode::Udp => Transport::Udp,
            Mode::Tcp => {
                Transport::Tcp { queries_a_connection: Some(cli.queries_per_conn).filter(|&n| n > 0) }
            }
        },
        locals,
        n_threads,
        n_ports,
        window,
        rate: cli.max_qps,
        duration: cli.time_limit.or(cli.ramp.then_some(RAMP_STEP)),
        n_queries: runs.map(|runs| u64::from(runs) * u64::from(queries.len())),
        timeout: cli.timeout.unwrap_or(if cli.ramp { RAMP_TIMEOUT } else { DEFAULT_TIMEOUT }),
        buffer_octets: usize::try_from(cli.buffer).unwrap_or(usize::MAX).saturating_mul(1024),
        burst: usize::from(cli.burst),
        in_a_row: usize::from(cli.in_a_row),
        queries: Arc::new(queries),
        popularity,
        seed: cli.seed,
    })
}

/// The search that the command line asks for, if it does.
pub(crate) fn goal(cli: &Cli) -> Option<Goal> {
    cli.ramp.then_some(Goal { from: cli.ramp_from, most_lost: cli.max_loss / 100.0 })
}

fn resolve(cli: &Cli) -> anyhow::Result<SocketAddr> {
    let name = &cli.server;
    let fits = |address: &SocketAddr| match cli.family {
        Family::Any => true,
        Family::Inet => address.is_ipv4(),
        Family::Inet6 => address.is_ipv6(),
    };
    let mut addresses = (name.as_str(), cli.port)
        .to_socket_addrs()
        .with_context(|| format!("cannot find the address of `{name}`"))?;
    addresses.find(fits).with_context(|| format!("`{name}` has no address of the family asked for"))
}

fn locals(cli: &Cli, server: IpAddr) -> anyhow::Result<Vec<IpAddr>> {
    let locals: Vec<IpAddr> = cli.local.iter().flat_map(|local| local.0.iter().copied()).collect();
    if let Some(other) = locals.iter().find(|local| local.is_ipv4() != server.is_ipv4()) {
        bail!("{other} cannot send to {server}: one is IPv4, the other IPv6");
    }
    Ok(locals)
}

/// Raises the limit of open files, and says so in time when it does not suffice.
fn allow_files(n_sockets: usize) -> anyhow::Result<()> {
    // Where the limit cannot be read, opening the sockets will tell.
    let Ok(n_files) = weir_netio::privilege::raise_open_files() else { return Ok(()) };
    let n_needed = n_sockets as u64 + OTHER_FILES;
    ensure!(
        n_files >= n_needed,
        "{n_sockets} clients need {n_needed} open files, and the limit is {n_files} (ulimit -Hn)"
    );
    Ok(())
}

fn queries(cli: &Cli) -> anyhow::Result<Queries> {
    let shape = Shape {
        edns_payload: (cli.edns || cli.dnssec).then_some(cli.edns_size),
        dnssec_ok: cli.dnssec,
        recursion_desired: cli.recursion,
    };
    match &cli.datafile {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            Queries::read(BufReader::new(file), shape).with_context(|| path.display().to_string())
        }
        None => Queries::read(stdin().lock(), shape).context("standard input"),
    }
}
