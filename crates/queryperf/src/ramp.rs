//! The highest rate at which next to nothing is lost: doubled until too much is, then halved in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::live::Live;
use crate::load::Load;
use crate::run::{self, Outcome};
use crate::tally::ratio;

/// The search ends when the lowest rate that failed is less than this above the highest that passed.
const PRECISION: f64 = 1.02;
/// Growth from step to step until one fails.
const GROWTH: f64 = 2.0;
/// The most steps: from 1,000 a second 17 doublings reach 131 million, and 6 halvings the precision.
const MOST_STEPS: usize = 24;
/// A step that loses less than this and is not good enough is tried again: a busy machine that stands still for a tenth
/// of a second loses that much of a step of a second.
const HICCUP: f64 = 0.1;
/// A step counts only when nearly all that was due was sent, else the client is measured, not the server.
const MOST_UNSENT: f64 = 0.01;

/// Where the search begins, and what is next to nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Queries a second of the first step.
    pub(crate) from: f64,
    /// The share of queries that may be lost, 0 to 1.
    pub(crate) most_lost: f64,
}

/// One rate that was tried.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    /// Queries a second that were to be sent.
    pub(crate) rate: f64,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    pub(crate) answers_per_second: f64,
    pub(crate) verdict: Verdict,
}

/// What came of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Passed,
    /// More was lost than may be.
    LostTooMuch,
    /// The client could not send as fast.
    ClientTooSlow,
}

impl Verdict {
    /// The verdict for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::LostTooMuch => "lost too much",
            Verdict::ClientTooSlow => "the client could not send as fast",
        }
    }
}

/// The highest rate that passed, if any did, and all that were tried.
#[derive(Debug)]
pub(crate) struct Ramp {
    pub(crate) best: Option<(f64, Outcome)>,
    pub(crate) steps: Vec<Step>,
}

/// Searches with loads like `load`, whose rate is set for each step.
pub(crate) fn climb(
    load: &Load,
    goal: Goal,
    stop: &Arc<AtomicBool>,
    live: &mut Live,
) -> anyhow::Result<Ramp> {
    let mut search = Search::new(goal.from);
    let mut ramp = Ramp { best: None, steps: Vec::new() };
    while let Some(rate) = search.next() {
        let load = Arc::new(Load { rate: Some(rate), ..load.clone() });
        live.begin(&load, &format!("{rate:.0}/s"));
        let outcome = run::run(&load, stop, live)?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let step = step_of(rate, &outcome, goal);
        let doubtful = outcome.tally.loss() < HICCUP;
        search.learn(rate, step.verdict == Verdict::Passed, doubtful);
        if step.verdict == Verdict::Passed && ramp.best.as_ref().is_none_or(|(best, _)| rate > *best) {
            ramp.best = Some((rate, outcome));
        }
        ramp.steps.push(step);
    }
    Ok(ramp)
}

fn step_of(rate: f64, outcome: &Outcome, goal: Goal) -> Step {
    let tally = &outcome.tally;
    let verdict = if tally.loss() > goal.most_lost || tally.answered == 0 {
        Verdict::LostTooMuch
    } else if ratio(tally.unsent, tally.sent + tally.unsent) > MOST_UNSENT {
        Verdict::ClientTooSlow
    } else {
        Verdict::Passed
    };
    Step {
        rate,
        sent: tally.sent,
        answered: tally.answered,
        lost: tally.lost,
        unsent: tally.unsent,
        answers_per_second: outcome.answers_a_second(),
        verdict,
    }
}

/// Which rate to try next.
#[derive(Debug)]
struct Search {
    next: f64,
    highest_passed: Option<f64>,
    lowest_failed: Option<f64>,
    /// Whether `next` failed once in a way that leaves a doubt.
    failed_once: bool,
    n_steps: usize,
}

impl Search {
    fn new(from: f64) -> Search {
        Search { next: from, highest_passed: None, lowest_failed: None, failed_once: false, n_steps: 0 }
    }

    fn next(&self) -> Option<f64> {
        let close = match (self.highest_passed, self.lowest_failed) {
            (Some(passed), Some(failed)) => failed / passed < PRECISION,
            // Nothing passes, not even a query a second.
            (None, Some(failed)) => failed <= 1.0,
            _ => false,
        };
        (!close && self.n_steps < MOST_STEPS).then_some(self.next)
    }

    /// Takes note of a step. One that failed and leaves a doubt is tried once more.
    fn learn(&mut self, rate: f64, passed: bool, doubtful: bool) {
        self.n_steps += 1;
        if !passed && doubtful && !self.failed_once {
            self.failed_once = true;
            return;
        }
        self.failed_once = false;
        if passed {
            self.highest_passed = Some(rate);
        } else {
            self.lowest_failed = Some(rate);
        }
        self.next = match (self.highest_passed, self.lowest_failed) {
            (Some(passed), Some(failed)) => (passed * failed).sqrt(),
            (Some(passed), None) => passed * GROWTH,
            (None, _) => (rate / GROWTH / GROWTH).max(1.0),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a search ends against a server that loses everything above `capacity`, and how many steps it took.
    fn found(from: f64, capacity: f64) -> (Option<f64>, usize) {
        let mut search = Search::new(from);
        while let Some(rate) = search.next() {
            search.learn(rate, rate <= capacity, true);
        }
        (search.highest_passed, search.n_steps)
    }

    #[test]
    fn the_search_ends_just_below_what_the_server_can_do() {
        for (from, capacity) in [(1000.0, 145_000.0), (1000.0, 1001.0), (100_000.0, 3000.0)] {
            let (best, n_steps) = found(from, capacity);
            let best = best.unwrap();
            assert!(best <= capacity && best * PRECISION >= capacity, "{best} for {capacity}");
            assert!(n_steps <= MOST_STEPS, "{n_steps}");
        }
    }

    #[test]
    fn a_server_that_answers_nothing_ends_the_search_without_a_rate() {
        assert_eq!(found(1000.0, 0.0).0, None);
    }

    #[test]
    fn a_rate_that_fails_once_is_tried_again_unless_there_is_no_doubt() {
        let mut search = Search::new(1000.0);
        search.learn(1000.0, false, true);
        assert_eq!(search.next(), Some(1000.0));
        search.learn(1000.0, true, true);
        assert_eq!(search.next(), Some(2000.0));
        search.learn(2000.0, false, false);
        assert!(search.next().unwrap() < 2000.0);
    }
}
