//! The name of a question, folded and hashed once for every lookup that follows.

use super::{Folded, HashSeed, MAX_LABELS, MAX_NAME_LEN, Name, NameError, NameHash};

/// Octets past the longest name that a hash step may read (and mask off).
const PADDING: usize = 9;

/// A folded name with the place and the hash of each of its ancestors: scratch that a worker makes once and fills
/// again for each query.
///
/// Label 0 is the leftmost; suffix `k` is the name from label `k` on, and suffix `n_labels` is the root.
pub struct QueryName {
    octets: [u8; MAX_NAME_LEN + PADDING],
    len: usize,
    n_labels: usize,
    starts: [u8; MAX_LABELS + 1],
    hashes: [NameHash; MAX_LABELS + 1],
}

impl QueryName {
    /// A name that holds the root.
    pub fn new(seed: HashSeed) -> QueryName {
        QueryName {
            octets: [0; MAX_NAME_LEN + PADDING],
            len: 1,
            n_labels: 0,
            starts: [0; MAX_LABELS + 1],
            hashes: [seed.root(); MAX_LABELS + 1],
        }
    }

    /// Takes the uncompressed name at the start of `octets`; yields its length in octets.
    ///
    /// A compression pointer is refused: nothing stands in front of a question's name that it could point to.
    #[inline]
    pub fn fill(&mut self, octets: &[u8], seed: HashSeed) -> Result<usize, NameError> {
        let mut at = 0;
        let mut n_labels = 0;
        loop {
            let label_len = usize::from(*octets.get(at).ok_or(NameError::Incomplete)?);
            if label_len > super::MAX_LABEL_LEN {
                return Err(NameError::LabelTooLong);
            }
            // 127 labels fill a name of 255 octets, so a name that is too long is found before the table is full.
            let start = self.starts.get_mut(n_labels).ok_or(NameError::NameTooLong)?;
            *start = u8::try_from(at).map_err(|_| NameError::NameTooLong)?;
            at += 1 + label_len;
            if label_len == 0 {
                break;
            }
            n_labels += 1;
        }
        if at > MAX_NAME_LEN {
            return Err(NameError::NameTooLong);
        }
        if at > octets.len() {
            return Err(NameError::Incomplete);
        }
        fold_into(&mut self.octets, octets, at);
        self.len = at;
        self.n_labels = n_labels;
        self.hash_suffixes(seed);
        Ok(at)
    }

    /// Takes a name that is already known to be one, such as the target of an alias.
    pub fn set(&mut self, name: Name<'_>, seed: HashSeed) {
        // A `Name` is well formed by its type, so filling from it succeeds.
        let filled = self.fill(name.octets(), seed);
        debug_assert!(filled.is_ok());
    }

    fn hash_suffixes(&mut self, seed: HashSeed) {
        let mut hash = seed.root();
        let mut end = self.len - 1;
        if let Some(of_root) = self.hashes.get_mut(self.n_labels) {
            *of_root = hash;
        }
        let starts = self.starts.get(..self.n_labels).unwrap_or(&[]).iter().rev();
        let hashes = self.hashes.get_mut(..self.n_labels).unwrap_or(&mut []).iter_mut().rev();
        for (&start, of_suffix) in starts.zip(hashes) {
            let start = usize::from(start);
            let label_and_after = self.octets.get(start..).unwrap_or(&[]);
            hash = seed.extend(hash, label_and_after, end - start);
            *of_suffix = hash;
            end = start;
        }
    }

    /// Number of labels, the root not counted.
    pub fn n_labels(&self) -> usize {
        self.n_labels
    }

    /// Octets of the whole name.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a name is never empty: it holds at least the root label"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The whole name.
    pub fn folded(&self) -> Folded<'_> {
        Folded { name: Name { octets: self.octets.get(..self.len).unwrap_or(&[0]) } }
    }

    /// The name without its `skip` leftmost labels; the root when it has no more than those.
    #[inline]
    pub fn suffix(&self, skip: usize) -> Folded<'_> {
        let start = self.suffix_start(skip);
        Folded { name: Name { octets: self.octets.get(start..self.len).unwrap_or(&[0]) } }
    }

    /// The octets of suffix `skip` in front of suffix `end`.
    #[inline]
    pub fn labels(&self, skip: usize, end: usize) -> &[u8] {
        self.octets.get(self.suffix_start(skip)..self.suffix_start(end)).unwrap_or(&[])
    }

    /// Octets in front of suffix `skip`.
    #[inline]
    pub fn suffix_start(&self, skip: usize) -> usize {
        self.starts.get(skip.min(self.n_labels)).map_or(0, |&start| usize::from(start))
    }

    /// The hash of suffix `skip`.
    #[inline]
    pub fn suffix_hash(&self, skip: usize) -> NameHash {
        self.hashes.get(skip.min(self.n_labels)).copied().unwrap_or(NameHash(0))
    }
}

