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
    let zones = zones::zones(10_000, Denial::Nsec3);
    println!("| cache | flood | popular answers found in front | in the shard | evicted |");
    println!("|---|---|---|---|---|");
    for max_octets in [1u64 << 20, 8 << 20, 32 << 20] {
        for flood_percent in [0, 50, 90] {
            ratio(&zones, max_octets, flood_percent);
        }
    }
    println!();
    memory(&zones);
}

/// Denials of names by Zipf's law (exponent 1), and of names that are never asked for again.
fn ratio(zones: &ZoneSet, max_octets: u64, flood_percent: u64) {
    let mut asker = Asker::new(Cache::new(max_octets));
    let mut random = Random(1);
    let (mut front, mut shard, mut popular) = (0u32, 0u32, 0u32);
    for n in 0..2 * N_ASKED {
        if random.below(100) < flood_percent {
            asker.ask(zones, &format!("flood{n}.example"));
            continue;
        }
        let origin = asker.ask(zones, &format!("absent{}.example", zipf(&mut random)));
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

/// What the process grows by, for each answer kept, beside what the cache reckons: in front and in the shard.
fn memory(zones: &ZoneSet) {
    println!("| answers | octets reckoned an answer | octets of memory an answer |");
    println!("|---|---|---|");
    for (what, kind) in [("denials, in front", "absent"), ("chains, for the most part in the shard", "chain")]
    {
        // Names are drawn in the same order in a cache of the same size before: its memory is there already.
        let before = resident_octets();
        let mut asker = Asker::new(Cache::new(64 << 20));
        for _ in 0..3 {
            for n in 0..30_000 {
                let number = if kind == "chain" { n % 100 } else { n };
                let asked = format!("{kind}{number}.example");
                asker.ask(zones, &asked);
                asker.ask(zones, &asked);
            }
        }
        let usage = asker.cache.usage();
        let grown = resident_octets().saturating_sub(before);
        println!(
            "| {what}: {} | {} | {} |",
            usage.n_entries,
            usage.n_octets / usage.n_entries.max(1),
            grown / usage.n_entries.max(1)
        );
    }
}

/// The number of a name by Zipf's law: the k-th in proportion to 1/k.
fn zipf(random: &mut Random) -> u64 {
    // The inverse of the distribution's continuous form.
    let share = random.below(1 << 30) as f64 / (1u64 << 30) as f64;
    (N_POPULAR as f64).powf(share) as u64
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
