//! What slows a worker down in experiments and tests: a limit of queries a second, and a stop.

use std::thread;
use std::time::{Duration, Instant};

use crate::config::{Experiment, Stall};

/// How far a worker that was kept from running may catch up.
const BURST: Duration = Duration::from_millis(20);
/// Batches a second of a limited worker: small ones, so that its work is spread evenly.
const BATCHES_A_SECOND: u32 = 1000;

/// A worker's pace; without an experiment none.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How long a query takes at the limit.
    a_query: Option<Duration>,
    /// When the next batch may be taken.
    next: Instant,
    stall: Option<Stall>,
    n_answered: u64,
}

impl Pace {
    /// The pace of worker `number`.
    pub(crate) fn new(number: usize, experiment: &Experiment) -> Pace {
        Pace {
            a_query: experiment.limit_worker_pps.map(|pps| Duration::from_secs(1) / pps.get()),
            next: Instant::now(),
            stall: experiment.stall.filter(|stall| stall.worker == number),
            n_answered: 0,
        }
    }

    /// Queries of a batch, where `usual` is the number without a limit.
    pub(crate) fn batch_capacity(&self, usual: usize) -> usize {
        let Some(a_query) = self.a_query else { return usual };
        let fits = (Duration::from_secs(1) / BATCHES_A_SECOND).as_nanos() / a_query.as_nanos().max(1);
        usize::try_from(fits).unwrap_or(usual).clamp(1, usual)
    }

    /// Sleeps as `n_queries` that were answered just now demand.
    #[inline]
    pub(crate) fn after(&mut self, n_queries: usize) {
        if self.a_query.is_some() || self.stall.is_some() {
            self.slow_down(n_queries);
        }
    }

    #[cold]
    fn slow_down(&mut self, n_queries: usize) {
        self.n_answered += n_queries as u64;
        if let Some(stall) = self.stall.filter(|stall| self.n_answered >= stall.after_queries) {
            self.stall = None;
            tracing::warn!(
                "worker {} stops for {:?}, as asked by --stall-worker",
                stall.worker,
                stall.duration
            );
            thread::sleep(stall.duration);
        }
        let Some(a_query) = self.a_query else { return };
        let now = Instant::now();
        let n_queries = u32::try_from(n_queries).unwrap_or(u32::MAX);
        self.next = self.next.max(now.checked_sub(BURST).unwrap_or(now)) + a_query * n_queries;
        if self.next > now {
            thread::sleep(self.next - now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn limited(pps: u32) -> Pace {
        Pace::new(0, &Experiment { limit_worker_pps: NonZeroU32::new(pps), ..Experiment::default() })
    }

    #[test]
    fn a_limited_worker_takes_as_long_as_its_limit_says() {
        let (mut pace, started) = (limited(10_000), Instant::now());
        for _ in 0..20 {
            pace.after(10);
        }
        // 20 ms of work; the first BURST of it may be caught up only by a worker that was kept from running.
        assert!(started.elapsed() >= Duration::from_millis(19), "{:?}", started.elapsed());
    }

    #[test]
    fn a_limited_worker_takes_small_batches() {
        assert_eq!(limited(8000).batch_capacity(64), 8);
        assert_eq!(limited(100).batch_capacity(64), 1);
        assert_eq!(limited(1_000_000).batch_capacity(64), 64);
        assert_eq!(Pace::new(0, &Experiment::default()).batch_capacity(64), 64);
    }
}
