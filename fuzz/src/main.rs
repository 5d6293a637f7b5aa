//! A bounded run of the targets without a fuzzer: a seeded mutator over the zones of the repository, over queries, and
//! over frames of queries.
//!
//! `smoke [RUNS [SEED]]`. The same arguments give the same inputs.

#![forbid(unsafe_code)]

use std::path::Path;
use weir_wire::name::NameBuf;
use weir_wire::query;
use weir_wire::rtype::Rtype;

use weir_fuzz::frame;

/// Most octets of an input.
const MAX_LEN: usize = 64 << 10;
/// Octets of the one large input that memory is measured with.
const LARGE_LEN: usize = 8 << 20;
/// Most octets of memory that an octet of input may cost.
const MAX_FACTOR: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (n_runs, seed) = (arguments.next().unwrap_or(20_000), arguments.next().unwrap_or(5));
    let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
    frames(n_runs, &mut random);
    cached_answers(n_runs, &mut random);
    zones(n_runs, &mut random);
}

/// Frames, two thirds of them with lengths and checksums that are right: what is wrong with those lies deeper.
fn frames(n_runs: u64, random: &mut Random) {
    let corpus = frame::corpus();
    let n_answered: u64 = (0..n_runs)
        .map(|_| {
            let mut octets = mutated(&corpus, random);
            if random.below(3) > 0 {
                octets.truncate(1500);
                frame::seal(&mut octets);
            }
            octets.insert(0, random.octet());
            u64::from(frame::frame(&octets))
        })
        .sum();
    assert!(n_answered > n_runs / 10, "only {n_answered} of {n_runs} frames were answered");
    println!("{n_runs} frames: {n_answered} were answered, none wrongly");
}

fn zones(n_runs: u64, random: &mut Random) {
    let corpus = corpus();
    for _ in 0..n_runs {
        weir_fuzz::zone_text(&mutated(&corpus, random));
    }
    let before = peak_octets();
    let mut large = Vec::with_capacity(LARGE_LEN);
    while large.len() < LARGE_LEN {
        large.extend(mutated(&corpus, random));
        large.push(b'\n');
    }
    weir_fuzz::zone_text(&large);
    let grown = peak_octets().saturating_sub(before);
    assert!(grown <= MAX_FACTOR * large.len(), "{} octets of input took {grown} of memory", large.len());
    println!(
        "{n_runs} inputs of {} zones: none was too much; {grown} octets for {}",
        corpus.len(),
        large.len()
    );
}

/// The zones for tests and the examples.
fn corpus() -> Vec<Vec<u8>> {
    let zones = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zones");
    let mut paths = Vec::new();
    for folder in [zones.clone(), zones.join("rules"), zones.join("golden")] {
        let entries = std::fs::read_dir(&folder).expect("the repository has it");
        paths.extend(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()));
    }
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("it is readable")).collect()
}

/// Queries by way of a cache: half of them whole, with settings by chance, the others changed as well.
fn cached_answers(n_runs: u64, random: &mut Random) {
    let queries = queries();
    for _ in 0..n_runs {
        let is_whole = random.below(2) == 0;
        let query = if is_whole { varied(&queries, random) } else { mutated(&queries, random) };
        weir_fuzz::cached_answers(&query);
    }
    println!("{n_runs} queries by way of a cache: each answer was the one that is built");
}

/// Queries for each owner of the zones that are asked, and for a name below each, with and without EDNS and the DO bit,
/// behind octets for settings.
fn queries() -> Vec<Vec<u8>> {
    let mut queries = Vec::new();
    for (origin, text) in weir_fuzz::ZONES {
        let owners = text.lines().filter_map(|line| line.split_whitespace().next());
        let mut owners: Vec<&str> = owners.filter(|owner| owner.ends_with(&format!("{origin}."))).collect();
        owners.dedup();
        for owner in owners {
            for asked in [owner.to_owned(), format!("below.{owner}")] {
                // One below the longest owner would be too long.
                let Ok(name) = NameBuf::from_text(asked.as_bytes(), None) else { continue };
                for (rtype, size) in
                    [(1, None), (1, Some(1232)), (15, Some(1232)), (43, Some(600)), (5, None)]
                {
                    let mut packet = [0; 512];
                    let len = query::write(&mut packet, 7, name.name(), Rtype(rtype), size).expect("it fits");
                    let mut input = [&[0; 8], &packet[..len]].concat();
                    queries.push(input.clone());
                    if size.is_some() {
                        *input.iter_mut().nth_back(3).expect("flags of the OPT record") |= 0x80;
                        queries.push(input);
                    }
                }
            }
        }
    }
    queries
}

/// A query with settings and a guise by chance.
fn varied(queries: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut query = queries[random.below(queries.len())].clone();
    query[..8].fill_with(|| random.octet());
    query
}

/// An input of the corpus with some octets changed, left out, doubled, or taken from another.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut text = corpus[random.below(corpus.len())].clone();
    for _ in 0..1 + random.below(8) {
        let at = random.below(text.len() + 1);
        let end = (at + random.below(32)).min(text.len());
        match random.below(6) {
            0 => text.insert(at, b" \t\n\r;()\"\\$@.#0"[random.below(14)]),
            1 => text.insert(at, random.octet()),
            2 => drop(text.drain(at..end)),
            3 if at < text.len() => text[at] ^= 1 << random.below(8),
            4 => {
                let piece = text[at..end].repeat(1 + random.below(3));
                text.splice(at..at, piece);
            }
            _ => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let piece = other[from..(from + random.below(200)).min(other.len())].to_vec();
                text.splice(at..at, piece);
            }
        }
    }
    text.truncate(MAX_LEN);
    text
}

/// The most memory that the process held at any time (proc(5), VmHWM).
fn peak_octets() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let n_kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    n_kib.expect("Linux says so") << 10
}

/// A linear congruential generator (Knuth's MMIX constants): the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end.max(1)
    }

    fn octet(&mut self) -> u8 {
        self.next() as u8
    }
}
