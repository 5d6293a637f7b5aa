//! The command line: dnsperf's flags where dnsperf has them, and what is said about them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// The most addresses that one prefix may stand for.
const MOST_ADDRESSES: u32 = 1 << 16;

/// Puts a load on a name server, reads the answers, and says what the server made of it.
#[derive(Debug, Parser)]
#[command(name = "queryperf", version, about, max_term_width = 110)]
#[command(after_help = "\
Queries are taken from a file of lines `NAME TYPE`; `;` and `#` start comments. Without -Q the answers set the pace:
-q queries are kept on their way (closed loop). With -Q queries leave at that rate whatever comes back (open loop);
-q then limits what may be on its way. A port has 65,536 ids: a rate of which the most is lost takes several ports (-c) or
a short -t. What was due and could not be sent is counted. Without -l and -n the file is sent once.

Examples:
  queryperf -s 127.0.0.1 -p 5300 -d queries.txt -l 10              as fast as the server answers
  queryperf -s 127.0.0.1 -p 5300 -d queries.txt -l 10 -Q 60000     60,000 queries a second
  queryperf -s 127.0.0.1 -p 5300 -d queries.txt --ramp             the highest rate with under 0.1 % loss
  queryperf -s ::1 -d queries.txt -l 10 -D -c 1000 -q 2000         DNSSEC records, from 1,000 ports
  queryperf -s 127.0.0.1 -d queries.txt -l 10 -m tcp -q 1000       over TCP, pipelined
  queryperf -s 127.0.0.1 -d queries.txt -l 10 -m tcp --queries-per-conn 1 -a 127.1.0.0/28
                                                                   a connection a query, from 14 addresses

Exit codes: 0 the server answered; 1 it did not, or the load could not be made; 2 wrong usage.")]
pub(crate) struct Cli {
    /// Server to ask, an address or a name
    #[arg(short = 's', long, value_name = "SERVER", default_value = "127.0.0.1")]
    pub(crate) server: String,

    /// Port to ask
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 53, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Family of the server's address when it is given by name: any, inet or inet6
    #[arg(short = 'f', long, value_name = "FAMILY", default_value = "any")]
    pub(crate) family: Family,

    /// How queries travel: udp or tcp
    #[arg(short = 'm', long, value_name = "MODE", default_value = "udp")]
    pub(crate) mode: Mode,

    /// Query file; standard input without one
    #[arg(short = 'd', long, value_name = "FILE")]
    pub(crate) datafile: Option<PathBuf>,

    /// Send for so many seconds, the file over and over
    #[arg(short = 'l', long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time_limit: Option<Duration>,

    /// Send the file at most so many times [default: 1 without -l]
    #[arg(short = 'n', long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,

    /// Queries on their way at most [default: 100 without -Q, no limit with it]
    #[arg(short = 'q', long, value_name = "N")]
    pub(crate) outstanding: Option<NonZeroUsize>,

    /// Queries a second to send
    #[arg(short = 'Q', long, value_name = "RATE", value_parser = rate)]
    pub(crate) max_qps: Option<f64>,

    /// Clients: UDP ports to send from, or TCP connections to hold [default: 16, at least one a thread]
    #[arg(short = 'c', long, value_name = "N")]
    pub(crate) clients: Option<NonZeroUsize>,

    /// Threads; each has its share of clients, rate and queries
    #[arg(short = 'T', long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,

    /// Seconds until a query counts as lost [default: 5; with --ramp 1]
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Send an EDNS record
    #[arg(short = 'e', long)]
    pub(crate) edns: bool,

    /// Ask for DNSSEC records (the DO bit); implies -e
    #[arg(short = 'D', long)]
    pub(crate) dnssec: bool,

    /// Octets of UDP payload to announce in the EDNS record
    #[arg(long, value_name = "OCTETS", default_value_t = 1232)]
    pub(crate) edns_size: u16,

    /// Ask for recursion (the RD bit)
    #[arg(long)]
    pub(crate) recursion: bool,

    /// Addresses to send from, in turn: addresses and prefixes such as 127.1.0.0/28, separated by commas
    #[arg(short = 'a', long, value_name = "ADDRS", value_delimiter = ',')]
    pub(crate) local: Vec<LocalAddresses>,

    /// Size of each socket's send and receive buffer in kilobytes
    #[arg(short = 'b', long, value_name = "KB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) buffer: u32,

