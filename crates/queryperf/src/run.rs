//! Starts the threads of a load, watches over them, and adds up what they counted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::clock;
use crate::live::Live;
use crate::load::{Load, Share, Transport};
use crate::tally::{Progress, Tally, ratio};
use crate::tcp;
use crate::udp::Lane;

/// How often the display is brought up to date.
const LOOK: Duration = Duration::from_millis(100);
/// Between opening the sockets and the first query: time enough to start the threads.
const HEAD_START: Duration = Duration::from_millis(5);

/// What a load came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// From the first query to the last answer, or to the end of sending if that was later.
    pub(crate) time: Duration,
}

impl Outcome {
    /// Answers a second over the whole time.
    pub(crate) fn answers_a_second(&self) -> f64 {
        self.a_second(self.tally.answered)
    }

    /// `n` spread over the whole time.
    pub(crate) fn a_second(&self, n: u64) -> f64 {
        ratio(n, clock::in_ns(self.time)) * 1e9
    }

    /// Microseconds of CPU time a query sent; `None` when unknown, or without a query.
    pub(crate) fn cpu_us_a_query(&self) -> Option<f64> {
        let n_queries = Some(self.tally.sent).filter(|&sent| sent > 0)?;
        self.tally.cpu_ns.map(|cpu_ns| ratio(cpu_ns, n_queries) / 1000.0)
    }
}

/// Puts `load` on its server and waits for the end; `stop` ends it early.
pub(crate) fn run(load: &Arc<Load>, stop: &Arc<AtomicBool>, live: &mut Live) -> anyhow::Result<Outcome> {
    let progress: Arc<[Progress]> = (0..load.n_threads).map(|_| Progress::default()).collect();
    // A thousand sockets take some milliseconds: they are opened before the time starts.
    let crew = load.shares(stop).into_iter().map(Worker::prepare).collect::<anyhow::Result<Vec<Worker>>>()?;
    let start = Instant::now() + HEAD_START;
    let start_ns = clock::now_ns() + clock::in_ns(HEAD_START);
    let tally = watch(crew, start, &progress, live)?;
    let time = tally.sending_ns.max(tally.last_answer_ns.saturating_sub(start_ns));
    Ok(Outcome { tally, time: Duration::from_nanos(time) })
}

/// Starts the threads and collects their counts.
fn watch(
    crew: Vec<Worker>,
    start: Instant,
    progress: &Arc<[Progress]>,
    live: &mut Live,
) -> anyhow::Result<Tally> {
    let (results, inbox) = mpsc::channel();
    let n_threads = crew.len();
    for (number, worker) in crew.into_iter().enumerate() {
        let (results, progress) = (results.clone(), Arc::clone(progress));
        thread::Builder::new()
            .name(format!("queryperf-{number}"))
            .spawn(move || {
                thread::sleep(start.saturating_duration_since(Instant::now()));
                // The other end is gone only when another thread failed already.
                let _ = results.send(worker.run(start, number, &progress));
            })
            .context("cannot start a thread")?;
    }
    drop(results);
    let mut tally = Tally::new();
    let mut n_left = n_threads;
    while n_left > 0 {
        match inbox.recv_timeout(LOOK) {
            Ok(result) => {
                tally.add(&result?);
                n_left -= 1;
            }
            Err(RecvTimeoutError::Timeout) => live.show(start, Progress::sum(progress)),
            Err(RecvTimeoutError::Disconnected) => bail!("a thread ended without its counts"),
        }
    }
    live.finish();
    Ok(tally)
}

/// A thread's work before it starts.
enum Worker {
    Udp(Box<Lane>),
    Tcp(Share),
}

impl Worker {
    fn prepare(share: Share) -> anyhow::Result<Worker> {
        Ok(match share.load.transport {
            Transport::Udp => Worker::Udp(Box::new(Lane::open(share)?)),
            Transport::Tcp { .. } => Worker::Tcp(share),
        })
    }

    fn run(self, start: Instant, number: usize, progress: &Arc<[Progress]>) -> anyhow::Result<Tally> {
        let mut tally = match self {
            Worker::Udp(lane) => lane.run(start, &progress[number]),
            Worker::Tcp(share) => tcp::run(share, start, progress),
        }?;
        // The thread was started for this work alone.
        tally.cpu_ns = clock::thread_cpu_ns();
        Ok(tally)
    }
}
