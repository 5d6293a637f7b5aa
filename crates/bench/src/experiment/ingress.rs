//! What an answer costs by each way in: sockets, with answers one by one and joined, and packet rings, beside the floors; and
//! at a fixed rate what a second worker, and a packet fanout in waiting, add to it, and what a second one adds to the floor.

use std::fs;
use std::time::Duration;

use anyhow::Context;

use super::{Bench, Sheet, word};
use crate::load::{Counted, Load};
use crate::net::{Buffers, Net};
use crate::plot::{self, Bar, Panel, Shade};
use crate::record::median;
use crate::server::{Place, Server};
use crate::workload::{Case, Transport, Workload};

/// Caches fill, and whatever is made when it is first needed is there.
const WARM_UP: Duration = Duration::from_millis(500);
/// Queries a second at which workers are compared: well below what one can answer.
const FIXED_RATE: f64 = 60_000.0;

const CASES: [Case; 2] = [
    Case { workload: Workload::Flat, transport: Transport::Udp64 },
    Case { workload: Workload::Flat, transport: Transport::Udp1000 },
];

/// How queries come in and answers leave.
struct Way {
    name: &'static str,
    server: Server,
    mode: &'static str,
    joined: bool,
    shade: Shade,
}

const WAYS: [Way; 7] = [
    Way {
        name: "sockets, one by one",
        server: Server::Weir,
        mode: "reuseport",
        joined: false,
        shade: Shade::Own,
    },
    Way { name: "sockets, joined", server: Server::Weir, mode: "reuseport", joined: true, shade: Shade::Own },
    Way { name: "rings", server: Server::Weir, mode: "ring", joined: true, shade: Shade::Own },
    Way { name: "floor: echo", server: Server::Echo, mode: "", joined: false, shade: Shade::Floor },
    Way {
        name: "floor: joined echo",
        server: Server::EchoJoined,
        mode: "",
        joined: false,
        shade: Shade::Floor,
    },
    Way { name: "floor: ring echo", server: Server::EchoRing, mode: "", joined: false, shade: Shade::Floor },
    Way {
        name: "floor: ring echo that naps",
        server: Server::EchoNap,
        mode: "",
        joined: false,
        shade: Shade::Floor,
    },
];

/// Workers at a fixed rate.
struct Crew {
    name: &'static str,
    server: Server,
    cpus: &'static str,
    workers: &'static str,
    mode: &'static str,
}

const CREWS: [Crew; 7] = [
    Crew { name: "one worker", server: Server::Weir, cpus: "0", workers: "1", mode: "reuseport" },
    Crew {
        name: "one worker, on the client's CPU",
        server: Server::Weir,
        cpus: "1",
        workers: "1",
        mode: "reuseport",
    },
    Crew { name: "two workers", server: Server::Weir, cpus: "0-1", workers: "2", mode: "reuseport" },
    Crew {
        name: "two workers, fanout in waiting",
        server: Server::Weir,
        cpus: "0-1",
        workers: "2",
        mode: "auto",
    },
    Crew { name: "floor: one echo", server: Server::Echo, cpus: "0", workers: "1", mode: "" },
    Crew {
        name: "floor: one echo, on the client's CPU",
        server: Server::Echo,
        cpus: "1",
        workers: "1",
        mode: "",
    },
    Crew { name: "floor: two echoes", server: Server::EchoPair, cpus: "0-1", workers: "2", mode: "" },
];

pub(crate) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let _buffers = Buffers::raise()?;
    let mut costs = vec![Vec::new(); WAYS.len() * CASES.len()];
    let mut fixed = vec![Vec::new(); CREWS.len() * CASES.len()];
    for _ in 0..bench.rounds {
        for (number, case) in CASES.into_iter().enumerate() {
            let mut octets = 0;
            for (way, rounds) in WAYS.iter().zip(&mut costs[number * WAYS.len()..]) {
                let (cpu_us, answer) = cost(bench, case, way, octets).with_context(|| way.name)?;
                octets = answer;
                rounds.push(cpu_us);
            }
            for (crew, rounds) in CREWS.iter().zip(&mut fixed[number * CREWS.len()..]) {
                rounds.push(at_fixed_rate(bench, case, crew, octets).with_context(|| crew.name)?);
            }
        }
    }
    let middles = |rounds: Vec<Vec<f64>>| rounds.into_iter().filter_map(median).collect::<Vec<_>>();
    publish(bench, &middles(costs), &middles(fixed))
}

