//! Validators accept every answer of signed zones, positive and negative: `delv` (bind9-dnsutils) and `unbound`, both of
//! Debian, on generated zones with NSEC, NSEC3 and opt-out, signed by ldns-signzone and dnssec-signzone.
//!
//! `cargo test -p weir-testkit --features rivals --test validation`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use weir_testkit::client;
use weir_testkit::generate::{self, Denial};
use weir_testkit::message::{Answer, Name, Query, Record};
use weir_testkit::process::{self, Process};
use weir_testkit::questions::{self, Depth, Zone};
use weir_testkit::sign::{Key, Signer};
use weir_testkit::weir::Weir;

const SEED: u64 = 8_198;
/// Signed zones of each kind.
const ZONES_OF_A_KIND: usize = 8;
/// Questions for each zone that unbound is asked, at most, and every which of them delv is asked.
const QUESTIONS: usize = 150;
const DELV_SHARE: usize = 10;
const SOON: Duration = Duration::from_secs(10);

const SERVFAIL: u16 = 2;
/// AD (RFC 4035, section 3.2.3): all of the answer is secure.
const AD: u16 = 0x0020;

struct Signed {
    origin: Name,
    denial: Denial,
    zone: Zone,
}

/// A question and what Weir answers to it.
struct Asked<'z> {
    signed: &'z Signed,
    query: Query,
    answer: Answer,
}

#[test]
fn validators_accept_every_answer_of_signed_zones() {
    let key = Key::new();
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let zones = zones(&key, folder.path());
    let weir = Weir::serve(folder.path(), &["--workers", "1"]);
    let asked: Vec<Asked<'_>> = zones.iter().flat_map(|signed| ask(signed, weir.address)).collect();

    let unbound = Unbound::start(&zones, &key, weir.address);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut refused = Vec::new();
    for one in asked.iter().filter(|one| !is_beyond_unbound(one)) {
        match unbound.check(one) {
            Ok(verdict) => *counts.entry(verdict).or_default() += 1,
            Err(complaint) => refused.push(complaint),
        }
    }
    println!("unbound: {counts:?}");
    assert!(refused.is_empty(), "unbound refuses {} answers:\n{}", refused.len(), refused.join("\n"));
    assert!(counts["secure positive"] > 300 && counts["secure negative"] > 300, "{counts:?}");

    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let shared = asked.iter().enumerate().filter(|(n, one)| n % DELV_SHARE == 0 || is_beyond_unbound(one));
    for (_, one) in shared {
        *counts.entry(delv(one, &key, folder.path(), weir.address)).or_default() += 1;
    }
    println!("delv: {counts:?}");
    assert!(
        counts["; fully validated"] > 20 && counts["; negative response, fully validated"] > 20,
        "{counts:?}"
    );
}

/// Signed zones of each kind, written to `folder`. What they hold is read back from the signer's text by way of the
/// generator's: only names matter here.
fn zones(key: &Key, folder: &Path) -> Vec<Signed> {
    let mut signed = Vec::new();
    for kind in [Denial::Nsec, Denial::Nsec3 { opt_out: false }, Denial::Nsec3 { opt_out: true }] {
        let made = (0..).map(|number| (number, generate::generate(SEED, number)));
        let of_kind = made.filter(|(_, zone)| zone.denial == kind).take(ZONES_OF_A_KIND);
        for (number, zone) in of_kind {
            let signer = if number.is_multiple_of(2) { Signer::Ldns } else { Signer::Bind };
            let text = key.sign(signer, &zone.origin, &zone.text, kind);
            fs::write(folder.join(format!("{}zone", zone.origin)), text)
                .expect("the folder can be written to");
            let records = zone.text.lines().filter_map(|line| record(&zone.origin, line)).collect();
            let content = Zone::new(zone.origin.clone(), records);
            signed.push(Signed { origin: zone.origin, denial: kind, zone: content });
        }
    }
    signed
}

/// Owner, type and, for aliases, nothing of the data: enough for [`Zone`] to know names, cuts and wildcards.
fn record(origin: &Name, line: &str) -> Option<Record> {
    let mut words = line.split(' ');
    let owner = unescaped(words.next()?);
    let rtype = match words.nth(2)? {
        "NS" => 2,
        "CNAME" => 5,
        "SOA" => 6,
        "DNAME" => 39,
        "A" => 1,
        _ => 16,
    };
    assert!(owner.is_at_or_below(origin), "{line}");
    Some(Record { owner, rtype, class: 1, ttl: 0, rdata: vec![0] })
}

