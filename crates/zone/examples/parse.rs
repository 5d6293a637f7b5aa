//! Goes over a zone file a number of times, for `benchmarks/zones/parse`.
//!
//! `parse STAGE FILE ORIGIN ROUNDS`, where STAGE is scan (tokens), read (records) or load (a zone that answers). Prints a
//! line a round: stage, octets, records, seconds. The file is in memory before the first round.

use std::hint::black_box;
use std::time::Instant;
use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::load::{LoadOptions, load};
use weir_zone::text::{Options, Record, Source, count_tokens, read};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [stage, file, origin, rounds] = &arguments[..] else {
        panic!("usage: parse scan|read|load FILE ORIGIN ROUNDS")
    };
    let text = std::fs::read(file).expect("the file can be read");
    let origin = FoldedBuf::from_text(origin).expect("the origin is a name");
    let rounds: usize = rounds.parse().expect("rounds are a number");
    let n_records = records(&text, &origin);
    for _ in 0..rounds {
        let start = Instant::now();
        match stage.as_str() {
            "scan" => drop(black_box(count_tokens(&text))),
            "read" => drop(black_box(records(&text, &origin))),
            "load" => {
                let source = Source::Octets("file", &text);
                let loaded = load(source, origin.folded(), HashSeed::fixed(), &LoadOptions::default());
                drop(black_box(loaded).expect("the zone is good"));
            }
            other => panic!("no stage {other}"),
        }
        println!("{stage},{},{n_records},{:.4}", text.len(), start.elapsed().as_secs_f64());
    }
}

fn records(text: &[u8], origin: &FoldedBuf) -> u64 {
    let mut n_records = 0;
    let mut sink = |record: Record<'_>| {
        black_box(record.rdata);
        n_records += 1;
    };
    let reading = read(Source::Octets("file", text), origin.folded().name(), &mut sink, &Options::default());
    assert!(!reading.findings.has_errors(), "the file has errors");
    n_records
}
