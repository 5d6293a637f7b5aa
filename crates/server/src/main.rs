//! The `weir` program: reads its arguments, does what they ask for, and says by its exit code how that went.
//!
//! Reading order: [`cli`] and [`config`] are what can be asked for; [`serve`] starts and stops the server; [`worker`]
//! is a query's way over UDP, [`fanout`] decides by which way it comes, and [`tcp`] the one over TCP, both through
//! [`responder`], which keeps dear answers in [`weir_cache`]; [`library`] holds the zones and rereads them;
//! [`counters`], [`metrics`], [`http`] and [`log`] tell operators about it; [`check`] and [`health`] and [`tune`] are the
//! commands that serve nothing, and [`mod@print`] is how they speak.

#![forbid(unsafe_code)]

use std::process::ExitCode;

mod check;
mod cli;
mod config;
mod counters;
mod failure;
mod fanout;
mod health;
mod http;
mod library;
mod listen;
mod log;
mod metrics;
mod pace;
mod print;
mod reload;
mod responder;
mod serve;
mod tcp;
mod tune;
mod worker;

use cli::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    weir_netio::memory::return_large_blocks();
    // Wrong usage ends here, with exit code 2.
    let cli = Cli::read();
    let outcome = match &cli.command {
        Command::Serve(args) => serve::serve(args),
        Command::Checkzone(args) => check::checkzone(args),
        Command::Checkconf(args) => check::checkconf(args),
        Command::Healthcheck(args) => healthcheck(args),
        Command::Tune(args) => tune::tune(args),
    };
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::FAILURE
        }
    };
    log::finish();
    code
}

fn healthcheck(args: &cli::HealthcheckArgs) -> Result<(), Failure> {
    print::out(health::check(args).map_err(Failure::new)?)
}
