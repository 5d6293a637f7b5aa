//! What is to be done, checked and complete; and the share of it that one thread has.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::order::{Order, Popularity, SplitMix};
use crate::pace::{CATCH_UP, Pace};
use crate::queries::Queries;

/// How queries travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    /// Over connections that are closed after so many queries; `None` keeps them.
    Tcp {
        queries_a_connection: Option<u64>,
    },
}

/// A load, ready to be put on a server.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) server: SocketAddr,
    pub(crate) transport: Transport,
    /// Addresses to ask from, in turn; empty leaves the choice to the routing table.
    pub(crate) locals: Vec<IpAddr>,
    pub(crate) n_threads: usize,
    /// UDP ports or TCP connections, over all threads; at least one a thread.
    pub(crate) n_ports: usize,
    /// The most queries on their way, over all threads; `None` sets no limit but the ids.
    pub(crate) window: Option<usize>,
    /// Queries a second over all threads; `None` sends as answers come.
    pub(crate) rate: Option<f64>,
    /// How long to send; `None` is until all queries are sent.
    pub(crate) duration: Option<Duration>,
    /// How many to send; `None` is until the time is over.
    pub(crate) n_queries: Option<u64>,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
    /// Octets of each socket's buffers.
    pub(crate) buffer_octets: usize,
    /// Queries that leave together.
    pub(crate) burst: usize,
    /// Queries in a row from one port.
    pub(crate) in_a_row: usize,
    pub(crate) queries: Arc<Queries>,
    /// `None` takes the file in turn.
    pub(crate) popularity: Option<Arc<Popularity>>,
    pub(crate) seed: u64,
}

/// What one thread of a load does.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) load: Arc<Load>,
    pub(crate) thread: usize,
    pub(crate) n_ports: usize,
    /// Ports of the threads before this one.
    pub(crate) first_port: usize,
    pub(crate) window: Option<usize>,
    pub(crate) supply: Supply,
}

impl Load {
    /// The share of each thread; `stop` ends all of them early.
    pub(crate) fn shares(self: &Arc<Self>, stop: &Arc<AtomicBool>) -> Vec<Share> {
        let n_threads = self.n_threads;
        let mut first_port = 0;
        (0..n_threads)
            .map(|thread| {
                let n_ports = part(self.n_ports, thread, n_threads).max(1);
                let share = Share {
                    load: Arc::clone(self),
                    thread,
                    n_ports,
                    first_port,
                    window: self.window.map(|window| part(window, thread, n_threads).max(1)),
                    supply: self.supply(thread, stop),
                };
                first_port += n_ports;
                share
            })
            .collect()
    }

    fn supply(&self, thread: usize, stop: &Arc<AtomicBool>) -> Supply {
        let order = match &self.popularity {
            Some(popularity) => Order::Zipf {
                popularity: Arc::clone(popularity),
                random: SplitMix::new(self.seed.wrapping_add(thread as u64)),
            },
            None => Order::in_turn(self.queries.len(), thread, self.n_threads),
        };
        let n_threads = u32::try_from(self.n_threads).unwrap_or(u32::MAX);
        Supply {
            order,
            rate: self.rate.map(|rate| rate / f64::from(n_threads)),
            duration: self.duration,
            pace: None,
            end: None,
            n_left: self.n_queries.map_or(u64::MAX, |n| part_64(n, thread as u64, self.n_threads as u64)),
            stop: Arc::clone(stop),
        }
    }

    /// The address that port number `port` asks from.
    pub(crate) fn local(&self, port: usize) -> Option<IpAddr> {
        self.locals.get(port.checked_rem(self.locals.len())?).copied()
    }
}

/// The part of `whole` that falls to number `i` of `n`: the parts differ by one at most and add up.
fn part(whole: usize, i: usize, n: usize) -> usize {
    whole / n + usize::from(i < whole % n)
}

fn part_64(whole: u64, i: u64, n: u64) -> u64 {
    whole / n + u64::from(i < whole % n)
}

/// The queries of one thread: which comes next, when, and until when.
#[derive(Debug)]
pub(crate) struct Supply {
    order: Order,
    /// Queries a second; `None` as answers come.
    rate: Option<f64>,
    duration: Option<Duration>,
    pace: Option<Pace>,
    end: Option<Instant>,
    n_left: u64,
    stop: Arc<AtomicBool>,
}

