//! The comparison: servers take turns at each case, three rounds, medians.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::load::{Counted, Load};
use crate::net::{Buffers, Net, SERVER_CPU};
use crate::record::{Figures, Record, Row};
use crate::server::{Place, Server, Tools};
use crate::workload::{Case, Transport};
use crate::{report, shell};

/// A load before the measured one: caches fill, and lazily loaded parts are there.
const WARM_UP: Duration = Duration::from_millis(500);
/// Half load over TCP at most, in queries a second. The highest rate comes with pipelines that are always full; half of
/// it, in an open loop that does not fill them, can be more than the same server takes, and its latency that of a queue.
pub(crate) const MOST_OVER_TCP: f64 = 100_000.0;
/// Octets of a floor's answer when nothing better is known.
const USUAL_ANSWER: u32 = 60;

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<Case>,
    pub(crate) servers: Vec<Server>,
    pub(crate) rounds: u32,
    /// How long a server is under full load in a turn.
    pub(crate) full: Duration,
    /// How long it is under half of it.
    pub(crate) half: Duration,
    /// Zones hold a `scale`-th of the usual names.
    pub(crate) scale: usize,
    /// Where zones and queries are kept.
    pub(crate) inputs: PathBuf,
    /// Where results go.
    pub(crate) out: PathBuf,
    pub(crate) weir_flags: Vec<String>,
}

/// Runs what is not in the record yet, a case at a time, and writes table and plots after each.
pub(crate) fn run(plan: &Plan, tools: &Tools) -> anyhow::Result<Record> {
    let mut record = Record::open(&plan.out)?;
    let turns = turns(plan, &record);
    let start = Instant::now();
    let _buffers = Buffers::raise()?;
    let mut failed = Vec::new();
    for (i, turn) in turns.iter().enumerate() {
        let input = turn.case.workload.prepare(&plan.inputs, plan.scale)?;
        // A namespace pair a turn: nothing that one server did to the device or its queues meets the next.
        let net = Net::new()?;
        let answer_octets = answer_octets(&record, turn.case);
        let place = Place {
            net: &net,
            tools,
            input: &input,
            case: turn.case,
            answer_octets,
            cpus: SERVER_CPU,
            workers: "1",
            weir_flags: plan.weir_flags.clone(),
        };
        // A turn is tried twice: on a machine that is busy a start may take too long once.
        let again = |error| {
            eprintln!("{} {} once more: {error:#}", turn.case, turn.server.title());
            turn.measure(plan, &place)
        };
        match turn.measure(plan, &place).or_else(again) {
            Ok(figures) => {
                eprintln!("{}", progress(i + 1, turns.len(), start, turn, &figures));
                record.add(Row { case: turn.case, server: turn.server, round: turn.round, figures })?;
            }
            Err(error) => {
                eprintln!("{} {} round {}: {error:#}", turn.case, turn.server.title(), turn.round);
                failed.push(format!("{} {}", turn.case, turn.server.name()));
            }
        }
        if turns.get(i + 1).is_none_or(|next| next.case != turn.case) {
            report::write(&record, plan, tools)?;
        }
    }
    report::write(&record, plan, tools)?;
    if !failed.is_empty() {
        failed.dedup();
        bail!("no figures for: {}; run again to try these once more", failed.join(", "));
    }
    Ok(record)
}

/// A server's turn at a case.
#[derive(Clone, Copy, Debug)]
struct Turn {
    case: Case,
    server: Server,
    round: u32,
}

/// The turns that are not in the record: a case at a time, in it round by round, in it server by server.
fn turns(plan: &Plan, record: &Record) -> Vec<Turn> {
    let mut turns = Vec::new();
    for &case in &plan.cases {
        for round in 1..=plan.rounds {
            for &server in plan.servers.iter().filter(|server| server.left_out(case).is_none()) {
                if !record.has(case, server, round) {
                    turns.push(Turn { case, server, round });
                }
            }
        }
    }
    turns
}

/// The size of a floor's answers: that of Weir's, which come first.
fn answer_octets(record: &Record, case: Case) -> u32 {
    let of = |server| record.median(case, server).map(|figures| figures.answer_octets);
    let octets = of(Server::Weir).or_else(|| record.servers().into_iter().find_map(of));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a datagram's length")]
    octets.map_or(USUAL_ANSWER, |octets| octets.round() as u32)
}

