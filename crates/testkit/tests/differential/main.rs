//! The same zones on Knot, NSD, BIND and Weir: thousands of questions, the same answers.
//!
//! Needs the Debian packages knot, nsd, bind9, bind9-utils and ldnsutils:
//! `cargo test -p weir-testkit --features rivals --test differential -- --nocapture`.
//!
//! Zones are those of the repository and generated ones. `WEIR_DIFFERENTIAL_ZONES` says how many of the latter (320),
//! `WEIR_DIFFERENTIAL_SEED` which (20261130). The long form: `WEIR_DIFFERENTIAL_ZONES=2000`. `WEIR_DIFFERENTIAL_FIRST`,
//! the number of the first one, leaves the zones of the repository out: for long runs in parts, and to look again at
//! one zone.

mod generated;
mod repository;
mod servers;
mod tally;

use std::fmt::Write as _;

use tally::Tally;
use weir_testkit::compare::RULES;

/// Generated zones when nobody says how many: enough to need each rule of docs/RFC.md.
const ZONES: usize = 320;

#[test]
fn weir_answers_as_its_rivals_do() {
    let mut report = String::from(tally::HEAD);
    let mut total = Tally::default();
    let mut take = |name: &str, tally: Tally| {
        println!("{name}: {} questions", tally.asked);
        let _ = write!(report, "{}", tally.row(name));
        total.add(name, tally);
    };
    let is_part = std::env::var_os("WEIR_DIFFERENTIAL_FIRST").is_some();
    if !is_part {
        repository::examine().for_each(|(name, tally)| take(&name, tally));
    }
    let n_zones = generated::number("WEIR_DIFFERENTIAL_ZONES", ZONES);
    take(&format!("{n_zones} generated zones"), generated::examine(n_zones));
    println!("{report}{}{}", total.row("in all"), total.excuses());

    let n_differences = total.n_differences();
    assert_eq!(n_differences, 0, "{n_differences} answers differ without a reason\n{}", total.examples());
    let is_whole = !is_part && n_zones >= ZONES;
    assert!(!is_whole || total.asked >= 40_000, "only {} questions", total.asked);
    for rule in RULES.iter().filter(|_| is_whole) {
        assert!(total.needed(rule.name), "no question needs the rule {:?}", rule.name);
    }
}