/// Server CPU time an answer, in us, under full load; and the octets of an answer, for the floors that come next.
fn cost(bench: &Bench<'_>, case: Case, way: &Way, answer_octets: u32) -> anyhow::Result<(f64, u32)> {
    let flags = ingress(bench, way.mode, way.joined)?;
    let (counted, cpu_us) = measure(bench, case, way.server, ("0", "1", flags, answer_octets), None)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a datagram's length")]
    Ok((cpu_us, counted.answer_octets.round() as u32))
}

fn at_fixed_rate(bench: &Bench<'_>, case: Case, crew: &Crew, answer_octets: u32) -> anyhow::Result<f64> {
    let flags = ingress(bench, crew.mode, true)?;
    let place = (crew.cpus, crew.workers, flags, answer_octets);
    Ok(measure(bench, case, crew.server, place, Some(FIXED_RATE))?.1)
}

/// Flags of `weir serve`.
fn ingress(bench: &Bench<'_>, mode: &str, joined: bool) -> anyhow::Result<Vec<String>> {
    if mode.is_empty() {
        return Ok(Vec::new());
    }
    let config = bench.work.join("ingress.toml");
    fs::write(&config, format!("[ingress]\njoin_answers = {joined}\n"))?;
    Ok(["--config", &word(&config), "--ingress", mode].map(str::to_owned).into())
}

/// What came back, and server CPU time an answer in us.
fn measure(
    bench: &Bench<'_>,
    case: Case,
    server: Server,
    (cpus, workers, weir_flags, answer_octets): (&str, &str, Vec<String>, u32),
    rate: Option<f64>,
) -> anyhow::Result<(Counted, f64)> {
    let input = case.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let net = Net::new()?;
    let place = Place {
        net: &net,
        tools: bench.tools,
        input: &input,
        case,
        answer_octets,
        cpus,
        workers,
        weir_flags,
    };
    let started = server.start(&place)?;
    let queryperf = &bench.tools.queryperf;
    let load = |duration| Load { queryperf, queries: &input.queries, case, duration, rate };
    load(WARM_UP).run(&net)?;
    let before = started.running.cpu_time();
    let counted = load(bench.duration).run(&net)?;
    let spent = started.running.cpu_time().saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
    let cpu_us = spent.as_secs_f64() * 1e6 / counted.answered.max(1) as f64;
    Ok((counted, cpu_us))
}

fn publish(bench: &Bench<'_>, costs: &[f64], fixed: &[f64]) -> anyhow::Result<()> {
    let mut cost_sheet = Sheet::new("cost", &["way", "64 ports, us", "1,000 ports, us"]);
    for (number, way) in WAYS.iter().enumerate() {
        let cells = [number, WAYS.len() + number].map(|i| format!("{:.2}", costs[i]));
        cost_sheet.row([vec![way.name.to_owned()], cells.to_vec()].concat());
    }
    let mut fixed_sheet = Sheet::new("fixed", &["workers", "64 ports, us", "1,000 ports, us"]);
    for (number, crew) in CREWS.iter().enumerate() {
        let cells = [number, CREWS.len() + number].map(|i| format!("{:.2}", fixed[i]));
        fixed_sheet.row([vec![crew.name.to_owned()], cells.to_vec()].concat());
    }
    let bars = |number: usize| {
        let bar = |(i, way): (usize, &Way)| Bar {
            label: way.name.into(),
            value: costs[number * WAYS.len() + i],
            shade: way.shade,
        };
        WAYS.iter().enumerate().map(bar).collect()
    };
    let panels = [
        Panel { title: "us of server CPU an answer, 64 client ports".into(), bars: bars(0) },
        Panel { title: "us of server CPU an answer, 1,000 client ports".into(), bars: bars(1) },
    ];
    plot::draw(
        &bench.out.join("plot.svg"),
        "What an answer costs, way by way",
        "Shorter is better.",
        &panels,
    )?;
    bench.publish(&[cost_sheet, fixed_sheet])
}
