//! Table, plots and set-up of a record, made anew from its raw data.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::plot::{self, Bar, Panel, Shade};
use crate::record::{Figures, Record};
use crate::run::Plan;
use crate::server::{Server, Tools};
use crate::setup;
use crate::workload::Case;

const TO_STRING: &str = "a string takes all that is written";
/// Differences below this say nothing: rounds of one server differ as much.
const NOISE: f64 = 0.03;

/// The cases of the short plots, for pages that have no room for all.
const SHORT: [&str; 4] = ["flat/udp64", "root/udp64", "signed-nxdomain/udp64", "mixed/udp1000"];

/// A figure that is plotted and compared.
struct Measure {
    file: &'static str,
    title: &'static str,
    note: &'static str,
    of: fn(&Figures) -> f64,
    more_is_better: bool,
}

const MEASURES: [Measure; 4] = [
    Measure {
        file: "cost.svg",
        title: "Server CPU time an answer (us)",
        note: "Shorter is better. One worker on one CPU, veth pair, medians; grey: answers without looking anything up.",
        of: |figures| figures.cpu_us,
        more_is_better: false,
    },
    Measure {
        file: "answers.svg",
        title: "Answers a second, one worker",
        note: "Longer is better; bounded by the client's CPU where servers are fast. Medians; grey: the floors.",
        of: |figures| figures.answers_per_second,
        more_is_better: true,
    },
    Measure {
        file: "latency.svg",
        title: "99th percentile of latency at half load (us)",
        note: "Shorter is better. Half of each server's own highest rate: the faster one carries more. Medians.",
        of: |figures| figures.half_p99_us,
        more_is_better: false,
    },
    Measure {
        file: "memory.svg",
        title: "Memory after the load (MiB, PSS)",
        note: "Shorter is better. Medians.",
        of: |figures| figures.memory_kib / 1024.0,
        more_is_better: false,
    },
];

/// Writes `README.md`, `SETUP.md` and the plots beside the raw data.
pub(crate) fn write(record: &Record, plan: &Plan, tools: &Tools) -> anyhow::Result<()> {
    if record.rows.is_empty() {
        return Ok(());
    }
    fs::write(plan.out.join("README.md"), tables(record))?;
    fs::write(plan.out.join("SETUP.md"), setup::describe(record, plan, tools))?;
    for measure in &MEASURES {
        measure.draw(record, &plan.out)?;
    }
    Ok(())
}

impl Measure {
    fn draw(&self, record: &Record, folder: &Path) -> anyhow::Result<()> {
        let panel = |case: Case| {
            let bars = record.servers().into_iter().filter_map(|server| {
                let value = (self.of)(&record.median(case, server)?);
                Some(Bar { label: server.title().to_owned(), value, shade: shade(server) })
            });
            Panel { title: case.to_string(), bars: bars.collect() }
        };
        let cases = record.cases();
        let chosen: Vec<Panel> = SHORT
            .iter()
            .filter_map(|name| name.parse().ok())
            .filter(|case| cases.contains(case))
            .map(panel)
            .collect();
        if chosen.len() == SHORT.len() {
            plot::draw(&folder.join(format!("short-{}", self.file)), self.title, self.note, &chosen)?;
        }
        let panels: Vec<Panel> = cases.into_iter().map(panel).collect();
        plot::draw(&folder.join(self.file), self.title, self.note, &panels)
    }
}

fn shade(server: Server) -> Shade {
    match server {
        weir if weir.is_weir() => Shade::Own,
        floor if floor.is_floor() => Shade::Floor,
        _ => Shade::Other,
    }
}

/// The whole page.
fn tables(record: &Record) -> String {
    let mut page = "# Results\n\nMade by `benchmarks/run` from `raw.csv`; SETUP.md says on what and how. All figures are medians of the rounds.\n".to_owned();
    page.push_str("Server CPU time an answer is the figure to look at: it holds where rates are bounded by the client.\n\n");
    page.push_str(&overview(record));
    page.push_str(&behind(record));
    for case in record.cases() {
        page.push_str(&table(record, case));
    }
    page
}

