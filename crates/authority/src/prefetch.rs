//! Brings what a batch of queries will be answered from into the processor's caches, all of it at once.
//!
//! In a large zone an answer waits twice for memory, for the slot of its name's hash and then for the node, a tenth of a
//! microsecond each: more than all the work of writing it takes. A processor has ten and more such loads under way at a
//! time if they follow each other closely and none needs what another brings. So before a batch is answered, short loops
//! load what all of it needs, step by step: set of zones, zone, slots, nodes, and the records that deny what has no node.
//! Nothing is decided here, and a wrong guess costs time alone.

use std::hint::black_box;

use weir_wire::header::HEADER_LEN;
use weir_wire::name::{NameHash, QueryName};
use weir_zone::Zone;
use weir_zone::denial::{Denial, Nsec3Chain, Nsec3Hash};

use crate::{Scratch, ZoneSet};

/// Queries whose loads are under way together: a worker's batch.
pub(crate) const N_TOGETHER: usize = 64;
/// Fewer gain less than the reading of their names costs.
const N_LEAST: usize = 4;
/// Names of a question that may be a zone's: the whole name's ancestors from the deepest origin on.
const N_ORIGINS: usize = 4;
/// Octets that a node and its usual RRset take.
const NODE_LEN: usize = 64;
/// The same with a signature.
const SIGNED_NODE_LEN: usize = 320;
/// From the end of a question's name to the octet with the DO bit, where an OPT record is all that follows the question
/// (RFC 3225 section 3): type, class, the root, and of the OPT record type, size, extended rcode and version.
const DO_FROM_NAME: usize = 2 + 2 + 1 + 2 + 2 + 1 + 1;

/// What one query will probably need.
#[derive(Clone, Copy)]
struct Need<'z, 'q> {
    /// From the question on; empty where there is none.
    asked: &'q [u8],
    /// Whether signatures go along with the answer.
    dnssec_ok: bool,
    /// Of the whole name and of its parent: one of both is nearly always where the lookup ends.
    names: [NameHash; 2],
    origins: [NameHash; N_ORIGINS],
    /// The number of a zone in the set; 0 for none.
    number: u32,
    zone: Option<&'z Zone>,
    /// Of the nodes in the zone; 0 for none.
    positions: [u32; 2],
}

impl<'z, 'q> Need<'z, 'q> {
    const NOTHING: Self = Need {
        asked: &[],
        dnssec_ok: false,
        names: [NameHash(0); 2],
        origins: [NameHash(0); N_ORIGINS],
        number: 0,
        zone: None,
        positions: [0; 2],
    };

    /// Takes what a query asks for, with its name, in a set whose deepest origin has `max_depth` labels.
    fn of(asked: &'q [u8], name: &QueryName, max_depth: usize) -> Self {
        let first = name.n_labels().saturating_sub(max_depth);
        let mut origins = [NameHash(0); N_ORIGINS];
        for (skip, origin) in (first..=name.n_labels()).zip(&mut origins) {
            *origin = name.suffix_hash(skip);
        }
        let dnssec_ok = asked.get(name.len() + DO_FROM_NAME).is_some_and(|flags| flags & 0x80 != 0);
        let names = [name.suffix_hash(0), name.suffix_hash(1)];
        Need { asked, dnssec_ok, names, origins, ..Self::NOTHING }
    }

    /// The chain that will have to prove that the name does not exist right below one that does.
    fn chain_to_deny(&self) -> Option<(&'z Zone, &'z Nsec3Chain)> {
        let [name, parent] = self.positions;
        let zone = self.zone?;
        match zone.denial() {
            Denial::Nsec3(chain) if self.dnssec_ok && name == 0 && parent != 0 => Some((zone, chain)),
            _ => None,
        }
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
    scratch.memory.hashes.clear();
    if !zones.is_large() || queries.len() < N_LEAST {
        return;
    }
    let mut needs = [Need::NOTHING; N_TOGETHER];
    let mut n_needs = 0;
    for (query, need) in queries.zip(&mut needs) {
        let asked = query.get(HEADER_LEN..).unwrap_or(&[]);
        if scratch.name.fill(asked, scratch.seed).is_ok() {
            *need = Need::of(asked, &scratch.name, zones.max_depth());
        }
        n_needs += 1;
    }
    let needs = needs.get_mut(..n_needs).unwrap_or(&mut []);
    load_nodes(needs, zones);
    load_proofs(needs, scratch);
}

/// One loop a step, so that the loads of a step are under way together.
fn load_nodes<'z>(needs: &mut [Need<'z, '_>], zones: &'z ZoneSet) {
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
            let n_octets = if need.dnssec_ok { SIGNED_NODE_LEN } else { NODE_LEN };
            seen ^= need.positions.iter().fold(0, |seen, &position| seen ^ zone.touch(position, n_octets));
        }
    }
    // The loads must not be left out because nobody reads what they bring.
    black_box(seen);
}

/// Hashes the names that will be denied by NSEC3 records, and loads those which cover them; the others of such a proof
/// are the same for many names.
fn load_proofs(needs: &[Need<'_, '_>], scratch: &mut Scratch) {
    let mut denied = [None; N_TOGETHER];
    let mut n_denied = 0;
    for (need, (zone, chain)) in needs.iter().filter_map(|need| Some((need, need.chain_to_deny()?))) {
        if let (Ok(_), Some(space)) = (scratch.name.fill(need.asked, scratch.seed), denied.get_mut(n_denied))
        {
            let hash = scratch.memory.hashes.make(&scratch.name, chain);
            *space = Some(Denied { zone, chain, hash, place: chain.start_of_search(&hash) });
            n_denied += 1;
        }
    }
    let denied = denied.get_mut(..n_denied).unwrap_or(&mut []);
    let mut seen = 0;
    for Denied { chain, place, .. } in denied.iter().flatten() {
        seen ^= chain.touch(*place);
    }
    for Denied { chain, hash, place, .. } in denied.iter_mut().flatten() {
        *place = chain.position_covering(hash);
    }
    for Denied { zone, place, .. } in denied.iter().flatten() {
        seen ^= zone.touch(*place, SIGNED_NODE_LEN);
    }
    black_box(seen);
}

