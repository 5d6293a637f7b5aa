//! What is shown while a load runs: a line a second, and on a terminal a bar below them. All of it on standard error.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::load::Load;
use crate::tally::Moment;

/// The display of one load after the other.
#[derive(Debug)]
pub(crate) struct Live {
    /// Time from one line to the next; `None` shows none.
    interval: Option<Duration>,
    on_terminal: bool,
    bar: Option<Bar>,
    last: (Duration, Moment),
}

impl Live {
    /// Lines every `interval`; without one, every second if standard error is a terminal. `quiet` shows nothing.
    pub(crate) fn new(interval: Option<Duration>, quiet: bool) -> Live {
        let on_terminal = stderr().is_terminal() && !quiet;
        let second = on_terminal.then_some(Duration::from_secs(1));
        let interval = if quiet { None } else { interval.or(second) };
        Live { interval, on_terminal, bar: None, last: Default::default() }
    }

    /// Prepares for `load`, which is called `title`.
    pub(crate) fn begin(&mut self, load: &Load, title: &str) {
        self.last = Default::default();
        self.bar = self.on_terminal.then(|| Bar::new(load, title));
    }

    /// Brings the display up to date.
    pub(crate) fn show(&mut self, start: Instant, now: Moment) {
        let elapsed = start.elapsed();
        if let Some(bar) = &self.bar {
            bar.advance(elapsed, now);
        }
        let (last_elapsed, last) = self.last;
        let since = elapsed.saturating_sub(last_elapsed);
        if self.interval.is_none_or(|interval| since < interval) {
            return;
        }
        self.last = (elapsed, now);
        let line = line(elapsed, since, last, now);
        match &self.bar {
            Some(bar) => bar.bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.bar.finish_and_clear();
        }
    }
}

#[derive(Debug)]
struct Bar {
    bar: ProgressBar,
    /// Whether it fills with the queries of the file, or with the time.
    by_queries: bool,
}

impl Bar {
    fn new(load: &Load, title: &str) -> Bar {
        let (length, by_queries) = match (load.n_queries, load.duration) {
            (Some(n_queries), None) => (n_queries, true),
            (_, duration) => (in_ms(duration.unwrap_or_default()), false),
        };
        let bar = ProgressBar::new(length).with_prefix(title.to_owned());
        // The template is constant; the style that comes with a bar would do as well.
        let bar = match ProgressStyle::with_template("{prefix} [{bar:40}] {percent:>3} % {msg}") {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            Err(_) => bar,
        };
        Bar { bar, by_queries }
    }

    fn advance(&self, elapsed: Duration, now: Moment) {
        self.bar.set_position(if self.by_queries { now.sent } else { in_ms(elapsed) });
        let sending = self.bar.length().is_some_and(|length| self.bar.position() < length);
        self.bar.set_message(if sending { "" } else { "waiting for answers" });
    }
}

fn in_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn line(elapsed: Duration, since: Duration, last: Moment, now: Moment) -> String {
    // As strings, since the type pays no heed to a width.
    let sent = HumanCount(a_second(now.sent - last.sent, since)).to_string();
    let answered = HumanCount(a_second(now.answered - last.answered, since)).to_string();
    let in_flight = HumanCount(now.sent.saturating_sub(now.answered + now.lost)).to_string();
    let lost = HumanCount(now.lost).to_string();
    let seconds = elapsed.as_secs_f64();
    format!(
        "{seconds:>6.1} s  {sent:>9} sent/s  {answered:>9} answered/s  {in_flight:>7} in flight  {lost:>7} lost"
    )
}

fn a_second(n: u64, since: Duration) -> u64 {
    let scaled = u128::from(n) * 1_000_000 / since.as_micros().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_rates_since_the_last_one_and_what_is_on_its_way() {
        let last = Moment { sent: 100, answered: 100, lost: 0 };
        let now = Moment { sent: 120_100, answered: 119_000, lost: 100 };
        let line = line(Duration::from_secs(4), Duration::from_secs(2), last, now);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["4.0", "s"]);
        assert_eq!(
            words[2..],
            ["60,000", "sent/s", "59,450", "answered/s", "1,000", "in", "flight", "100", "lost"]
        );
    }
}
