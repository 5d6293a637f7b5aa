//! Log lines on standard error, as text for people or as JSON for machines.
//!
//! Nothing is logged a packet: what happens often is counted (see [`crate::counters`]) and read at /metrics.

use std::io::{IsTerminal, stderr};
use std::net::SocketAddr;

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
