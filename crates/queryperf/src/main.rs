//! `queryperf`: a load generator for name servers that a fast server does not outrun.
//!
//! Reading order: [`cli`] is what can be asked for and [`plan`] makes a [`load`] of it, with [`queries`] as packets and an
//! [`order`] to take them in; [`run`] starts the threads; [`udp`] and [`tcp`] are what a thread does, by [`pace`] and
//! with [`flight`] to find the question of each answer; [`tally`] counts; [`ramp`] searches for a rate; [`live`] and
//! [`report`] tell.
//!
//! invariant: a thread of the UDP load allocates nothing and takes no lock once it sends; threads share only the queries,
//! which nobody changes, and counters that one thread writes.
//!
//! invariant: a query sent is answered once or lost once; whatever else comes back is doubled, late or wrong, and counted
//! as such.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Parser;

mod cli;
mod clock;
mod flight;
mod live;
mod load;
mod order;
mod pace;
mod plan;
mod queries;
mod ramp;
mod report;
mod run;
mod tally;
mod target;
mod tcp;
mod udp;

use cli::Cli;
use live::Live;
use report::Report;

fn main() -> ExitCode {
    // Wrong usage ends here, with exit code 2.
    let cli = Cli::parse();
    match measure(&cli) {
        Ok(report) if report.has_answers() => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("queryperf: no answer came; is a server listening there?");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("queryperf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the load, prints its report and yields it.
fn measure(cli: &Cli) -> anyhow::Result<Report> {
    let load = plan::load(cli)?;
    let stop = stop_on_interrupt()?;
    let mut live = Live::new(cli.stats_interval, cli.quiet);
    let report = match plan::goal(cli) {
        Some(goal) => Report::of_ramp(&load, ramp::climb(&load, goal, &stop, &mut live)?),
        None => {
            live.begin(&load, "queries");
            let load = Arc::new(load);
            Report::new(&load, &run::run(&load, &stop, &mut live)?)
        }
    };
    if cli.json {
        println!("{}", report.json()?);
    } else {
        print!("{report}");
    }
    Ok(report)
}

/// A flag that the first interrupt sets, so that what was measured is reported; the second ends the program.
fn stop_on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("interrupts".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if flag.swap(true, Ordering::Relaxed) {
                        // The code of a program that an interrupt ended, as shells count.
                        std::process::exit(130);
                    }
                }
            });
        })
        .context("cannot start a thread")?;
    Ok(stop)
}
