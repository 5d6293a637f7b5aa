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
use weir_authority::{Answered, Plan, Policy, Scratch, Transport};
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
    /// How it came.
    pub(crate) transport: Transport,
    /// The settings that shape its answer.
    pub(crate) policy: &'a Policy,
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
        let Asked { query, transport, policy, generation } = *asked;
        let probe = Probe(KeyRef::new(query, scratch, generation));
        if let Some(stored) = self.answers.get(&probe) {
            // What is too long for this client is built anew, and truncated.
            if let Some(answered) = stored.replay(query, transport, policy, out) {
                counters.cache_hits.add(1);
                return Some(answered);
            }
        }
        counters.cache_misses.add(1);
        let answered = weir_authority::build(plan, query, transport, policy, scratch, out)?;
        if let Some(stored) = Stored::of(&answered, query, out) {
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
