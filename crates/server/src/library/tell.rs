//! What is logged of many zones: the first of each kind, then how many more there are.

use tracing::{error, info, warn};
use weir_zone::diagnostic::Diagnostic;

use super::Source;
use crate::print::count;

/// Zones up to which each has lines of its own, of each kind.
pub(super) const TOLD_ONE_BY_ONE: usize = 20;

/// Findings of one zone that are logged; `weir checkzone` shows them all.
const FINDINGS_TOLD: usize = 20;

/// Counts what is of one kind.
#[derive(Debug, Default)]
pub(super) struct Told(usize);

impl Told {
    /// Whether one more is to be told of.
    pub(super) fn next(&mut self) -> bool {
        self.0 += 1;
        self.0 <= TOLD_ONE_BY_ONE
    }

    /// As [`Told::next`] where `is_one` says that there is one more: not asked when it would not be told of.
    pub(super) fn next_if(&mut self, is_one: impl FnOnce() -> bool) -> bool {
        self.0 < TOLD_ONE_BY_ONE && is_one() && self.next()
    }

    /// How many were not told of, if there are any.
    fn n_more(&self) -> Option<usize> {
        self.0.checked_sub(TOLD_ONE_BY_ONE).filter(|n| *n > 0)
    }
}

/// What is told of one update.
#[derive(Debug, Default)]
pub(super) struct Telling {
    bad: Told,
    odd: Told,
    /// Zones that are gone.
    pub(super) removed: Told,
    /// Zones that changed under one serial; finding out costs a look at all their records.
    pub(super) same_serial: Told,
    problems: Told,
}

impl Telling {
    /// Logs names, doubles and folders that are wrong.
    pub(super) fn problems(&mut self, problems: &[String]) {
        for problem in problems {
            if self.problems.next() {
                error!("{problem}");
            }
        }
    }

    /// Logs what is wrong with a zone, errors first; of many findings, the first ones. Yields whether more may be said.
    pub(super) fn findings(&mut self, source: &Source, findings: &[Diagnostic]) -> bool {
        let (errors, warnings): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| finding.is_error());
        if findings.is_empty() {
            return true;
        }
        let kind = if errors.is_empty() { &mut self.odd } else { &mut self.bad };
        if !kind.next() {
            return false;
        }
        for finding in errors.into_iter().chain(warnings).take(FINDINGS_TOLD) {
            if finding.is_error() { error!("{finding}") } else { warn!("{finding}") }
        }
        if let Some(n_more) = findings.len().checked_sub(FINDINGS_TOLD).filter(|n| *n > 0) {
            let (origin, path) = (&source.origin, source.path.display());
            warn!("{} more: `weir checkzone {origin} {path}` lists all", count(n_more, "finding"));
        }
        true
    }

    /// Logs how many there are of what was not told one by one.
    pub(super) fn finish(&self) {
        if let Some(n) = self.problems.n_more() {
            error!("more is wrong with files or folders ({n}): `weir checkconf` lists it");
        }
        if let Some(n) = self.bad.n_more() {
            error!("{} bad: `weir checkconf` lists what is wrong", more(n));
        }
        if let Some(n) = self.odd.n_more() {
            warn!("{} odd: `weir checkconf` lists the warnings", more(n));
        }
        if let Some(n) = self.same_serial.n_more() {
            warn!("{} changed under the same serial", count(n, "more zone"));
        }
        if let Some(n) = self.removed.n_more() {
            info!("{} served no longer: the file is gone", more(n));
        }
    }
}

/// `1 more zone is`, `2 more zones are`.
fn more(n: usize) -> String {
    if n == 1 { "1 more zone is".to_owned() } else { format!("{n} more zones are") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_are_told_and_the_others_are_summed_up() {
        let mut told = Told::default();
        let n_told = (0..TOLD_ONE_BY_ONE).filter(|_| told.next()).count();
        assert_eq!((n_told, told.n_more()), (TOLD_ONE_BY_ONE, None));
        assert_eq!((told.next(), told.next(), told.n_more()), (false, false, Some(2)));
    }
}
