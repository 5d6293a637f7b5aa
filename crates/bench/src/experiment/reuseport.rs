//! One worker; workers that share one socket; workers with a socket each.

use anyhow::Context;

use super::cpus::{Look, Shares};
use super::{Bench, Sheet};
use crate::load::Load;
use crate::net::{Buffers, Net};
use crate::plot::{self, Bar, Panel, Shade};
use crate::server::{Place, Server};
use crate::shell;
use crate::workload::{Case, Transport, Workload};

/// Both server and client may use all of them: a worker a CPU needs CPUs.
const CPUS: &str = "0-1";
const CASE: Case = Case { workload: Workload::Flat, transport: Transport::Udp64 };

/// Workers, and whether they share a socket.
const SETTINGS: [(&str, &str, bool); 5] = [
    ("1 worker", "1", false),
    ("2 workers, one socket", "2", true),
    ("2 workers, a socket each", "2", false),
    ("4 workers, one socket", "4", true),
    ("4 workers, a socket each", "4", false),
];

#[derive(Clone, Debug)]
struct Measured {
    answers_per_second: f64,
    cpu_us: f64,
    drops: u64,
    cpus: Vec<Shares>,
}

pub(crate) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let _buffers = Buffers::raise()?;
    let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); SETTINGS.len()];
    for _ in 0..bench.rounds {
        for (setting, (name, workers, shared)) in SETTINGS.into_iter().enumerate() {
            let measured = measure(bench, workers, shared).with_context(|| name)?;
            eprintln!("{name}: {:.0} answers/s, {:.2} us", measured.answers_per_second, measured.cpu_us);
            rounds[setting].push(measured);
        }
    }
    let medians: Vec<Measured> = rounds.into_iter().filter_map(in_the_middle).collect();
    publish(bench, &medians)
}

fn measure(bench: &Bench<'_>, workers: &str, shared: bool) -> anyhow::Result<Measured> {
    let input = CASE.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let net = Net::new()?;
    let flags = if shared { vec!["--shared-socket".to_owned()] } else { Vec::new() };
    let flags = [flags, vec!["--ingress".to_owned(), "reuseport".to_owned()]].concat();
    let place = Place {
        net: &net,
        tools: bench.tools,
        input: &input,
        case: CASE,
        answer_octets: 0,
        cpus: CPUS,
        workers,
        weir_flags: flags,
    };
    let started = Server::Weir.start(&place)?;
    let queryperf = &bench.tools.queryperf;
    let load = Load { queryperf, queries: &input.queries, case: CASE, duration: bench.duration, rate: None };
    let (look, spent) = (Look::now(), started.running.cpu_time());
    let counted = load.run_on(&net, CPUS)?;
    let (cpus, spent) = (Look::now().since(&look), started.running.cpu_time().saturating_sub(spent));
    let table = shell::finish(net.server("cat").arg("/proc/net/udp"))?;
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
    let cpu_us = spent.as_secs_f64() * 1e6 / counted.answered.max(1) as f64;
    Ok(Measured { answers_per_second: counted.answers_per_second, cpu_us, drops: drops_in(&table), cpus })
}

/// The sum of the last column of /proc/net/udp: datagrams that found their socket's queue full.
fn drops_in(table: &str) -> u64 {
    let last = |line: &str| line.split_whitespace().next_back().and_then(|drops| drops.parse::<u64>().ok());
    table.lines().skip(1).filter_map(last).sum()
}

/// The round whose rate is in the middle, as a whole: its CPUs and drops belong to its rate.
fn in_the_middle(mut rounds: Vec<Measured>) -> Option<Measured> {
    rounds.sort_by(|a, b| a.answers_per_second.total_cmp(&b.answers_per_second));
    let middle = rounds.len() / 2;
    rounds.into_iter().nth(middle)
}

fn publish(bench: &Bench<'_>, medians: &[Measured]) -> anyhow::Result<()> {
    let mut rates = Sheet::new("rates", &["setting", "answers/s", "server us an answer", "kernel drops"]);
    let mut cpus = Sheet::new("cpus", &["setting", "CPU", "%usr", "%sys", "%soft", "%idle"]);
    let mut bars = Vec::new();
    for ((name, _, shared), measured) in SETTINGS.into_iter().zip(medians) {
        let rate = measured.answers_per_second;
        rates.row(vec![
            name.into(),
            format!("{rate:.0}"),
            format!("{:.2}", measured.cpu_us),
            measured.drops.to_string(),
        ]);
        for (number, shares) in measured.cpus.iter().enumerate() {
            let cells =
                [shares.user, shares.system, shares.softirq, shares.idle].map(|share| format!("{share:.1}"));
            cpus.row([vec![name.to_owned(), number.to_string()], cells.to_vec()].concat());
        }
        bars.push(Bar {
            label: name.into(),
            value: rate,
            shade: if shared { Shade::Other } else { Shade::Own },
        });
    }
    let panels = [
        Panel { title: "answers a second, this machine".into(), bars },
        Panel { title: "queries a second, thread of 2011 (12 CPUs)".into(), bars: of_the_thread() },
    ];
    let note =
        "Longer is better. Two CPUs for server and client together; the thread's client was another machine.";
    plot::draw(&bench.out.join("plot.svg"), "One socket for all, or one each", note, &panels)?;
    bench.publish(&[rates, cpus])
}

/// Middles of the ranges that the thread gives.
fn of_the_thread() -> Vec<Bar> {
    let figures = [
        ("one socket", 103_500.0, Shade::Other),
        ("one, lockless send", 251_000.0, Shade::Other),
        ("a socket each", 645_000.0, Shade::Own),
    ];
    figures.map(|(label, value, shade)| Bar { label: label.into(), value, shade }).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_the_last_column() {
        let table = "  sl  local ... drops\n 1: 0100007F:0035 00000000:0000 07 0 0 0 1 2 0 17\n 2: 0:0 0:0 07 0 0 5\n";
        assert_eq!(drops_in(table), 22);
    }
}
