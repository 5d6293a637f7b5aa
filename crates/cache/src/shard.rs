//! The shard behind the front: moka, which keeps what is asked for often (TinyLFU) within a bound of octets.
//!
//! A call to moka costs as much as many an answer: it is made for answers of many records only, and only where the
//! marks say that it is of use. Between workers moka is not shared: every hit of an instance goes through one read
//! log, and readers on several cores make one another slower.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moka::notification::RemovalCause;
use weir_authority::cached::{Key, Stored};

use crate::Usage;

/// Fewest records of an answer that is worth a place here: what has fewer is built in the time that moka takes to
/// find it (`cargo bench -p weir-cache` compares the two).
const MIN_RECORDS: u32 = 9;
/// Octets reckoned for what moka keeps of an entry besides key and answer: the entry, its key and its place in two
/// queues, and the table's slot (`cargo bench -p weir-cache -- memory` measures it).
const OVERHEAD_OCTETS: usize = 360;
/// Octets that the allocator and the counts of a shared allocation add to it.
pub(crate) const ALLOCATION_OCTETS: usize = 32;
/// Octets of the shard for each mark: answers here have some kilobyte, so that there are twice as many marks.
const OCTETS_PER_MARK: u64 = 512;
/// Most marks: 256 KiB of them.
const MAX_MARKS: u64 = 1 << 16;

/// One worker's shard.
pub(crate) struct Shard {
    answers: moka::sync::Cache<u64, Stored, Prehashed>,
    /// Some bits of the hashes of answers that were given to moka, by the other bits: what has no mark is not there.
    marks: Box<[u32]>,
    mask: usize,
    n_evicted: Arc<AtomicU64>,
}

impl Shard {
    /// A shard of up to `max_octets`, marks counted.
    pub(crate) fn new(max_octets: u64) -> Shard {
        let n_marks = 1usize << (max_octets / OCTETS_PER_MARK).clamp(1, MAX_MARKS).ilog2();
        let marks = vec![0u32; n_marks].into_boxed_slice();
        let n_evicted = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&n_evicted);
        let answers = moka::sync::Cache::builder()
            .max_capacity(max_octets.saturating_sub(size_of_val(&*marks) as u64))
            .weigher(|_, stored: &Stored| u32::try_from(weight(stored)).unwrap_or(u32::MAX))
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build_with_hasher(Prehashed);
        Shard { answers, marks, mask: n_marks - 1, n_evicted }
    }

    /// Whether a look for the answer with this hash may find it. Costs next to nothing.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.marks.get(self.mark_at(hash)).is_some_and(|mark| *mark == mark_of(hash))
    }

    /// The answer under a key that is marked; takes the mark away when there is none.
    pub(crate) fn find(&mut self, key: &Key<'_>) -> Option<Stored> {
        let found = self.answers.get(&key.hash()).filter(|stored| stored.is_under(key));
        if found.is_none() {
            self.mark(key.hash(), 0);
        }
        found
    }

    /// Takes an answer in that is worth it, of the zone set in hand, and not here yet.
    pub(crate) fn offer(&mut self, stored: Stored, generation: u64) {
        let hash = stored.key_hash();
        if stored.n_records() < MIN_RECORDS || stored.generation() != generation || self.may_hold(hash) {
            return;
        }
        self.mark(hash, mark_of(hash));
        self.answers.insert(hash, stored);
    }

    fn mark(&mut self, hash: u64, mark: u32) {
        let at = self.mark_at(hash);
        if let Some(space) = self.marks.get_mut(at) {
            *space = mark;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the mask keeps the low bits only")]
    fn mark_at(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// What the shard holds.
    pub(crate) fn usage(&self) -> Usage {
        // What moka put off for later is done now, and its counts are exact.
        self.answers.run_pending_tasks();
        Usage {
            n_entries: self.answers.entry_count(),
            n_octets: self.answers.weighted_size() + size_of_val(&*self.marks) as u64,
            n_evicted: self.n_evicted.load(Ordering::Relaxed),
        }
    }
}

fn weight(stored: &Stored) -> usize {
    stored.octets() + ALLOCATION_OCTETS + OVERHEAD_OCTETS
}

/// The upper half of the hash, of which 0 is kept for no mark.
fn mark_of(hash: u64) -> u32 {
    let [_, _, _, _, high @ ..] = hash.to_le_bytes();
    u32::from_le_bytes(high) | 1
}

/// Takes a key, which is a hash made with a secret seed, as its own hash.
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
