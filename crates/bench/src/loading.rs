//! What loading zones costs, and what many zones cost afterwards: `benchmarks/zones/run`.
//!
//! Programs take turns within a round, and all of them have both CPUs. A line a turn goes to `raw.csv`, the table of
//! medians beside what is wanted to README.md.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::load::Load;
use crate::net::{Buffers, Net, SERVER_CPU};
use crate::record::median;
use crate::server::{Place, Server, Started, Tools};
use crate::workload::{Case, Input, Transport, Workload};
use crate::{random::Random, setup, shell};

const TO_STRING: &str = "a string takes all that is written";
/// Lets a server give back what loading took before its memory is read.
const SETTLING: Duration = Duration::from_secs(1);
/// How long the many zones may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the log is looked at for its line `ready`.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is to be measured.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    /// Zones hold a `scale`-th of the usual records.
    pub(crate) scale: usize,
    /// For zones and queries.
    pub(crate) work: PathBuf,
    pub(crate) out: PathBuf,
}

/// A turn of one program.
#[derive(Clone, Debug)]
struct Row {
    part: &'static str,
    zone: &'static str,
    program: &'static str,
    round: u32,
    /// Wall time; server CPU time an answer, in us, in the part `lookup`.
    time: f64,
    cpu_s: f64,
    memory_mib: f64,
}

impl Row {
    fn is(&self, of: (&str, &str, &str)) -> bool {
        (self.part, self.zone, self.program) == of
    }
}

/// Zones and queries of the whole run.
struct Inputs {
    sorted: Input,
    random: Input,
    addresses: Input,
    many: Input,
    one_small: Input,
    one_large: Input,
}

/// Measures everything and writes the record.
pub(crate) fn run(plan: &Plan, tools: &Tools) -> anyhow::Result<()> {
    fs::create_dir_all(&plan.out)?;
    let inputs = inputs(plan, tools)?;
    let _buffers = Buffers::raise()?;
    let mut rows = Vec::new();
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        for (zone, input) in [("sorted", &inputs.sorted), ("random", &inputs.random)] {
            for checker in Checker::ALL {
                rows.push(checker.measure(zone, input, tools, round)?);
            }
            for server in [Server::Weir, Server::Knot, Server::Nsd] {
                rows.push(start(zone, server, input, tools, round)?);
            }
        }
        rows.push(many(&inputs.many, tools, round)?);
        let asked =
            [("one small", &inputs.one_small), ("one large", &inputs.one_large), ("many", &inputs.many)];
        for (zone, input) in asked {
            rows.push(lookup(zone, input, tools, round)?);
        }
    }
    rows.push(Checker::Weir.measure("addresses", &inputs.addresses, tools, 1)?);
    rows.push(start("addresses", Server::Weir, &inputs.addresses, tools, 1)?);
    write(plan, tools, &rows)
}

fn write(plan: &Plan, tools: &Tools, rows: &[Row]) -> anyhow::Result<()> {
    let mut raw = String::from("part,zone,program,round,time,cpu_s,memory_mib\n");
    for row in rows {
        let Row { part, zone, program, round, time, cpu_s, memory_mib } = row;
        writeln!(raw, "{part},{zone},{program},{round},{time:.3},{cpu_s:.2},{memory_mib:.1}")
            .expect(TO_STRING);
    }
    fs::write(plan.out.join("raw.csv"), raw)?;
    fs::write(plan.out.join("README.md"), report(plan, tools, rows))?;
    println!("{}", plan.out.join("README.md").display());
    Ok(())
}

// --- Zones ---------------------------------------------------------------------------------------------------

