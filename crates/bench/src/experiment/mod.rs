//! The five results behind Weir, made again, and what its own ways in and its load generator cost: each experiment writes its table and its plot into its own folder, beside the
//! words that say what differs from the thread and why.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::server::Tools;
use crate::setup;

mod cpus;
mod generator;
mod ingress;
mod reuseport;
mod rollover;
pub(crate) mod sink;
mod steering;
mod transmit;
mod udp_sink;

const TO_STRING: &str = "a string takes all that is written";

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Experiment {
    /// One worker; many on one shared socket; many with a socket each
    Reuseport,
    /// What receiving a datagram costs, call by call, in C and in Rust
    UdpSink,
    /// Where the kernel handles a packet: no steering, RPS, RFS, the reuseport program
    Steering,
    /// One flow too much for one worker: packet fanout with and without rollover; a storm beside ordinary clients
    Rollover,
    /// What an answer costs by sockets and by rings, with a second worker, and with a fanout in waiting
    Ingress,
    /// queryperf beside dnsperf: what a query costs the client, and how many it can send
    Generator,
    /// Streams and answers with segmentation and batches on and off
    Transmit,
}

/// What an experiment needs.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) tools: &'a Tools,
    /// For zones, queries and compiled programs.
    pub(crate) work: PathBuf,
    /// Where table and plot go: `benchmarks/experiments/NAME`.
    pub(crate) out: PathBuf,
    pub(crate) rounds: usize,
    /// Of each load.
    pub(crate) duration: Duration,
    /// Zones hold a `scale`-th of the usual names.
    pub(crate) scale: usize,
}

impl Experiment {
    /// The name of its folder.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Experiment::Reuseport => "reuseport",
            Experiment::UdpSink => "udp_sink",
            Experiment::Steering => "steering",
            Experiment::Rollover => "rollover",
            Experiment::Ingress => "ingress",
            Experiment::Generator => "generator",
            Experiment::Transmit => "transmit",
        }
    }

    /// Runs it and publishes what it found.
    pub(crate) fn run(self, bench: &Bench<'_>) -> anyhow::Result<()> {
        fs::create_dir_all(&bench.out)?;
        match self {
            Experiment::Reuseport => reuseport::run(bench),
            Experiment::UdpSink => udp_sink::run(bench),
            Experiment::Steering => steering::run(bench),
            Experiment::Rollover => rollover::run(bench),
            Experiment::Ingress => ingress::run(bench),
            Experiment::Generator => generator::run(bench),
            Experiment::Transmit => transmit::run(bench),
        }
    }
}

/// A table: the same for CSV and for Markdown.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    name: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    pub(crate) fn new(name: &'static str, columns: &[&'static str]) -> Sheet {
        Sheet { name, columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        eprintln!("{}: {}", self.name, cells.join("  "));
        self.rows.push(cells);
    }

    fn csv(&self) -> String {
        let lines = self.rows.iter().map(|row| row.join(","));
        [self.columns.join(",")].into_iter().chain(lines).map(|line| line + "\n").collect()
    }

    fn markdown(&self) -> String {
        let mut text =
            format!("| {} |\n|---|{}\n", self.columns.join(" | "), "---:|".repeat(self.columns.len() - 1));
        for row in &self.rows {
            writeln!(text, "| {} |", row.join(" | ")).expect(TO_STRING);
        }
        text
    }
}

impl Bench<'_> {
    /// Writes each sheet as `NAME.csv`, and puts all of them into `README.md` where its marks are.
    pub(crate) fn publish(&self, sheets: &[Sheet]) -> anyhow::Result<()> {
        let path = self.out.join("README.md");
        let mut page = fs::read_to_string(&path).unwrap_or_default();
        for sheet in sheets {
            fs::write(self.out.join(format!("{}.csv", sheet.name)), sheet.csv())?;
            page = replace_marked(&page, sheet.name, &sheet.markdown());
        }
        page = replace_marked(&page, "machine", &setup::machine());
        fs::write(&path, page).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
        Ok(())
    }

    /// Compiles `SOURCE.c` beside the experiment's page.
    pub(crate) fn compile(&self, experiment: Experiment, source: &str) -> anyhow::Result<PathBuf> {
        let folder = self.tools.benchmarks.join("experiments").join(experiment.folder());
        let program = self.work.join(source);
        crate::shell::compile(&folder.join(format!("{source}.c")), &program)?;
        Ok(program.canonicalize()?)
    }
}

/// Puts `text` between `<!-- NAME -->` and `<!-- /NAME -->`; a page without the marks gets both at its end.
fn replace_marked(page: &str, name: &str, text: &str) -> String {
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n"));
    let found = page.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(&close)?.1)));
    let (before, after) = found.unwrap_or((page, ""));
    format!("{before}{open}{text}{close}{after}")
}

/// A path as an argument.
pub(crate) fn word(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_last_one() {
        let page = "# Words\n<!-- a -->\nold\n<!-- /a -->\nmore words\n";
        let page = replace_marked(page, "a", "new\n");
        assert_eq!(page, "# Words\n<!-- a -->\nnew\n<!-- /a -->\nmore words\n");
        assert_eq!(replace_marked("x\n", "b", "y\n"), "x\n<!-- b -->\ny\n<!-- /b -->\n");
    }

    #[test]
    fn a_sheet_is_the_same_as_csv_and_as_markdown() {
        let mut sheet = Sheet::new("t", &["a", "b"]);
        sheet.row(vec!["x".into(), "1".into()]);
        assert_eq!(sheet.csv(), "a,b\nx,1\n");
        assert_eq!(sheet.markdown(), "| a | b |\n|---|---:|\n| x | 1 |\n");
    }
}
