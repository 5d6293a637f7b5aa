//! What was found: counts, and the first differences of each kind in full.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_testkit::compare::{self, Case, Verdict};
use weir_testkit::message::{Answer, Query};
use weir_testkit::questions::Zone;
use weir_testkit::rival::Kind;

/// Differences of one kind that are shown in full; the others are counted.
const SHOWN: usize = 3;

/// What the columns of [`Tally::row`] are: with how many rivals Weir's answer agrees to the letter of the policy, and,
/// behind the bar, when differences that docs/RFC.md explains count as agreement.
pub(crate) const HEAD: &str = "zone                          asked      all      two      one     none |      all      two      one     none\n";

/// Counts of a number of questions.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) asked: usize,
    /// How many questions got Weir's answer from so many rivals.
    same: [usize; 4],
    /// The same, or one that a rule excuses.
    agreeing: [usize; 4],
    /// How often each rule was needed, for which rival.
    excused: BTreeMap<(&'static str, &'static str), usize>,
    /// For answers that are unlike those of all rivals: how often, by the rules that explain each rival's.
    alone: BTreeMap<String, usize>,
    /// The differences without a reason: rival and parts, how often, and the first of them in full.
    differences: BTreeMap<String, (usize, String)>,
}

/// A question and the zone that it is about.
pub(crate) type Asked<'z> = (&'z Zone, Query);

impl Tally {
    /// Compares the first server's answers with each other's.
    pub(crate) fn judge(
        &mut self,
        asked: &[Asked<'_>],
        answers: &[Vec<Answer>],
        room: impl Fn(&Query) -> usize,
    ) {
        self.asked += asked.len();
        for (i, (zone, query)) in asked.iter().enumerate() {
            let ours = &answers[0][i];
            let (mut same, mut agreeing) = (0, 0);
            let mut why = Vec::new();
            for (rival, theirs) in Kind::ALL.into_iter().zip(&answers[1..]) {
                let case = Case { zone, query, ours, theirs: &theirs[i], rival, room: room(query) };
                match compare::compare(&case) {
                    Verdict::Same => (same, agreeing) = (same + 1, agreeing + 1),
                    Verdict::Excused(rules) => {
                        agreeing += 1;
                        let mut named = rules.clone();
                        named.dedup();
                        why.push(format!("{}: {}", rival.name(), named.join(" + ")));
                        for rule in rules {
                            *self.excused.entry((rule, rival.name())).or_default() += 1;
                        }
                    }
                    Verdict::Different(parts) => self.note(&case, &format!("{} {parts:?}", rival.name())),
                }
            }
            if same == 0 && agreeing == Kind::ALL.len() {
                *self.alone.entry(why.join(", ")).or_default() += 1;
            }
            self.same[same] += 1;
            self.agreeing[agreeing] += 1;
        }
    }

    fn note(&mut self, case: &Case<'_>, kind: &str) {
        let (n, examples) = self.differences.entry(kind.to_owned()).or_default();
        *n += 1;
        if *n <= SHOWN {
            let Case { zone, query, ours, theirs, rival, .. } = case;
            let rival = rival.name();
            let _ =
                writeln!(examples, "  {} {query}\n    Weir  {ours:?}\n    {rival:5} {theirs:?}", zone.origin);
        }
    }

    /// Adds the counts of the zones called `name`.
    pub(crate) fn add(&mut self, name: &str, other: Tally) {
        self.asked += other.asked;
        for (sum, n) in self.same.iter_mut().zip(other.same) {
            *sum += n;
        }
        for (sum, n) in self.agreeing.iter_mut().zip(other.agreeing) {
            *sum += n;
        }
        for (rule, n) in other.excused {
            *self.excused.entry(rule).or_default() += n;
        }
        for (why, n) in other.alone {
            *self.alone.entry(why).or_default() += n;
        }
        for (kind, (n, examples)) in other.differences {
            let key = if name.is_empty() { kind } else { format!("{name}: {kind}") };
            let (sum, text) = self.differences.entry(key).or_default();
            if *sum < SHOWN {
                text.push_str(&examples);
            }
            *sum += n;
        }
    }

    /// A line of the report.
    pub(crate) fn row(&self, name: &str) -> String {
        let mut row = format!("{name:26} {:8}", self.asked);
        for n in self.same.iter().rev() {
            let _ = write!(row, " {n:8}");
        }
        row.push_str(" |");
        for n in self.agreeing.iter().rev() {
            let _ = write!(row, " {n:8}");
        }
        row + "\n"
    }

    /// How often each rule was needed.
    pub(crate) fn excuses(&self) -> String {
        let mut text = String::from("Differences that docs/RFC.md explains:\n");
        for ((rule, rival), n) in &self.excused {
            let _ = writeln!(text, "  {n:6}  {rival:5} {rule}");
        }
        text.push_str("Answers that are unlike those of all three, and why:\n");
        for (why, n) in &self.alone {
            let _ = writeln!(text, "  {n:6}  {why}");
        }
        text
    }

    /// Whether a rule was needed.
    pub(crate) fn needed(&self, rule: &str) -> bool {
        self.excused.keys().any(|(name, _)| *name == rule)
    }

    /// Answers of rivals that differ from Weir's without a reason.
    pub(crate) fn n_differences(&self) -> usize {
        self.differences.values().map(|(n, _)| n).sum()
    }

    /// The first of those of each kind.
    pub(crate) fn examples(&self) -> String {
        let each = self.differences.iter();
        each.map(|(kind, (n, examples))| format!("{n} answers, {kind}:\n{examples}")).collect()
    }
}
