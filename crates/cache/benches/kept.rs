//! What a cache keeps: the share of answers that it finds under Zipf's law, alone and in a flood of names that are
//! asked for once, and what it takes of memory for each.
//!
//! `cargo bench -p weir-cache --bench kept`; counts, not times, the same on every machine but for the memory.

use weir_authority::{Context, Policy, Received, Scratch, Transport, ZoneSet, plan, receive};
use weir_cache::{Asked, Cache, Origin};
use weir_wire::rtype::Rtype;

#[path = "zones/mod.rs"]
mod zones;
use zones::{Denial, SEED, query};

/// Names that are asked for by Zipf's law.
const N_POPULAR: usize = 100_000;
/// Answers that fill the cache, and answers that are counted.
const N_ASKED: usize = 1_000_000;

fn main() {
    // First, and of a small zone: memory that was given back would be used again unseen.
    memory(&zones::zones(100, Denial::Nsec3));
    println!();
    let zones = zones::zones(10_000, Denial::Nsec3);
    println!("| cache | flood | popular answers found in front | in the shard | evicted |");
    println!("|---|---|---|---|---|");
    for max_octets in [1u64 << 20, 8 << 20, 32 << 20] {
        for flood_percent in [0, 50, 90] {
            ratio(&zones, max_octets, flood_percent);
        }
    }
}

/// Denials of names by Zipf's law (exponent 1), and of names that are never asked for again.
fn ratio(zones: &ZoneSet, max_octets: u64, flood_percent: u64) {
    let mut asker = Asker::new(Cache::new(max_octets));
    let (mut random, zipf) = (Random(1), Zipf::new(N_POPULAR));
    let (mut front, mut shard, mut popular) = (0u32, 0u32, 0u32);
    for n in 0..2 * N_ASKED {
        if random.below(100) < flood_percent {
            asker.ask(zones, &format!("flood{n}.example"));
            continue;
        }
        let origin = asker.ask(zones, &format!("absent{}.example", zipf.number(&mut random)));
        if n >= N_ASKED {
            popular += 1;
            front += u32::from(origin == Origin::Front);
            shard += u32::from(origin == Origin::Shard);
        }
    }
    let percent = |n: u32| 100.0 * f64::from(n) / f64::from(popular);
    println!(
        "| {} MiB | {flood_percent} % | {:.1} % | {:.1} % | {} |",
        max_octets >> 20,
        percent(front),
        percent(shard),
        asker.cache.usage().n_evicted
    );
}

/// What the process grows by for each answer that is kept, beside what the cache reckons.
fn memory(zones: &ZoneSet) {
    const N_ANSWERS: u64 = 20_000;
    println!("| answers | kept | octets reckoned an answer | octets of memory an answer |");
    println!("|---|---|---|---|");
    let before = resident_octets();
    let mut asker = Asker::new(Cache::new(64 << 20));
    for n in 0..N_ANSWERS {
        let asked = format!("absent{n}.example");
        asker.ask(zones, &asked);
        asker.ask(zones, &asked);
    }
    let grown = resident_octets().saturating_sub(before);
    let usage = asker.cache.usage();
    let each = |octets: u64| octets / usage.n_entries.max(1);
    println!("| denials in front | {} | {} | {} |", usage.n_entries, each(usage.n_octets), each(grown));
    let before = resident_octets();
    let shard = moka::sync::Cache::<u64, Box<[u8]>>::builder().max_capacity(N_ANSWERS).build();
    for n in 0..N_ANSWERS {
        shard.insert(n, vec![1; 1024].into());
    }
    shard.run_pending_tasks();
    let grown = resident_octets().saturating_sub(before);
    println!("| moka alone, 1,024 octets each | {N_ANSWERS} | 1416 | {} |", grown / N_ANSWERS);
}

/// Numbers of names by Zipf's law: the k-th is drawn in proportion to 1/k.
struct Zipf {
    /// Sums of the weights up to each number.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(n: usize) -> Zipf {
        let weights = (1..=n).map(|k| 1.0 / k as f64);
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf { sums: sums.collect() }
    }

    fn number(&self, random: &mut Random) -> usize {
        let whole = self.sums.last().copied().unwrap_or_default();
        let drawn = whole * random.below(1 << 30) as f64 / (1u64 << 30) as f64;
        self.sums.partition_point(|sum| *sum <= drawn)
    }
}

struct Asker {
    cache: Cache,
    policy: Policy,
    scratch: Scratch,
    out: [u8; 4096],
}

impl Asker {
    fn new(cache: Cache) -> Asker {
        Asker { cache, policy: Policy::default(), scratch: Scratch::new(SEED), out: [0; 4096] }
    }

    fn ask(&mut self, zones: &ZoneSet, asked: &str) -> Origin {
        let Asker { cache, policy, scratch, out } = self;
        let packet = query(asked, Rtype::A, true);
        let client = std::net::Ipv4Addr::LOCALHOST.into();
        let context = Context { transport: Transport::Udp, policy, client, now: 0 };
        let Received::Query(query) = receive(&packet, &context, scratch, out) else { return Origin::Built };
        let plan = plan(&query, &context, scratch, zones);
        let asked = Asked { query: &query, context: &context, generation: 1 };
        cache.answer(&plan, &asked, scratch, out).map_or(Origin::Built, |(_, origin)| origin)
    }
}

/// Memory of this process (proc(5), VmRSS).
fn resident_octets() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let n_kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    n_kib.expect("Linux says so") << 10
}

/// A linear congruential generator (Knuth's MMIX constants): the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