/// A name that will be denied.
#[derive(Clone, Copy)]
struct Denied<'z> {
    zone: &'z Zone,
    chain: &'z Nsec3Chain,
    hash: Nsec3Hash,
    /// The number of an entry of the chain, then the position of a node.
    place: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Policy, Received, Transport, ZoneSetBuilder, ZoneState, build, plan, receive};
    use proptest::prelude::*;
    use std::sync::{Arc, LazyLock};
    use weir_wire::name::{FoldedBuf, HashSeed};
    use weir_wire::rtype::Rtype;
    use weir_zone::load::{LoadOptions, load};
    use weir_zone::text::Source;

    const SEED: HashSeed = HashSeed::fixed();

    /// Sets that are large enough for the loads to be made.
    static ZONES: LazyLock<ZoneSet> = LazyLock::new(|| zones(""));
    /// The same with NSEC3 records that deny names below the apex.
    static SIGNED: LazyLock<ZoneSet> = LazyLock::new(|| {
        let record = |hash: char| {
            let [owner, next] = [hash, 'v'].map(|first| format!("{first}{}", "0".repeat(31)));
            format!("{owner} NSEC3 1 0 0 - {next} A\n")
        };
        zones(&format!(
            "@ NSEC3PARAM 1 0 0 -\n{}",
            ('0'..='9').chain('a'..='u').map(record).collect::<String>()
        ))
    });

    fn zones(more: &str) -> ZoneSet {
        let hosts: String = (0..20_000).map(|i| format!("h{i} A 192.0.2.1\n")).collect();
        let text = format!("@ SOA a b 1 2 3 4 5\n@ NS a.example.\n{hosts}{more}");
        let origin = FoldedBuf::from_text("zone").unwrap();
        let source = Source::Octets("zone", text.as_bytes());
        let zone = load(source, origin.folded(), SEED, &LoadOptions::default()).unwrap().zone;
        let mut set = ZoneSetBuilder::new(SEED);
        set.add(FoldedBuf::from_text("broken").unwrap(), ZoneState::Broken);
        set.add(origin, ZoneState::Ready(Arc::new(zone)));
        set.finish(1)
    }

    fn answer(packet: &[u8], scratch: &mut Scratch, zones: &ZoneSet) -> Vec<u8> {
        let policy = Policy::default();
        let client = std::net::Ipv4Addr::LOCALHOST.into();
        let context = Context { transport: Transport::Udp, policy: &policy, client, now: 0 };
        let mut out = vec![0; 1500];
        let Received::Query(query) = receive(packet, &context, scratch, &mut out) else { panic!("a query") };
        let plan = plan(&query, &context, scratch, zones);
        let len = build(&plan, &query, &context, scratch, &mut out).unwrap().len;
        out.truncate(len);
        out
    }

    fn query(name: &str) -> Vec<u8> {
        let mut packet = vec![0; 512];
        let name = FoldedBuf::from_text(name).unwrap();
        let n_octets =
            weir_wire::query::write(&mut packet, 7, name.folded().name(), Rtype::A, Some(1232)).unwrap();
        packet.truncate(n_octets);
        // The DO bit, four octets from the end of an OPT record without options.
        packet[n_octets - 4] |= 0x80;
        packet
    }

    #[test]
    fn names_that_will_be_denied_are_hashed_ahead() {
        let mut scratch = Scratch::new(SEED);
        let packets = ["h1.zone", "no.zone", "zone", "below.no.zone", "NONE.zone"].map(query);
        prefetch(packets.iter().map(Vec::as_slice), &mut scratch, &SIGNED);
        assert_eq!(scratch.memory.hashes.n_made(), 2);
    }

    #[test]
    fn what_is_loaded_is_what_the_lookup_ends_at() {
        assert!(ZONES.is_large());
        let mut needs =
            ["h7.zone", "below.h8.zone", "nothing.zone", "h7.broken", "h7.elsewhere"].map(|text| {
                let mut name = QueryName::new(SEED);
                name.set(FoldedBuf::from_text(text).unwrap().folded().name(), SEED);
                Need::of(&[], &name, ZONES.max_depth())
            });
        load_nodes(&mut needs, &ZONES);
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
        fn answers_are_the_same_whether_or_not_what_they_need_was_loaded_ahead(
            names in prop::collection::vec(
                prop_oneof!["[a-h][0-9]{0,3}", "[a-h][0-9]{0,3}\\.h7", "h[0-9]\\.[a-h]", Just("H7".into())],
                4..80,
            ),
        ) {
            let packets: Vec<_> = names.iter().map(|name| query(&format!("{name}.zone"))).collect();
            let (mut ahead, mut plain) = (Scratch::new(SEED), Scratch::new(SEED));
            prefetch(packets.iter().map(Vec::as_slice), &mut ahead, &SIGNED);
            for packet in &packets {
                prop_assert_eq!(
                    answer(packet, &mut ahead, &SIGNED),
                    answer(packet, &mut plain, &SIGNED)
                );
            }
        }

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
