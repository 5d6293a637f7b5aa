//! Zone text to octets: what Weir makes of it is what named-compilezone and ldns-read-zone make of it, for every type.
//!
//! Needs the Debian packages bind9-utils and ldnsutils:
//! `cargo test -p weir-testkit --features rivals --test text -- --nocapture`.
//!
//! Weir is asked over TCP for each record. `WEIR_TEXT_RECORDS` says how many records there are of a type (40),
//! `WEIR_TEXT_SEED` which. Types that neither of the two knows are read by Weir alone; golden pairs keep these.

mod corpus;
mod judges;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use corpus::{Row, TYPES};
use weir_testkit::client;
use weir_testkit::message::{Name, Query};
use weir_testkit::random::Random;
use weir_testkit::weir::Weir;

const ORIGIN: &str = "example.";

/// RDATA by owner and type.
pub(crate) type Octets = BTreeMap<(String, u16), Vec<u8>>;

/// The number in an environment variable.
fn number(variable: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}"))
}

/// A record of the corpus.
struct Entry {
    owner: String,
    row: Row,
    text: String,
}

fn entries(n_a_type: usize, seed: u64) -> Vec<Entry> {
    let mut random = Random::new(seed);
    let rows = TYPES.iter().filter(|row| row.0 != "SOA");
    let numbered = rows.flat_map(|row| (0..n_a_type).map(move |number| (*row, number)));
    let soa = Entry {
        owner: ORIGIN.to_owned(),
        row: ("SOA", 6, "bl"),
        text: "@ SOA ns host\\.master ( 2026113001 2h 1H30m 2w 600 )\n".to_owned(),
    };
    let others = numbered.map(|(row, number)| {
        let owner = format!("{}-{number}.{ORIGIN}", row.0.to_lowercase());
        let data = corpus::data(row.0, &mut random);
        let (open, close) = *random.pick(&[("", ""), ("( ", " )"), ("(\n\t", "\n) ; comment"), ("", " ; (")]);
        Entry { text: format!("{owner} {} {open}{data}{close}\n", row.0), owner, row }
    });
    std::iter::once(soa).chain(others).collect()
}

/// A zone of the entries that `judge` reads; all of them when there is no judge.
fn zone(entries: &[Entry], judge: Option<char>) -> String {
    let mut text = format!("$ORIGIN {ORIGIN}\n$TTL 1h\n");
    for entry in entries.iter().filter(|entry| judge.is_none_or(|judge| entry.row.2.contains(judge))) {
        text.push_str(&entry.text);
        // A signature alone makes no name, an NSEC3 record none that can be asked for.
        if matches!(entry.row.0, "RRSIG" | "NSEC3") {
            let _ = writeln!(text, "{} A 192.0.2.1", entry.owner);
        }
    }
    text + "@ NS ns\nns A 192.0.2.1\n"
}

/// What Weir answers for each record.
fn of_weir(entries: &[Entry]) -> Octets {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    fs::write(folder.path().join("example.zone"), zone(entries, None)).expect("it can be written to");
    let weir = Weir::serve(folder.path(), &["--workers", "1"]);
    let ask = |entry: &Entry| Query::new(Name::from_text(&entry.owner), entry.row.1);
    let queries: Vec<Query> = entries.iter().map(ask).collect();
    let answers = client::ask_tcp(weir.address, &queries);
    let octets = entries.iter().zip(answers).map(|(entry, answer)| {
        // NS records below the apex are a referral.
        let records = answer.answer.iter().chain(&answer.authority);
        let mut found =
            records.filter(|record| record.rtype == entry.row.1 && record.owner.to_string() == entry.owner);
        let record = found.next().unwrap_or_else(|| panic!("no answer for {}{answer:?}", entry.text));
        ((entry.owner.clone(), entry.row.1), record.rdata.clone())
    });
    let octets = octets.collect();
    weir.stop();
    octets
}

#[test]
fn text_becomes_the_octets_that_bind_and_ldns_make_of_it() {
    let n_a_type = number("WEIR_TEXT_RECORDS", 40);
    let seed = u64::try_from(number("WEIR_TEXT_SEED", 20_261_130)).expect("a usize fits in 64 bits");
    let entries = entries(n_a_type, seed);
    let weir = of_weir(&entries);
    // The first difference of each judge and type.
    let mut differences: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for (name, judge, of_judge) in [
        ("named-compilezone", 'b', judges::named_compilezone as fn(&str) -> Octets),
        ("ldns-read-zone", 'l', judges::ldns_read_zone),
    ] {
        let theirs = of_judge(&zone(&entries, Some(judge)));
        let judged: Vec<&Entry> = entries.iter().filter(|entry| entry.row.2.contains(judge)).collect();
        println!("{name}: {} records", judged.len());
        for entry in judged {
            let key = (entry.owner.clone(), entry.row.1);
            let (ours, theirs) = (hex(weir.get(&key)), hex(theirs.get(&key)));
            if ours != theirs {
                let shown = || format!("{}  Weir  {ours}\n  other {theirs}\n", entry.text);
                differences.entry((name, entry.row.0)).or_insert_with(shown);
            }
        }
    }
    let shown: String = differences.iter().map(|((name, _), text)| format!("{name}: {text}")).collect();
    assert!(differences.is_empty(), "{shown}");
}

fn hex(octets: Option<&Vec<u8>>) -> String {
    let Some(octets) = octets else { return "nothing".to_owned() };
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
