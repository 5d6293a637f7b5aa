//! The load generator beside dnsperf: what a query costs each at one fixed rate, and how many each gets answered by a server
//! that does nothing but answer.

use std::process::Command;

use anyhow::Context;

use super::{Bench, Sheet, word};
use crate::load::Counted;
use crate::net::{self, Buffers, Net};
use crate::plot::{self, Bar, Panel, Shade};
use crate::process;
use crate::record::median;
use crate::server::{Place, Server};
use crate::shell;
use crate::workload::{Case, Transport, Workload};

const CASE: Case = Case { workload: Workload::Flat, transport: Transport::Udp64 };
/// Both reach it easily, and so does the server.
const FIXED_RATE: u32 = 60_000;
/// Octets of the bare server's answers: those of an A record.
const ANSWER_OCTETS: u32 = 52;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generator {
    Dnsperf,
    Queryperf,
}

impl Generator {
    const ALL: [Generator; 2] = [Generator::Dnsperf, Generator::Queryperf];

    fn name(self) -> &'static str {
        match self {
            Generator::Dnsperf => "dnsperf",
            Generator::Queryperf => "queryperf",
        }
    }

    /// The command, but for what is to be asked how fast: one thread, 64 ports.
    fn command(self, bench: &Bench<'_>, net: &Net, queries: &str) -> Command {
        let queryperf = word(&bench.tools.queryperf);
        let mut command = match self {
            Generator::Dnsperf => net.client("dnsperf"),
            Generator::Queryperf => net.client(&queryperf),
        };
        if self == Generator::Queryperf {
            command.args(["--json", "--quiet"]);
        }
        command.args(["-s", net::SERVER, "-p", &net::PORT.to_string(), "-d", queries]);
        command.args(["-l", &bench.duration.as_secs().max(1).to_string(), "-c", "64", "-T", "1"]);
        command
    }

    /// Answers, and answers a second, from what it wrote.
    fn read(self, text: &str) -> anyhow::Result<(f64, f64)> {
        match self {
            Generator::Dnsperf => {
                let number = |label: &str| {
                    let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
                    let word = line.and_then(|rest| rest.split_whitespace().next());
                    word.and_then(|word| word.parse::<f64>().ok())
                        .with_context(|| format!("no `{label}` in\n{text}"))
                };
                Ok((number("Queries completed:")?, number("Queries per second:")?))
            }
            Generator::Queryperf => {
                let counted = Counted::read(text)?;
                #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
                Ok((counted.answered as f64, counted.answers_per_second))
            }
        }
    }
}

pub(crate) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let _buffers = Buffers::raise()?;
    let mut costs = [const { Vec::new() }; 2];
    let mut rates = [const { Vec::new() }; 2];
    for _ in 0..bench.rounds {
        for (i, generator) in Generator::ALL.into_iter().enumerate() {
            costs[i].push(cost(bench, generator).with_context(|| generator.name())?);
            rates[i].push(highest_rate(bench, generator).with_context(|| generator.name())?);
        }
    }
    let middle = |rounds: Vec<f64>| median(rounds).unwrap_or(0.0);
    publish(bench, costs.map(middle), rates.map(middle))
}

/// CPU time a query of the client, in us, at the fixed rate.
fn cost(bench: &Bench<'_>, generator: Generator) -> anyhow::Result<f64> {
    let input = CASE.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let net = Net::new()?;
    let _started = Server::Weir.start(&place(bench, &net, &input))?;
    let before = process::cpu_time_of_the_ended();
    let mut command = generator.command(bench, &net, &word(&input.queries));
    let text = shell::finish(command.args(["-Q", &FIXED_RATE.to_string()]))?;
    let spent = process::cpu_time_of_the_ended().saturating_sub(before);
    let (n_answers, rate) = generator.read(&text)?;
    anyhow::ensure!(rate > 0.95 * f64::from(FIXED_RATE), "only {rate:.0} answers a second");
    Ok(spent.as_secs_f64() * 1e6 / n_answers)
}

/// Answers a second from the bare ring echo.
fn highest_rate(bench: &Bench<'_>, generator: Generator) -> anyhow::Result<f64> {
    let input = CASE.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let net = Net::new()?;
    let _started = Server::EchoRing.start(&place(bench, &net, &input))?;
    let mut command = generator.command(bench, &net, &word(&input.queries));
    let text = shell::finish(command.args(["-q", "2048"]))?;
    Ok(generator.read(&text)?.1)
}

fn place<'a>(bench: &'a Bench<'_>, net: &'a Net, input: &'a crate::workload::Input) -> Place<'a> {
    Place {
        net,
        tools: bench.tools,
        input,
        case: CASE,
        answer_octets: ANSWER_OCTETS,
        cpus: "0",
        workers: "1",
        weir_flags: Vec::new(),
    }
}

fn publish(bench: &Bench<'_>, costs: [f64; 2], rates: [f64; 2]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "generators",
        &["generator", "us of its CPU a query, 60,000 a second", "answers a second, ring echo"],
    );
    let (mut cost_bars, mut rate_bars) = (Vec::new(), Vec::new());
    for ((generator, cost), rate) in Generator::ALL.into_iter().zip(costs).zip(rates) {
        sheet.row(vec![generator.name().into(), format!("{cost:.2}"), format!("{rate:.0}")]);
        let shade = if generator == Generator::Queryperf { Shade::Own } else { Shade::Other };
        cost_bars.push(Bar { label: generator.name().into(), value: cost, shade });
        rate_bars.push(Bar { label: generator.name().into(), value: rate, shade });
    }
    sheet.row(vec![
        "queryperf / dnsperf".into(),
        format!("{:.2}", costs[1] / costs[0]),
        format!("{:.2}", rates[1] / rates[0]),
    ]);
    let panels = [
        Panel { title: "us of the client's CPU a query: shorter is better".into(), bars: cost_bars },
        Panel { title: "answers a second from a bare ring echo: longer is better".into(), bars: rate_bars },
    ];
    plot::draw(
        &bench.out.join("plot.svg"),
        "Two load generators, a thread each",
        "The client has CPU 1.",
        &panels,
    )?;
    bench.publish(&[sheet])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dnsperfs_words_are_read() {
        let text = "Statistics:\n\n  Queries sent:         120000\n  Queries completed:    119990 (99.99%)\n  Queries per second:   59995.000000\n";
        assert_eq!(Generator::Dnsperf.read(text).unwrap(), (119_990.0, 59_995.0));
        assert!(Generator::Dnsperf.read("").is_err());
    }
}
