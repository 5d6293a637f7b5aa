//! The answer cache: one shard a worker, so that no two cores ever meet in it.
//!
//! moka keeps what is asked for often (TinyLFU) within a bound of octets. Shared between readers an instance scales
//! backwards, because every hit goes through one read log; a shard of its own costs a worker some repeated answers
//! and nothing else. What is worth a look at all is decided before, by the lookup (`Plan::is_dear`).
//!
//! invariant: an answer from here equals the one that would be built, octet for octet. Entries carry the generation of
//! the zone set in their key, so that a reload needs no purge: old ones are asked for no longer, and age out.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use equivalent::Equivalent;
use weir_authority::cached::{Key, KeyRef, Stored};
use weir_authority::{Answered, Context, Plan, Scratch};
use weir_wire::query::Query;

use crate::counters::AnswerCounters;

/// Octets reckoned for what moka keeps of an entry besides key and value: the headers of four shared allocations, two
/// list nodes and a table slot, of some 50 octets each.
const OVERHEAD_OCTETS: usize = 256;

/// One worker's shard.
pub(crate) struct Cache {
    answers: moka::sync::Cache<Key, Arc<Stored>, Prehashed>,
}

/// What a look-up needs to know of the query besides its plan.
pub(crate) struct Asked<'a, 'p> {
    /// The query.
    pub(crate) query: &'a Query<'p>,
    /// How it came, and the settings that shape its answer.
    pub(crate) context: &'a Context<'a>,
    /// The generation of the zone set that it is answered from.
    pub(crate) generation: u64,
}

impl Cache {
    /// A shard that holds up to `max_octets`.
    pub(crate) fn new(max_octets: u64) -> Cache {
        let weigh = |key: &Key, stored: &Arc<Stored>| {
            u32::try_from(key.octets() + stored.octets() + OVERHEAD_OCTETS).unwrap_or(u32::MAX)
        };
        let answers =
            moka::sync::Cache::builder().max_capacity(max_octets).weigher(weigh).build_with_hasher(Prehashed);
        Cache { answers }
    }

    /// Writes the answer that was planned into `out`, from the cache if it is there; keeps it if it is not.
    pub(crate) fn answer(
        &self,
        plan: &Plan<'_>,
        asked: &Asked<'_, '_>,
        scratch: &mut Scratch,
        out: &mut [u8],
        counters: &AnswerCounters,
    ) -> Option<Answered> {
        let Asked { query, context, generation } = *asked;
        let probe = Probe(KeyRef::new(query, scratch, generation));
        if let Some(stored) = self.answers.get(&probe) {
            // What is too long for this client is built anew, and truncated.
            if let Some(answered) = stored.replay(plan, query, context, scratch, out) {
                counters.cache_hits.add(1);
                return Some(answered);
            }
        }
        counters.cache_misses.add(1);
        let answered = weir_authority::build(plan, query, context, scratch, out)?;
        if let Some(stored) = Stored::of(&answered, query, scratch, out) {
            let key = KeyRef::new(query, scratch, generation).to_key();
            self.answers.insert(key, Arc::new(stored));
        }
        Some(answered)
    }

    /// Counts what the shard holds.
    pub(crate) fn note_size(&self, counters: &AnswerCounters) {
        // What moka put off for later is done now, once a second, and its counts are exact.
        self.answers.run_pending_tasks();
        counters.cache_entries.set(self.answers.entry_count());
        counters.cache_octets.set(self.answers.weighted_size());
    }
}

/// A borrowed key: a look-up allocates nothing.
struct Probe<'s>(KeyRef<'s>);

impl Hash for Probe<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Hash::hash(&self.0, state);
    }
}

impl Equivalent<Key> for Probe<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.0.equals(key)
    }
}

/// Takes a key's own hash as it is: it was made with a secret seed and is spread over the whole word.
#[derive(Clone, Copy, Debug, Default)]
struct Prehashed;

impl BuildHasher for Prehashed {
    type Hasher = TakenHash;

    fn build_hasher(&self) -> TakenHash {
        TakenHash(0)
    }
}

struct TakenHash(u64);

