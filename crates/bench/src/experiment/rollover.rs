//! One flow that is too much for one worker: with sockets, with a packet fanout, and with a fanout that rolls over. Then
//! the same flow beside ordinary clients, who should not notice.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;

use super::{Bench, Experiment, Sheet, word};
use crate::load::Counted;
use crate::net::{Buffers, Net, PORT, SERVER, SERVER_DEVICE};
use crate::plot::{self, Bar, Panel, Shade};
use crate::server::{Place, Server};
use crate::shell;
use crate::workload::{Case, Transport, Workload};

/// Workers are limited, so that both CPUs have room for all of them and the client.
const CPUS: &str = "0-1";
const CASE: Case = Case { workload: Workload::Flat, transport: Transport::Udp64 };

/// The thread's nine rings, and a quarter of their rate each: two CPUs have to hold all of it.
const N_WORKERS: u32 = 9;
const WORKER_RATE: u32 = 8000;
const FLOW_RATE: u32 = 120_000;
/// How long its queries may take: far longer than any queue.
const PATIENCE: &str = "2";

/// A worker without a limit answers so many queries a second, and its socket has so large a buffer. That of a limited one
/// is as much smaller, as its ring is: a full queue means the same wait.
const FULL_RATE: u32 = 200_000;
const SOCKET_OCTETS: u32 = 4 << 20;

/// How queries reach the workers.
struct Way {
    name: &'static str,
    mode: &'static str,
    steer: &'static str,
    rollover: &'static str,
    shade: Shade,
}

/// The mode of `reader.c`: packet sockets without a ring, read one frame a call.
const READ: &str = "read";

const WAYS: [Way; 10] = [
    Way {
        name: "sockets (reuseport)",
        mode: "reuseport",
        steer: "hash",
        rollover: "on",
        shade: Shade::Other,
    },
    Way { name: "fanout hash", mode: "ring", steer: "hash", rollover: "off", shade: Shade::Other },
    Way { name: "fanout hash, rollover", mode: "ring", steer: "hash", rollover: "on", shade: Shade::Own },
    Way { name: "fanout cpu", mode: "ring", steer: "cpu", rollover: "off", shade: Shade::Other },
    Way { name: "fanout cpu, rollover", mode: "ring", steer: "cpu", rollover: "on", shade: Shade::Own },
    Way { name: "auto", mode: "auto", steer: "hash", rollover: "on", shade: Shade::Own },
    Way { name: "read(), fanout hash", mode: READ, steer: "hash", rollover: "off", shade: Shade::Other },
    Way { name: "read(), hash, rollover", mode: READ, steer: "hash", rollover: "on", shade: Shade::Other },
    Way { name: "read(), fanout cpu", mode: READ, steer: "cpu", rollover: "off", shade: Shade::Other },
    Way { name: "read(), cpu, rollover", mode: READ, steer: "cpu", rollover: "on", shade: Shade::Other },
];

/// A storm of one flow beside ordinary clients: workers, the rate of each, the flow's and all ordinary ones'.
const STORM_WORKERS: u32 = 4;
const STORM_WORKER_RATE: u32 = 20_000;
const ORDINARY_RATE: u32 = 10_000;
const ORDINARY_PORTS: u32 = 200;
/// An ordinary query counts as answered within so many seconds.
const SOON: &str = "0.05";
/// Three quarters of what the workers can do together, and far beyond it.
const STORMS: [(&str, u32); 2] =
    [("50 kqps, within capacity", 50_000), ("150 kqps, beyond capacity", 150_000)];

pub(crate) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let _buffers = Buffers::raise()?;
    let mut flows: Vec<Vec<f64>> = vec![Vec::new(); WAYS.len()];
    for _ in 0..bench.rounds {
        for (way, rates) in WAYS.iter().zip(&mut flows) {
            rates.push(one_flow(bench, way).with_context(|| way.name)?);
        }
    }
    let mut storms = Vec::new();
    for (name, rate) in STORMS {
        for mode in ["reuseport", "auto"] {
            let mut shares = Vec::new();
            for _ in 0..bench.rounds {
                shares.push(storm(bench, mode, rate).with_context(|| name)?);
            }
            storms.push((name, mode, median(shares)));
        }
    }
    publish(bench, flows.into_iter().map(median).collect(), &storms)
}

