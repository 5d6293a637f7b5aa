//! Where a packet is handled: on the CPU that received it, on any (RPS), on the one that consumes it (RFS), and the
//! reuseport program that picks the worker on the receiving CPU.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use anyhow::{Context, bail};

use super::{Bench, Experiment, Sheet, word};
use crate::load::Load;
use crate::net::{self, Buffers, CLIENT_CPU, CLIENT_DEVICE, Net, SERVER_CPU, SERVER_DEVICE};
use crate::plot::{self, Bar, Panel, Shade};
use crate::record::median;
use crate::server::{Place, Server};
use crate::shell;
use crate::workload::{Case, Transport, Workload};

/// How packets are steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steering {
    Off,
    Rps,
    Rfs,
    /// `[ingress] steer = "cpu"`.
    Program,
    /// What `weir tune --apply` sets.
    Tuned,
}

impl Steering {
    const ALL: [Steering; 5] =
        [Steering::Off, Steering::Rps, Steering::Rfs, Steering::Program, Steering::Tuned];

    fn title(self) -> &'static str {
        match self {
            Steering::Off => "off",
            Steering::Rps => "RPS, all CPUs",
            Steering::Rfs => "RFS",
            Steering::Program => "reuseport program",
            Steering::Tuned => "weir tune --apply",
        }
    }
}

/// Where server and client run.
#[derive(Clone, Copy, Debug)]
struct Layout {
    title: &'static str,
    server: &'static str,
    workers: &'static str,
    client: &'static str,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        title: "apart: server on CPU 0, client on CPU 1",
        server: SERVER_CPU,
        workers: "1",
        client: CLIENT_CPU,
    },
    Layout { title: "together: both on both CPUs", server: "0-1", workers: "2", client: "0-1" },
];

const TRANSPORTS: [Transport; 2] = [Transport::Udp64, Transport::Tcp];

/// A run's answers a second and megabytes of answers a second.
type Rates = (f64, f64);

pub(crate) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let _buffers = Buffers::raise()?;
    let _entries = FlowEntries::keep()?;
    let mut results: BTreeMap<(usize, usize, usize), Vec<Rates>> = BTreeMap::new();
    for _ in 0..bench.rounds {
        for (l, layout) in LAYOUTS.iter().enumerate() {
            for (t, transport) in TRANSPORTS.into_iter().enumerate() {
                for (s, steering) in Steering::ALL.into_iter().enumerate() {
                    let told = || format!("{}, {}, {}", layout.title, transport.name(), steering.title());
                    let rates = measure(bench, layout, transport, steering).with_context(told)?;
                    eprintln!("{}: {:.0} answers/s", told(), rates.0);
                    results.entry((l, t, s)).or_default().push(rates);
                }
            }
        }
    }
    publish(bench, &results)
}

fn measure(
    bench: &Bench<'_>,
    layout: &Layout,
    transport: Transport,
    steering: Steering,
) -> anyhow::Result<Rates> {
    let case = Case { workload: Workload::Large, transport };
    let input = case.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let net = Net::new()?;
    steering.set(&net, bench)?;
    let folder = tempfile::tempdir()?;
    let mut weir_flags = vec!["--ingress".to_owned(), "reuseport".to_owned()];
    if steering == Steering::Program {
        let config = folder.path().join("weir.toml");
        fs::write(&config, "[ingress]\nsteer = \"cpu\"\n")?;
        weir_flags.extend(["--config".to_owned(), word(&config)]);
    }
    let place = Place {
        net: &net,
        tools: bench.tools,
        input: &input,
        case,
        answer_octets: 0,
        cpus: layout.server,
        workers: layout.workers,
        weir_flags,
    };
    let _started = Server::Weir.start(&place)?;
    let queryperf = &bench.tools.queryperf;
    let load = Load { queryperf, queries: &input.queries, case, duration: bench.duration, rate: None };
    let counted = load.run_on(&net, layout.client)?;
    Ok((counted.answers_per_second, counted.answers_per_second * counted.answer_octets / 1e6))
}

impl Steering {
    /// Sets both ends of the pair.
    fn set(self, net: &Net, bench: &Bench<'_>) -> anyhow::Result<()> {
        let ends = [(SERVER_DEVICE, true), (CLIENT_DEVICE, false)];
        for (device, is_server) in ends {
            let queue = format!("/sys/class/net/{device}/queues/rx-0");
            let script = match self {
                Steering::Off | Steering::Program => continue,
                Steering::Rps => format!("echo {} > {queue}/rps_cpus", all_cpus()),
                Steering::Rfs => {
                    format!("echo {} > {queue}/rps_cpus; echo 4096 > {queue}/rps_flow_cnt", all_cpus())
                }
                Steering::Tuned => format!("{} tune --apply {device}", word(&bench.tools.weir)),
            };
            let mut shell = if is_server { net.server_on("0-1", "sh") } else { net.client_on("0-1", "sh") };
            shell::finish(shell.args(["-ec", &script]))?;
        }
        let entries = if self == Steering::Rfs { "4096" } else { "0" };
        if self != Steering::Tuned {
            fs::write(FlowEntries::PATH, entries).context(FlowEntries::PATH)?;
        }
        Ok(())
    }
}

/// A mask of all CPUs, in hexadecimal.
fn all_cpus() -> String {
    let n_cpus = std::thread::available_parallelism().map_or(1, usize::from).min(32);
    format!("{:x}", (1_u64 << n_cpus) - 1)
}

