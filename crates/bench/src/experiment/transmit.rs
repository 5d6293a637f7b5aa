//! Sending: two TCP streams and a flood of UDP answers, with segmentation, batches and the qdisc's lock on and off.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use super::{Bench, Experiment, Sheet, word};
use crate::load::Load;
use crate::net::{self, Buffers, CLIENT_DEVICE, Net, SERVER_DEVICE};
use crate::plot::{self, Bar, Panel, Shade};
use crate::process::Running;
use crate::record::median;
use crate::shell;
use crate::workload::{Case, Input, Transport, Workload};

const STREAM_PORT: &str = "5201";
/// Where the two sending processes and the receiver run: a sender a CPU, so that they meet at the lock.
const SENDERS: [&str; 2] = ["0", "1"];
const CASE: Case = Case { workload: Workload::Flat, transport: Transport::Udp64 };

/// Settings of the device: name, TSO, GSO.
const SEGMENTATION: [(&str, &str, &str); 3] =
    [("GSO and TSO on", "on", "on"), ("GSO on, TSO off", "off", "on"), ("GSO and TSO off", "off", "off")];

/// Ways to send answers: name, the echo's mode, whether it is one of Weir's.
const WAYS: [(&str, &str, bool); 5] = [
    ("sendto an answer", "single", false),
    ("sendmmsg, 64 answers", "plain", true),
    ("sendmmsg, joined (UDP_SEGMENT)", "joined", true),
    ("packet socket through the qdisc", "qdisc", false),
    ("packet socket past the qdisc", "ring", true),
];

pub(crate) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let _buffers = Buffers::raise()?;
    let stream = bench.compile(Experiment::Transmit, "stream")?;
    let (streams, stream_bars) = streams(bench, &stream)?;
    let (answers, answer_bars) = answers(bench)?;
    let thread = [
        ("GSO, TSO off: before", 2.66, Shade::Other),
        ("GSO, TSO off: after", 1.44, Shade::Own),
        ("GSO on: after", 0.85, Shade::Own),
    ];
    let thread = thread.map(|(label, value, shade)| Bar { label: label.into(), value, shade });
    let panels = [
        Panel { title: "two TCP streams: CPU ns a kilobyte".into(), bars: stream_bars },
        Panel { title: "thread of 2014: lock, % of the profile".into(), bars: thread.into() },
        Panel { title: "UDP answers: server us an answer".into(), bars: answer_bars },
    ];
    let note = "Shorter is better. veth with a pfifo qdisc; medians.";
    plot::draw(&bench.out.join("plot.svg"), "Sending", note, &panels)?;
    bench.publish(&[streams, answers])
}

/// A pair whose server end has a qdisc, which veth has not by itself, and segmentation as asked.
fn pair(tso: &str, gso: &str) -> anyhow::Result<Net> {
    let net = Net::new()?;
    let qdisc = ["qdisc", "replace", "dev", SERVER_DEVICE, "root", "pfifo", "limit", "10000"];
    shell::finish(net.server("tc").args(qdisc))?;
    shell::finish(net.server("ethtool").args([
        "-K",
        SERVER_DEVICE,
        "gso",
        gso,
        "tso",
        tso,
        "tx-udp-segmentation",
        gso,
    ]))?;
    // Received segments stay as they were sent.
    shell::finish(net.client("ethtool").args(["-K", CLIENT_DEVICE, "gro", "off"]))?;
    Ok(net)
}

/// What two streams took.
#[derive(Clone, Copy, Debug)]
struct Streamed {
    megabytes_per_second: f64,
    cpu_ns_a_kilobyte: f64,
    /// Share of the profile in spin locks, in a hundred; `None` without perf.
    lock_percent: Option<f64>,
}

