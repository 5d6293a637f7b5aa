//! A UDP worker: one pinned thread, one batch of memory, no lock, no allocation and no log line between receiving and
//! sending.
//!
//! The rhythm is: receive a batch, take one snapshot of the zones for all of it, answer each query straight into the
//! send buffer, send the batch; and every so often look after the counters and see whether it is time to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing::warn;
use weir_netio::affinity;
use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::drops::SocketMemory;
use weir_netio::event::EventFd;
use weir_netio::ingress::Ingress;
use weir_netio::udp::UdpEngine;

use crate::counters::{Counters, WorkerCounters};
use crate::log::Seldom;
use crate::responder::{Arrival, Responder, ResponderConfig, SharedZones, seconds_now};

/// The longest sleep without a query: how late a worker may notice that it has to stop.
const INTERVAL: Duration = Duration::from_millis(100);
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

    fn is_stopping(&self) -> bool {
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
    pub(crate) zones: SharedZones,
    /// What it counts.
    pub(crate) counters: Arc<Counters>,
    /// When it ends.
    pub(crate) stop: Arc<Stop>,
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
        let mut round = Round {
            ingress: Ingress::new(self.sockets, &self.stop.wake, INTERVAL)?,
            batch: Batch::new(BatchConfig { query_octets: MAX_QUERY_OCTETS, ..BatchConfig::default() }),
            responder: Responder::new(&self.responder),
            zones: &self.zones,
            counters,
        };
        let mut upkeep = Upkeep::new(&round.ingress);
        while !self.stop.is_stopping() {
            for _ in 0..BATCHES_BETWEEN_LOOKS {
                if round.run()? == 0 {
                    break;
                }
            }
            upkeep.when_due(&round, &self.counters);
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
    zones: &'w SharedZones,
    counters: &'w WorkerCounters,
}

impl Round<'_> {
    /// Receives a batch, answers it, sends the answers; yields how many queries there were.
    fn run(&mut self) -> io::Result<usize> {
        let n_queries = self.ingress.receive(&mut self.batch)?;
        if n_queries == 0 {
            return Ok(0);
        }
        self.counters.batches.add(1);
        self.answer_all(n_queries);
        let report = self.ingress.send(&mut self.batch)?;
        if report.dropped + report.failed > 0 {
            self.counters.send_dropped.add(report.dropped as u64);
            self.counters.send_failed.add(report.failed as u64);
        }
        Ok(n_queries)
    }

    fn answer_all(&mut self, n_queries: usize) {
        let zones = self.zones.load();
        let now = seconds_now();
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
            let n_octets = self.responder.answer(exchange.query, arrival, &zones, exchange.answer, counters);
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
    /// The kernel's drop counter of each socket when it was last read; it wraps at 2^32.
    drops_seen: Vec<u32>,
    /// Answers that found no room, when that was last looked at.
    send_dropped_seen: u64,
}

impl Upkeep {
    fn new(ingress: &Ingress) -> Upkeep {
        let drops_seen = vec![0; ingress.engines().len()];
        Upkeep { due: Instant::now() + UPKEEP_EVERY, drops_seen, send_dropped_seen: 0 }
    }

    fn when_due(&mut self, round: &Round<'_>, all: &Counters) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + UPKEEP_EVERY;
        self.read_kernel_drops(round, all);
        let send_dropped = round.counters.send_dropped.value();
        if send_dropped > self.send_dropped_seen && SEND_DROPS.is_due() {
            let total: u64 = all.workers.iter().map(|worker| worker.send_dropped.value()).sum();
            warn!("{total} answers since the start found no room in full send queues");
        }
        self.send_dropped_seen = send_dropped;
        round.responder.note_cache_size(&round.counters.answers);
    }

    fn read_kernel_drops(&mut self, round: &Round<'_>, all: &Counters) {
        let sockets = round.ingress.engines().iter().zip(&round.counters.kernel_drops);
        for ((engine, (_, counter)), seen) in sockets.zip(&mut self.drops_seen) {
            use std::os::fd::AsFd;
            // A kernel without the counter (before 4.13) leaves it at zero.
            let Ok(memory) = SocketMemory::read(engine.as_fd()) else { continue };
            let n_new = memory.drops.wrapping_sub(*seen);
            counter.add(u64::from(n_new));
            *seen = memory.drops;
            if n_new > 0 && KERNEL_DROPS.is_due() {
                let counters = all.workers.iter().flat_map(|worker| &worker.kernel_drops);
                let total: u64 = counters.map(|(_, drops)| drops.value()).sum();
                warn!(
                    "{total} queries since the start were dropped by the kernel because a listener's queue was full; \
                     raise ingress.receive_buffer and net.core.rmem_max, or use more workers"
                );
            }
        }
    }
}