/// Starts the server of a way, hands its namespaces to `load`, and ends it.
fn with_server<T>(
    bench: &Bench<'_>,
    (way, workers, rate): (&Way, u32, u32),
    load: impl FnOnce(&Net, &str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let input = CASE.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let config = bench.work.join("rollover.toml");
    let buffer = SOCKET_OCTETS / FULL_RATE * rate;
    fs::write(&config, format!("[ingress]\nsteer = \"{}\"\nreceive_buffer = \"{buffer}\"\n", way.steer))?;
    let net = Net::new()?;
    let flags = [
        ["--config", &word(&config)],
        ["--ingress", way.mode],
        ["--rollover", way.rollover],
        ["--limit-worker-pps", &rate.to_string()],
    ];
    let place = Place {
        net: &net,
        tools: bench.tools,
        input: &input,
        case: CASE,
        answer_octets: 0,
        cpus: CPUS,
        workers: &workers.to_string(),
        weir_flags: flags.iter().flatten().map(ToString::to_string).collect(),
    };
    let _started = Server::Weir.start(&place)?;
    load(&net, &word(&input.queries))
}

/// queryperf with a fixed rate from `ports` ports; a query counts as lost after `patience` seconds.
fn queryperf(
    bench: &Bench<'_>,
    (net, queries): (&Net, &str),
    (rate, ports, patience): (u32, u32, &str),
    duration: Duration,
) -> Command {
    let mut command = net.client_on(CPUS, &word(&bench.tools.queryperf));
    command.args(["-s", SERVER, "-p", &PORT.to_string(), "-d", queries, "--json", "-q", "65000"]);
    command.args(["-Q", &rate.to_string(), "-c", &ports.to_string(), "-t", patience]);
    command.args(["-l", &duration.as_secs_f64().to_string()]);
    command
}

/// As [`with_server`] for packet sockets that are read by plain read(), by threads as limited as workers are.
fn with_reader<T>(
    bench: &Bench<'_>,
    way: &Way,
    load: impl FnOnce(&Net, &str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let input = CASE.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let program = bench.compile(Experiment::Rollover, "reader")?;
    let net = Net::new()?;
    let mut command = net.server_on(CPUS, &word(&program));
    command.args([SERVER_DEVICE, &PORT.to_string(), &N_WORKERS.to_string(), &WORKER_RATE.to_string()]);
    command.args([way.steer, way.rollover]);
    let mut reader = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let output = reader.stdout.take().context("it is piped")?;
    let outcome = match BufReader::new(output).read_line(&mut line) {
        Ok(_) if line == "ready\n" => load(&net, &word(&input.queries)),
        _ => Err(anyhow::anyhow!("the reader does not start")),
    };
    let _ = reader.kill();
    let _ = reader.wait();
    outcome
}

/// Answers a second to one flow that no single worker can take.
fn one_flow(bench: &Bench<'_>, way: &Way) -> anyhow::Result<f64> {
    let load = |net: &Net, queries: &str| {
        let mut command = queryperf(bench, (net, queries), (FLOW_RATE, 1, PATIENCE), bench.duration);
        Ok(Counted::read(&shell::finish(&mut command)?)?.answers_per_second)
    };
    match way.mode {
        READ => with_reader(bench, way, load),
        _ => with_server(bench, (way, N_WORKERS, WORKER_RATE), load),
    }
}

/// The share of the ordinary queries that are answered soon, in per cent, while one flow storms.
fn storm(bench: &Bench<'_>, mode: &'static str, flow_rate: u32) -> anyhow::Result<f64> {
    let way = Way { name: mode, mode, steer: "hash", rollover: "on", shade: Shade::Own };
    with_server(bench, (&way, STORM_WORKERS, STORM_WORKER_RATE), |net, queries| {
        let place = (net, queries);
        let mut flow = queryperf(bench, place, (flow_rate, 1, PATIENCE), bench.duration);
        let mut flow = flow.stdout(Stdio::null()).spawn()?;
        let mut ordinary = queryperf(bench, place, (ORDINARY_RATE, ORDINARY_PORTS, SOON), bench.duration);
        let counted = shell::finish(&mut ordinary).and_then(|text| Counted::read(&text));
        flow.wait()?;
        let counted = counted?;
        #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
        let share = counted.answered as f64 * 100.0 / counted.sent.max(1) as f64;
        Ok(share)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn publish(bench: &Bench<'_>, flows: Vec<f64>, storms: &[(&str, &str, f64)]) -> anyhow::Result<()> {
    let together = f64::from(N_WORKERS * WORKER_RATE);
    let mut flow_sheet = Sheet::new("flow", &["way", "answers/s", "of N x R"]);
    let mut bars = Vec::new();
    for (way, rate) in WAYS.iter().zip(flows) {
        flow_sheet.row(vec![way.name.into(), format!("{rate:.0}"), format!("{:.2}", rate / together)]);
        bars.push(Bar { label: way.name.into(), value: rate, shade: way.shade });
    }
    let mut storm_sheet = Sheet::new("storm", &["storm", "ingress", "ordinary answered within 50 ms, %"]);
    let mut storm_bars = Vec::new();
    for (name, mode, share) in storms {
        storm_sheet.row(vec![(*name).into(), (*mode).into(), format!("{share:.2}")]);
        let shade = if *mode == "auto" { Shade::Own } else { Shade::Other };
        storm_bars.push(Bar { label: format!("{mode}, {name}"), value: *share, shade });
    }
    let panels = [
        Panel { title: format!("answers a second, {N_WORKERS} workers x {WORKER_RATE}, one flow"), bars },
        Panel { title: "packets a second, thread of 2013 (9 x 32 k)".into(), bars: of_the_thread() },
        Panel { title: "ordinary queries answered within 50 ms, per cent".into(), bars: storm_bars },
    ];
    let note = "Longer is better. Workers are limited, so that two CPUs hold all of them.";
    plot::draw(&bench.out.join("plot.svg"), "When one channel is full, the water rolls over", note, &panels)?;
    bench.publish(&[flow_sheet, storm_sheet])
}

fn of_the_thread() -> Vec<Bar> {
    [("fanout cpu", 32_000.0, Shade::Other), ("fanout cpu, rollover", 270_000.0, Shade::Own)]
        .map(|(label, value, shade)| Bar { label: label.into(), value, shade })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_storm_within_capacity_is_three_quarters_of_it() {
        let capacity = STORM_WORKERS * STORM_WORKER_RATE;
        assert_eq!((STORMS[0].1 + ORDINARY_RATE) * 4, capacity * 3);
        assert!(STORMS[1].1 > capacity);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
