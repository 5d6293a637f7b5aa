//! Zones and the questions about them, as text.

use std::fmt::Write;

use crate::random::{Random, Zipf};

/// Lines of a query file: enough that a load does not repeat itself within a few hundred milliseconds.
pub(crate) const N_QUERIES: usize = 200_000;
/// Writing to a `String` cannot fail (`fmt::Write` for `String`).
const TO_STRING: &str = "a string takes all that is written";

const HEAD: &str = "\
$TTL 3600
@ SOA ns1 hostmaster 1 7200 1800 1209600 600
@ NS ns1
@ NS ns2
ns1 A 192.0.2.53
ns2 A 192.0.2.54
";

/// `n` names with an address each, and queries for them, all alike.
pub(crate) fn flat(n: usize, random: &mut Random) -> (String, String) {
    let mut queries = String::new();
    for _ in 0..N_QUERIES {
        writeln!(queries, "h{:06}.bench.test A", random.below(n)).expect(TO_STRING);
    }
    (flat_zone(n), queries)
}

/// The zone of [`flat`], and queries for names that are not in it.
pub(crate) fn nxdomain(n: usize, random: &mut Random) -> (String, String) {
    let mut queries = String::new();
    for _ in 0..N_QUERIES {
        let n_letters = 5 + random.below(10);
        writeln!(queries, "no-{}.bench.test A", random.label(n_letters)).expect(TO_STRING);
    }
    (flat_zone(n), queries)
}

fn flat_zone(n: usize) -> String {
    let mut zone = HEAD.to_owned();
    for i in 0..n {
        writeln!(zone, "h{i:06} A {}", address(i)).expect(TO_STRING);
    }
    zone
}

/// An address of 198.18.0.0/15 for every `i` below 65,536; then they repeat.
fn address(i: usize) -> String {
    format!("198.18.{}.{}", i / 256 % 256, i % 256)
}

/// `n` delegations with two servers each, one of them below the cut, and queries for names below them.
pub(crate) fn delegations(n: usize, random: &mut Random) -> (String, String) {
    let mut zone = HEAD.to_owned();
    for i in 0..n {
        // Every other name server is shared by many, as providers' are.
        let provider = random.below(200);
        writeln!(zone, "d{i:06} NS ns.d{i:06}\nd{i:06} NS ns{provider}.provider").expect(TO_STRING);
        writeln!(zone, "ns.d{i:06} A {}", address(i)).expect(TO_STRING);
    }
    for provider in 0..200 {
        writeln!(zone, "ns{provider}.provider A 192.0.2.{provider}").expect(TO_STRING);
    }
    let mut queries = String::new();
    for _ in 0..N_QUERIES {
        writeln!(queries, "www.d{:06}.bench.test A", random.below(n)).expect(TO_STRING);
    }
    (zone, queries)
}

/// What an ordinary zone holds, and what it is asked for.
pub(crate) fn mixed(n: usize, random: &mut Random) -> (String, String) {
    let mut zone = flat_zone(n);
    zone.push_str("@ MX 10 mail1\n@ MX 20 mail2\nmail1 A 192.0.2.25\nmail2 A 192.0.2.26\n");
    zone.push_str("mail1 AAAA 2001:db8::25\n@ TXT \"v=spf1 mx -all\"\n*.wild A 192.0.2.80\n");
    let few = (n / 10).max(1);
    for i in 0..few {
        writeln!(zone, "h{i:06} AAAA 2001:db8::{i:x}\nh{i:06} MX 10 mail1").expect(TO_STRING);
        writeln!(zone, "c{i:06} CNAME h{i:06}").expect(TO_STRING);
        writeln!(zone, "sub{i:06} NS ns.sub{i:06}\nns.sub{i:06} A {}", address(i)).expect(TO_STRING);
    }
    (zone, mixed_queries(n, few, random))
}

