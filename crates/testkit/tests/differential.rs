//! One zone on Knot, NSD, BIND and Weir: thousands of questions, the same answers.
//!
//! Needs the Debian packages knot, nsd and bind9: `cargo test -p weir-testkit --features rivals --test differential`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::thread;

use weir_testkit::client;
use weir_testkit::compare::{self, Case, RULES, Verdict};
use weir_testkit::message::{Answer, Name, Query};
use weir_testkit::questions::{self, Depth, Zone};
use weir_testkit::rival::{Kind, Rival};
use weir_testkit::weir::{self, Weir};

/// Differences of one kind that are shown in full; the others are counted.
const SHOWN: usize = 3;

/// What was found for one zone.
#[derive(Default)]
struct Tally {
    asked: usize,
    /// How many questions got Weir's answer from so many rivals (or one that a rule excuses).
    agreeing: [usize; 4],
    /// How often each rule was needed, for which rival.
    excused: BTreeMap<(&'static str, &'static str), usize>,
    /// The differences without a reason: rival and parts, how often, and the first of them in full.
    differences: BTreeMap<String, (usize, String)>,
}

#[test]
fn weir_answers_as_its_rivals_do() {
    let zones: [(&str, &str, Depth); 8] = [
        ("example.com", "example.com.zone", Depth::Exhaustive),
        ("2.0.192.in-addr.arpa", "2.0.192.in-addr.arpa.zone", Depth::Exhaustive),
        ("8.b.d.0.1.0.0.2.ip6.arpa", "8.b.d.0.1.0.0.2.ip6.arpa.zone", Depth::Sampled(8)),
        ("example.net", "example.net.zone", Depth::Exhaustive),
        ("example.net", "corpus/nsec3.txt", Depth::Exhaustive),
        ("corners.test", "corpus/corners.txt", Depth::Exhaustive),
        ("corners.test", "corpus/corners-signed.txt", Depth::Exhaustive),
        (".", "corpus/root.txt", Depth::Sampled(1)),
    ];
    let mut report =
        String::from("zone                          asked      all      two      one     none\n");
    let (mut asked, mut differences, mut shown) = (0, 0, String::new());
    let mut excused: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (origin, file, depth) in zones {
        let tally = examine(origin, file, depth);
        let [none, one, two, all] = tally.agreeing;
        let _ = writeln!(report, "{origin:26} {:8} {all:8} {two:8} {one:8} {none:8}", tally.asked);
        asked += tally.asked;
        for (kind, (n, examples)) in tally.differences {
            differences += n;
            let _ = writeln!(shown, "{origin}: {n} answers, {kind}:\n{examples}");
        }
        for (rule, n) in tally.excused {
            *excused.entry(rule).or_default() += n;
        }
    }
    let _ = writeln!(report, "{asked} questions in all. Differences that docs/RFC.md explains:");
    for ((rule, rival), n) in &excused {
        let _ = writeln!(report, "  {n:6}  {rival:5} {rule}");
    }
    println!("{report}");
    assert_eq!(differences, 0, "{differences} answers differ without a reason\n{shown}");
    assert!(asked >= 20_000, "only {asked} questions");
    for rule in RULES {
        assert!(
            excused.keys().any(|(name, _)| *name == rule.name),
            "no question needs the rule {:?}",
            rule.name
        );
    }
}

/// Serves one zone on all servers, asks them, compares.
fn examine(origin: &str, file: &str, depth: Depth) -> Tally {
    let file = weir::workspace().join("zones").join(file);
    let name = Name::from_text(origin);
    let rivals = Kind::ALL.map(|kind| Rival::serve(kind, origin, &file));
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let zone_file = if origin == "." { "root.zone".to_owned() } else { format!("{origin}.zone") };
    fs::copy(&file, folder.path().join(zone_file)).expect("the zone can be copied");
    let weir = Weir::serve(folder.path(), &["--workers", "1"]);

    // What the zone holds is a rival's word as well: neither the text nor its reader is Weir's.
    let zone = Zone::new(name.clone(), client::transfer(rivals[0].address, &name));
    let queries = questions::questions(&zone, depth, 20_261_130);
    let addresses = [weir.address, rivals[0].address, rivals[1].address, rivals[2].address];
    let mut tally = Tally { asked: queries.len(), ..Tally::default() };

    let over_udp = ask_all(&addresses, |server| client::ask_udp(server, &queries));
    judge(&mut tally, &zone, &queries, &over_udp, room_over_udp);

    // Over TCP what any of them cut, and every eighth question besides.
    let cut = |i: usize| over_udp.iter().any(|answers| answers[i].is_truncated());
    let again: Vec<Query> =
        (0..queries.len()).filter(|i| cut(*i) || i % 8 == 0).map(|i| queries[i].clone()).collect();
    let over_tcp = ask_all(&addresses, |server| client::ask_tcp(server, &again));
    tally.asked += again.len();
    assert!(over_tcp.iter().flatten().all(|a| !a.is_truncated()), "an answer is cut over TCP");
    judge(&mut tally, &zone, &again, &over_tcp, |_| 65_535);

    let (status, log) = weir.stop();
    assert!(status.success(), "weir leaves with {status}:\n{log}");
    tally
}

/// All servers at once, each from a thread of its own.
fn ask_all(servers: &[SocketAddr], ask: impl Fn(SocketAddr) -> Vec<Answer> + Sync) -> Vec<Vec<Answer>> {
    thread::scope(|scope| {
        let threads: Vec<_> = servers.iter().map(|server| scope.spawn(|| ask(*server))).collect();
        threads.into_iter().map(|t| t.join().expect("every server answers")).collect()
    })
}

/// Compares the first server's answers with each other's.
fn judge(
    tally: &mut Tally,
    zone: &Zone,
    queries: &[Query],
    answers: &[Vec<Answer>],
    room: impl Fn(&Query) -> usize,
) {
    for (i, query) in queries.iter().enumerate() {
        let ours = &answers[0][i];
        let mut agreeing = 0;
        for (rival, theirs) in Kind::ALL.into_iter().zip(&answers[1..]) {
            let theirs = &theirs[i];
            match compare::compare(&Case { zone, query, ours, theirs, rival, room: room(query) }) {
                Verdict::Same => agreeing += 1,
                Verdict::Excused(rules) => {
                    agreeing += 1;
                    for rule in rules {
                        *tally.excused.entry((rule, rival.name())).or_default() += 1;
                    }
                }
                Verdict::Different(parts) => {
                    let rival = rival.name();
                    let (n, examples) = tally.differences.entry(format!("{rival} {parts:?}")).or_default();
                    *n += 1;
                    if *n <= SHOWN {
                        let _ = writeln!(examples, "  {query}\n    Weir  {ours:?}\n    {rival:5} {theirs:?}");
                    }
                }
            }
        }
        tally.agreeing[agreeing] += 1;
    }
}

/// The octets that an answer over UDP may have: what the client says (RFC 6891, section 6.2.5), or 512, and no more than
/// the 1,232 that all four servers keep to.
fn room_over_udp(query: &Query) -> usize {
    usize::from(query.edns.unwrap_or(512).clamp(512, 1232))
}
