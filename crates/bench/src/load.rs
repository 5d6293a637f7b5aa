//! Puts a load on the server with `queryperf` and reads what it says.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::net::{self, Net};
use crate::shell;
use crate::workload::{Case, Transport};

/// How long a query may take before it counts as lost and frees its place: longer than any queue of these servers.
const TIMEOUT_SECONDS: &str = "2";

/// What queryperf counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) lost: u64,
    pub(crate) wrong: u64,
    pub(crate) answers_per_second: f64,
    pub(crate) answer_octets: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Shares of the answers.
    pub(crate) noerror: f64,
    pub(crate) nxdomain: f64,
}

/// A load to be put on the server: how, how long, how fast.
#[derive(Clone, Debug)]
pub(crate) struct Load<'a> {
    pub(crate) queryperf: &'a Path,
    pub(crate) queries: &'a Path,
    pub(crate) case: Case,
    pub(crate) duration: Duration,
    /// Queries a second; `None` is as fast as answers come.
    pub(crate) rate: Option<f64>,
}

impl Load<'_> {
    /// Puts it on the server from the client's namespace and CPU.
    pub(crate) fn run(&self, net: &Net) -> anyhow::Result<Counted> {
        let mut command = net.client(&self.queryperf.to_string_lossy());
        self.arguments(&mut command);
        Counted::read(&shell::finish(&mut command)?)
    }

    /// As [`Load::run`], with two threads on the CPUs of a list.
    pub(crate) fn run_on(&self, net: &Net, cpus: &str) -> anyhow::Result<Counted> {
        let mut command = net.client_on(cpus, &self.queryperf.to_string_lossy());
        self.arguments(&mut command);
        Counted::read(&shell::finish(command.args(["-T", "2"]))?)
    }

    /// queryperf's arguments.
    fn arguments(&self, command: &mut Command) {
        command.args(["-s", net::SERVER, "-p", &net::PORT.to_string(), "--json", "--quiet"]);
        command.arg("-d").arg(self.queries);
        command.args(["-l", &self.duration.as_secs_f64().to_string(), "-t", TIMEOUT_SECONDS]);
        let (mode, clients, outstanding) = match self.case.transport {
            Transport::Udp64 => ("udp", "64", "2048"),
            Transport::Udp1000 => ("udp", "1000", "2000"),
            Transport::Tcp => ("tcp", "100", "1000"),
            Transport::TcpConn => ("tcp", "64", "64"),
        };
        command.args(["-m", mode, "-c", clients]);
        match self.case.transport {
            Transport::Udp64 => {
                command.args(["--in-a-row", "16"]);
            }
            // Many clients: no bursts from one port.
            Transport::Udp1000 => {
                command.args(["--in-a-row", "1"]);
            }
            Transport::Tcp | Transport::TcpConn => {}
        }
        match self.rate {
            Some(rate) => command.args(["-Q", &format!("{rate:.0}")]),
            None => command.args(["-q", outstanding]),
        };
        if self.case.transport == Transport::TcpConn {
            command.args(["--queries-per-conn", "1", "-a", &net::client_addresses().join(",")]);
        }
        if self.case.workload.is_signed() {
            command.arg("-D");
        } else if self.case.workload.has_edns() {
            command.arg("-e");
        }
    }
}

impl Counted {
    /// Reads queryperf's JSON object.
    pub(crate) fn read(text: &str) -> anyhow::Result<Counted> {
        let report: Value =
            serde_json::from_str(text).with_context(|| format!("queryperf wrote:\n{text}"))?;
        let whole = |key: &str| report[key].as_u64().with_context(|| format!("queryperf gives no {key}"));
        let number = |value: &Value, key: &str| {
            value[key].as_f64().with_context(|| format!("queryperf gives no {key}"))
        };
        let answered = whole("answered")?;
        #[expect(clippy::cast_precision_loss, reason = "counts of seconds stay far below 2^53")]
        let share =
            |rcode: &str| report["rcodes"][rcode].as_u64().unwrap_or(0) as f64 / answered.max(1) as f64;
        Ok(Counted {
            sent: whole("sent")?,
            answered,
            lost: whole("lost")?,
            wrong: whole("wrong")?,
            answers_per_second: number(&report, "answers_per_second")?,
            answer_octets: number(&report, "answer_octets")?,
            p50_us: number(&report["latency_us"], "p50")?,
            p99_us: number(&report["latency_us"], "p99")?,
            noerror: share("NOERROR"),
            nxdomain: share("NXDOMAIN"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read_key_by_key() {
        let text = r#"{"sent": 10, "answered": 8, "lost": 2, "wrong": 0, "answers_per_second": 4.5, "answer_octets": 60.0,
            "rcodes": {"NOERROR": 6, "NXDOMAIN": 2}, "latency_us": {"p50": 1.0, "p99": 2.0}}"#;
        let counted = Counted::read(text).unwrap();
        assert_eq!((counted.answered, counted.noerror, counted.nxdomain), (8, 0.75, 0.25));
        assert!(Counted::read("{}").is_err());
    }
}