fn mixed_queries(n: usize, few: usize, random: &mut Random) -> String {
    let (names, less) = (Zipf::new(n), Zipf::new(few));
    let mut queries = String::new();
    for _ in 0..N_QUERIES {
        let out = &mut queries;
        let written = match random.below(100) {
            0..60 => writeln!(out, "h{:06}.bench.test A", names.rank(random)),
            60..75 => writeln!(out, "{}.bench.test A", random.label(9)),
            75..85 => writeln!(out, "www.sub{:06}.bench.test A", less.rank(random)),
            85..90 => writeln!(out, "h{:06}.bench.test AAAA", names.rank(random)),
            90..93 => writeln!(out, "h{:06}.bench.test MX", less.rank(random)),
            93..97 => writeln!(out, "c{:06}.bench.test A", less.rank(random)),
            97..99 => writeln!(out, "{}.wild.bench.test A", random.label(6)),
            _ => writeln!(out, "bench.test MX"),
        };
        written.expect(TO_STRING);
    }
    queries
}

/// `n` names, a twentieth as many aliases of aliases and delegations with six servers each, and queries for these and
/// for names that are not there, by Zipf's law: answers that are dear, and asked for again.
pub(crate) fn popular(n: usize, random: &mut Random) -> (String, String) {
    let mut zone = flat_zone(n);
    let few = (n / 20).max(1);
    for i in 0..few {
        writeln!(zone, "c{i:06} CNAME cc{i:06}\ncc{i:06} CNAME h{i:06}").expect(TO_STRING);
        for server in 1..=6 {
            let host = format!("ns{server}.d{i:06}");
            writeln!(zone, "d{i:06} NS {host}\n{host} A {}\n{host} AAAA 2001:db8::{i:x}", address(i))
                .expect(TO_STRING);
        }
    }
    let (absent, less) = (Zipf::new(10 * n), Zipf::new(few));
    let mut queries = String::new();
    for _ in 0..N_QUERIES {
        let written = match random.below(10) {
            0..6 => writeln!(queries, "no-{:06}.bench.test A", absent.rank(random)),
            6..8 => writeln!(queries, "c{:06}.bench.test A", less.rank(random)),
            _ => writeln!(queries, "www.d{:06}.bench.test A", less.rank(random)),
        };
        written.expect(TO_STRING);
    }
    (zone, queries)
}

/// `n` names with a kilobyte of TXT or with the keys of a zone whose algorithm has long ones.
pub(crate) fn large(n: usize, random: &mut Random) -> (String, String) {
    let mut zone = HEAD.to_owned();
    for i in 0..n {
        let strings: Vec<String> = (0..4).map(|_| format!("\"{}\"", random.label(230))).collect();
        writeln!(zone, "t{i:06} TXT {}", strings.join(" ")).expect(TO_STRING);
    }
    // Two keys of 2048 bits and two of 1024: flags, protocol 3, algorithm 8 (RFC 4034 section 2).
    for (flags, n_octets) in [(257, 260), (257, 260), (256, 132), (256, 132)] {
        writeln!(zone, "@ DNSKEY {flags} 3 8 {}", base64(n_octets, random)).expect(TO_STRING);
    }
    let mut queries = String::new();
    for _ in 0..N_QUERIES {
        let written = match random.below(4) {
            0 => writeln!(queries, "bench.test DNSKEY"),
            _ => writeln!(queries, "t{:06}.bench.test TXT", random.below(n)),
        };
        written.expect(TO_STRING);
    }
    (zone, queries)
}

/// Random octets in base 64: `n_octets` is cut to a multiple of three, so that no padding is needed. The first group is
/// AwEA: an exponent of three octets that starts with 1, 0 (RFC 3110).
fn base64(n_octets: usize, random: &mut Random) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters = (0..n_octets / 3 * 4 - 4).map(|_| char::from(ALPHABET[random.below(64)]));
    "AwEA".chars().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flat_query_hits_and_no_other_does() {
        let (zone, queries) = flat(50, &mut Random::new(1));
        let names: Vec<&str> = zone.lines().filter_map(|line| line.split_once(' ')).map(|(n, _)| n).collect();
        let asked = |queries: &str| -> Vec<String> {
            queries.lines().map(|line| line.split_once('.').unwrap().0.to_owned()).collect()
        };
        assert!(asked(&queries).iter().all(|name| names.contains(&&name[..])));
        let (_, queries) = nxdomain(50, &mut Random::new(1));
        assert!(!asked(&queries).iter().any(|name| names.contains(&&name[..])));
    }

    #[test]
    fn key_material_is_whole_groups_of_base_64() {
        assert_eq!(base64(260, &mut Random::new(1)).len() % 4, 0);
    }
}