fn streams(bench: &Bench<'_>, program: &Path) -> anyhow::Result<(Sheet, Vec<Bar>)> {
    let columns = ["setting", "MB/s", "sender CPU ns a kilobyte", "spin locks, % of the profile"];
    let (mut sheet, mut bars) = (Sheet::new("streams", &columns), Vec::new());
    let mut rounds: [Vec<Streamed>; 3] = Default::default();
    for _ in 0..bench.rounds {
        for ((name, tso, gso), results) in SEGMENTATION.into_iter().zip(&mut rounds) {
            results.push(stream(bench, program, tso, gso).context(name)?);
        }
    }
    for ((name, ..), results) in SEGMENTATION.into_iter().zip(rounds) {
        let of = |of: fn(&Streamed) -> f64| median(results.iter().map(of).collect()).unwrap_or_default();
        let lock = median(results.iter().filter_map(|result| result.lock_percent).collect());
        let cpu = of(|result| result.cpu_ns_a_kilobyte);
        sheet.row(vec![
            name.into(),
            format!("{:.0}", of(|result| result.megabytes_per_second)),
            format!("{cpu:.0}"),
            lock.map_or("-".into(), |percent| format!("{percent:.2}")),
        ]);
        bars.push(Bar { label: name.into(), value: cpu, shade: Shade::Other });
    }
    Ok((sheet, bars))
}

fn stream(bench: &Bench<'_>, program: &Path, tso: &str, gso: &str) -> anyhow::Result<Streamed> {
    let net = pair(tso, gso)?;
    let receiver = net::client_addresses().remove(0);
    let mut drain = net.client_on("0-1", &word(program));
    let mut drain = drain.args(["drain", &receiver, STREAM_PORT]).stdout(Stdio::piped()).spawn()?;
    let result = (|| {
        let mut ready = String::new();
        BufReader::new(drain.stdout.take().context("it is piped")?).read_line(&mut ready)?;
        let folder = tempfile::tempdir()?;
        let profile = Profile::start(&folder.path().join("perf.data"), bench.duration.as_secs_f64());
        let mut senders = Vec::new();
        for cpu in SENDERS {
            // bash times the sender: its CPU seconds come on standard error.
            let mut command = net.server_on(cpu, "bash");
            let seconds = bench.duration.as_secs_f64().to_string();
            let send = format!(
                "TIMEFORMAT='%U %S'; time {} send {receiver} {STREAM_PORT} 1 {seconds}",
                word(program)
            );
            senders.push(command.args(["-c", &send]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
        }
        let sent = senders.into_iter().map(sender_result).collect::<anyhow::Result<Vec<_>>>()?;
        let (octets, rate, cpu) = sent.iter().fold((0.0, 0.0, 0.0), |sum, (octets, seconds, cpu)| {
            (sum.0 + octets, sum.1 + octets / seconds, sum.2 + cpu)
        });
        Ok(Streamed {
            megabytes_per_second: rate / 1e6,
            cpu_ns_a_kilobyte: cpu * 1e9 / (octets / 1e3),
            lock_percent: profile.and_then(Profile::lock_percent),
        })
    })();
    let _ = drain.kill();
    let _ = drain.wait();
    result
}

/// Octets sent, seconds, and CPU seconds of a sender.
fn sender_result(sender: Child) -> anyhow::Result<(f64, f64, f64)> {
    let output = sender.wait_with_output()?;
    let (said, times) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("the sender failed: {times}");
    }
    let numbers = |text: &str| -> anyhow::Result<Vec<f64>> {
        text.split_whitespace().map(|word| word.parse::<f64>().with_context(|| text.to_owned())).collect()
    };
    let (said, times) = (numbers(&said)?, numbers(&times)?);
    let ([octets, ns], [user, system]) = (&said[..], &times[..]) else { bail!("not two numbers each") };
    Ok((*octets, ns / 1e9, user + system))
}

/// `perf record` of the whole machine, where there is one.
struct Profile {
    child: Child,
    data: String,
}

impl Profile {
    fn start(data: &Path, seconds: f64) -> Option<Profile> {
        let data = word(data);
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "999", "-o", &data, "--", "sleep"]);
        let child = perf.arg(seconds.to_string()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        Some(Profile { child, data })
    }

    /// The share of samples in spin locks of the kernel, of those that were not idle.
    fn lock_percent(mut self) -> Option<f64> {
        self.child.wait().ok().filter(std::process::ExitStatus::success)?;
        let report = shell::run(&[
            "perf",
            "report",
            "-i",
            &self.data,
            "--stdio",
            "-F",
            "overhead,symbol",
            "-w",
            "10,80",
        ]);
        lock_share(&report.ok()?)
    }
}

