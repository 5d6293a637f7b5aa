//! Does each part of answering a number of times, each in a call of its own to `measured`: what
//! `benchmarks/instructions` counts the instructions of.
//!
//! `instructions` prints the names of the parts in the order of the calls; each does its work [`TIMES`] times.

use std::hint::black_box;

use weir_authority::{Context, Policy, Received, Scratch, Transport, ZoneSet, build, plan, receive};
use weir_cache::{Asked, Cache};
use weir_wire::rtype::Rtype;
use weir_zone::denial::Denial as Chain;

#[path = "../benches/zones/mod.rs"]
mod zones;
use zones::{Denial, SEED, query};

/// How often each part is done: enough for what happens once to vanish. `benchmarks/instructions` divides by it.
const TIMES: usize = 1000;

fn main() {
    let unsigned = zones::zones(100_000, Denial::Unsigned);
    answers(&unsigned, "", false);
    let mut bench = Bench::new();
    let hit = query("h4711.example", Rtype::A, false);
    bench.parse("parse", &hit);
    bench.find("find-hit", &unsigned, &hit);
    bench.find("find-missing", &unsigned, &query("nothing.example", Rtype::A, false));
    bench.find("find-below-cut", &unsigned, &query("www.cut7.example", Rtype::A, false));
    bench.find("find-wildcard", &unsigned, &query("any.wild.example", Rtype::A, false));
    bench.build("build-hit", &unsigned, &hit);
    answers(&zones::zones(20_000, Denial::Nsec), "nsec-", true);
    let signed = zones::zones(20_000, Denial::Nsec3);
    answers(&signed, "nsec3-", true);
    let mut bench = Bench::new();
    bench.hash("nsec3-hash", &signed, "nothing.example");
    bench.cache(&signed);
}

/// Whole answers, from the packet on, of each kind.
fn answers(zones: &ZoneSet, prefix: &str, dnssec_ok: bool) {
    let mut bench = Bench::new();
    for (kind, asked, qtype) in [
        ("hit", "h4711.example", Rtype::A),
        ("nxdomain", "nothing.example", Rtype::A),
        ("nodata", "h4711.example", Rtype::TXT),
        ("wildcard", "any.wild.example", Rtype::A),
        ("referral", "www.cut7.example", Rtype::A),
        ("wide-referral", "www.wide7.example", Rtype::A),
        ("alias", "alias7.example", Rtype::A),
        ("chain", "chain7.example", Rtype::A),
    ] {
        bench.respond(&format!("{prefix}{kind}"), zones, &query(asked, qtype, dnssec_ok));
    }
}

/// Does the work; not inlined, since the count is that of this function.
#[inline(never)]
fn measured(what: &str, work: &mut dyn FnMut(usize)) {
    for n in 0..TIMES {
        work(n);
    }
    black_box(what);
}

/// Measures one part: what is done once is done before.
fn measure(what: &str, mut work: impl FnMut(usize)) {
    (0..8).for_each(&mut work);
    println!("{what}");
    measured(what, &mut work);
}

struct Bench {
    policy: Policy,
    scratch: Scratch,
    out: [u8; 4096],
}

impl Bench {
    fn new() -> Bench {
        Bench { policy: Policy::default(), scratch: Scratch::new(SEED), out: [0; 4096] }
    }

    fn parse(&mut self, what: &str, packet: &[u8]) {
        let Bench { policy, scratch, out } = self;
        let context = context(policy);
        measure(what, |_| {
            black_box(receive(packet, &context, scratch, out));
        });
    }

    fn find(&mut self, what: &str, zones: &ZoneSet, packet: &[u8]) {
        let Bench { policy, scratch, out } = self;
        let context = context(policy);
        let Received::Query(query) = receive(packet, &context, scratch, out) else { panic!("a query") };
        measure(what, |_| {
            black_box(plan(black_box(&query), &context, scratch, zones));
        });
    }

    fn build(&mut self, what: &str, zones: &ZoneSet, packet: &[u8]) {
        let Bench { policy, scratch, out } = self;
        let context = context(policy);
        let Received::Query(query) = receive(packet, &context, scratch, out) else { panic!("a query") };
        let plan = plan(&query, &context, scratch, zones);
        measure(what, |_| {
            black_box(build(black_box(&plan), &query, &context, scratch, out));
        });
    }

    fn respond(&mut self, what: &str, zones: &ZoneSet, packet: &[u8]) {
        let Bench { policy, scratch, out } = self;
        let context = context(policy);
        measure(what, |_| {
            black_box(respond(packet, &context, scratch, zones, out));
        });
    }

    /// The hash of a denied name alone.
    fn hash(&mut self, what: &str, zones: &ZoneSet, asked: &str) {
        let zone = zones.zones().find_map(|(_, state)| match state {
            weir_authority::ZoneState::Ready(zone) => Some(zone),
            _ => None,
        });
        let Some(Chain::Nsec3(chain)) = zone.map(|zone| zone.denial()) else { panic!("signed so") };
        let name = zones::name(asked).name().fold();
        measure(what, |_| {
            black_box(chain.hash(black_box(name.folded())));
        });
    }

    /// Denials of a zone signed with NSEC3: one that is in front, and names that are asked for once, with a cache
    /// and without one.
    fn cache(&mut self, zones: &ZoneSet) {
        let Bench { policy, scratch, out } = self;
        let context = context(policy);
        let mut cache = Cache::new(32 << 20);
        let again = query("nothing.example", Rtype::A, true);
        measure("cache-hit", |_| {
            black_box(respond_cached(&again, &context, scratch, zones, &mut cache, out));
        });
        let once: Vec<_> =
            (0..TIMES).map(|n| query(&format!("no{}.example", 1000 + n), Rtype::A, true)).collect();
        measure("cache-miss", |n| {
            black_box(respond_cached(&once[n], &context, scratch, zones, &mut cache, out));
        });
        measure("cache-off", |n| {
            black_box(respond(&once[n], &context, scratch, zones, out));
        });
    }
}

fn context(policy: &Policy) -> Context<'_> {
    Context { transport: Transport::Udp, policy, client: std::net::Ipv4Addr::LOCALHOST.into(), now: 0 }
}

fn respond(
    packet: &[u8],
    context: &Context<'_>,
    scratch: &mut Scratch,
    zones: &ZoneSet,
    out: &mut [u8],
) -> usize {
    let Received::Query(query) = receive(packet, context, scratch, out) else { return 0 };
    let plan = plan(&query, context, scratch, zones);
    build(&plan, &query, context, scratch, out).map_or(0, |answered| answered.len)
}

/// The same by way of the cache, as the server does it.
fn respond_cached(
    packet: &[u8],
    context: &Context<'_>,
    scratch: &mut Scratch,
    zones: &ZoneSet,
    cache: &mut Cache,
    out: &mut [u8],
) -> usize {
    let Received::Query(query) = receive(packet, context, scratch, out) else { return 0 };
    let plan = plan(&query, context, scratch, zones);
    if !plan.is_dear(&query) {
        return build(&plan, &query, context, scratch, out).map_or(0, |answered| answered.len);
    }
    let asked = Asked { query: &query, context, generation: zones.generation() };
    cache.answer(&plan, &asked, scratch, out).map_or(0, |(answered, _)| answered.len)
}