impl Turn {
    fn measure(&self, plan: &Plan, place: &Place<'_>) -> anyhow::Result<Figures> {
        let started = self.server.start(place)?;
        let server = &started.running;
        let load = |duration, rate| Load {
            queryperf: &place.tools.queryperf,
            queries: &place.input.queries,
            case: self.case,
            duration,
            rate,
        };
        let under = |load: Load<'_>| -> anyhow::Result<(Counted, f64)> {
            let before = server.cpu_time();
            let counted = load.run(place.net)?;
            let spent = server.cpu_time().saturating_sub(before);
            if counted.answered == 0 {
                bail!("no answers");
            }
            #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
            let cpu_us = spent.as_secs_f64() * 1e6 / counted.answered as f64;
            Ok((counted, cpu_us))
        };
        under(load(WARM_UP, None)).context("warming up")?;
        let (full, cpu_us) = under(load(plan.full, None)).context("under full load")?;
        let half_rate = self.half_rate(full.answers_per_second);
        let (half, half_cpu_us) = under(load(plan.half, Some(half_rate))).context("under half load")?;
        self.check(&full)?;
        #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
        Ok(Figures {
            cpu_us,
            answers_per_second: full.answers_per_second,
            lost_percent: 100.0 * full.lost as f64 / full.sent.max(1) as f64,
            half_rate,
            half_p50_us: half.p50_us,
            half_p99_us: half.p99_us,
            half_cpu_us,
            memory_kib: server.memory_kib() as f64,
            start_ms: started.to_first_answer.as_secs_f64() * 1e3,
            answer_octets: full.answer_octets,
            noerror_percent: 100.0 * full.noerror,
            nxdomain_percent: 100.0 * full.nxdomain,
        })
    }

    /// The rate of half load, when `full` is the highest.
    fn half_rate(&self, full: f64) -> f64 {
        match self.case.transport {
            Transport::Tcp => (full / 2.0).min(MOST_OVER_TCP),
            _ => full / 2.0,
        }
    }

    /// A server that answers fast and wrong is not fast: every answer has to fit its question, and be no failure.
    fn check(&self, counted: &Counted) -> anyhow::Result<()> {
        // A few may be answers that came when their question was given up and its id was used again.
        if counted.wrong > counted.answered / 1000 {
            bail!("{} messages answer nothing that was asked", counted.wrong);
        }
        if counted.noerror + counted.nxdomain < 0.999 {
            bail!(
                "only {:.1} % of the answers are NOERROR or NXDOMAIN",
                100.0 * (counted.noerror + counted.nxdomain)
            );
        }
        Ok(())
    }
}

fn progress(n: usize, n_turns: usize, start: Instant, turn: &Turn, figures: &Figures) -> String {
    let left =
        start.elapsed() / u32::try_from(n).unwrap_or(u32::MAX) * u32::try_from(n_turns - n).unwrap_or(0);
    format!(
        "[{n}/{n_turns}, {} min left] {:<22} round {} {:<22} {:>6.2} us an answer {:>8.0} answers/s, p99 {:.0} us, lost {:.2} %",
        left.as_secs().div_ceil(60),
        turn.case.to_string(),
        turn.round,
        turn.server.title(),
        figures.cpu_us,
        figures.answers_per_second,
        figures.half_p99_us,
        figures.lost_percent,
    )
}

/// The programs, with the floors compiled.
pub(crate) fn tools(weir: &Path, queryperf: &Path, hickory: &Path, built: &Path) -> anyhow::Result<Tools> {
    let benchmarks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks");
    std::fs::create_dir_all(built)?;
    let echo = built.join("echo");
    shell::compile(&benchmarks.join("floors/echo.c"), &echo)?;
    Ok(Tools {
        weir: found(weir)?,
        queryperf: found(queryperf)?,
        hickory: hickory.to_owned(),
        echo: found(&echo)?,
        bench: std::env::current_exe()?,
        benchmarks: found(&benchmarks)?,
    })
}

fn found(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("no {}; build it first: cargo build --release", path.display()))
}
