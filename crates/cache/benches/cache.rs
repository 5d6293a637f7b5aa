//! What a hit, a miss and an insert cost, beside building the same answers anew; and moka's own calls.
//!
//! `cargo bench -p weir-cache --bench cache`; a figure is the time of a whole answer, from the packet on, of names
//! drawn at random from a thousand unless a group says otherwise.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use weir_authority::{Context, Policy, Received, Scratch, Transport, ZoneSet, build, plan, receive};
use weir_cache::{Asked, Cache};
use weir_wire::rtype::Rtype;

#[path = "zones/mod.rs"]
mod zones;
use zones::{Denial, SEED, query};

/// Names of a group; they are asked for in an order that has no pattern.
const N_NAMES: usize = 1000;
/// Octets of a cache in which all of them have a place.
const ROOMY: u64 = 64 << 20;
/// Octets of a cache whose front has next to no place, so that what is found is found in the shard.
const NO_FRONT: u64 = 4000;

/// A worker's memory.
struct Bench {
    policy: Policy,
    scratch: Scratch,
    out: [u8; 4096],
}

impl Bench {
    fn new() -> Bench {
        Bench { policy: Policy::default(), scratch: Scratch::new(SEED), out: [0; 4096] }
    }

    fn answer(&mut self, packet: &[u8], zones: &ZoneSet, cache: Option<&mut Cache>) -> usize {
        let Bench { policy, scratch, out } = self;
        let client = std::net::Ipv4Addr::LOCALHOST.into();
        let context = Context { transport: Transport::Udp, policy, client, now: 0 };
        let Received::Query(query) = receive(packet, &context, scratch, out) else { return 0 };
        let plan = plan(&query, &context, scratch, zones);
        let answered = match cache {
            Some(cache) if plan.is_dear(&query) => {
                let asked = Asked { query: &query, context: &context, generation: 1 };
                cache.answer(&plan, &asked, scratch, out).map(|(answered, _)| answered)
            }
            _ => build(&plan, &query, &context, scratch, out),
        };
        answered.map_or(0, |answered| answered.len)
    }
}

/// Queries for `count` names of a kind.
fn queries(kind: &str, count: usize, dnssec_ok: bool) -> Vec<Vec<u8>> {
    let in_order = (0..count).map(|n| n * 7919 % count);
    in_order.map(|n| query(&kind.replace('#', &n.to_string()), Rtype::A, dnssec_ok)).collect()
}

/// The kinds of dear answers, by the zone that has them.
fn kinds() -> Vec<(&'static str, Denial, &'static str, bool)> {
    vec![
        ("alias", Denial::Unsigned, "alias#.example", false),
        ("chain", Denial::Unsigned, "chain#.example", false),
        ("wide-referral", Denial::Unsigned, "www.wide#.example", false),
        ("nsec-nxdomain", Denial::Nsec, "absent#.example", true),
        ("nsec3-nxdomain", Denial::Nsec3, "absent#.example", true),
        ("nsec3-chain", Denial::Nsec3, "chain#.example", true),
    ]
}

fn hits(c: &mut Criterion) {
    for (kind, denial, asked, dnssec_ok) in kinds() {
        let zones = zones::zones(100_000, denial);
        let packets = queries(asked, N_NAMES, dnssec_ok);
        let mut group = c.benchmark_group(kind);
        let mut bench = Bench::new();
        for (how, mut cache) in
            [("fresh", None), ("front", Some(Cache::new(ROOMY))), ("miss", Some(Cache::new(NO_FRONT)))]
        {
            for packet in packets.iter().cycle().take(4 * N_NAMES) {
                bench.answer(packet, &zones, cache.as_mut());
            }
            let mut next = packets.iter().cycle();
            group.bench_function(how, |b| {
                b.iter(|| bench.answer(next.next().unwrap_or(&packets[0]), &zones, cache.as_mut()));
            });
        }
    }
}

/// Names that are asked for twice each, so that half of the answers are kept and push others out.
fn inserts(c: &mut Criterion) {
    let zones = zones::zones(100_000, Denial::Nsec3);
    let packets = queries("absent#.example", 200_000, true);
    let mut group = c.benchmark_group("insert");
    let mut bench = Bench::new();
    for (how, mut cache) in [("fresh", None), ("every-second", Some(Cache::new(ROOMY)))] {
        let mut next = packets.iter().flat_map(|packet| [packet; 2]).cycle();
        group.bench_function(how, |b| {
            b.iter(|| bench.answer(next.next().unwrap_or(&packets[0]), &zones, cache.as_mut()));
        });
    }
}

/// moka by itself, with values that are cheap to clone.
fn moka_alone(c: &mut Criterion) {
    const N_KEYS: u64 = 50_000;
    let cache = moka::sync::Cache::<u64, std::sync::Arc<[u8]>>::builder().max_capacity(N_KEYS).build();
    let value: std::sync::Arc<[u8]> = vec![0; 1024].into();
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..N_KEYS).for_each(|n| cache.insert(key(n), value.clone()));
    cache.run_pending_tasks();
    let mut group = c.benchmark_group("moka");
    let mut n = 0;
    group.bench_function("get-hit", |b| {
        b.iter(|| {
            n = (n + 7919) % N_KEYS;
            black_box(cache.get(&key(n)))
        });
    });
    group.bench_function("get-miss", |b| {
        b.iter(|| {
            n += 1;
            black_box(cache.get(&key(n + 2 * N_KEYS)))
        });
    });
    group.bench_function("insert", |b| {
        b.iter(|| {
            n += 1;
            cache.insert(key(n + 2 * N_KEYS), value.clone());
        });
    });
}

fn short() -> Criterion {
    let criterion = Criterion::default().without_plots();
    criterion.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2))
}

criterion_group! { name = benches; config = short(); targets = hits, inserts, moka_alone }
criterion_main!(benches);
