//! What is counted while queries are answered: plain numbers, one writer each, read at any moment by /metrics.
//!
//! A worker's counters lie in cache lines of their own, and it alone writes them: counting is a load and a store, no
//! locked instruction, no line that moves between cores.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use weir_wire::header::Rcode;

/// A number that only grows, or a level that one thread keeps up to date.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only for the one thread that owns the counter: two would lose each other's additions.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds `n`, whatever other threads do.
    pub(crate) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes `n` away, whatever other threads do.
    pub(crate) fn subtract_shared(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    /// Replaces the number.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number.
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Response codes that have a counter of their own, by number; a last one takes all others.
const N_RCODES: usize = 24;

/// What became of the queries of one thread.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounters {
    /// Messages received.
    pub(crate) queries: Counter,
    /// Messages that got no answer on purpose: responses, and what has no whole header.
    pub(crate) silenced: Counter,
    /// Queries that got no answer because there was no room for one.
    pub(crate) no_room: Counter,
    /// Answers by response code; the last is for codes past the table.
    by_rcode: [Counter; N_RCODES + 1],
    /// Answers that came from the cache.
    pub(crate) cache_hits: Counter,
    /// Answers that were looked for in the cache and not found.
    pub(crate) cache_misses: Counter,
    /// Answers in the cache, as of the last look.
    pub(crate) cache_entries: Counter,
    /// Octets in the cache, as of the last look.
    pub(crate) cache_octets: Counter,
    /// Answers that left the cache to make room, as of the last look.
    pub(crate) cache_evictions: Counter,
}

impl AnswerCounters {
    /// Counts an answer.
    #[inline]
    pub(crate) fn answered(&self, rcode: Rcode) {
        if let Some(counter) = self.by_rcode.get(usize::from(rcode.0).min(N_RCODES)) {
            counter.add(1);
        }
    }

    /// Answers by the name of their response code, those that were given at least once.
    pub(crate) fn by_rcode(&self) -> impl Iterator<Item = (String, u64)> {
        let codes = (0u16..).map(|number| match Rcode(number).mnemonic() {
            Some(mnemonic) => mnemonic.to_owned(),
            None if usize::from(number) == N_RCODES => "OTHER".to_owned(),
            None => format!("RCODE{number}"),
        });
        codes.zip(&self.by_rcode).map(|(name, counter)| (name, counter.value())).filter(|(_, n)| *n > 0)
    }
}

/// What one UDP worker counts besides its answers.
#[derive(Debug)]
pub(crate) struct WorkerCounters {
    /// The CPU that the worker runs on.
    pub(crate) cpu: usize,
    /// Queries and answers.
    pub(crate) answers: AnswerCounters,
    /// Batches received.
    pub(crate) batches: Counter,
    /// Datagrams from source port 0, which cannot be answered.
    pub(crate) port_zero: Counter,
    /// Datagrams longer than a query may be: they were cut, and answered with FORMERR.
    pub(crate) cut: Counter,
    /// Queries that came by a ring.
    pub(crate) ring_queries: Counter,
    /// Frames from a ring that are no plain datagram, whatever the filter thought.
    pub(crate) frames_malformed: Counter,
    /// Frames from a ring with a wrong checksum.
    pub(crate) frames_checksum: Counter,
    /// Frames from a ring whose source nobody may send from.
    pub(crate) frames_source: Counter,
    /// Answers that left in one message with others.
    pub(crate) joined: Counter,
    /// Answers that the kernel had no room for.
    pub(crate) send_dropped: Counter,
    /// Answers that the kernel refused for their destination.
    pub(crate) send_failed: Counter,
    /// For each listener: its address, and the datagrams that the kernel dropped because its queue was full.
    pub(crate) kernel_drops: Vec<(SocketAddr, Counter)>,
}

impl WorkerCounters {
    /// Counters at zero for a worker on `cpu` with sockets on `addresses`.
    pub(crate) fn new(cpu: usize, addresses: impl Iterator<Item = SocketAddr>) -> WorkerCounters {
        WorkerCounters {
            cpu,
            answers: AnswerCounters::default(),
            batches: Counter::default(),
            port_zero: Counter::default(),
            cut: Counter::default(),
            ring_queries: Counter::default(),
            frames_malformed: Counter::default(),
            frames_checksum: Counter::default(),
            frames_source: Counter::default(),
            joined: Counter::default(),
            send_dropped: Counter::default(),
            send_failed: Counter::default(),
            kernel_drops: addresses.map(|address| (address, Counter::default())).collect(),
        }
    }
}