impl Supply {
    /// Lets the time run from `start` on.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.pace = self.rate.map(|rate| Pace::new(rate, start));
        self.end = self.duration.map(|duration| start + duration);
    }

    /// Queries a second of this thread; `None` when the answers alone set the pace.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// How many queries may be sent now, or `None` when there will be no more.
    #[inline]
    pub(crate) fn allowance(&mut self, now: Instant) -> Option<usize> {
        if self.n_left == 0 || self.is_stopped() {
            return None;
        }
        let left = usize::try_from(self.n_left).unwrap_or(usize::MAX);
        match self.end.filter(|&end| now >= end) {
            None => Some(self.pace.as_mut().map_or(left, |pace| pace.due(now).min(left))),
            Some(end) => self.overdue(end, now).map(|due| due.min(left)),
        }
    }

    /// Whether there is time left to send what was taken already.
    pub(crate) fn has_time(&self, now: Instant) -> bool {
        !self.is_stopped() && self.end.is_none_or(|end| now < end)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What was due when the time ended and has not left yet, for a moment.
    fn overdue(&mut self, end: Instant, now: Instant) -> Option<usize> {
        let in_time = now < end + CATCH_UP;
        self.pace.as_mut().filter(|_| in_time).map(|pace| pace.due(end)).filter(|&due| due > 0)
    }

    /// The next query.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        self.n_left = self.n_left.saturating_sub(1);
        if let Some(pace) = &mut self.pace {
            pace.done(1);
        }
        self.order.next()
    }

    /// Puts the last `n` back, which could not be sent.
    pub(crate) fn give_back(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        self.n_left = self.n_left.saturating_add(n as u64);
        if let Some(pace) = &mut self.pace {
            pace.undo(n);
        }
        self.order.give_back(n);
    }

    /// How long from `now` until `n` queries are due; `None` when the answers alone set the pace.
    pub(crate) fn until_due(&self, n: usize, now: Instant) -> Option<Duration> {
        let n = usize::try_from(self.n_left).unwrap_or(usize::MAX).min(n);
        self.pace.as_ref().map(|pace| pace.until(n, now))
    }

    /// Queries that were due by `now` and were not sent.
    pub(crate) fn n_left_out(&self, now: Instant) -> u64 {
        let end = self.end.map_or(now, |end| end.min(now));
        // What the file does not hold was never due.
        self.pace.as_ref().map_or(0, |pace| pace.n_left_out(end)).min(self.n_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_differ_by_one_at_most_and_add_up() {
        let parts: Vec<usize> = (0..4).map(|i| part(10, i, 4)).collect();
        assert_eq!(parts, [3, 3, 2, 2]);
        assert_eq!((0..7).map(|i| part_64(100, i, 7)).sum::<u64>(), 100);
    }

    fn supply(n_left: u64, rate: Option<f64>, start: Instant) -> Supply {
        let mut supply = Supply {
            order: Order::in_turn(3, 0, 1),
            rate,
            duration: Some(Duration::from_secs(1)),
            pace: None,
            end: None,
            n_left,
            stop: Arc::default(),
        };
        supply.begin(start);
        supply
    }

    #[test]
    fn a_supply_ends_with_its_queries_its_time_or_a_word() {
        let start = Instant::now();
        let mut counted = supply(2, None, start);
        assert_eq!(counted.allowance(start), Some(2));
        assert_eq!((counted.take(), counted.take()), (0, 1));
        assert_eq!(counted.allowance(start), None);
        counted.give_back(1);
        assert_eq!((counted.allowance(start), counted.take()), (Some(1), 1));

        let mut timed = supply(u64::MAX, None, start);
        assert!(timed.allowance(start).is_some());
        assert_eq!(timed.allowance(start + Duration::from_secs(1)), None);

        let mut paced = supply(u64::MAX, Some(1000.0), start);
        let after = start + Duration::from_millis(1001);
        assert_eq!(paced.allowance(after), Some(20), "what was due in time still leaves");
        assert_eq!(paced.allowance(after + CATCH_UP), None);
        (0..20).for_each(|_| _ = paced.take());
        assert_eq!(paced.allowance(after), None);
        assert_eq!(paced.n_left_out(after), 980);

        timed.stop.store(true, Ordering::Relaxed);
        assert_eq!(timed.allowance(start), None);
    }

    #[test]
    fn what_was_due_and_not_sent_is_left_out_but_not_what_was_never_there() {
        let start = Instant::now();
        let later = start + Duration::from_millis(500);
        let mut endless = supply(u64::MAX, Some(1000.0), start);
        for _ in 0..100 {
            endless.take();
        }
        assert_eq!(endless.n_left_out(later), 400);
        let mut short = supply(101, Some(1000.0), start);
        for _ in 0..100 {
            short.take();
        }
        assert_eq!(short.n_left_out(later), 1);
    }
}
