//! The table in front: one place for each answer, by its hash.
//!
//! A place belongs to one answer and remembers one challenger: the name that was asked for last without having the
//! place. A challenger that comes twice in a row takes an empty place, and costs the owner of a taken one a credit;
//! the owner earns credits by hits, and goes when it has none left. So a name asked for once changes nothing, and of
//! two that share a place the one asked for more often has it.

use crate::Usage;
use weir_authority::cached::{Key, Stored};

/// Most credits: after so many lost challenges the place of an answer that is asked for no longer is free.
const MAX_CREDIT: u16 = 15;
/// Credits of an answer that gets its place. To keep an answer costs as much as to build it, so that names that come
/// twice each and never again would make the cache dear: but four of them at a place make one change.
const FIRST_CREDIT: u16 = 3;
/// Octets that an answer is reckoned to take, when places are counted out: proofs of a signed zone take a kilobyte.
const USUAL_OCTETS: u64 = 1024;
/// Most places of a table: their heads then take 128 KiB, which the processor's second cache holds beside the rest.
const MAX_PLACES: u64 = 1 << 14;

/// A place's head, apart from its answer so that a miss touches eight octets only.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// The upper half of the owner's hash; 0 may be anybody's, the answer knows.
    owner: u32,
    /// Some bits of the challenger's hash.
    challenger: u16,
    credit: u16,
}

/// What to do with an answer that has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing: it may never be asked for again.
    Pass,
    /// Give it its place.
    Keep,
    /// It was asked for again, but its place belongs to another one that is asked for more.
    Yield,
}

/// The table.
pub(crate) struct Front {
    heads: Box<[Head]>,
    answers: Box<[Option<Stored>]>,
    mask: usize,
    n_entries: u64,
    /// Octets of the answers.
    n_octets: u64,
    max_octets: u64,
    n_evicted: u64,
}

impl Front {
    /// A table of up to `max_octets`, places counted.
    pub(crate) fn new(max_octets: u64) -> Front {
        let place_len = (size_of::<Head>() + size_of::<Option<Stored>>()) as u64;
        let wanted = (max_octets / (USUAL_OCTETS + place_len)).clamp(1, MAX_PLACES);
        // The largest power of two that is not more.
        let n_places = 1usize << wanted.ilog2();
        Front {
            heads: vec![Head::default(); n_places].into(),
            answers: (0..n_places).map(|_| None).collect(),
            mask: n_places - 1,
            n_entries: 0,
            n_octets: 0,
            max_octets: max_octets.saturating_sub(n_places as u64 * place_len),
            n_evicted: 0,
        }
    }

    /// The answer under a key.
    #[inline]
    pub(crate) fn find(&mut self, key: &Key<'_>) -> Option<&Stored> {
        let at = self.place(key.hash());
        let head = self.heads.get_mut(at)?;
        if head.owner != upper_half(key.hash()) {
            return None;
        }
        let stored = self.answers.get(at)?.as_ref().filter(|stored| stored.is_under(key))?;
        head.credit = (head.credit + 1).min(MAX_CREDIT);
        Some(stored)
    }

    /// Takes note that the answer with this hash was asked for and has no place.
    #[inline]
    pub(crate) fn consider(&mut self, hash: u64, generation: u64) -> Verdict {
        let at = self.place(hash);
        let Some(head) = self.heads.get_mut(at) else { return Verdict::Pass };
        let challenger = challenger(hash);
        if head.challenger != challenger {
            head.challenger = challenger;
            return Verdict::Pass;
        }
        if head.credit == 0 {
            return Verdict::Keep;
        }
        let is_old = |stored: &Stored| stored.generation() != generation;
        if self.answers.get(at).and_then(Option::as_ref).is_none_or(is_old) {
            return Verdict::Keep;
        }
        head.credit -= 1;
        Verdict::Yield
    }

    /// Gives an answer its place; yields the one that has none then: the one that stood there, or this one where it would
    /// take more octets than are left.
    pub(crate) fn put(&mut self, stored: Stored) -> Option<Stored> {
        let hash = stored.key_hash();
        let at = self.place(hash);
        let (Some(head), Some(place)) = (self.heads.get_mut(at), self.answers.get_mut(at)) else {
            return Some(stored);
        };
        let freed = place.as_ref().map_or(0, octets);
        let n_octets = self.n_octets - freed + octets(&stored);
        if n_octets > self.max_octets {
            return Some(stored);
        }
        self.n_octets = n_octets;
        *head = Head { owner: upper_half(hash), challenger: 0, credit: FIRST_CREDIT };
        let displaced = place.replace(stored);
        match displaced {
            Some(_) => self.n_evicted += 1,
            None => self.n_entries += 1,
        }
        displaced
    }

    /// What the table holds; its places count as long as it has any.
    pub(crate) fn usage(&self) -> Usage {
        let places = size_of_val(&*self.heads) + size_of_val(&*self.answers);
        Usage {
            n_entries: self.n_entries,
            n_octets: self.n_octets + places as u64,
            n_evicted: self.n_evicted,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the mask keeps the low bits only")]
    fn place(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }
}

/// Octets of an answer beside its place, the header of its allocation counted.
fn octets(stored: &Stored) -> u64 {
    (stored.octets() - size_of::<Stored>() + crate::shard::ALLOCATION_OCTETS) as u64
}

fn upper_half(hash: u64) -> u32 {
    let [_, _, _, _, high @ ..] = hash.to_le_bytes();
    u32::from_le_bytes(high)
}

/// Bits of the hash that are not 0, since that is nobody, and are few enough to stand in a place's head.
fn challenger(hash: u64) -> u16 {
    let [.., b1, b0] = hash.to_le_bytes();
    u16::from_le_bytes([b1, b0]) | 1
}
