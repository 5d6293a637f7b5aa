//! A UDP worker: one pinned thread, one batch of memory, no lock, no allocation and no log line between receiving and
//! sending.
//!
//! The rhythm is: receive a batch, take one snapshot of the zones for all of it, answer each query straight into the
//! send buffer, send the batch; and every so often look after the counters and see whether it is time to stop.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use tracing::{info, warn};
use weir_netio::affinity;
use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::drops::SocketMemory;
use weir_netio::event::EventFd;
use weir_netio::ingress::Ingress;
use weir_netio::ring::Refused;
use weir_netio::udp::UdpEngine;

use crate::config::Experiment;
use crate::counters::{Counters, WorkerCounters};
use crate::fanout::{Door, Message};
use crate::log::Seldom;
use crate::pace::Pace;
use crate::responder::{Arrival, Responder, ResponderConfig, SharedServing, seconds_now};

/// The longest sleep without a query: how late a worker may notice that it has to stop.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same when a ring may be offered at any moment.
const INTERVAL_WITH_DOOR: Duration = Duration::from_millis(20);
/// How much later than asked for the nap of a worker with a ring may end.
const RING_TIMER_SLACK: Duration = Duration::from_micros(1);
/// How often kernel drops and the size of the cache are read.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);
/// Batches between two looks at the clock under load: at 64 queries of some 4 us each about 8 ms.
const BATCHES_BETWEEN_LOOKS: u32 = 32;
/// How long queries that arrived before the end are still answered, if they do not run out before.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Tells workers to stop.
#[derive(Debug)]
pub(crate) struct Stop {
    stopping: AtomicBool,
    wake: EventFd,
}

impl Stop {
    /// Nobody has to stop yet.
    pub(crate) fn new() -> io::Result<Stop> {
        Ok(Stop { stopping: AtomicBool::new(false), wake: EventFd::new()? })
    }

    /// Tells every worker to answer what has arrived and then to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        // It fails only when it was notified 2^64 times; workers look at the flag within INTERVAL anyway.
        let _ = self.wake.notify();
    }

    /// Whether to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// What a worker is made of.
pub(crate) struct Worker {
    /// Its number, which is the place of its counters.
    pub(crate) number: usize,
    /// Its sockets, one an address.
    pub(crate) sockets: Vec<UdpEngine>,
    /// How it answers.
    pub(crate) responder: ResponderConfig,
    /// What it answers from.
    pub(crate) serving: SharedServing,
    /// What it counts.
    pub(crate) counters: Arc<Counters>,
    /// When it ends.
    pub(crate) stop: Arc<Stop>,
    /// Where it is given a ring, when there are any; the watch then counts what the kernel drops.
    pub(crate) door: Option<Arc<Door>>,
    /// What slows it down, in experiments.
    pub(crate) experiment: Experiment,
}

impl Worker {
    /// Answers until told to stop.
    ///
    /// # Errors
    /// A socket is of no use any more: the server has to be started anew.
    pub(crate) fn run(self) -> io::Result<()> {
        let Some(counters) = self.counters.workers.get(self.number) else { return Ok(()) };
        if let Err(error) = affinity::pin_current_thread(counters.cpu) {
            warn!("worker {}: not pinned to CPU {}: {error}", self.number, counters.cpu);
        }
        let interval = if self.door.is_some() { INTERVAL_WITH_DOOR } else { INTERVAL };
        let pace = Pace::new(self.number, &self.experiment);
        let batch = BatchConfig { query_octets: MAX_QUERY_OCTETS, ..BatchConfig::default() };
        let mut round = Round {
            ingress: Ingress::new(self.sockets, &self.stop.wake, interval)?,
            batch: Batch::new(BatchConfig { capacity: pace.batch_capacity(batch.capacity), ..batch }),
            responder: Responder::new(&self.responder),
            serving: &self.serving,
            counters,
            pace,
        };
        let mut upkeep = Upkeep::new(&round.ingress, self.door.is_none());
        while !self.stop.is_stopping() {
            for _ in 0..BATCHES_BETWEEN_LOOKS {
                if let Some(door) = self.door.as_deref().filter(|door| door.is_knocking()) {
                    round.answer_the_door(door, self.number)?;
                }
                if round.run()? == 0 {
                    break;
                }
            }
            upkeep.when_due(&mut round, &self.counters);
        }
        round.drain()
    }
}

/// Octets kept of a query: those of a question, EDNS with cookies and a signature fit several times over (a name has
/// 255 octets, RFC 8945's TSIG some 150). Longer datagrams are cut and answered with FORMERR.
const MAX_QUERY_OCTETS: usize = 2048;

/// One worker's loop, a batch at a time.
struct Round<'w> {
    ingress: Ingress,
    batch: Batch,
    responder: Responder,
    serving: &'w SharedServing,
    counters: &'w WorkerCounters,
    pace: Pace,
}