fn unescaped(text: &str) -> Name {
    let mut labels = vec![Vec::new()];
    let mut octets = text.bytes();
    while let Some(octet) = octets.next() {
        let label = labels.last_mut().expect("there is always one");
        match octet {
            b'.' => labels.push(Vec::new()),
            b'\\' => match octets.next() {
                Some(digit @ b'0'..=b'9') => {
                    let digits = [digit, octets.next().unwrap_or(b'0'), octets.next().unwrap_or(b'0')];
                    label.push(digits.iter().fold(0, |sum, digit| sum * 10 + (digit - b'0')));
                }
                Some(escaped) => label.push(escaped),
                None => {}
            },
            _ => label.push(octet),
        }
    }
    labels.retain(|label| !label.is_empty());
    Name(labels)
}

/// Questions whose answers are the zone's own to the end: a validator cannot get on from the others.
fn ask(signed: &Signed, weir: SocketAddr) -> Vec<Asked<'_>> {
    let queries = questions::questions(&signed.zone, Depth::Sampled(3), SEED).into_iter();
    let queries: Vec<Query> = queries
        // NSEC at an alias is answered, but unbound takes that for a mistake.
        .filter(|query| {
            query.name.is_at_or_below(&signed.origin) && !matches!(query.rtype, 46 | 47 | 50 | 250..)
        })
        .map(|query| Query { edns: Some(1232), dnssec_ok: true, case: 0, ..query })
        .collect();
    let share = queries.len().div_ceil(QUESTIONS).max(1);
    let queries: Vec<Query> = queries.into_iter().step_by(share).collect();
    let answers = client::ask_tcp(weir, &queries);
    let asked = queries.into_iter().zip(answers).map(|(query, answer)| Asked { signed, query, answer });
    asked.filter(is_the_zones_own).collect()
}

fn is_the_zones_own(asked: &Asked<'_>) -> bool {
    let Asked { signed, query, answer } = asked;
    let mut name = query.name.clone();
    let mut n_aliases = 0;
    while let Some(alias) = answer.answer.iter().find(|r| r.rtype == 5 && r.owner == name && query.rtype != 5)
    {
        name = questions::target(&alias.rdata);
        n_aliases += 1;
        // Loops, and chains that are too long for a resolver.
        if n_aliases > 8 {
            return false;
        }
    }
    let is_inside = name.is_at_or_below(&signed.origin) && name.fits();
    let is_cut = signed.zone.cut_above(&name).is_some_and(|cut| cut != name || query.rtype != 43);
    // DS of an apex is the parent's to answer, which is not there.
    let is_parents = name == signed.origin && query.rtype == 43;
    is_inside && !is_cut && !is_parents && matches!(answer.rcode(), 0 | 3)
}

/// Answers that unbound 1.17 makes nothing of, though they are right: delv is asked about each of these.
fn is_beyond_unbound(asked: &Asked<'_>) -> bool {
    let Asked { signed, query, answer } = asked;
    let mut dnames = answer.answer.iter().filter(|r| r.rtype == 39).peekable();
    // A question for CNAME or DNAME itself that a DNAME answers: it looks for a signature of the CNAME.
    let is_made = matches!(query.rtype, 5 | 39) && dnames.peek().is_some();
    // A DNAME below an asterisk: it takes the owner for an expanded wildcard.
    let is_below_asterisk = dnames.any(|r| r.owner.0.iter().any(|label| label == b"*"));
    // DS at a wildcard that is an empty non-terminal: it makes NXDOMAIN of it.
    let wildcard = signed.zone.closest_encloser(&query.name).child(b"*");
    let is_empty_wildcard =
        query.rtype == 43 && signed.zone.exists(&wildcard) && !signed.zone.owns_any(&wildcard);
    is_made || is_below_asterisk || is_empty_wildcard
}

/// A validating resolver that knows where the zones are, with their keys as trust anchors.
struct Unbound {
    address: SocketAddr,
    process: Process,
    _folder: tempfile::TempDir,
}

impl Unbound {
    fn start(zones: &[Signed], key: &Key, weir: SocketAddr) -> Unbound {
        // Three times, as another process may take the port between the choice and its use.
        (0..3).find_map(|_| Unbound::try_start(zones, key, weir)).expect("unbound answers")
    }

