//! The command line: what can be asked of `weir`, and the help that teaches it.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, Resettable};
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{
    Config, IngressMode, Level, ListenAddress, LogFormat, MetricsAddress, Octets, Stall, Switch, User,
    Workers, ZoneName,
};

/// An authoritative DNS server with one listener a core.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, max_term_width = 110, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  weir serve --zones zones --listen 127.0.0.1:5300     serve every *.zone file below ./zones
  weir checkzone example.com zones/example.com.zone    read a zone file and say what is wrong with it
  weir checkconf /etc/weir/weir.toml                   read the configuration and every zone it names
  weir healthcheck --server 127.0.0.1:5300             ask a server whether it answers

`weir COMMAND --help` says more. Exit codes: 0 all is well; 1 what was asked for is wrong; 2 wrong usage.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// What the arguments and the environment ask for. Wrong usage ends the process with exit code 2.
    pub(crate) fn read() -> Cli {
        let matches: ArgMatches = command().get_matches();
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// The command line, in which a variable that is empty counts as one that is not set: in compose files, `WEIR_LISTEN=`
/// is how a variable is passed on that nobody set.
fn command() -> clap::Command {
    let ignore_empty = |arg: Arg| match arg.get_env() {
        Some(name) if std::env::var_os(name).is_some_and(|value| value.is_empty()) => {
            arg.env(Resettable::Reset)
        }
        _ => arg,
    };
    let mut command = Cli::command();
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |sub| sub.mut_args(ignore_empty));
    }
    command
}

/// What `weir` is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer queries from zone files, over UDP and TCP
    Serve(ServeArgs),
    /// Read one zone file and report what is wrong with it
    Checkzone(CheckzoneArgs),
    /// Read the configuration and every zone, report all that is wrong, start nothing
    Checkconf(CheckconfArgs),
    /// Ask a server whether it answers; exit 0 when it does
    Healthcheck(HealthcheckArgs),
    /// Show what the kernel is set to for this load, and what would be better
    Tune(TuneArgs),
}

/// Flags of `weir serve`; each may come from the environment as well.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Every flag has an environment variable; one that is empty counts as not set. A flag overrides it, and both
override the configuration file.
Without --config and --zones, /etc/weir/weir.toml is read if it is there, else ./zones is served.

Examples:
  weir serve --zones zones --listen 127.0.0.1:5300
  weir serve --zones zones --listen 192.0.2.53 --listen 2001:db8::53 --metrics off
  weir serve --config /etc/weir/weir.toml --log-format json
  WEIR_LISTEN=127.0.0.1:5300,[::1]:5300 weir serve --zones zones

Signals: HUP rereads the configuration and changed zones; TERM and INT answer what is in flight, then exit 0.
Try it:  dig @127.0.0.1 -p 5300 www.example.com")]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML); docs/configuration.md lists its keys
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Directory to serve: each file NAME.zone in it or below it is the zone NAME; root.zone is the root
    #[arg(long, value_name = "DIR", env = "WEIR_ZONES")]
    pub(crate) zones: Option<PathBuf>,

    /// Addresses to answer on.
    #[arg(
        long,
        value_name = "ADDR",
        env = "WEIR_LISTEN",
        value_delimiter = ',',
        help = "Address to answer on, over UDP and TCP: ip:port, [v6]:port or ip@port; may be repeated \
                [default: 0.0.0.0:53 and [::]:53]"
    )]
    pub(crate) listen: Vec<ListenAddress>,

    /// UDP worker threads, or `auto` [default: auto, one a CPU that the process may use, affinity and cgroup quota
    /// counted]
    #[arg(long, value_name = "N", env = "WEIR_WORKERS")]
    pub(crate) workers: Option<Workers>,

    /// How UDP queries reach the workers: auto, reuseport or ring [default: auto]
    #[arg(long, value_name = "HOW", env = "WEIR_INGRESS")]
    pub(crate) ingress: Option<IngressMode>,

    /// Address of /metrics, /healthz and /readyz, or `off` [default: 127.0.0.1:9153]
    #[arg(long, value_name = "ADDR", env = "WEIR_METRICS")]
    pub(crate) metrics: Option<MetricsAddress>,

    /// Size of the answer cache, such as `64 MiB`; 0 switches it off [default: 64 MiB]
    #[arg(long, value_name = "SIZE", env = "WEIR_CACHE_SIZE")]
    pub(crate) cache_size: Option<Octets>,

    /// Whom root becomes once the sockets are open: UID:GID, a name, or `keep` [default: 65532:65532]
    #[arg(long, value_name = "USER", env = "WEIR_USER")]
    pub(crate) user: Option<User>,

    /// Log lines for people or for machines, on standard error: text or json [default: text]
    #[arg(long, value_name = "FORMAT", env = "WEIR_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// The least severe lines that are logged [default: info]
    #[arg(long, value_name = "LEVEL", env = "WEIR_LOG_LEVEL")]
    pub(crate) log_level: Option<Level>,

    /// Experiments: all UDP workers on one socket an address, instead of a socket each
    #[arg(long, env = "WEIR_SHARED_SOCKET", hide = true)]
    pub(crate) shared_socket: bool,

    /// Experiments: queries a second that each UDP worker answers at most
    #[arg(long, value_name = "N", env = "WEIR_LIMIT_WORKER_PPS", hide = true)]
    pub(crate) limit_worker_pps: Option<NonZeroU32>,

    /// Tests: a worker that stops once, as WORKER:AFTER_QUERIES:DURATION
    #[arg(long, value_name = "STALL", env = "WEIR_STALL_WORKER", hide = true)]
    pub(crate) stall_worker: Option<Stall>,

    /// Experiments: whether frames roll over from a full ring to another
    #[arg(long, value_name = "ON|OFF", env = "WEIR_ROLLOVER", hide = true)]
    pub(crate) rollover: Option<Switch>,
}