fn inputs(plan: &Plan, tools: &Tools) -> anyhow::Result<Inputs> {
    let make = |name: &str, arguments: &[&str], n_records: usize| {
        single(&plan.work.join(name), tools, arguments, &(n_records / plan.scale).to_string())
    };
    let n_zones = 100_000 / plan.scale;
    Ok(Inputs {
        sorted: make("sorted", &["delegations", "--sorted"], 2_200_000)?,
        random: make("random", &["delegations"], 2_200_000)?,
        addresses: make("addresses", &["addresses"], 10_000_000)?,
        many: folder(&plan.work.join("many"), tools, "folder", n_zones, n_zones)?,
        one_small: folder(&plan.work.join("one-small"), tools, "folder", 1, 1)?,
        one_large: folder(&plan.work.join("one-large"), tools, "flattened", n_zones, n_zones)?,
    })
}

fn generate(tools: &Tools, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(tools.benchmarks.join("zones/generate")).args(arguments);
    command
}

/// The zone `test.`, alone in a folder.
fn single(folder: &Path, tools: &Tools, arguments: &[&str], n_records: &str) -> anyhow::Result<Input> {
    let input =
        Input { origin: "test", zone: folder.join("zones/test.zone"), queries: folder.join("queries") };
    if !input.queries.exists() {
        fs::create_dir_all(input.zones())?;
        let (kind, flags) = arguments.split_first().context("a kind of zone")?;
        let mut command = generate(tools, &[kind, "test.", n_records]);
        let made = command.args(flags).stdout(fs::File::create(&input.zone)?).status()?;
        if !made.success() {
            bail!("{command:?}: {made}");
        }
        fs::write(&input.queries, "ns1.test A\n")?;
    }
    Ok(input)
}

/// Many zones of ten records, or their records in one zone, and queries for the addresses in them at random.
fn folder(folder: &Path, tools: &Tools, kind: &str, n_zones: usize, n_asked: usize) -> anyhow::Result<Input> {
    let origin = if kind == "folder" { "z0.example" } else { "example" };
    let zone = folder.join(format!("zones/{origin}.zone"));
    let input = Input { origin, zone, queries: folder.join("queries") };
    if !input.queries.exists() {
        fs::create_dir_all(input.zones())?;
        let path = input.zones().to_string_lossy().into_owned();
        shell::finish(&mut generate(tools, &[kind, &path, &n_zones.to_string()]))?;
        let mut random = Random::new(5);
        let mut queries = format!("www.z{}.example A\n", n_asked - 1);
        for _ in 0..200_000 {
            let host = ["mail", "www", "ns1", "ns2"][random.below(4)];
            writeln!(queries, "{host}.z{}.example A", random.below(n_asked)).expect(TO_STRING);
        }
        fs::write(&input.queries, queries)?;
    }
    Ok(input)
}

// --- Turns ---------------------------------------------------------------------------------------------------

/// A program that reads a zone file and says what is wrong with it.
#[derive(Clone, Copy)]
enum Checker {
    Weir,
    Knot,
    Nsd,
}

impl Checker {
    const ALL: [Checker; 3] = [Checker::Weir, Checker::Knot, Checker::Nsd];

    fn name(self) -> &'static str {
        match self {
            Checker::Weir => "weir checkzone",
            Checker::Knot => "kzonecheck",
            Checker::Nsd => "nsd-checkzone",
        }
    }

    fn measure(self, zone: &'static str, input: &Input, tools: &Tools, round: u32) -> anyhow::Result<Row> {
        let weir = tools.weir.to_string_lossy();
        let words: &[&str] = match self {
            Checker::Weir => &[&weir, "checkzone", "test."],
            Checker::Knot => &["kzonecheck", "-o", "test."],
            Checker::Nsd => &["nsd-checkzone", "test."],
        };
        let spent = tempfile::NamedTempFile::new()?;
        let mut command = Command::new("/usr/bin/time");
        command.args(["-f", "%e %U %S %M", "-o"]).arg(spent.path()).args(words).arg(&input.zone);
        let start = Instant::now();
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let time = start.elapsed().as_secs_f64();
        if !status.with_context(|| format!("{command:?}"))?.success() {
            bail!("{command:?} finds the zone bad");
        }
        let said = fs::read_to_string(spent.path())?;
        let figures: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [_, user, system, peak_kib] = figures[..] else { bail!("time says {said}") };
        Ok(Row {
            part: "check",
            zone,
            program: self.name(),
            round,
            time,
            cpu_s: user + system,
            memory_mib: peak_kib / 1024.0,
        })
    }
}