impl Hasher for TakenHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        // Keys hash by one `write_u64`; anything else would still be hashed, if badly.
        for &octet in octets {
            self.0 = self.0.rotate_left(8) ^ u64::from(octet);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_authority::{Policy, Received, Transport, ZoneSet, ZoneSetBuilder, ZoneState};
    use weir_wire::name::{HashSeed, Name, NameBuf};
    use weir_wire::rtype::{Class, Rtype};
    use weir_zone::ZoneBuilder;

    const SEED: HashSeed = HashSeed::fixed();

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).unwrap()
    }

    /// A zone in which every name is an alias, in a set of this generation.
    fn zones(generation: u64, address: [u8; 4]) -> ZoneSet {
        let origin = name("example.");
        let mut zone = ZoneBuilder::new(origin.name().fold().folded(), Class::IN, SEED);
        let (host, wildcard) = (name("host.example."), name("*.example."));
        let soa = [host.name().octets(), host.name().octets(), &[0; 20]].concat();
        for (owner, rtype, rdata) in [
            (origin.name(), Rtype::SOA, &soa[..]),
            (origin.name(), Rtype::NS, host.name().octets()),
            (host.name(), Rtype::A, &address),
            (wildcard.name(), Rtype::CNAME, host.name().octets()),
        ] {
            zone.add(owner, rtype, 60, rdata, 0).unwrap();
        }
        let mut set = ZoneSetBuilder::new(SEED);
        let (zone, _) = zone.finish().unwrap();
        set.add(origin.name().fold(), ZoneState::Ready(Arc::new(zone)));
        set.finish(generation)
    }

    /// Asks for the address of `text` by way of the cache.
    fn ask(cache: &Cache, zones: &ZoneSet, text: &str, counters: &AnswerCounters) -> Vec<u8> {
        let (policy, mut scratch) = (Policy::default(), Scratch::new(SEED));
        let (mut message, mut out) = ([0; 512], [0; 512]);
        let n_octets = weir_wire::query::write(&mut message, 1, name(text).name(), Rtype::A, None).unwrap();
        let client = std::net::Ipv4Addr::LOCALHOST.into();
        let context = Context { transport: Transport::Udp, policy: &policy, client, now: 0 };
        let received = weir_authority::receive(&message[..n_octets], &context, &mut scratch, &mut out);
        let Received::Query(query) = received else { panic!("{received:?}") };
        let plan = weir_authority::plan(&query, &context, &scratch, zones);
        assert!(plan.is_dear(&query));
        let asked = Asked { query: &query, context: &context, generation: zones.generation() };
        let answered = cache.answer(&plan, &asked, &mut scratch, &mut out, counters).unwrap();
        out[..answered.len].to_vec()
    }

    #[test]
    fn the_second_answer_comes_from_the_cache_and_is_the_same() {
        let (cache, counters, zones) =
            (Cache::new(1 << 20), AnswerCounters::default(), zones(1, [192, 0, 2, 1]));
        let first = ask(&cache, &zones, "www.example.", &counters);
        assert_eq!(first, ask(&cache, &zones, "www.example.", &counters));
        assert_eq!((counters.cache_misses.value(), counters.cache_hits.value()), (1, 1));
    }

    #[test]
    fn another_generation_is_another_answer() {
        let (cache, counters) = (Cache::new(1 << 20), AnswerCounters::default());
        let old = ask(&cache, &zones(1, [192, 0, 2, 1]), "www.example.", &counters);
        let new = ask(&cache, &zones(2, [192, 0, 2, 2]), "www.example.", &counters);
        assert_ne!(old, new);
        assert_eq!(new[new.len() - 4..], [192, 0, 2, 2]);
        assert_eq!(counters.cache_hits.value(), 0);
    }

    #[test]
    fn a_shard_stays_within_its_octets_whatever_is_asked() {
        let (cache, counters, zones) =
            (Cache::new(100_000), AnswerCounters::default(), zones(1, [192, 0, 2, 1]));
        for number in 0..5_000 {
            ask(&cache, &zones, &format!("random{number}.example."), &counters);
        }
        cache.note_size(&counters);
        let (octets, entries) = (counters.cache_octets.value(), counters.cache_entries.value());
        assert!(octets <= 100_000 && entries > 10, "{octets} octets in {entries} entries");
    }
}
