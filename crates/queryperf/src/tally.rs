//! What was counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use weir_wire::header::Rcode;

use crate::flight::Verdict;

/// The longest latency that is told apart; a longer one counts as this.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// The counts of one thread, or of all of them.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Queries that the kernel took.
    pub(crate) sent: u64,
    /// Queries that had their answer in time.
    pub(crate) answered: u64,
    /// Queries without an answer in time.
    pub(crate) lost: u64,
    /// Further answers to queries that had theirs.
    pub(crate) doubled: u64,
    /// Answers to queries that were lost already.
    pub(crate) late: u64,
    /// Messages that answer nothing that was asked: another id, question or port, or not a response.
    pub(crate) wrong: u64,
    /// Answers with the TC bit.
    pub(crate) truncated: u64,
    /// Queries that were due and could not be sent in time.
    pub(crate) unsent: u64,
    /// Times that the server's host said that nobody listens, or a connection could not be made.
    pub(crate) refused: u64,
    /// TCP connections that were made.
    pub(crate) connections: u64,
    /// Octets of answers.
    pub(crate) answer_octets: u64,
    /// Answers by response code; the four bits of the header.
    pub(crate) rcodes: [u64; 16],
    /// Nanoseconds from a query's departure to the arrival of its answer.
    pub(crate) latency: Histogram<u64>,
    /// When the last answer arrived, in nanoseconds since the epoch; 0 without one.
    pub(crate) last_answer_ns: u64,
    /// Nanoseconds of CPU time; `None` when one of the threads does not know its own.
    pub(crate) cpu_ns: Option<u64>,
    /// Nanoseconds from the start to the end of sending.
    pub(crate) sending_ns: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::new()
    }
}

impl Tally {
    pub(crate) fn new() -> Tally {
        let latency = Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).unwrap_or_else(|_| unreachable!());
        Tally {
            sent: 0,
            answered: 0,
            lost: 0,
            doubled: 0,
            late: 0,
            wrong: 0,
            truncated: 0,
            unsent: 0,
            refused: 0,
            connections: 0,
            answer_octets: 0,
            rcodes: [0; 16],
            latency,
            last_answer_ns: 0,
            cpu_ns: Some(0),
            sending_ns: 0,
        }
    }

    /// Counts a message of `n_octets` that arrived at `arrived_ns`.
    #[inline]
    pub(crate) fn count(&mut self, verdict: Verdict, n_octets: usize, arrived_ns: u64) {
        match verdict {
            Verdict::Answered { rcode, truncated, sent_ns } => {
                self.answered += 1;
                self.truncated += u64::from(truncated);
                self.answer_octets += n_octets as u64;
                self.rcodes[usize::from(rcode.0 & 0x0f)] += 1;
                self.last_answer_ns = self.last_answer_ns.max(arrived_ns);
                // A clock that was set meanwhile may give a time below zero.
                self.latency.saturating_record(arrived_ns.saturating_sub(sent_ns));
            }
            Verdict::Doubled => self.doubled += 1,
            Verdict::Late => self.late += 1,
            Verdict::Wrong => self.wrong += 1,
        }
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.late += other.late;
        self.wrong += other.wrong;
        self.truncated += other.truncated;
        self.unsent += other.unsent;
        self.refused += other.refused;
        self.connections += other.connections;
        self.answer_octets += other.answer_octets;
        for (sum, n) in self.rcodes.iter_mut().zip(other.rcodes) {
            *sum += n;
        }
        // Both histograms have the same bounds.
        let _ = self.latency.add(&other.latency);
        self.last_answer_ns = self.last_answer_ns.max(other.last_answer_ns);
        self.cpu_ns = self.cpu_ns.zip(other.cpu_ns).map(|(sum, n)| sum + n);
        self.sending_ns = self.sending_ns.max(other.sending_ns);
    }

    /// The response codes that came, with their names and counts.
    pub(crate) fn named_rcodes(&self) -> impl Iterator<Item = (String, u64)> {
        (0_u16..).zip(self.rcodes).filter(|&(_, n)| n > 0).map(|(code, n)| {
            (Rcode(code).mnemonic().map_or_else(|| format!("RCODE{code}"), str::to_owned), n)
        })
    }

    /// The share of the queries sent that were lost, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        ratio(self.lost, self.sent)
    }
}

/// `part` of `whole`, 0 when there is no whole.
#[expect(clippy::cast_precision_loss, reason = "counts of queries, far below 2^53")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What others may see of a thread's counts while it works: written by the thread alone, once a turn.
#[derive(Debug, Default)]
pub(crate) struct Progress(CachePadded<[AtomicU64; 3]>);

/// Counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) lost: u64,
}

impl Progress {
    /// Shows the counts of `tally`.
    #[inline]
    pub(crate) fn show(&self, tally: &Tally) {
        for (cell, n) in self.0.iter().zip([tally.sent, tally.answered, tally.lost]) {
            cell.store(n, Ordering::Relaxed);
        }
    }

    /// The sum over all threads.
    pub(crate) fn sum(all: &[Progress]) -> Moment {
        all.iter().fold(Moment::default(), |sum, progress| {
            let [sent, answered, lost] = progress.0.each_ref().map(|cell| cell.load(Ordering::Relaxed));
            Moment { sent: sum.sent + sent, answered: sum.answered + answered, lost: sum.lost + lost }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_threads_add_up() {
        let mut one = Tally::new();
        let verdict = Verdict::Answered { rcode: Rcode::NXDOMAIN, truncated: true, sent_ns: 1_000 };
        one.count(verdict, 100, 51_000);
        one.count(Verdict::Doubled, 100, 0);
        let mut all = one.clone();
        all.add(&one);
        assert_eq!((all.answered, all.doubled, all.truncated, all.answer_octets), (2, 2, 2, 200));
        assert_eq!(all.named_rcodes().collect::<Vec<_>>(), [("NXDOMAIN".to_owned(), 2)]);
        assert_eq!(all.latency.len(), 2);
        assert!((49_950..=50_050).contains(&all.latency.max()), "{}", all.latency.max());
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_latency_below_zero() {
        let mut tally = Tally::new();
        let verdict = Verdict::Answered { rcode: Rcode::NOERROR, truncated: false, sent_ns: 9 };
        tally.count(verdict, 12, 5);
        assert_eq!(tally.latency.max(), 0);
    }
}