/// Copies the first `len` octets of `octets` with ASCII letters in lower case, and up to seven that follow, which nobody
/// looks at. Length octets are below 64 and stay as they are.
#[inline]
fn fold_into(space: &mut [u8; MAX_NAME_LEN + PADDING], octets: &[u8], len: usize) {
    let (to_words, _) = space.as_chunks_mut::<8>();
    let (from_words, from_rest) = octets.as_chunks::<8>();
    let n_words = len.div_ceil(8);
    let whole = from_words.get(..n_words).unwrap_or(from_words);
    for (to, from) in to_words.iter_mut().zip(whole) {
        *to = fold_word(u64::from_le_bytes(*from)).to_le_bytes();
    }
    // A packet may end with the name, so that its last octets make no word.
    if let (true, Some(to)) = (n_words > from_words.len(), to_words.get_mut(from_words.len())) {
        for (to, from) in to.iter_mut().zip(from_rest) {
            *to = from.to_ascii_lowercase();
        }
    }
}

/// Eight octets at once: adds 0x20 where an octet lies between `A` and `Z`.
#[inline]
fn fold_word(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let low_bits = word & (0x7f * EACH);
    // Bit 7 of each octet: set in the first when the octet is at least `A`, in the second when it is past `Z`.
    let from_a = low_bits + (0x80 - 0x41) * EACH;
    let past_z = low_bits + (0x80 - 0x5b) * EACH;
    let is_upper = (from_a & !past_z & !word) & (0x80 * EACH);
    word | is_upper >> 2
}

#[cfg(test)]
mod tests {
    use super::super::tests::name;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_hash_as_the_names_they_are() {
        let seed = HashSeed::fixed();
        let mut query = QueryName::new(seed);
        let asked = name("WwW.a-longer-label-than-eight.Example.");
        assert_eq!(query.fill(asked.name().octets(), seed), Ok(asked.name().octets().len()));
        assert_eq!(query.n_labels(), 3);
        for skip in 0..=3 {
            assert_eq!(query.suffix_hash(skip), seed.hash(query.suffix(skip)), "suffix {skip}");
        }
        assert_eq!(query.suffix(2).name().to_string(), "example.");
        assert!(query.suffix(3).name().is_root());
    }

    #[test]
    fn a_name_of_127_labels_fits_and_one_of_128_does_not() {
        let seed = HashSeed::fixed();
        let mut query = QueryName::new(seed);
        let mut octets = b"\x01a".repeat(127);
        octets.push(0);
        assert_eq!(query.fill(&octets, seed), Ok(255));
        assert_eq!(query.n_labels(), 127);
        let mut octets = b"\x01a".repeat(128);
        octets.push(0);
        assert_eq!(query.fill(&octets, seed), Err(NameError::NameTooLong));
    }

    proptest! {
        #[test]
        fn folding_eight_octets_equals_folding_each(word: [u8; 8]) {
            let naive = word.map(|octet| octet.to_ascii_lowercase());
            prop_assert_eq!(fold_word(u64::from_le_bytes(word)).to_le_bytes(), naive);
        }

        #[test]
        fn filling_agrees_with_parsing(octets in proptest::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..300)) {
            let seed = HashSeed::fixed();
            let mut query = QueryName::new(seed);
            match (query.fill(&octets, seed), Name::parse(&octets)) {
                (Ok(len), Ok((name, _))) => {
                    prop_assert_eq!(len, name.octets().len());
                    prop_assert!(query.folded().name() == name);
                    prop_assert_eq!(query.suffix_hash(0), seed.hash(name.fold().folded()));
                }
                (filled, parsed) => prop_assert_eq!(filled.is_err(), parsed.is_err()),
            }
        }
    }
}
