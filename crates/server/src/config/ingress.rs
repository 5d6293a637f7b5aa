//! How UDP queries reach the workers: section `[ingress]`, and what experiments set.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::{Octets, Span};

/// Section `[ingress]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ingress {
    /// The engine that receives.
    pub(crate) mode: IngressMode,
    /// How the kernel chooses a worker.
    pub(crate) steer: Steer,
    /// Receive buffer asked of the kernel for each UDP socket.
    pub(crate) receive_buffer: Octets,
    /// Whether answers of one length to one client port leave as one message.
    pub(crate) join_answers: bool,
    /// How long a worker without a query looks at the device's queue before it sleeps.
    pub(crate) busy_poll: Span,
    /// Whether `auto` may engage the packet fanout.
    pub(crate) fanout: Switch,
    /// Names of the interfaces whose queries rings may take; none means all that suit.
    #[serde(deserialize_with = "interfaces")]
    pub(crate) interfaces: Vec<String>,
    /// How answers to queries from rings leave.
    pub(crate) answers: AnswerWay,
    /// The part of a queue from which on it is overloaded.
    #[serde(deserialize_with = "part")]
    pub(crate) engage_fill: f64,
    /// The part of a queue up to which it has room.
    #[serde(deserialize_with = "part")]
    pub(crate) engage_spare: f64,
    /// How long rings must do without rollover before sockets answer again.
    pub(crate) release_after: Span,
}

impl Default for Ingress {
    fn default() -> Ingress {
        Ingress {
            mode: IngressMode::Auto,
            steer: Steer::Hash,
            // 4 MiB hold about 5,000 queries of 830 octets of kernel memory: 40 ms of a flood of 120,000 a second.
            receive_buffer: Octets(4 << 20),
            join_answers: true,
            busy_poll: Span(Duration::ZERO),
            fanout: Switch::On,
            interfaces: Vec::new(),
            answers: AnswerWay::Link,
            // While a queue is drained its fill reads up to a quarter too high: three quarters are at least half.
            engage_fill: 0.75,
            engage_spare: 0.5,
            release_after: Span(Duration::from_secs(5)),
        }
    }
}

/// How UDP queries reach the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IngressMode {
    /// Sockets, and packet rings while one worker is overloaded and others have room.
    Auto,
    /// One UDP socket a worker and address, joined by SO_REUSEPORT.
    Reuseport,
    /// One packet ring a worker.
    Ring,
}

impl IngressMode {
    /// The word that selects it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            IngressMode::Auto => "auto",
            IngressMode::Reuseport => "reuseport",
            IngressMode::Ring => "ring",
        }
    }
}

impl FromStr for IngressMode {
    type Err = String;

    fn from_str(text: &str) -> Result<IngressMode, String> {
        match text {
            "auto" => Ok(IngressMode::Auto),
            "reuseport" => Ok(IngressMode::Reuseport),
            "ring" => Ok(IngressMode::Ring),
            _ => Err(format!("`{text}` is not an ingress; use auto, reuseport or ring")),
        }
    }
}

/// How the kernel chooses the worker of a UDP query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steer {
    /// By a hash over addresses and ports: a client port stays with one worker.
    Hash,
    /// To the worker on the CPU that received the packet.
    Cpu,
}

impl FromStr for Steer {
    type Err = String;

    fn from_str(text: &str) -> Result<Steer, String> {
        match text {
            "hash" => Ok(Steer::Hash),
            "cpu" => Ok(Steer::Cpu),
            _ => Err(format!("`{text}` is not a way to steer; use hash or cpu")),
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Used when it is needed.
    On,
    /// Never used.
    Off,
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Switch, String> {
        match text {
            "on" => Ok(Switch::On),
            "off" => Ok(Switch::Off),
            _ => Err(format!("`{text}` is neither on nor off")),
        }
    }
}

/// How answers to queries from rings leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerWay {
    /// On the link, back to where the query came from.
    Link,
    /// By the UDP socket: routing table, firewall and queueing discipline see them.
    Socket,
}

impl FromStr for AnswerWay {
    type Err = String;

    fn from_str(text: &str) -> Result<AnswerWay, String> {
        match text {
            "link" => Ok(AnswerWay::Link),
            "socket" => Ok(AnswerWay::Socket),
            _ => Err(format!("`{text}` is not a way for answers; use link or socket")),
        }
    }
}

/// Reads names of interfaces, at least one: without any, rings would have nothing to do.
fn interfaces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    if names.is_empty() {
        return Err(de::Error::custom(
            "name at least one interface, or leave `interfaces` out for all; \
             `fanout = \"off\"` or `mode = \"reuseport\"` do without rings",
        ));
    }
    // dev_valid_name in net/core/dev.c.
    let is_wrong = |name: &&String| {
        !(1..=15).contains(&name.len()) || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
    };
    match names.iter().find(is_wrong) {
        Some(wrong) => Err(de::Error::custom(format!(
            "`{wrong}` is not the name of an interface: 1 to 15 octets without slash, colon or space"
        ))),
        None => Ok(names),
    }
}

/// Reads a number from 0 to 1.
fn part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match f64::deserialize(deserializer) {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err(de::Error::custom("write a part of the queue from 0.0 to 1.0")),
    }
}

/// What experiments and tests set by flags that the help does not show; not in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Experiment {
    /// Queries that a worker answers in a second at most.
    pub(crate) limit_worker_pps: Option<NonZeroU32>,
    /// A worker that stops for a while.
    pub(crate) stall: Option<Stall>,
    /// Whether frames roll over from a full ring to another.
    pub(crate) rollover: bool,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment { limit_worker_pps: None, stall: None, rollover: true }
    }
}

/// A worker that stops for a while, once: `WORKER:QUERIES:DURATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// Its number.
    pub(crate) worker: usize,
    /// How many queries it answers before.
    pub(crate) after_queries: u64,
    /// How long it stops.
    pub(crate) duration: Duration,
}

impl FromStr for Stall {
    type Err = String;

    fn from_str(text: &str) -> Result<Stall, String> {
        let read = || {
            let mut fields = text.splitn(3, ':');
            let worker = fields.next()?.parse().ok()?;
            let after_queries = fields.next()?.parse().ok()?;
            let Span(duration) = fields.next()?.parse().ok()?;
            Some(Stall { worker, after_queries, duration })
        };
        read().ok_or_else(|| format!("`{text}` is not a stall; write it like 0:1000:2s"))
    }
}