/// The packet fanout; written by the thread that watches it.
#[derive(Debug, Default)]
pub(crate) struct FanoutCounters {
    /// 1 when the fanout could be engaged.
    pub(crate) available: Counter,
    /// 1 while rings answer.
    pub(crate) engaged: Counter,
    /// How often rings took over.
    pub(crate) engagements: Counter,
    /// Frames that rolled over from a full ring to another.
    pub(crate) rolled_over: Counter,
    /// Of these, frames of a flow that fills its ring alone.
    pub(crate) rolled_over_huge: Counter,
    /// Frames for which no ring had room.
    pub(crate) rollover_failed: Counter,
    /// Frames that were lost to a full ring.
    pub(crate) dropped: Counter,
}

/// What DNS over TCP counts; written by several threads.
#[derive(Debug, Default)]
pub(crate) struct TcpCounters {
    /// Connections accepted.
    pub(crate) accepted: Counter,
    /// Connections that are open now.
    pub(crate) open: Counter,
    /// Connections closed by the client, or at the end of the server.
    pub(crate) closed: Counter,
    /// Connections closed because no query came in time.
    pub(crate) timed_out: Counter,
    /// Connections closed because they had been idle longest when the cap was reached.
    pub(crate) evicted: Counter,
    /// Connections closed because they held most when the memory for slow clients was used up.
    pub(crate) out_of_memory: Counter,
    /// Connections closed because the client did not take its answers, or sent what is no DNS message.
    pub(crate) failed: Counter,
    /// Connections that could not be accepted.
    pub(crate) accept_errors: Counter,
}

/// The zones as a whole.
#[derive(Debug, Default)]
pub(crate) struct ZoneCounters {
    /// Zones that are served.
    pub(crate) ready: Counter,
    /// Zones that could not be loaded and answer SERVFAIL.
    pub(crate) broken: Counter,
    /// Zones that are not loaded yet and answer SERVFAIL.
    pub(crate) loading: Counter,
    /// Number of the zone set that is served, from 1.
    pub(crate) generation: Counter,
    /// Reloads that ended without an error.
    pub(crate) reloads: Counter,
    /// Reloads after which something kept its old data.
    pub(crate) failed_reloads: Counter,
}

/// How far the server is, for those who decide whether queries are sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Readiness {
    /// Zones are being loaded; those that are ready answer.
    Loading,
    /// Every zone answers that can.
    Ready,
    /// What is in flight is answered, and no more.
    Stopping,
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Counters {
    /// One for each UDP worker.
    pub(crate) workers: Vec<CachePadded<WorkerCounters>>,
    /// One for each thread that answers over TCP.
    pub(crate) tcp_answers: Vec<CachePadded<AnswerCounters>>,
    /// The packet fanout.
    pub(crate) fanout: FanoutCounters,
    /// Connections.
    pub(crate) tcp: TcpCounters,
    /// Zones.
    pub(crate) zones: ZoneCounters,
    /// A [`Readiness`].
    readiness: AtomicU8,
}

impl Counters {
    /// Counters at zero.
    pub(crate) fn new(workers: Vec<WorkerCounters>, n_tcp_threads: usize) -> Counters {
        Counters {
            workers: workers.into_iter().map(CachePadded::new).collect(),
            tcp_answers: (0..n_tcp_threads).map(|_| CachePadded::default()).collect(),
            fanout: FanoutCounters::default(),
            tcp: TcpCounters::default(),
            zones: ZoneCounters::default(),
            readiness: AtomicU8::new(Readiness::Loading as u8),
        }
    }

    /// How far the server is.
    pub(crate) fn readiness(&self) -> Readiness {
        let all = [Readiness::Loading, Readiness::Ready];
        let number = self.readiness.load(Ordering::Acquire);
        all.into_iter().find(|readiness| *readiness as u8 == number).unwrap_or(Readiness::Stopping)
    }

    /// Says how far the server is.
    pub(crate) fn set_readiness(&self, readiness: Readiness) {
        self.readiness.store(readiness as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_under_the_name_of_their_code() {
        let counters = AnswerCounters::default();
        for rcode in [0, 0, 3, 16, 15, 4095] {
            counters.answered(Rcode(rcode));
        }
        let counted: Vec<_> = counters.by_rcode().collect();
        let expected = [("NOERROR", 2), ("NXDOMAIN", 1), ("RCODE15", 1), ("BADVERS", 1), ("OTHER", 1)];
        assert_eq!(counted, expected.map(|(name, n)| (name.to_owned(), n)));
    }
}
