//! Brings what a batch of queries will be answered from into the processor's caches, all of it at once.
//!
//! In a large zone an answer waits twice for memory, for the slot of its name's hash and then for the node, a tenth of a
//! microsecond each: more than all the work of writing it takes. A processor has ten and more such loads under way at a
//! time if they follow each other closely and none needs what another brings. So before a batch is answered, short loops
//! load what all of it needs, step by step: set of zones, zone, slots, nodes. Nothing is decided here, and a wrong guess
//! costs time alone.

use std::hint::black_box;

use weir_wire::header::HEADER_LEN;
use weir_wire::name::{NameHash, QueryName};
use weir_zone::Zone;

use crate::{Scratch, ZoneSet};

/// Queries whose loads are under way together: a worker's batch.
const N_TOGETHER: usize = 64;
/// Fewer gain less than the reading of their names costs.
const N_LEAST: usize = 4;
/// Names of a question that may be a zone's: the whole name's ancestors from the deepest origin on.
const N_ORIGINS: usize = 4;

/// What one query will probably need.
#[derive(Clone, Copy)]
struct Need<'z> {
    /// Of the whole name and of its parent: one of both is nearly always where the lookup ends.
    names: [NameHash; 2],
    origins: [NameHash; N_ORIGINS],
    /// The number of a zone in the set; 0 for none.
    number: u32,
    zone: Option<&'z Zone>,
    /// Of the nodes in the zone; 0 for none.
    positions: [u32; 2],
}

impl Need<'_> {
    const NOTHING: Self = Need {
        names: [NameHash(0); 2],
        origins: [NameHash(0); N_ORIGINS],
        number: 0,
        zone: None,
        positions: [0; 2],
    };

    /// Takes the hashes of a name that was asked for in a set whose deepest origin has `max_depth` labels.
    fn of(name: &QueryName, max_depth: usize) -> Self {
        let first = name.n_labels().saturating_sub(max_depth);
        let mut origins = [NameHash(0); N_ORIGINS];
        for (skip, origin) in (first..=name.n_labels()).zip(&mut origins) {
            *origin = name.suffix_hash(skip);
        }
        Need { names: [name.suffix_hash(0), name.suffix_hash(1)], origins, ..Self::NOTHING }
    }
}

/// Loads what `queries` will be answered from, if that is so much that it does not stay in the caches by itself.
///
/// `queries` are whole messages; what is none is passed over.
pub fn prefetch<'q>(
    queries: impl ExactSizeIterator<Item = &'q [u8]>,
    scratch: &mut Scratch,
    zones: &ZoneSet,
) {
    if !zones.is_large() || queries.len() < N_LEAST {
        return;
    }
    let mut needs = [Need::NOTHING; N_TOGETHER];
    let mut n_needs = 0;
    for (query, need) in queries.zip(&mut needs) {
        let body = query.get(HEADER_LEN..).unwrap_or(&[]);
        if scratch.name.fill(body, scratch.seed).is_ok() {
            *need = Need::of(&scratch.name, zones.max_depth());
        }
        n_needs += 1;
    }
    load_all(needs.get_mut(..n_needs).unwrap_or(&mut []), zones);
}

/// One loop a step, so that the loads of a step are under way together.
fn load_all<'z>(needs: &mut [Need<'z>], zones: &'z ZoneSet) {
    for need in needs.iter_mut() {
        need.number = zones.probable_entry(&need.origins);
    }
    for need in needs.iter_mut() {
        need.zone = zones.zone_of(need.number);
    }
    for need in needs.iter_mut() {
        if let Some(zone) = need.zone {
            need.positions = need.names.map(|name| zone.probable_position(name));
        }
    }
    let mut seen = 0;
    for need in needs.iter() {
        if let Some(zone) = need.zone {
            seen ^= need.positions.iter().fold(0, |seen, &position| seen ^ zone.touch(position));
        }
    }
    // The loads must not be left out because nobody reads what they bring.
    black_box(seen);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ZoneSetBuilder, ZoneState};
    use proptest::prelude::*;
    use std::sync::{Arc, LazyLock};
    use weir_wire::name::{FoldedBuf, HashSeed};
    use weir_wire::rtype::Rtype;
    use weir_zone::load::{LoadOptions, load};
    use weir_zone::text::Source;

    const SEED: HashSeed = HashSeed::fixed();

    /// A set that is large enough for the loads to be made.
    static ZONES: LazyLock<ZoneSet> = LazyLock::new(|| {
        let hosts: String = (0..20_000).map(|i| format!("h{i} A 192.0.2.1\n")).collect();
        let text = format!("@ SOA a b 1 2 3 4 5\n@ NS a.example.\n{hosts}");
        let origin = FoldedBuf::from_text("zone").unwrap();
        let source = Source::Octets("zone", text.as_bytes());
        let zone = load(source, origin.folded(), SEED, &LoadOptions::default()).unwrap().zone;
        let mut set = ZoneSetBuilder::new(SEED);
        set.add(FoldedBuf::from_text("broken").unwrap(), ZoneState::Broken);
        set.add(origin, ZoneState::Ready(Arc::new(zone)));
        set.finish(1)
    });

    fn query(name: &str) -> Vec<u8> {
        let mut packet = vec![0; 512];
        let name = FoldedBuf::from_text(name).unwrap();
        let n_octets = weir_wire::query::write(&mut packet, 7, name.folded().name(), Rtype::A, None).unwrap();
        packet.truncate(n_octets);
        packet
    }

    #[test]
    fn what_is_loaded_is_what_the_lookup_ends_at() {
        assert!(ZONES.is_large());
        let mut needs =
            ["h7.zone", "below.h8.zone", "nothing.zone", "h7.broken", "h7.elsewhere"].map(|text| {
                let mut name = QueryName::new(SEED);
                name.set(FoldedBuf::from_text(text).unwrap().folded().name(), SEED);
                Need::of(&name, ZONES.max_depth())
            });
        load_all(&mut needs, &ZONES);
        let zone = needs[0].zone.unwrap();
        let at = |name: &str| zone.probable_position(SEED.hash(FoldedBuf::from_text(name).unwrap().folded()));
        assert!(at("h7.zone") != 0 && at("h8.zone") != 0);
        assert_eq!(needs[0].positions[0], at("h7.zone"));
        assert_eq!(needs[1].positions, [0, at("h8.zone")]);
        assert_eq!(needs[2].positions[0], 0);
        assert!(needs[3].number != 0 && needs[3].zone.is_none());
        assert_eq!(needs[4].number, 0);
    }

    proptest! {
        #[test]
        fn whatever_arrives_in_whatever_number_is_passed_over_or_loaded(
            packets in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..300),
                    (0_usize..30_000).prop_map(|i| query(&format!("h{i}.zone"))),
                    Just(query("zone")),
                    Just(query("."))
                ],
                0..150,
            )
        ) {
            prefetch(packets.iter().map(Vec::as_slice), &mut Scratch::new(SEED), &ZONES);
        }
    }
}