/// Arguments of `weir checkzone`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints `zone ORIGIN/IN: loaded serial N` and `OK`, or one line FILE:LINE:COLUMN: WHAT for each mistake and exits 1.
On a terminal the line of the file is shown as well, with what is wrong underlined.

Examples:
  weir checkzone example.com zones/example.com.zone
  weir checkzone --strict example.com zones/example.com.zone
  weir checkzone --print example.com zones/example.com.zone > sorted.zone
  weir checkzone . root.zone
  dig @192.0.2.1 example.com AXFR | weir checkzone example.com -")]
pub(crate) struct CheckzoneArgs {
    /// Name of the zone, such as example.com
    #[arg(value_name = "ORIGIN")]
    pub(crate) origin: ZoneName,

    /// Zone file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Take warnings for errors
    #[arg(long, env = "WEIR_STRICT", value_parser = BoolishValueParser::new())]
    pub(crate) strict: bool,

    /// Most NSEC3 iterations that the zone may have, as `checks.max_nsec3_iterations` of the server [default: 500]
    #[arg(long, value_name = "N", env = "WEIR_MAX_NSEC3_ITERATIONS")]
    pub(crate) max_nsec3_iterations: Option<u16>,

    /// Most records that one $GENERATE may make, as `checks.max_generated` of the server [default: 1000000]
    #[arg(long, value_name = "N", env = "WEIR_MAX_GENERATED")]
    pub(crate) max_generated: Option<u32>,

    /// Report as one JSON object on standard output
    #[arg(long, env = "WEIR_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,

    /// Write the zone to standard output, one record a line in canonical order
    #[arg(long, env = "WEIR_PRINT", value_parser = BoolishValueParser::new(), conflicts_with = "json")]
    pub(crate) print: bool,
}

/// Arguments of `weir checkconf`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  weir checkconf                          what `weir serve` would read: /etc/weir/weir.toml, or ./zones
  weir checkconf weir.toml
  weir checkconf weir.toml --json         {\"errors\": [{\"file\": .., \"line\": .., \"column\": .., \"message\": ..}], ..}")]
pub(crate) struct CheckconfArgs {
    /// Configuration file [default: what `weir serve` would read]
    #[arg(value_name = "FILE", env = "WEIR_CONFIG")]
    pub(crate) file: Option<PathBuf>,

    /// Report as one JSON object on standard output
    #[arg(long, env = "WEIR_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,
}

/// Arguments of `weir healthcheck`.
#[derive(Debug, Args)]
#[command(after_help = "\
Sends one query over UDP and waits for the answer, whatever it says: a server that answers is healthy. While zones
are loaded the line says so, with the same exit code; /readyz is for those who want to wait until all are.
Meant for Docker's HEALTHCHECK, where there is no shell:  HEALTHCHECK CMD [\"/weir\", \"healthcheck\"]