/// The size of the table of RFS, which is the whole system's; given back when dropped.
struct FlowEntries(String);

impl FlowEntries {
    const PATH: &str = "/proc/sys/net/core/rps_sock_flow_entries";

    fn keep() -> anyhow::Result<FlowEntries> {
        Ok(FlowEntries(fs::read_to_string(Self::PATH).context(Self::PATH)?))
    }
}

impl Drop for FlowEntries {
    fn drop(&mut self) {
        let _ = fs::write(Self::PATH, &self.0);
    }
}

fn publish(bench: &Bench<'_>, results: &BTreeMap<(usize, usize, usize), Vec<Rates>>) -> anyhow::Result<()> {
    let mut sheet = Sheet::new("rates", &["steering", "layout", "transport", "answers/s", "MB/s", "of off"]);
    let mut panels = Vec::new();
    for (l, layout) in LAYOUTS.iter().enumerate() {
        for (t, transport) in TRANSPORTS.into_iter().enumerate() {
            let of = |s: usize| {
                let rounds = results.get(&(l, t, s)).context("a round is missing")?;
                let middle =
                    |of: fn(&Rates) -> f64| median(rounds.iter().map(of).collect()).unwrap_or_default();
                anyhow::Ok((middle(|rates| rates.0), middle(|rates| rates.1)))
            };
            let off = of(0)?.0;
            let mut bars = Vec::new();
            for (s, steering) in Steering::ALL.into_iter().enumerate() {
                let (rate, megabytes) = of(s)?;
                let place = layout.title.split(':').next().unwrap_or_default();
                sheet.row(vec![
                    steering.title().into(),
                    place.into(),
                    transport.name().into(),
                    format!("{rate:.0}"),
                    format!("{megabytes:.0}"),
                    format!("{:.2}", rate / off),
                ]);
                let shade = if s < 3 { Shade::Other } else { Shade::Own };
                bars.push(Bar { label: steering.title().into(), value: rate, shade });
            }
            panels.push(Panel { title: format!("{}, answers/s, {}", transport.name(), layout.title), bars });
        }
    }
    let note = "Longer is better. Answers of a kilobyte; medians.";
    plot::draw(&bench.out.join("plot.svg"), "Where packets are handled", note, &panels)?;
    bench.publish(&[sheet, hashes(bench)?])
}

/// The ring's flow hash for both directions of some flows.
fn hashes(bench: &Bench<'_>) -> anyhow::Result<Sheet> {
    let program = bench.compile(Experiment::Steering, "rxhash")?;
    let input = Workload::Flat.prepare(&bench.work.join("inputs"), 10)?;
    let net = Net::new()?;
    let case = Case { workload: Workload::Flat, transport: Transport::Udp64 };
    let (cpus, workers, weir_flags) = (SERVER_CPU, "1", Vec::new());
    let place = Place {
        net: &net,
        tools: bench.tools,
        input: &input,
        case,
        answer_octets: 0,
        cpus,
        workers,
        weir_flags,
    };
    let _started = Server::Weir.start(&place)?;
    let mut ring = net.server(&word(&program));
    let mut ring = ring.args([SERVER_DEVICE, "2"]).stdout(Stdio::piped()).spawn()?;
    let mut output = BufReader::new(ring.stdout.take().context("it is piped")?);
    output.read_line(&mut String::new())?;
    let (name, kind) = input.first_question()?;
    let mut ports = BTreeMap::new();
    for i in 0..6 {
        let connected = i % 2 == 1;
        let mut ask = net.client(&word(&bench.tools.bench));
        ask.args(["ask-once", &format!("{}:53", net::SERVER), &name, &kind]);
        let port = shell::finish(if connected { ask.arg("--connected") } else { &mut ask })?;
        ports.insert(port.trim().to_owned(), connected);
    }
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    ring.wait()?;
    let sheet = hash_sheet(&text, &ports);
    if sheet.rows.is_empty() {
        bail!("the ring saw no flow in both directions:\n{text}");
    }
    Ok(sheet)
}

/// Lines `PORT out|in HASH`, put together by port; `ports` says which client sockets were connected.
fn hash_sheet(text: &str, ports: &BTreeMap<String, bool>) -> Sheet {
    let mut flows: BTreeMap<&str, [Option<&str>; 2]> = BTreeMap::new();
    for line in text.lines() {
        if let [port, way, hash] = line.split(' ').collect::<Vec<_>>()[..] {
            flows.entry(port).or_default()[usize::from(way == "out")] = Some(hash);
        }
    }
    let mut sheet = Sheet::new(
        "hashes",
        &["client port", "client socket", "hash of the query", "hash of the answer", "same"],
    );
    for (port, ways) in flows {
        if let [Some(query), Some(answer)] = ways {
            let same = if query == answer { "yes" } else { "no" };
            let socket = if ports.get(port) == Some(&true) { "connected" } else { "not connected" };
            sheet.row(vec![port.into(), socket.into(), query.into(), answer.into(), same.into()]);
        }
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_flow_are_put_together() {
        let ports = BTreeMap::from([("1002".to_owned(), true)]);
        let sheet =
            hash_sheet("ready\n1000 in 00ab\n1000 out 00ab\n1001 in 1\n1002 out 2\n1002 in 3\n", &ports);
        assert_eq!(
            sheet.rows,
            [["1000", "not connected", "00ab", "00ab", "yes"], ["1002", "connected", "3", "2", "no"]]
        );
    }
}
