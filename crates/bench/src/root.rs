//! The root: top-level domains by Zipf's law, and the junk that most queries to a root server are.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use anyhow::Context;

use crate::random::{Random, Zipf};
use crate::zones::N_QUERIES;

const TO_STRING: &str = "a string takes all that is written";
/// Top-level domains of the zone that is made when none is given: about as many as there are.
const N_TLDS: usize = 1_440;
/// Queries in a hundred for a top-level domain that does not exist: what root servers see.
const JUNK_PERCENT: usize = 60;

/// The root zone of the file that `ROOT_ZONE` names, without what hangs on signatures, or one of the same shape.
pub(crate) fn root(random: &mut Random) -> anyhow::Result<(String, String)> {
    let zone = match std::env::var_os("ROOT_ZONE") {
        Some(path) => unsigned(&fs::read_to_string(&path).with_context(|| format!("ROOT_ZONE {path:?}"))?),
        None => made(random),
    };
    let tlds = delegated(&zone);
    Ok((zone, queries(&tlds, random)))
}

/// The lines of a zone file, a record a line, without NSEC, RRSIG, DNSKEY and ZONEMD: a part of a signed zone is no use.
fn unsigned(text: &str) -> String {
    let is_kept = |line: &&str| {
        let kind = line.split_whitespace().nth(3);
        !matches!(kind, Some("NSEC" | "RRSIG" | "DNSKEY" | "ZONEMD"))
    };
    text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

/// A zone of the root's shape: six servers a domain with both kinds of addresses, and two DS.
fn made(random: &mut Random) -> String {
    let mut zone = ". 86400 IN SOA a.root-servers.net. hostmaster. 1 1800 900 604800 86400\n".to_owned();
    for letter in 'a'..='m' {
        writeln!(zone, ". 518400 IN NS {letter}.root-servers.net.").expect(TO_STRING);
        let number = u32::from(letter);
        writeln!(zone, "{letter}.root-servers.net. 518400 IN A 192.0.2.{number}").expect(TO_STRING);
        writeln!(zone, "{letter}.root-servers.net. 518400 IN AAAA 2001:db8::{number}").expect(TO_STRING);
    }
    let mut labels = BTreeSet::from(["com".to_owned(), "net".to_owned(), "org".to_owned()]);
    while labels.len() < N_TLDS {
        let n_letters = 2 + random.below(8);
        labels.insert(random.label(n_letters));
    }
    for (i, label) in labels.iter().enumerate() {
        for server in 0..6 {
            let name = format!("{}.nic.{label}.", char::from(b"abcdef"[server]));
            writeln!(zone, "{label}. 172800 IN NS {name}").expect(TO_STRING);
            writeln!(zone, "{name} 172800 IN A 198.18.{}.{}", i % 256, server * 16 + i / 256)
                .expect(TO_STRING);
            writeln!(zone, "{name} 172800 IN AAAA 2001:db8:{i:x}::{server}").expect(TO_STRING);
        }
        for digest in 1..=2_u32 {
            let octets: String = (0..4).map(|_| format!("{:016X}", random.next_u64())).collect();
            writeln!(
                zone,
                "{label}. 86400 IN DS {} 8 {digest} {}",
                i + 1,
                &octets[..if digest == 1 { 40 } else { 64 }]
            )
            .expect(TO_STRING);
        }
    }
    zone
}

/// The delegated names, without their dot, in the order of the zone.
fn delegated(zone: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in zone.lines() {
        let mut fields = line.split_whitespace();
        let (Some(owner), Some("NS")) = (fields.next(), fields.nth(2)) else { continue };
        let name = owner.trim_end_matches('.');
        if !name.is_empty() && names.last().is_none_or(|last| last != name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn queries(tlds: &[String], random: &mut Random) -> String {
    // The order of the zone says nothing of popularity: ranks are dealt out.
    let mut tlds = tlds.to_vec();
    for i in (1..tlds.len()).rev() {
        tlds.swap(i, random.below(i + 1));
    }
    let (zipf, mut queries) = (Zipf::new(tlds.len().max(1)), String::new());
    for _ in 0..N_QUERIES {
        let tld = if random.below(100) < JUNK_PERCENT { "" } else { &tlds[zipf.rank(random)] };
        let n_letters = 3 + random.below(10);
        let name = random.label(n_letters);
        let written = match tld {
            // Chromium's probes, search lists and typing errors: one label or two, and none of them is there.
            "" if random.below(2) == 0 => writeln!(queries, "{name}x-junk. A"),
            "" => writeln!(queries, "{name}.{}x-lan. A", random.label(5)),
            tld => writeln!(queries, "{name}.{tld}. {}", ["A", "AAAA", "DS"][random.below(3)]),
        };
        written.expect(TO_STRING);
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junk_is_three_fifths_and_names_no_domain() {
        let zone = made(&mut Random::new(1));
        let tlds = delegated(&zone);
        assert_eq!(tlds.len(), N_TLDS);
        let queries = queries(&tlds, &mut Random::new(2));
        let is_junk = |line: &&str| {
            let name = line.split_once(". ").unwrap().0;
            !tlds.contains(&name.rsplit('.').next().unwrap().to_owned())
        };
        let n_junk = queries.lines().take(5000).filter(is_junk).count();
        assert!((2800..3200).contains(&n_junk), "{n_junk}");
    }

    #[test]
    fn signatures_and_what_hangs_on_them_are_left_out() {
        let text =
            ". 1 IN SOA a. b. 1 2 3 4 5\n. 1 IN NSEC aaa. NS\nde. 1 IN DS 1 8 2 AB\nde. 1 IN RRSIG DS 8 1\n";
        assert_eq!(unsigned(text), ". 1 IN SOA a. b. 1 2 3 4 5\nde. 1 IN DS 1 8 2 AB\n");
    }
}