    fn try_start(zones: &[Signed], key: &Key, weir: SocketAddr) -> Option<Unbound> {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let address = process::free_port();
        let (ip, port) = (address.ip(), address.port());
        let mut config = format!(
            "server:\n  interface: {ip}@{port}\n  username: \"\"\n  chroot: \"\"\n  directory: \"{0}\"\n  pidfile: \"\"\n  \
             use-syslog: no\n  module-config: \"validator iterator\"\n  do-not-query-localhost: no\n  do-ip6: no\n  \
             local-zone: \"test.\" nodefault\n  \
             num-threads: 1\n  qname-minimisation: no\n  aggressive-nsec: no\n  harden-below-nxdomain: no\n  \
             target-fetch-policy: \"0 0 0 0 0\"\n  val-log-level: 2\n  trust-anchor-signaling: no\n  root-hints: \"\"\n",
            folder.path().display()
        );
        for zone in zones {
            config += &format!("  trust-anchor: \"{} DNSKEY {}\"\n", zone.origin, key.public());
        }
        for zone in zones {
            config += &format!(
                "stub-zone:\n  name: \"{}\"\n  stub-addr: {}@{}\n",
                zone.origin,
                weir.ip(),
                weir.port()
            );
        }
        let file = folder.path().join("unbound.conf");
        fs::write(&file, config).expect("the folder can be written to");
        let process =
            Process::start("unbound", Command::new("/usr/sbin/unbound").arg("-d").arg("-c").arg(&file));
        let unbound = Unbound { address, process, _folder: folder };
        let deadline = Instant::now() + process::PATIENCE / 3;
        while Instant::now() < deadline {
            if unbound.ask(&Query::new(zones[0].origin.clone(), 6)).is_some() {
                return Some(unbound);
            }
        }
        println!("unbound does not answer; it wrote:\n{}", unbound.process.log());
        None
    }

    fn ask(&self, query: &Query) -> Option<Answer> {
        let mut request = query.to_wire(9);
        // RD: unbound is asked to go and look.
        request[2] |= 1;
        let reply = client::exchange_udp(self.address, &request, SOON).ok()?;
        // A socket whose port happens to be the one that nobody has yet hears itself.
        Answer::from_wire(&reply).ok().filter(|answer| answer.flags & 0x8000 != 0)
    }

    /// What unbound makes of an answer; a complaint when it refuses it.
    fn check(&self, asked: &Asked<'_>) -> Result<&'static str, String> {
        let Asked { signed, query, answer } = asked;
        let said = self.ask(query).unwrap_or_else(|| panic!("no answer to {query}:\n{}", self.process.log()));
        if said.rcode() == SERVFAIL || said.rcode() != answer.rcode() {
            let log = last_lines(&self.process.log());
            return Err(format!("{query}: Weir answers\n{answer:?}\nunbound says\n{said:?}\n{log}"));
        }
        let is_secure = said.flags & AD != 0;
        // Opt-out leaves names in its spans insecure (RFC 5155, section 6).
        let may_be_insecure = matches!(signed.denial, Denial::Nsec3 { opt_out: true });
        match (is_secure, said.rcode() == 0 && !said.answer.is_empty()) {
            (true, true) => Ok("secure positive"),
            (true, false) => Ok("secure negative"),
            (false, _) if may_be_insecure => Ok("insecure by opt-out"),
            (false, _) => Err(format!("{query}: not secure\n{answer:?}\n{said:?}")),
        }
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(1)..].join("\n")
}

/// The line in which delv says what it makes of an answer.
///
/// # Panics
/// When it refuses it.
fn delv(asked: &Asked<'_>, key: &Key, folder: &Path, weir: SocketAddr) -> String {
    let Asked { signed, query, answer } = asked;
    let anchor = folder.join("anchor");
    let mut fields = key.public().splitn(4, ' ');
    let mut field = || fields.next().unwrap_or_default();
    let (flags, protocol, algorithm, data) = (field(), field(), field(), field());
    let text = format!(
        "trust-anchors {{ \"{}\" static-key {flags} {protocol} {algorithm} \"{}\"; }};\n",
        signed.origin,
        data.replace(' ', "")
    );
    fs::write(&anchor, text).expect("the folder can be written to");
    let output = Command::new("delv")
        .arg(format!("@{}", weir.ip()))
        .args(["-p", &weir.port().to_string(), "-a"])
        .arg(&anchor)
        .arg(format!("+root={}", signed.origin))
        .args(["-q", &query.name.to_string(), "-t", &format!("TYPE{}", query.rtype)])
        .output()
        .expect("delv can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    let verdict = said.lines().find(|line| line.contains("validated") || line.contains("unsigned answer"));
    let verdict = verdict.unwrap_or_else(|| panic!("{query}: {answer:?}\ndelv says\n{said}{complaints}"));
    let may_be_insecure = matches!(signed.denial, Denial::Nsec3 { opt_out: true });
    assert!(
        verdict.contains("fully validated") || may_be_insecure,
        "{query}: {answer:?}\ndelv says\n{said}{complaints}"
    );
    verdict.to_owned()
}
