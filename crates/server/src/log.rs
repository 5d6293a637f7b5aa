//! Log lines on standard error, as text for people or as JSON for machines.
//!
//! Nothing is logged a packet: what happens often is counted (see [`crate::counters`]) and read at /metrics. Of what
//! should not happen at all, a [`Seldom`] lets one line a minute through. Logging never waits for whoever reads the log
//! (see [`queue`]).

use std::io::{self, IsTerminal, Write, stderr};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::{EnvFilter, fmt};
use weir_netio::event::is_writable;

use crate::config::{Level, Log, LogFormat};
use crate::print::escape_controls;

mod queue;

use self::queue::Queue;

/// The lines of this process; its subscriber is one as well.
static QUEUE: Queue = Queue::new();
/// Whether a thread writes them.
static HAS_THREAD: AtomicBool = AtomicBool::new(false);
/// How long the end of the process may wait for a slow reader of the log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Installs the subscriber for the whole process. A second call has no effect.
///
/// Until [`write()`] is called, whoever logs writes as well, as long as that takes no waiting: no thread may run while
/// rights are dropped.
pub(crate) fn start(config: &Log) {
    let level = match config.level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    // Libraries have their say when something is wrong; the chosen level is for our own lines.
    let filter = EnvFilter::new(format!("warn,weir={level}"));
    let base = fmt().with_env_filter(filter).with_target(false).with_timer(SystemTime);
    let base = base.log_internal_errors(false);
    let installed = match config.format {
        LogFormat::Text => {
            let colours = stderr().is_terminal();
            let writer = if colours { || Line { is_plain: false } } else { || Line { is_plain: true } };
            base.with_writer(writer).with_ansi(colours).try_init()
        }
        // JSON escapes what it quotes.
        LogFormat::Json => {
            let base = base.with_writer(|| Line { is_plain: false });
            base.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
        }
    };
    // Only a second subscriber in one process fails here; the first goes on.
    drop(installed);
}

/// Starts to write what was logged and what will be. A second call has no effect.
///
/// # Errors
/// There is no thread for it.
pub(crate) fn write() -> io::Result<()> {
    if HAS_THREAD.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let writer = std::thread::Builder::new().name("weir-log".to_owned());
    let started = writer.spawn(|| QUEUE.write_to(stderr(), tell_gap));
    HAS_THREAD.store(started.is_ok(), Ordering::Release);
    started.map(drop)
}

fn tell_gap(n_lines: u64) {
    warn!("{n_lines} log lines are missing here: they could not be written in time");
}

/// Writes what waits, for a moment: what the process says last should be read.
pub(crate) fn finish() {
    if QUEUE.flush(Duration::ZERO) {
        return;
    }
    match write() {
        Ok(()) => drop(QUEUE.flush(LAST_LINES)),
        // The process has no threads to spare; it is about to end, and nothing else waits.
        Err(_) => QUEUE.write_waiting(stderr(), tell_gap),
    }
}

/// Lines that could not be written in time, ever.
pub(crate) fn n_lines_dropped() -> u64 {
    QUEUE.n_dropped()
}

/// One event on its way to the queue: the formatter writes it whole.
struct Line {
    /// Control characters have no meaning in it, and could forge lines or drive a terminal.
    is_plain: bool,
}

impl Write for Line {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = if self.is_plain {
            let text = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(event));
            let mut line = escape_controls(&text).into_owned().into_bytes();
            line.push(b'\n');
            line
        } else {
            event.to_vec()
        };
        QUEUE.push(line);
        if !HAS_THREAD.load(Ordering::Acquire) {
            QUEUE.write_ready(stderr(), || is_writable(stderr().as_fd()));
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs a panic: the hook's own output would wait for whoever reads standard error.
pub(crate) fn panicked(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    error!("thread {}: {panic}", thread.name().unwrap_or("without a name"));
    let backtrace = std::backtrace::Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        backtrace.to_string().lines().for_each(|line| error!("{line}"));
    }
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
