//! The result, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use indicatif::HumanCount;
use serde::Serialize;

use crate::load::{Load, Transport};
use crate::ramp::{Ramp, Step};
use crate::run::Outcome;
use crate::tally::ratio;

/// All that `--json` prints: one object. Times are in seconds, latencies in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    server: String,
    transport: &'static str,
    threads: usize,
    /// UDP ports, or TCP connections at a time.
    clients: usize,
    /// Queries a second that were asked for; null when answers set the pace.
    rate: Option<f64>,
    /// The most queries on their way; null without a limit.
    window: Option<usize>,
    seconds: f64,
    sent: u64,
    answered: u64,
    lost: u64,
    doubled: u64,
    late: u64,
    wrong: u64,
    truncated: u64,
    refused: u64,
    unsent: u64,
    connections: u64,
    queries_per_second: f64,
    answers_per_second: f64,
    /// Mean octets of an answer.
    answer_octets: f64,
    rcodes: BTreeMap<String, u64>,
    latency_us: Latency,
    /// CPU time of this program a query sent, user and system; null where the system does not say.
    cpu_us_per_query: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ramp: Option<RampReport>,
}

/// How long answers took, in microseconds; zeros without any.
#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p999: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct RampReport {
    /// Queries a second of the best step; the rest of the report is about it.
    highest_rate: Option<f64>,
    steps: Vec<Step>,
}

impl Report {
    /// The report of a load.
    pub(crate) fn new(load: &Load, outcome: &Outcome) -> Report {
        let tally = &outcome.tally;
        let seconds = outcome.time.as_secs_f64();
        Report {
            server: load.server.to_string(),
            transport: match load.transport {
                Transport::Udp => "udp",
                Transport::Tcp { .. } => "tcp",
            },
            threads: load.n_threads,
            clients: load.n_ports,
            rate: load.rate,
            window: load.window,
            seconds,
            sent: tally.sent,
            answered: tally.answered,
            lost: tally.lost,
            doubled: tally.doubled,
            late: tally.late,
            wrong: tally.wrong,
            truncated: tally.truncated,
            refused: tally.refused,
            unsent: tally.unsent,
            connections: tally.connections,
            queries_per_second: outcome.a_second(tally.sent),
            answers_per_second: outcome.answers_a_second(),
            answer_octets: ratio(tally.answer_octets, tally.answered),
            rcodes: tally.named_rcodes().collect(),
            latency_us: Latency::of(outcome),
            cpu_us_per_query: outcome.cpu_us_a_query(),
            ramp: None,
        }
    }

    /// The report of a search: its best step, and all steps. `load` is what the steps had in common.
    pub(crate) fn of_ramp(load: &Load, ramp: Ramp) -> Report {
        let highest_rate = ramp.best.as_ref().map(|(rate, _)| *rate);
        let load = Load { rate: highest_rate, ..load.clone() };
        let nothing = Outcome::default();
        let mut report = Report::new(&load, ramp.best.as_ref().map_or(&nothing, |(_, outcome)| outcome));
        report.ramp = Some(RampReport { highest_rate, steps: ramp.steps });
        report
    }

    /// Whether the server answered at all.
    pub(crate) fn has_answers(&self) -> bool {
        self.answered > 0
    }

    /// The object as text.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    fn settings(&self) -> String {
        let ports = match self.transport {
            "udp" => "ports",
            _ => "connections",
        };
        let pace = match (self.rate, self.window) {
            (Some(rate), None) => format!("{rate:.0} queries a second"),
            (Some(rate), Some(window)) => {
                format!("{rate:.0} queries a second, at most {window} on their way")
            }
            (None, Some(window)) => format!("{window} queries on their way"),
            (None, None) => "as fast as it goes".to_owned(),
        };
        format!(
            "{} over {}, {} threads, {} {ports}, {pace}",
            self.server,
            self.transport.to_uppercase(),
            self.threads,
            self.clients
        )
    }
}

impl Latency {
    fn of(outcome: &Outcome) -> Latency {
        let latency = &outcome.tally.latency;
        let at = |quantile| in_us(latency.value_at_quantile(quantile));
        Latency {
            mean: latency.mean() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: in_us(latency.max()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most a minute in nanoseconds, far below 2^53")]
fn in_us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// The report for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings())?;
        if let Some(ramp) = &self.ramp {
            ramp.fmt(f)?;
        }
        writeln!(f)?;
        count(f, "sent", self.sent, None)?;
        count(f, "answered", self.answered, Some(self.sent))?;
        count(f, "lost", self.lost, Some(self.sent))?;
        count(f, "doubled", self.doubled, None)?;
        let rare = [
            ("wrong id or question", self.wrong),
            ("late", self.late),
            ("truncated", self.truncated),
            ("refused by the host", self.refused),
            ("due but not sent", self.unsent),
            ("connections", self.connections),
        ];
        for (what, n) in rare.into_iter().filter(|(_, n)| *n > 0) {
            count(f, what, n, None)?;
        }
        writeln!(f)?;
        for (rcode, n) in &self.rcodes {
            count(f, rcode, *n, Some(self.answered))?;
        }
        writeln!(f)?;
        writeln!(f, "  {:<22}{:>14.2} s", "time", self.seconds)?;
        writeln!(f, "  {:<22}{:>14}", "answers a second", grouped(whole(self.answers_per_second)))?;
        writeln!(f, "  {:<22}{:>14.0} octets", "mean answer", self.answer_octets)?;
        if let Some(cpu) = self.cpu_us_per_query {
            writeln!(f, "  {:<22}{cpu:>14.2} us a query", "CPU time of queryperf")?;
        }
        self.latency_us.fmt(f)
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { p50, p90, p99, p999, max, .. } = self;
        writeln!(
            f,
            "  latency in us         p50 {p50:.0}   p90 {p90:.0}   p99 {p99:.0}   p99.9 {p999:.0}   max {max:.0}"
        )
    }
}

impl fmt::Display for RampReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for step in &self.steps {
            let Step { rate, sent, lost, verdict, .. } = step;
            let loss = ratio(*lost, *sent) * 100.0;
            writeln!(f, "  {:>11} a second {loss:>9.3} % lost   {}", grouped(whole(*rate)), verdict.words())?;
        }
        match self.highest_rate {
            Some(rate) => writeln!(f, "\nhighest rate {} a second; at that rate:", grouped(whole(rate))),
            None => writeln!(f, "\nno rate is low enough"),
        }
    }
}

/// A line with a count, and its share of `whole`.
fn count(f: &mut fmt::Formatter<'_>, what: &str, n: u64, whole: Option<u64>) -> fmt::Result {
    let mut line = format!("  {what:<22}{:>14}", grouped(n));
    if let Some(whole) = whole {
        write!(line, " {:>9.3} %", ratio(n, whole) * 100.0)?;
    }
    writeln!(f, "{line}")
}

/// A count with its thousands set apart.
fn grouped(n: u64) -> String {
    // The type pays no heed to a width, a string does.
    HumanCount(n).to_string()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate; the cast saturates")]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}
