//! The command line of `weir-bench`, which `benchmarks/run` and the experiments call.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::experiment::Experiment;
use crate::server::Server;
use crate::workload::Case;

/// Compares Weir with other name servers and with the least that an answer can cost.
#[derive(Debug, Parser)]
#[command(name = "weir-bench", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What it is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let servers take turns at workloads; benchmarks/run does this with everything built and installed
    Run(RunArgs),
    /// Make one of the results behind Weir again; benchmarks/experiments/NAME/run does this with everything built
    Experiment(ExperimentArgs),
    /// Measure how zones are loaded, and what many of them cost; benchmarks/zones/run does this with everything built
    Loading(LoadingArgs),
    /// Receive datagrams and throw them away
    #[command(hide = true)]
    Sink {
        /// The call: recvmsg, recvmmsg, recvfrom or read.
        call: String,
        /// Where to receive.
        local: SocketAddr,
        /// Whom to connect to.
        #[arg(long)]
        peer: Option<SocketAddr>,
    },
    /// Ask one question
    #[command(hide = true)]
    AskOnce {
        /// Whom to ask.
        server: SocketAddr,
        /// What to ask for.
        name: String,
        /// Its type.
        kind: String,
        /// By a connected socket.
        #[arg(long)]
        connected: bool,
    },
    /// Ask until an answer comes
    #[command(hide = true)]
    FirstAnswer {
        /// Whom to ask.
        server: SocketAddr,
        /// What to ask for.
        name: String,
        /// Its type.
        kind: String,
    },
}

/// Programs that are measured or measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct Programs {
    /// The server
    #[arg(long, value_name = "FILE", env = "WEIR", default_value = "target/release/weir")]
    pub(crate) weir: PathBuf,

    /// The load generator
    #[arg(long, value_name = "FILE", env = "QUERYPERF", default_value = "target/release/queryperf")]
    pub(crate) queryperf: PathBuf,

    /// hickory-dns, from crates.io
    #[arg(
        long,
        value_name = "FILE",
        env = "HICKORY",
        default_value = "target/bench/hickory/bin/hickory-dns"
    )]
    pub(crate) hickory: PathBuf,

    /// Folder for zones, queries and compiled floors
    #[arg(long, value_name = "DIR", env = "BENCH_WORK", default_value = "target/bench")]
    pub(crate) work: PathBuf,
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Workloads: flat, nxdomain, delegations, root, signed-hit, signed-nxdomain, signed-popular, mixed, large.
Servers: those of the tables, weir-uncached (Weir with --cache-size 0), and echo-nap (a ring echo that naps).
Transports: udp64 (the usual), udp1000, tcp, tcp-conn.
ROOT_ZONE=FILE in the environment: use this root zone instead of one of the same shape.

Examples:
  benchmarks/run                                     everything, about 40 minutes
  benchmarks/run --quick                             2 minutes, small zones, one round
  benchmarks/run --only flat,nxdomain/udp1000        two cases
  benchmarks/run --only flat --servers weir,nsd --rounds 9")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) programs: Programs,

    /// Cases, WORKLOAD or WORKLOAD/TRANSPORT [default: all workloads over UDP, some over TCP]
    #[arg(long, value_name = "CASES", value_delimiter = ',')]
    pub(crate) only: Vec<Case>,

    /// Servers that take part [default: all]
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    pub(crate) servers: Vec<Server>,

    /// Turns of each server at each case
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: u32,

    /// Seconds at full load
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    pub(crate) seconds: f64,

    /// Seconds at half load
    #[arg(long, value_name = "SECONDS", default_value_t = 0.7)]
    pub(crate) half_seconds: f64,

    /// Small zones, few cases, one round: to see that it works
    #[arg(long)]
    pub(crate) quick: bool,

    /// Flags of `weir serve`, for comparing settings
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    pub(crate) weir_flags: String,

    /// Folder of the results [default: benchmarks/record/DATE-MACHINE; with --quick target/bench/quick]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Measure nothing: make tables and plots of a folder anew
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// Arguments of `loading`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadingArgs {
    #[command(flatten)]
    pub(crate) programs: Programs,

    /// Turns of each program; medians are shown
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: u32,

    /// A hundredth of the records, one round; results in target/bench: to see that it works
    #[arg(long)]
    pub(crate) quick: bool,

    /// Folder of the results [default: benchmarks/record/loading/DATE-MACHINE]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Arguments of `experiment`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExperimentArgs {
    #[command(flatten)]
    pub(crate) programs: Programs,

    /// Which one
    pub(crate) name: Experiment,

    /// Rounds; medians are shown
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,

    /// Seconds of each load
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) seconds: f64,

    /// Small zones, one round, short loads; results in target/bench: to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