    /// Queries that leave together at most, and what a millisecond brings at most; smaller is smoother and dearer
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) burst: u16,

    /// Queries in a row from one UDP port before it is the next one's turn
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) in_a_row: u16,

    /// Close a TCP connection after so many queries; 0 keeps it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) queries_per_conn: u64,

    /// Ask for the k-th line of the file in proportion to 1/k^S instead of for all lines alike; 1 is usual for names
    #[arg(long, value_name = "S", value_parser = exponent)]
    pub(crate) zipf: Option<f64>,

    /// Seed of the random order of --zipf
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Search for the highest rate at which next to nothing is lost; -l is then the length of a step [default: 2]
    #[arg(long, conflicts_with_all = ["max_qps", "runs"])]
    pub(crate) ramp: bool,

    /// Queries a second of the first step of --ramp
    #[arg(long, value_name = "RATE", default_value = "10000", value_parser = rate)]
    pub(crate) ramp_from: f64,

    /// Per cent of the queries that may be lost in a step of --ramp that passes
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = per_cent)]
    pub(crate) max_loss: f64,

    /// Print counts every so many seconds on standard error [default: 1 on a terminal, else none]
    #[arg(short = 'S', long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) stats_interval: Option<Duration>,

    /// Show no progress
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Put the load on a server that is not loopback, link-local, private or in 198.18.0.0/15
    #[arg(long)]
    pub(crate) yes_really: bool,
}

/// The transport, as dnsperf names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Udp,
    Tcp,
}

/// An address family, as dnsperf names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    Any,
    Inet,
    Inet6,
}

/// One address to send from, or those of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalAddresses(pub(crate) Vec<IpAddr>);

impl FromStr for LocalAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ip, length) = match text.split_once('/') {
            Some((ip, length)) => (ip, Some(length)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| format!("`{ip}` is no IP address"))?;
        let Some(length) = length else { return Ok(Self(vec![ip])) };
        let n_bits: u32 = if ip.is_ipv4() { 32 } else { 128 };
        let length = length
            .parse::<u32>()
            .ok()
            .filter(|length| *length <= n_bits)
            .ok_or(format!("a prefix length of 0 to {n_bits} must follow the `/`"))?;
        let n_addresses = 1_u32
            .checked_shl(n_bits - length)
            .filter(|n| *n <= MOST_ADDRESSES)
            .ok_or(format!("{text} has over {MOST_ADDRESSES} addresses"))?;
        // The first is the network's own, the last of an IPv4 prefix its broadcast address (RFC 1122 section 3.2.1.3).
        let range = if n_addresses > 2 { 1..n_addresses - 1 } else { 0..n_addresses };
        Ok(Self(range.map(|i| nth_address(ip, n_addresses, i)).collect()))
    }
}

/// Address `i` of the prefix of `n_addresses` (a power of two) that `ip` is in.
fn nth_address(ip: IpAddr, n_addresses: u32, i: u32) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !(n_addresses - 1) | i).into(),
        IpAddr::V6(v6) => {
            Ipv6Addr::from_bits(v6.to_bits() & !u128::from(n_addresses - 1) | u128::from(i)).into()
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let within = Duration::from_millis(1)..=Duration::from_secs(86_400 * 7);
    duration.filter(|duration| within.contains(duration)).ok_or("a time from 0.001 s to a week".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    number_within(text, 0.01, 1e9).ok_or("a rate from 0.01 to 1000000000 a second".to_owned())
}

fn exponent(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 10.0).ok_or("an exponent from 0 to 10".to_owned())
}

fn per_cent(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 100.0).ok_or("a number from 0 to 100".to_owned())
}

fn number_within(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_prefix_stands_for_its_hosts() {
        let hosts = |text: &str| text.parse::<LocalAddresses>().map(|local| local.0);
        let [first, .., last] = hosts("127.1.0.9/28").unwrap()[..] else { panic!("a /28 has 14 hosts") };
        assert_eq!((first, last), ("127.1.0.1".parse().unwrap(), "127.1.0.14".parse().unwrap()));
        assert_eq!(hosts("fd00::/126").unwrap().len(), 2);
        assert_eq!(hosts("10.0.0.1/32").unwrap(), hosts("10.0.0.1").unwrap());
        for wrong in ["10.0.0.0/8", "::/0", "10.0.0.0/33", "10.0.0.0/", "host", ""] {
            assert!(hosts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_without_a_meaning_are_refused() {
        for arguments in
            [["-l", "0"], ["-Q", "0"], ["-Q", "NaN"], ["-q", "0"], ["-T", "0"], ["--max-loss", "101"]]
        {
            assert!(Cli::try_parse_from(["queryperf"].iter().chain(&arguments)).is_err(), "{arguments:?}");
        }
    }
}
