//! `weir-bench`: measures Weir beside other name servers and beside the least that an answer can cost.
//!
//! Reading order: [`workload`] with [`zones`], [`root`] and [`sign`] is what is asked; [`server`] is who answers, [`net`]
//! where, [`load`] how it is asked; [`run`] lets them take turns, [`process`] reads what it cost; [`record`] keeps the raw
//! data; [`report`], [`plot`] and [`setup`] make tables and plots of it. [`loading`] is about zones that are read; [`experiment`] holds what is not a comparison of servers.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;

mod cli;
mod experiment;
mod first_answer;
mod load;
mod loading;
mod net;
mod plot;
mod process;
mod random;
mod record;
mod report;
mod root;
mod run;
mod server;
mod setup;
mod shell;
mod sign;
mod workload;
mod zones;

use cli::{Cli, Command, ExperimentArgs, LoadingArgs, RunArgs};
use experiment::Bench;
use record::Record;
use run::Plan;
use server::Server;
use workload::Case;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => compare(&args),
        Command::Experiment(args) => repeat_result(&args),
        Command::Loading(args) => measure_loading(&args),
        Command::Sink { call, local, peer } => experiment::sink::run(&call, local, peer),
        Command::AskOnce { server, name, kind, connected } => {
            first_answer::ask_once(server, &name, &kind, connected)
        }
        Command::FirstAnswer { server, name, kind } => first_answer::ask(server, &name, &kind),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &RunArgs) -> anyhow::Result<()> {
    let programs = &args.programs;
    let tools = run::tools(&programs.weir, &programs.queryperf, &programs.hickory, &programs.work)?;
    let plan = plan(args)?;
    if let Some(folder) = &args.report {
        let record = Record::open(folder)?;
        let plan = Plan { out: folder.clone(), cases: record.cases(), servers: record.servers(), ..plan };
        return report::write(&record, &plan, &tools);
    }
    if args.quick && args.out.is_none() {
        // A quick run is whole each time. It may be the first.
        let _ = std::fs::remove_file(plan.out.join("raw.csv"));
    }
    let record = run::run(&plan, &tools)?;
    println!("{}", plan.out.join("README.md").display());
    tell_slow_from_fast(&record)
}

fn repeat_result(args: &ExperimentArgs) -> anyhow::Result<()> {
    let programs = &args.programs;
    let tools = run::tools(&programs.weir, &programs.queryperf, &programs.hickory, &programs.work)?;
    let folder = args.name.folder();
    let bench = Bench {
        tools: &tools,
        work: std::path::absolute(&programs.work)?,
        out: match args.quick {
            true => programs.work.join(folder),
            false => tools.benchmarks.join("experiments").join(folder),
        },
        rounds: if args.quick { 1 } else { args.rounds },
        duration: seconds(if args.quick { 0.4 } else { args.seconds }),
        scale: if args.quick { 10 } else { 1 },
    };
    args.name.run(&bench)
}

fn measure_loading(args: &LoadingArgs) -> anyhow::Result<()> {
    let programs = &args.programs;
    let tools = run::tools(&programs.weir, &programs.queryperf, &programs.hickory, &programs.work)?;
    let work = std::path::absolute(&programs.work)?;
    let usual_out = || Path::new("benchmarks/record/loading").join(setup::record_name());
    let plan = loading::Plan {
        rounds: if args.quick { 1 } else { args.rounds },
        scale: if args.quick { 100 } else { 1 },
        out: args
            .out
            .clone()
            .unwrap_or_else(|| if args.quick { work.join("quick-loading") } else { usual_out() }),
        work: work.join(if args.quick { "quick-zones" } else { "zones" }),
    };
    loading::run(&plan, &tools)
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::from_secs(1))
}

fn plan(args: &RunArgs) -> anyhow::Result<Plan> {
    let work = std::path::absolute(&args.programs.work)?;
    let usual_out = || Path::new("benchmarks/record").join(setup::record_name());
    let or = |chosen: &[Case], usual: Vec<Case>| if chosen.is_empty() { usual } else { chosen.to_vec() };
    let plan = Plan {
        cases: or(&args.only, Case::usual()),
        servers: if args.servers.is_empty() { Server::USUAL.to_vec() } else { args.servers.clone() },
        rounds: args.rounds,
        full: seconds(args.seconds),
        half: seconds(args.half_seconds),
        scale: 1,
        inputs: work.join("inputs"),
        out: args.out.clone().unwrap_or_else(usual_out),
        weir_flags: args.weir_flags.split_whitespace().map(str::to_owned).collect(),
    };
    if !args.quick {
        return Ok(plan);
    }
    Ok(Plan {
        cases: or(&args.only, Case::quick()),
        servers: if args.servers.is_empty() { Server::QUICK.to_vec() } else { args.servers.clone() },
        rounds: 1,
        full: Duration::from_millis(700),
        half: Duration::from_millis(300),
        scale: 10,
        inputs: work.join("quick-inputs"),
        out: args.out.clone().unwrap_or_else(|| work.join("quick")),
        ..plan
    })
}

/// The instrument's own check: the echo that is slowed by 50 us an answer has to be the dearest wherever it took part.
fn tell_slow_from_fast(record: &Record) -> anyhow::Result<()> {
    for case in record.cases() {
        if record.median(case, Server::EchoSlow).is_some() && record.dearest(case) != Some(Server::EchoSlow) {
            bail!("{case}: an echo slowed by 50 us an answer is not the dearest: these figures say nothing");
        }
    }
    Ok(())
}