fn place<'a>(net: &'a Net, tools: &'a Tools, input: &'a Input, cpus: &'a str, workers: &'a str) -> Place<'a> {
    let case = Case { workload: Workload::Flat, transport: Transport::Udp64 };
    Place { net, tools, input, case, answer_octets: 0, cpus, workers, weir_flags: Vec::new() }
}

/// From the start of a server to its first answer, on both CPUs; memory once it has settled.
fn start(
    zone: &'static str,
    server: Server,
    input: &Input,
    tools: &Tools,
    round: u32,
) -> anyhow::Result<Row> {
    let net = Net::new()?;
    let started = server.start(&place(&net, tools, input, "0-1", "2"))?;
    let time = started.to_first_answer.as_secs_f64();
    Ok(row_of("start", zone, server, round, time, &started))
}

/// From the start of Weir to its line `ready`, with many zones.
fn many(input: &Input, tools: &Tools, round: u32) -> anyhow::Result<Row> {
    let net = Net::new()?;
    let started = Server::Weir.start(&place(&net, tools, input, "0-1", "2"))?;
    while !started.log().lines().any(|line| line.ends_with(" ready")) {
        if started.at.elapsed() > PATIENCE {
            bail!("not ready; it wrote:\n{}", started.log());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let time = started.at.elapsed().as_secs_f64();
    Ok(row_of("ready", "many", Server::Weir, round, time, &started))
}

#[expect(clippy::cast_precision_loss, reason = "KiB of memory stay far below 2^53")]
fn row_of(
    part: &'static str,
    zone: &'static str,
    server: Server,
    round: u32,
    time: f64,
    started: &Started,
) -> Row {
    std::thread::sleep(SETTLING);
    let (cpu_s, kib) = (started.running.cpu_time().as_secs_f64(), started.running.memory_kib());
    Row { part, zone, program: server.title(), round, time, cpu_s, memory_mib: kib as f64 / 1024.0 }
}

/// What an answer costs one worker of Weir, at full load.
#[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
fn lookup(zone: &'static str, input: &Input, tools: &Tools, round: u32) -> anyhow::Result<Row> {
    let net = Net::new()?;
    let place = place(&net, tools, input, SERVER_CPU, "1");
    let started = Server::Weir.start(&place)?;
    let load = |seconds| Load {
        queryperf: &tools.queryperf,
        queries: &input.queries,
        case: place.case,
        duration: Duration::from_secs(seconds),
        rate: None,
    };
    load(1).run(&net)?;
    let before = started.running.cpu_time();
    let counted = load(3).run(&net)?;
    let spent = started.running.cpu_time().saturating_sub(before).as_secs_f64();
    if counted.noerror < 0.999 {
        bail!("{zone}: not all answers are NOERROR");
    }
    let cost_us = spent * 1e6 / counted.answered.max(1) as f64;
    let row = row_of("lookup", zone, Server::Weir, round, cost_us, &started);
    Ok(Row { cpu_s: spent, ..row })
}

// --- Report --------------------------------------------------------------------------------------------------

type Figure = fn(&Row) -> f64;

fn middle(rows: &[Row], of: (&str, &str, &str), figure: Figure) -> Option<f64> {
    median(rows.iter().filter(|row| row.is(of)).map(figure).collect())
}

fn time(row: &Row) -> f64 {
    row.time
}

fn memory(row: &Row) -> f64 {
    row.memory_mib
}

/// What is wanted: a sentence, the figure, the most it may be.
fn wanted(rows: &[Row]) -> Vec<(String, Option<f64>, f64)> {
    let ratio =
        |ours, theirs, figure: Figure| Some(middle(rows, ours, figure)? / middle(rows, theirs, figure)?);
    let mut wanted = Vec::new();
    for zone in ["sorted", "random"] {
        let check = |program| ("check", zone, program);
        let (ours, theirs) = (("start", zone, "Weir"), ("start", zone, "Knot"));
        wanted.extend([
            (
                format!("{zone}: `weir checkzone`, wall time beside kzonecheck's"),
                ratio(check("weir checkzone"), check("kzonecheck"), time),
                0.6,
            ),
            (
                format!("{zone}: `weir serve` from start to first answer beside Knot's"),
                ratio(ours, theirs, time),
                0.6,
            ),
            (format!("{zone}: memory of `weir serve` beside Knot's"), ratio(ours, theirs, memory), 0.6),
        ]);
    }
    let lookup = |zone| ("lookup", zone, "Weir");
    wanted.extend([
        (
            "many zones: seconds from start to `ready`".to_owned(),
            middle(rows, ("ready", "many", "Weir"), time),
            3.0,
        ),
        (
            "an answer from one of many zones beside one from a zone of as many records".to_owned(),
            ratio(lookup("many"), lookup("one large"), time),
            1.1,
        ),
        (
            "an answer from one of many zones beside one from a single zone of ten records".to_owned(),
            ratio(lookup("many"), lookup("one small"), time),
            1.1,
        ),
    ]);
    wanted
}

fn report(plan: &Plan, tools: &Tools, rows: &[Row]) -> String {
    let mut text = format!(
        "# Loading\n\nMade by `benchmarks/zones/run` from `raw.csv`, medians of {} rounds; programs took turns, each on \
         both CPUs.\n\n{}- Weir: {}\n- Knot: {}\n- NSD: {}\n\n",
        plan.rounds,
        setup::machine(),
        Server::Weir.version(tools),
        Server::Knot.version(tools),
        Server::Nsd.version(tools),
    );
    if plan.scale > 1 {
        writeln!(text, "Zones have a {}th of their records: these figures say nothing.\n", plan.scale)
            .expect(TO_STRING);
    }
    text.push_str("| what is wanted | figure | at most | |\n|---|---:|---:|---|\n");
    for (what, figure, most) in wanted(rows) {
        let (shown, verdict) = match figure {
            Some(figure) => (format!("{figure:.2}"), if figure <= most { "kept" } else { "**missed**" }),
            None => ("none".to_owned(), "not measured"),
        };
        writeln!(text, "| {what} | {shown} | {most} | {verdict} |").expect(TO_STRING);
    }
    text.push_str(
        "\n`check`: wall time and peak memory. `start`: wall time to the first answer, memory a second later. `ready`: wall \
         time to the log line. `lookup`: us of server CPU time an answer at full load, one worker.\n\n\
         | part | zone | program | time | CPU s | memory MiB |\n|---|---|---|---:|---:|---:|\n",
    );
    let mut told: Vec<(&str, &str, &str)> = Vec::new();
    for row in rows {
        let of = (row.part, row.zone, row.program);
        if told.contains(&of) {
            continue;
        }
        told.push(of);
        let figure = |figure: Figure| middle(rows, of, figure).unwrap_or(f64::NAN);
        let (time, cpu, memory) = (figure(time), figure(|row| row.cpu_s), figure(memory));
        writeln!(text, "| {} | {} | {} | {time:.2} | {cpu:.2} | {memory:.0} |", of.0, of.1, of.2)
            .expect(TO_STRING);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians() {
        let row = |program, round, time| Row {
            part: "check",
            zone: "sorted",
            program,
            round,
            time,
            cpu_s: 0.0,
            memory_mib: 1.0,
        };
        let rows = [
            row("weir checkzone", 1, 1.0),
            row("weir checkzone", 2, 9.0),
            row("weir checkzone", 3, 2.0),
            row("kzonecheck", 1, 4.0),
        ];
        assert_eq!(wanted(&rows)[0].1, Some(0.5));
        assert_eq!(wanted(&rows)[1].1, None);
    }
}
