//! Generated zones, half of them signed by Debian's signers, a number of them on each server at a time.

use std::fs;
use std::path::{Path, PathBuf};

use weir_testkit::generate::{self, Denial, Generated};
use weir_testkit::message::{Name, Query};
use weir_testkit::questions::{self, Depth, Zone};
use weir_testkit::random::Random;
use weir_testkit::sign::{Key, Signer};

use crate::servers::Servers;
use crate::tally::Tally;

/// Zones that are served at a time.
const AT_A_TIME: usize = 50;
/// Questions for each zone, drawn from all that [`questions::questions`] has.
const QUESTIONS: usize = 120;

/// The number in an environment variable.
pub(crate) fn number(variable: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}"))
}

/// Makes so many zones, serves them and asks about them. The zones are left in `target/tmp` for whoever looks into a
/// difference.
pub(crate) fn examine(n_zones: usize) -> Tally {
    let seed = u64::try_from(number("WEIR_DIFFERENTIAL_SEED", 20_261_130)).expect("a usize fits in 64 bits");
    let first = number("WEIR_DIFFERENTIAL_FIRST", 0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differential");
    fs::create_dir_all(&folder).expect("the folder of tests can be written to");
    let key = Key::new();
    let mut total = Tally::default();
    for start in (0..n_zones).step_by(AT_A_TIME) {
        let numbers = first + start..first + (start + AT_A_TIME).min(n_zones);
        let zones: Vec<(Name, PathBuf)> =
            numbers.map(|number| write(&key, &folder, number, generate::generate(seed, number))).collect();
        total.add("", examine_some(&zones, seed));
    }
    total
}

fn write(key: &Key, folder: &Path, number: usize, zone: Generated) -> (Name, PathBuf) {
    let signer = if number.is_multiple_of(2) { Signer::Ldns } else { Signer::Bind };
    let text = match zone.denial {
        Denial::Unsigned => zone.text,
        denial => key.sign(signer, &zone.origin, &zone.text, denial),
    };
    let file = folder.join(format!("z{number}.zone"));
    fs::write(&file, text).expect("the folder of tests can be written to");
    (zone.origin, file)
}

fn examine_some(zones: &[(Name, PathBuf)], seed: u64) -> Tally {
    let servers = Servers::start(zones);
    let zones: Vec<Zone> = zones.iter().map(|(origin, _)| servers.zone(origin)).collect();
    let asked: Vec<(&Zone, Query)> =
        zones.iter().flat_map(|zone| drawn(zone, seed).into_iter().map(move |query| (zone, query))).collect();
    let tally = servers.examine(&asked, 16);
    servers.stop();
    tally
}

/// Some of the questions for a zone, at random.
fn drawn(zone: &Zone, seed: u64) -> Vec<Query> {
    let mut queries = questions::questions(zone, Depth::Sampled(2), seed);
    let mut random = Random::new(seed);
    let n_drawn = QUESTIONS.min(queries.len());
    for at in 0..n_drawn {
        let other = at + random.below(queries.len() - at);
        queries.swap(at, other);
    }
    queries.truncate(n_drawn);
    queries
}
