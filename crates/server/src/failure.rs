//! Why `weir` ends with exit code 1: one line for each thing that is wrong, each with what to do.

use std::fmt;

use tracing::error;

use crate::config::Mistake;
use crate::print;

/// The lines to show before exit code 1.
#[derive(Debug)]
pub(crate) struct Failure(Vec<String>);

impl Failure {
    /// One thing is wrong.
    pub(crate) fn new(line: impl fmt::Display) -> Failure {
        Failure(vec![line.to_string()])
    }

    /// Several things are wrong.
    pub(crate) fn of_lines<L: fmt::Display>(lines: impl IntoIterator<Item = L>) -> Failure {
        Failure(lines.into_iter().map(|line| line.to_string()).collect())
    }

    /// Shows the lines on standard error: in the log's form once there is a log, else as they are.
    pub(crate) fn report(&self) {
        for line in &self.0 {
            if tracing::dispatcher::has_been_set() {
                error!("{line}");
            } else {
                print::err(line);
            }
        }
    }
}

impl From<Vec<Mistake>> for Failure {
    fn from(mistakes: Vec<Mistake>) -> Failure {
        Failure::of_lines(mistakes)
    }
}