impl Round<'_> {
    /// Takes a ring in, or empties the one there is and gives it back.
    fn answer_the_door(&mut self, door: &Door, number: usize) -> io::Result<()> {
        match door.open() {
            Some(Message::Offer(ring)) => {
                if let Err(error) = affinity::set_timer_slack(RING_TIMER_SLACK) {
                    warn!("worker {number}: naps are not punctual: {error}");
                }
                self.ingress.add_ring(ring)
            }
            Some(Message::Recall) => {
                self.empty_ring()?;
                self.count_refused();
                let ring = self.ingress.remove_ring()?;
                door.give_back(ring);
                Ok(())
            }
            Some(Message::Returned(_)) | None => Ok(()),
        }
    }

    /// Answers what is left in a ring that gets no more.
    fn empty_ring(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + DRAIN_LIMIT;
        while Instant::now() < deadline {
            match self.ingress.receive_left(&mut self.batch) {
                0 => break,
                n_queries => self.answer_and_send(n_queries)?,
            }
        }
        Ok(())
    }

    /// Adds what the ring refused since the last time to the counters.
    fn count_refused(&mut self) {
        let Refused { malformed, checksum, source } = self.ingress.take_refused();
        self.counters.frames_malformed.add(malformed);
        self.counters.frames_checksum.add(checksum);
        self.counters.frames_source.add(source);
    }

    /// Receives a batch, answers it, sends the answers; yields how many queries there were.
    fn run(&mut self) -> io::Result<usize> {
        let n_queries = self.ingress.receive(&mut self.batch)?;
        if n_queries == 0 {
            return Ok(0);
        }
        self.answer_and_send(n_queries)?;
        self.pace.after(n_queries);
        Ok(n_queries)
    }

    fn answer_and_send(&mut self, n_queries: usize) -> io::Result<()> {
        self.counters.batches.add(1);
        if self.ingress.is_from_ring() {
            self.counters.ring_queries.add(n_queries as u64);
        }
        self.answer_all(n_queries);
        let report = self.ingress.send(&mut self.batch)?;
        self.counters.joined.add(report.joined as u64);
        if report.dropped + report.failed > 0 {
            self.counters.send_dropped.add(report.dropped as u64);
            self.counters.send_failed.add(report.failed as u64);
        }
        Ok(())
    }

    fn answer_all(&mut self, n_queries: usize) {
        let serving = self.serving.load();
        let now = seconds_now();
        self.responder.prefetch((0..n_queries).map(|i| self.batch.query(i)), &serving);
        for i in 0..n_queries {
            let exchange = self.batch.exchange(i);
            if exchange.peer.port() == 0 {
                self.counters.port_zero.add(1);
                continue;
            }
            if exchange.truncated {
                self.counters.cut.add(1);
            }
            let arrival = Arrival { client: exchange.peer.ip(), now };
            let counters = &self.counters.answers;
            let n_octets =
                self.responder.answer(exchange.query, arrival, &serving, exchange.answer, counters);
            self.batch.answer(i, n_octets);
        }
    }

    /// Answers what has arrived until nothing is left, or the time for it is over.
    fn drain(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + DRAIN_LIMIT;
        while self.run()? > 0 && Instant::now() < deadline {}
        Ok(())
    }
}

/// Lines about what is lost, for all workers together.
static KERNEL_DROPS: Seldom = Seldom::new();
static SEND_DROPS: Seldom = Seldom::new();

/// What a worker does besides answering, once a second.
struct Upkeep {
    due: Instant,
    /// The kernel's drop counter of each socket when it was last read; it wraps at 2^32. `None`: the watch counts.
    drops_seen: Option<Vec<u32>>,
    /// Queries that the kernel dropped, and answers that found no room, when these were last looked at.
    kernel_dropped_seen: u64,
    send_dropped_seen: u64,
}

impl Upkeep {
    fn new(ingress: &Ingress, counts_drops: bool) -> Upkeep {
        Upkeep {
            due: Instant::now() + UPKEEP_EVERY,
            drops_seen: counts_drops.then(|| vec![0; ingress.engines().len()]),
            kernel_dropped_seen: 0,
            send_dropped_seen: 0,
        }
    }

    fn when_due(&mut self, round: &mut Round<'_>, all: &Counters) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + UPKEEP_EVERY;
        if let Some(drops_seen) = &mut self.drops_seen {
            count_drops(round, drops_seen);
        }
        self.tell_of_losses(round.counters, all);
        tell_of_refusal(round);
        round.count_refused();
        round.responder.note_cache_size(&round.counters.answers);
    }

    fn tell_of_losses(&mut self, own: &WorkerCounters, all: &Counters) {
        let of = |worker: &WorkerCounters| -> u64 {
            worker.kernel_drops.iter().map(|(_, drops)| drops.value()).sum()
        };
        let kernel_dropped = of(own);
        if kernel_dropped > self.kernel_dropped_seen && KERNEL_DROPS.is_due() {
            let total: u64 = all.workers.iter().map(|worker| of(worker)).sum();
            warn!(
                "{total} queries since the start were dropped by the kernel because a listener's queue was full; \
                 raise ingress.receive_buffer and net.core.rmem_max, or use more workers"
            );
        }
        self.kernel_dropped_seen = kernel_dropped;
        let send_dropped = own.send_dropped.value();
        if send_dropped > self.send_dropped_seen && SEND_DROPS.is_due() {
            let total: u64 = all.workers.iter().map(|worker| worker.send_dropped.value()).sum();
            warn!("{total} answers since the start found no room in full send queues");
        }
        self.send_dropped_seen = send_dropped;
    }
}

/// Said once, whichever worker finds out first.
static JOINING_REFUSED: Once = Once::new();

/// Answers that are not joined though they should be cost more, and nothing else shows it.
fn tell_of_refusal(round: &Round<'_>) {
    if let Some(engine) = round.ingress.engines().iter().find(|engine| engine.refuses_joined()) {
        JOINING_REFUSED.call_once(|| {
            info!("{}: answers leave one by one; the kernel refused joined ones", engine.address());
        });
    }
}

fn count_drops(round: &Round<'_>, drops_seen: &mut [u32]) {
    use std::os::fd::AsFd;
    let sockets = round.ingress.engines().iter().zip(&round.counters.kernel_drops);
    for ((engine, (_, counter)), seen) in sockets.zip(drops_seen) {
        // A kernel without the counter (before 4.13) leaves it at zero.
        if let Ok(memory) = SocketMemory::read(engine.as_fd()) {
            counter.add(u64::from(memory.drops.wrapping_sub(*seen)));
            *seen = memory.drops;
        }
    }
}
