//! What it costs to receive a datagram, call by call, in C and in Rust.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, bail};

use super::{Bench, Experiment, Sheet, word};
use crate::net::{self, Net};
use crate::plot::{self, Bar, Panel, Shade};
use crate::record::median;
use crate::shell;

/// Octets of a datagram, as in the thread.
const PAYLOAD: u32 = 18;
/// Datagrams of a filling: few enough for the second level of the cache to hold most of what the kernel keeps of them.
const COUNT: u32 = 2_000;
/// Fillings of a run; the median of them is the run's result.
const FILLINGS: u32 = 20;
/// The flood's port, which connected sinks name.
const FLOOD_PORT: &str = "9000";
const SINK_PORT: &str = "9001";

/// Calls, whether connected, and whether there is a sink in Rust beside the one in C.
const RUNS: [(&str, bool, bool); 9] = [
    ("recvmsg", true, true),
    ("recvmsg", false, true),
    ("recvmmsg", true, false),
    ("recvmmsg", false, true),
    ("recvfrom", true, true),
    ("recvfrom", false, true),
    ("read", true, true),
    ("read", false, true),
    ("ring", false, false),
];

struct Sinks<'a> {
    bench: &'a Bench<'a>,
    net: Net,
    program: String,
}

pub(crate) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let program = bench.compile(Experiment::UdpSink, "sink")?;
    let hertz: f64 = shell::run(&[&word(&program), "tsc"])?.trim().parse()?;
    let _limit = Limit::raise()?;
    let sinks = Sinks { bench, net: Net::new()?, program: word(&program) };
    let mut sheet = Sheet::new(
        "sinks",
        &["run", "connected", "count", "C ns/pkt", "C pps", "C cycles", "Rust ns/pkt", "Rust / C", "payload"],
    );
    let mut bars = Vec::new();
    for (call, connected, has_twin) in RUNS {
        let (mut c, mut rust) = (Vec::new(), Vec::new());
        // In turns, so that drift of the machine meets both.
        for _ in 0..bench.rounds {
            c.push(sinks.ns_a_packet(call, connected, false)?);
            if has_twin {
                rust.push(sinks.ns_a_packet(call, connected, true)?);
            }
        }
        let c = median(c).context("no rounds")?;
        let rust = median(rust);
        sheet.row(vec![
            call.to_owned(),
            if connected { "yes" } else { "no" }.to_owned(),
            (COUNT * FILLINGS).to_string(),
            format!("{c:.0}"),
            format!("{:.0}", 1e9 / c),
            format!("{:.0}", c * hertz / 1e9),
            rust.map_or("-".to_owned(), |rust| format!("{rust:.0}")),
            rust.map_or("-".to_owned(), |rust| format!("{:.3}", rust / c)),
            PAYLOAD.to_string(),
        ]);
        let label = format!("{call}{}", if connected { ", connected" } else { "" });
        bars.push(Bar { label: format!("{label}, C"), value: c, shade: Shade::Other });
        bars.extend(rust.map(|value| Bar { label: format!("{label}, Rust"), value, shade: Shade::Own }));
    }
    bars.push(Bar { label: "recvmsg, thread".into(), value: 346.5, shade: Shade::Floor });
    let note = "Shorter is better. 18 octets; 2,000 at a time queued first, then received; grey: the thread's machine of 2017.";
    let panels = [Panel { title: "ns a datagram".into(), bars }];
    plot::draw(&bench.out.join("plot.svg"), "Receiving a datagram", note, &panels)?;
    bench.publish(&[sheet])
}

impl Sinks<'_> {
    /// Fills a sink's queue and lets it empty it, again and again.
    fn ns_a_packet(&self, call: &str, connected: bool, rust: bool) -> anyhow::Result<f64> {
        let mut sink = self.start(call, connected, rust)?;
        let result = self.fill_and_drain(&mut sink);
        let _ = sink.kill();
        let _ = sink.wait();
        result.with_context(|| format!("{call} {}", if rust { "in Rust" } else { "in C" }))
    }

    fn start(&self, call: &str, connected: bool, rust: bool) -> anyhow::Result<Child> {
        let peer = net::client_addresses().remove(0);
        let mut command = if rust {
            let mut command = self.net.server(&word(&self.bench.tools.bench));
            command.args(["sink", call, &format!("{}:{SINK_PORT}", net::SERVER)]);
            if connected {
                command.args(["--peer", &format!("{peer}:{FLOOD_PORT}")]);
            }
            command
        } else {
            let mut command = self.net.server(&self.program);
            match call {
                "ring" => command.args([call, net::SERVER_DEVICE, SINK_PORT]),
                _ => {
                    let how = if connected { "connected" } else { "open" };
                    command.args([call, net::SERVER, SINK_PORT, how, &peer, FLOOD_PORT])
                }
            };
            command
        };
        Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
    }

    fn fill_and_drain(&self, sink: &mut Child) -> anyhow::Result<f64> {
        let mut lines = BufReader::new(sink.stdout.take().context("it is piped")?).lines();
        let mut next = || lines.next().context("the sink ended")?.context("the sink cannot be read");
        if next()? != "ready" {
            bail!("the sink is not ready");
        }
        let mut input = sink.stdin.take().context("it is piped")?;
        let mut costs = Vec::new();
        for _ in 0..FILLINGS {
            self.flood()?;
            input.write_all(b"go\n")?;
            let line = next()?;
            let (count, ns) = line.split_once(' ').context("two numbers")?;
            let (count, ns): (f64, f64) = (count.parse()?, ns.parse()?);
            if count < f64::from(COUNT) * 0.99 {
                bail!("only {count} of {COUNT} datagrams were in the queue");
            }
            costs.push(ns / count);
        }
        median(costs).context("no fillings")
    }

    fn flood(&self) -> anyhow::Result<()> {
        let (count, octets) = (COUNT.to_string(), PAYLOAD.to_string());
        let mut flood = self.net.client(&self.program);
        flood.args(["flood", net::SERVER, SINK_PORT, &count, &octets, FLOOD_PORT]);
        shell::finish(&mut flood).map(drop)
    }
}

/// The limit of receive buffers, raised until dropped: a socket has to hold a whole run.
struct Limit(String);

impl Limit {
    const PATH: &str = "/proc/sys/net/core/rmem_max";

    fn raise() -> anyhow::Result<Limit> {
        let before = fs::read_to_string(Path::new(Limit::PATH))?;
        fs::write(Limit::PATH, (16 << 20).to_string())?;
        Ok(Limit(before))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let _ = fs::write(Limit::PATH, &self.0);
    }
}
