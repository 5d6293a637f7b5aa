//! Log lines on standard error, as text for people or as JSON for machines.
//!
//! Nothing is logged a packet: what happens often is counted (see [`crate::counters`]) and read at /metrics. Of what
//! should not happen at all, a [`Seldom`] lets one line a minute through.

use std::io::{IsTerminal, stderr};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::info;
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Level, Log, LogFormat};

/// Installs the subscriber for the whole process. A second call has no effect.
pub(crate) fn start(config: &Log) {
    let level = match config.level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    // Libraries have their say when something is wrong; the chosen level is for our own lines.
    let filter = EnvFilter::new(format!("warn,weir={level}"));
    let base = fmt().with_env_filter(filter).with_writer(stderr).with_target(false).with_timer(SystemTime);
    let installed = match config.format {
        LogFormat::Text => base.with_ansi(stderr().is_terminal()).try_init(),
        LogFormat::Json => {
            base.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
        }
    };
    // Only a second subscriber in one process fails here; the first goes on.
    drop(installed);
}

/// Says where queries are answered: the line that people and scripts wait for.
pub(crate) fn listening(format: LogFormat, address: SocketAddr) {
    match format {
        LogFormat::Text => info!("listening on {address} udp+tcp"),
        LogFormat::Json => info!(%address, transports = "udp+tcp", "listening"),
    }
}

/// Says where metrics and health are served.
pub(crate) fn metrics(format: LogFormat, address: SocketAddr) {
    match format {
        LogFormat::Text => info!("metrics on http://{address}/metrics"),
        LogFormat::Json => info!(%address, "metrics"),
    }
}

/// Time between two lines about the same thing.
const SELDOM: Duration = Duration::from_secs(60);

/// Lets one line a minute through, whichever threads have something to say.
#[derive(Debug)]
pub(crate) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Nothing has been said yet.
    pub(crate) const fn new() -> Seldom {
        Seldom(Mutex::new(None))
    }

    /// Whether it is time for a line; whoever is told so has to write it.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due_at(Instant::now())
    }

    fn is_due_at(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= SELDOM);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_thing_is_said_at_once_and_then_once_a_minute() {
        let (seldom, start) = (Seldom::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let told: Vec<u64> = (0..=180).filter(|second| seldom.is_due_at(at(*second))).collect();
        assert_eq!(told, [0, 60, 120, 180]);
    }
}
