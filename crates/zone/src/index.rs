//! From the hash of a name to where it is stored: a flat table, filled once, read by every query.

use weir_wire::name::NameHash;

/// A hash table of positions, open addressing with linear probing.
///
/// A slot holds the upper half of the hash and a position; position 0 marks an empty slot. The table keeps no
/// names: the reader compares the candidate's.
///
/// invariant: at least a third of the slots are empty, so that every probe ends.
#[derive(Clone, Debug)]
pub struct HashIndex {
    slots: Box<[Slot]>,
    mask: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u32,
    position: u32,
}

impl HashIndex {
    /// An empty table for at most `n_entries`.
    pub fn with_capacity(n_entries: usize) -> HashIndex {
        let n_slots = (n_entries + n_entries / 2 + 1).next_power_of_two().max(4);
        HashIndex { slots: vec![Slot::default(); n_slots].into_boxed_slice(), mask: n_slots - 1 }
    }

    /// Adds a position, which must not be 0. The caller adds no more entries than it asked room for.
    pub fn insert(&mut self, hash: NameHash, position: u32) {
        debug_assert_ne!(position, 0);
        let mut at = self.first_slot(hash);
        while let Some(slot) = self.slots.get_mut(at) {
            if slot.position == 0 {
                *slot = Slot { tag: tag(hash), position };
                return;
            }
            at = (at + 1) & self.mask;
        }
    }

    /// The first position under `hash` that `is_it` accepts.
    #[inline]
    pub fn find(&self, hash: NameHash, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.first_slot(hash);
        loop {
            let slot = self.slots.get(at)?;
            if slot.position == 0 {
                return None;
            }
            if slot.tag == tag(hash) && is_it(slot.position) {
                return Some(slot.position);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Octets of memory that the table holds.
    pub fn octets(&self) -> usize {
        size_of_val(&*self.slots)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the mask keeps the low bits only")]
    fn first_slot(&self, hash: NameHash) -> usize {
        hash.0 as usize & self.mask
    }
}

fn tag(hash: NameHash) -> u32 {
    let [_, _, _, _, high @ ..] = hash.0.to_le_bytes();
    u32::from_le_bytes(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_whose_hashes_collide_are_all_found() {
        let mut index = HashIndex::with_capacity(100);
        for position in 1..=100 {
            index.insert(NameHash(u64::from(position % 3)), position);
        }
        for position in 1..=100 {
            let found = index.find(NameHash(u64::from(position % 3)), |candidate| candidate == position);
            assert_eq!(found, Some(position));
        }
        assert_eq!(index.find(NameHash(1), |candidate| candidate == 101), None);
    }
}