Examples:
  weir healthcheck
  weir healthcheck --server 127.0.0.1:5300")]
pub(crate) struct HealthcheckArgs {
    /// Whom to ask [default: the first address of WEIR_LISTEN, a wildcard as loopback; else port 53 of 127.0.0.1,
    /// then of ::1]
    #[arg(long, value_name = "ADDR", env = "WEIR_SERVER")]
    pub(crate) server: Option<ListenAddress>,

    /// Where the server listens; set in a container for `weir serve`, read here for the same
    #[arg(long, value_name = "ADDR", env = "WEIR_LISTEN", value_delimiter = ',', hide = true)]
    pub(crate) listen: Vec<ListenAddress>,

    /// Where /readyz is, to tell whether zones are still being loaded [default: 127.0.0.1:9153; none with --server]
    #[arg(long, value_name = "ADDR", env = "WEIR_METRICS")]
    pub(crate) metrics: Option<MetricsAddress>,
}

/// Arguments of `weir tune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Looks at buffers, backlogs, busy polling, and at an interface's queues: RPS, RFS, XPS and interrupts. Changes nothing
without --apply. To keep what it sets, put the net.* lines into /etc/sysctl.d/ and run it when interfaces come up.

Examples:
  weir tune                  the system and the interface of the default route
  weir tune eth0
  weir tune --apply eth0     set what would be better, and print what was changed")]
pub(crate) struct TuneArgs {
    /// Interface that queries come in by [default: that of the default route]
    #[arg(value_name = "IFACE")]
    pub(crate) interface: Option<String>,

    /// Set what would be better, until the next boot; needs root
    #[arg(long, env = "WEIR_APPLY", value_parser = BoolishValueParser::new())]
    pub(crate) apply: bool,
}

impl HealthcheckArgs {
    /// Whom to ask, one after the other, until one answers.
    pub(crate) fn candidates(&self) -> Vec<SocketAddr> {
        match self.server.or(self.listen.first().copied()) {
            Some(ListenAddress(address)) => vec![loopback(address)],
            None => {
                let port = crate::config::DNS_PORT;
                vec![([127, 0, 0, 1], port).into(), (std::net::Ipv6Addr::LOCALHOST, port).into()]
            }
        }
    }

    /// Where /readyz is. Of a server that was named, the usual address may be another's.
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        let usual =
            if self.server.is_none() { Config::default().server.metrics } else { MetricsAddress(None) };
        self.metrics.unwrap_or(usual).0.map(loopback)
    }
}

/// A wildcard as the loopback address that it includes.
fn loopback(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => ([127, 0, 0, 1], v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, v6.port()).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_flag_has_its_environment_variable() {
        for command in Cli::command().get_subcommands() {
            let flags = command.get_arguments().filter(|arg| !arg.is_positional());
            for flag in flags.filter(|flag| flag.get_id() != "help") {
                let name = format!("WEIR_{}", flag.get_id().as_str().to_uppercase());
                assert_eq!(flag.get_env().and_then(|env| env.to_str()), Some(name.as_str()));
            }
        }
    }

    #[test]
    fn a_wildcard_is_asked_on_the_loopback() {
        let args =
            |server: &str| HealthcheckArgs { server: server.parse().ok(), listen: Vec::new(), metrics: None };
        assert_eq!(args("0.0.0.0:5300").candidates(), ["127.0.0.1:5300".parse().unwrap()]);
        assert_eq!(args("[::]:5300").candidates(), ["[::1]:5300".parse().unwrap()]);
        assert_eq!(args("192.0.2.1").candidates(), ["192.0.2.1:53".parse().unwrap()]);
        let none = HealthcheckArgs { server: None, listen: Vec::new(), metrics: None };
        assert_eq!(none.candidates().len(), 2);
        assert_eq!(none.metrics_address(), "127.0.0.1:9153".parse().ok());
        assert_eq!(args("192.0.2.1").metrics_address(), None);
        let metrics = "0.0.0.0:9000".parse().ok();
        assert_eq!(HealthcheckArgs { metrics, ..none }.metrics_address(), "127.0.0.1:9000".parse().ok());
    }
}