/// Server CPU time an answer, all cases at a glance.
fn overview(record: &Record) -> String {
    let servers = record.servers();
    let mut text = "## Server CPU time an answer, in us\n\n| case |".to_owned();
    for server in &servers {
        write!(text, " {} |", server.title()).expect(TO_STRING);
    }
    writeln!(text, "\n|---|{}", "---:|".repeat(servers.len())).expect(TO_STRING);
    for case in record.cases() {
        write!(text, "| {case} |").expect(TO_STRING);
        for &server in &servers {
            match record.median(case, server) {
                Some(figures) => write!(text, " {:.2} |", figures.cpu_us).expect(TO_STRING),
                None => text.push_str(" |"),
            }
        }
        text.push('\n');
    }
    text.push_str("\n![Server CPU time an answer](cost.svg)\n\n![Answers a second](answers.svg)\n\n");
    text.push_str("![Latency at half load](latency.svg)\n\n![Memory](memory.svg)\n\n");
    text
}

/// Every figure in which a server is ahead of Weir.
fn behind(record: &Record) -> String {
    let mut lines = String::new();
    for case in record.cases() {
        let Some(weir) = record.median(case, Server::Weir) else { continue };
        for measure in &MEASURES {
            let ahead: Vec<String> = record
                .servers()
                .into_iter()
                .filter(|server| !server.is_weir() && !server.is_floor())
                .filter_map(|server| {
                    let ratio = (measure.of)(&record.median(case, server)?) / (measure.of)(&weir);
                    let is_ahead =
                        if measure.more_is_better { ratio > 1.0 + NOISE } else { ratio < 1.0 - NOISE };
                    is_ahead.then(|| format!("{} {ratio:.2}x", server.title()))
                })
                .collect();
            if !ahead.is_empty() {
                writeln!(lines, "- {case}, {}: {}", measure.title.to_lowercase(), ahead.join(", "))
                    .expect(TO_STRING);
            }
        }
    }
    if lines.is_empty() {
        lines.push_str("Nowhere by more than 3 %.\n");
    }
    format!(
        "## Where others are ahead of Weir\n\nTheir figure as a multiple of Weir's, where it is better by more than 3 %.\n\n{lines}\n"
    )
}

/// All figures of a case.
fn table(record: &Record, case: Case) -> String {
    let mut text = format!(
        "## {case}\n\n{}; {}.\n\n| server | us an answer | answers/s | lost % | half load: us an answer | p50 us | p99 us | memory MiB | first answer ms | answer octets |\n|---|{}\n",
        case.workload.describe(),
        case.transport.describe(),
        "---:|".repeat(9)
    );
    for server in record.servers() {
        let Some(f) = record.median(case, server) else { continue };
        writeln!(
            text,
            "| {} | {:.2} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            server.title(),
            f.cpu_us,
            f.answers_per_second,
            f.lost_percent,
            f.half_cpu_us,
            f.half_p50_us,
            f.half_p99_us,
            f.memory_kib / 1024.0,
            f.start_ms,
            f.answer_octets
        )
        .expect(TO_STRING);
    }
    for server in record.servers() {
        if let Some(reason) = server.left_out(case) {
            writeln!(text, "\n{} is not there: {reason}.", server.title()).expect(TO_STRING);
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Row;

    #[test]
    fn a_rival_that_is_ahead_is_named_and_one_within_noise_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(folder.path()).unwrap();
        let case: Case = "flat".parse().unwrap();
        for (server, cpu_us) in
            [(Server::Weir, 4.0), (Server::KnotXdp, 3.0), (Server::Knot, 3.95), (Server::Echo, 2.0)]
        {
            let figures = Figures {
                cpu_us,
                answers_per_second: 1.0,
                half_p99_us: 1.0,
                memory_kib: 1.0,
                ..Figures::default()
            };
            record.add(Row { case, server, round: 1, figures }).unwrap();
        }
        let page = tables(&record);
        assert!(page.contains("- flat/udp64, server cpu time an answer (us): Knot (XDP) 0.75x\n"), "{page}");
        assert!(page.contains("| flat/udp64 | 4.00 | 3.95 | 3.00 | 2.00 |"), "{page}");
    }
}