/// Reads lines `  1.23%  [k] symbol`.
fn lock_share(report: &str) -> Option<f64> {
    let (mut lock, mut busy) = (0.0, 0.0);
    for line in report.lines().filter(|line| !line.starts_with('#')) {
        let Some((percent, symbol)) = line.trim().split_once('%') else { continue };
        let Ok(percent) = percent.trim().parse::<f64>() else { continue };
        let is_idle = ["idle", "halt", "mwait"].iter().any(|word| symbol.contains(word));
        let is_lock = symbol.contains("spin_lock") && !symbol.contains("unlock");
        busy += if is_idle { 0.0 } else { percent };
        lock += if is_lock { percent } else { 0.0 };
    }
    (busy > 0.0).then_some(100.0 * lock / busy)
}

fn answers(bench: &Bench<'_>) -> anyhow::Result<(Sheet, Vec<Bar>)> {
    let input = CASE.workload.prepare(&bench.work.join("inputs"), bench.scale)?;
    let mut sheet = Sheet::new("answers", &["way", "GSO", "server us an answer", "answers/s"]);
    let mut bars = Vec::new();
    for (name, mode, ours) in WAYS {
        for gso in ["on", "off"] {
            let (mut costs, mut rates) = (Vec::new(), Vec::new());
            for _ in 0..bench.rounds {
                let (cost, rate) = echo(bench, &input, mode, gso).with_context(|| name)?;
                costs.push(cost);
                rates.push(rate);
            }
            let (cost, rate) = (median(costs).unwrap_or_default(), median(rates).unwrap_or_default());
            sheet.row(vec![name.into(), gso.into(), format!("{cost:.2}"), format!("{rate:.0}")]);
            let shade = if ours { Shade::Own } else { Shade::Other };
            bars.push(Bar { label: format!("{mode}, GSO {gso}"), value: cost, shade });
        }
    }
    Ok((sheet, bars))
}

/// Server CPU time an answer in us, and answers a second, of the echo in a mode.
fn echo(bench: &Bench<'_>, input: &Input, mode: &str, gso: &str) -> anyhow::Result<(f64, f64)> {
    let net = pair(gso, gso)?;
    let folder = tempfile::tempdir()?;
    let mut command = net.server(&word(&bench.tools.echo));
    command.args([mode, net::SERVER, &net::PORT.to_string(), "60", SERVER_DEVICE]);
    let server = Running::start(&mut command, &folder.path().join("log"))?;
    let queryperf = &bench.tools.queryperf;
    let load = |duration| Load { queryperf, queries: &input.queries, case: CASE, duration, rate: None };
    load(bench.duration / 4).run(&net).context("warming up")?;
    let before = server.cpu_time();
    let counted = load(bench.duration).run(&net)?;
    let spent = server.cpu_time().saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
    let cost = spent.as_secs_f64() * 1e6 / counted.answered.max(1) as f64;
    Ok((cost, counted.answers_per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_locks_leaves_idling_out() {
        let report = "# head\n  50.00%  [k] default_idle\n  10.00%  [k] _raw_spin_lock\n  5.00% [k] _raw_spin_unlock_irqrestore\n 35.00%  [.] main\n";
        assert_eq!(lock_share(report), Some(20.0));
        assert_eq!(lock_share(""), None);
    }
}
