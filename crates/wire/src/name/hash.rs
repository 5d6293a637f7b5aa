//! Hashes of names, computed label by label from the right, so that a name's hash yields its ancestors' on the way.

use super::{Folded, MAX_LABELS};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The hash of a folded name under one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHash(pub u64);

/// The secret that keeps senders from choosing names that collide.
///
/// All zones of a set and all workers that look names up in it share one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed {
    start: u64,
    factor: u64,
}

impl HashSeed {
    /// A seed from the system's randomness.
    pub fn random() -> HashSeed {
        let mut words = [0u64; 2];
        for word in &mut words {
            *word = RandomState::new().build_hasher().finish();
        }
        HashSeed { start: words[0], factor: words[1] | 1 }
    }

    /// A seed that is the same every time, for tests and instruction counts.
    pub const fn fixed() -> HashSeed {
        HashSeed { start: 0x243f_6a88_85a3_08d3, factor: 0x1319_8a2e_0370_7345 }
    }

    /// The hash of the root, from which all others are computed.
    pub(super) fn root(self) -> NameHash {
        NameHash(self.start)
    }

    /// The hash of the name that has `label` in front of the name hashed as `parent`.
    ///
    /// `label` is a length octet and its label; `after` are the octets that follow in the same buffer, of
    /// which up to seven are read and masked off, so that a label costs one step for each eight octets.
    #[inline]
    pub(super) fn extend(self, parent: NameHash, label_and_after: &[u8], label_len: usize) -> NameHash {
        let mut hash = parent.0;
        let mut at = 0;
        while at < label_len {
            let n_octets = (label_len - at).min(8);
            hash = self.mix(hash ^ load(label_and_after.get(at..).unwrap_or(&[]), n_octets));
            at += 8;
        }
        NameHash(hash)
    }

    /// The hash of the name that has `label`, a length octet and lower-case octets, in front of the name hashed as
    /// `parent`.
    pub fn with_label(self, parent: NameHash, label: &[u8]) -> NameHash {
        self.extend(parent, label, label.len())
    }

    /// Folds the 128-bit product back to 64 bits: each input bit reaches every output bit.
    #[inline]
    fn mix(self, word: u64) -> u64 {
        let product = u128::from(word) * u128::from(self.factor ^ 0x9e37_79b9_7f4a_7c15);
        #[expect(clippy::cast_possible_truncation, reason = "both halves of the product are kept")]
        let (low, high) = (product as u64, (product >> 64) as u64);
        low ^ high.wrapping_add(self.start)
    }

    /// The hash of a whole name.
    pub fn hash(self, name: Folded<'_>) -> NameHash {
        let octets = name.octets();
        let mut starts = [0usize; MAX_LABELS];
        let mut n_labels = 0;
        let mut at = 0;
        for (label, start) in name.name().labels().zip(&mut starts) {
            *start = at;
            n_labels += 1;
            at += 1 + label.len();
        }
        let mut hash = self.root();
        for &start in starts.get(..n_labels).unwrap_or(&[]).iter().rev() {
            let label_and_after = octets.get(start..).unwrap_or(&[]);
            let label_len = 1 + usize::from(label_and_after.first().copied().unwrap_or(0));
            hash = self.extend(hash, label_and_after, label_len);
        }
        hash
    }
}

/// The first `n_octets` (1 to 8) of `octets` as a number; octets past those are masked off, missing ones are zero.
#[inline]
fn load(octets: &[u8], n_octets: usize) -> u64 {
    let word = match octets.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let mut padded = [0u8; 8];
            padded.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(padded)
        }
    };
    // From 1 to 8 octets the mask of the shift changes nothing; it tells the compiler that the shift is in range.
    word & (u64::MAX >> ((64 - 8 * n_octets) & 63))
}

#[cfg(test)]
mod tests {
    use super::super::tests::name;
    use super::*;

    #[test]
    fn the_hash_depends_on_the_name_and_the_seed_alone() {
        let seed = HashSeed::fixed();
        let (lower, upper) = (name("www.example.").name().fold(), name("WWW.EXAMPLE.").name().fold());
        assert_eq!(seed.hash(lower.folded()), seed.hash(upper.folded()));
        assert_ne!(seed.hash(lower.folded()), HashSeed::random().hash(lower.folded()));
    }

    #[test]
    fn names_that_differ_only_in_label_boundaries_hash_apart() {
        let seed = HashSeed::fixed();
        let names = ["ab.c.", "a.bc.", "abc.", "a.b.c.", "abcdefgh.", "abcdefg.h.", "a\\001b.c."];
        let hashes: std::collections::HashSet<u64> =
            names.iter().map(|text| seed.hash(name(text).name().fold().folded()).0).collect();
        assert_eq!(hashes.len(), names.len());
    }

    #[test]
    fn a_hundred_thousand_numbered_names_spread_over_the_low_bits() {
        let seed = HashSeed::fixed();
        let mut buckets = vec![0u32; 1 << 12];
        for number in 0..100_000 {
            let owner = name(&format!("host{number}.example.")).name().fold();
            buckets[usize::try_from(seed.hash(owner.folded()).0 & 0xfff).unwrap()] += 1;
        }
        // The mean is 24; a fair spread stays below 60 with overwhelming probability.
        assert!(buckets.iter().all(|&n_names| n_names < 60));
    }
}
