//! When queries are due.

use std::time::{Duration, Instant};

/// How much of what is overdue is made up for. After a longer halt (the machine was busy) the rest would arrive as one
/// flood that nobody asked for; it is left out and counted instead.
pub(crate) const CATCH_UP: Duration = Duration::from_millis(20);

/// A rate held over the whole time: what one turn is late, the next makes up for.
#[derive(Debug)]
pub(crate) struct Pace {
    start: Instant,
    /// Queries a second.
    rate: f64,
    n_done: u64,
    n_left_out: u64,
}

impl Pace {
    /// `rate` queries a second from `start` on.
    pub(crate) fn new(rate: f64, start: Instant) -> Pace {
        Pace { start, rate, n_done: 0, n_left_out: 0 }
    }

    /// Queries that should have left by now and have not.
    #[inline]
    pub(crate) fn due(&mut self, now: Instant) -> usize {
        let wanted = whole(now.saturating_duration_since(self.start).as_secs_f64() * self.rate);
        let due = wanted.saturating_sub(self.n_done + self.n_left_out);
        let most = whole(CATCH_UP.as_secs_f64() * self.rate).max(1);
        if due > most {
            self.n_left_out += due - most;
        }
        usize::try_from(due.min(most)).unwrap_or(usize::MAX)
    }

    /// Takes note that `n` have left.
    #[inline]
    pub(crate) fn done(&mut self, n: usize) {
        self.n_done += n as u64;
    }

    /// Takes back that the last `n` have left.
    pub(crate) fn undo(&mut self, n: usize) {
        self.n_done = self.n_done.saturating_sub(n as u64);
    }

    /// How long from `now` until `n` are due.
    pub(crate) fn until(&self, n: usize, now: Instant) -> Duration {
        let seconds = as_float(self.n_done + self.n_left_out + n as u64) / self.rate;
        let at = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        at.saturating_sub(now.saturating_duration_since(self.start))
    }

    /// Queries that were left out because they could not be sent in time, those due at `end` included.
    pub(crate) fn n_left_out(&self, end: Instant) -> u64 {
        let wanted = whole(end.saturating_duration_since(self.start).as_secs_f64() * self.rate);
        wanted.saturating_sub(self.n_done)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of queries; the cast saturates"
)]
fn whole(n: f64) -> u64 {
    n as u64
}

#[expect(clippy::cast_precision_loss, reason = "a count of queries, far below 2^53")]
fn as_float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_turn_is_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(1000.0, start);
        assert_eq!(pace.due(start), 0);
        assert_eq!(pace.due(start + Duration::from_millis(3)), 3);
        pace.done(2);
        assert_eq!(pace.due(start + Duration::from_millis(10)), 8);
        assert_eq!(pace.until(3, start), Duration::from_millis(5));
    }

    #[test]
    fn after_a_halt_no_flood_follows_and_what_is_left_out_is_counted() {
        let start = Instant::now();
        let mut pace = Pace::new(1000.0, start);
        let end = start + Duration::from_secs(1);
        assert_eq!(pace.due(end), 20);
        pace.done(20);
        assert_eq!(pace.due(end), 0);
        assert_eq!(pace.n_left_out(end), 980);
    }

    #[test]
    fn a_slow_rate_is_kept_too() {
        let start = Instant::now();
        let mut pace = Pace::new(0.5, start);
        assert_eq!(pace.until(1, start), Duration::from_secs(2));
        assert_eq!(pace.due(start + Duration::from_secs(3)), 1);
    }
}
