//! Canonical order (RFC 4034 section 6.1) of runs: by keys that decide most comparisons, and in parts that are sorted
//! apart from each other.

use super::Division;
use super::pending::{BLOCK_LEN, Blocks, Run, runs};
use std::cmp::Ordering;
use weir_wire::name::{MAX_LABELS, canonical_cmp};

/// Most parts, so that their unfilled blocks do not matter.
const MAX_PARTS: usize = 256;
/// Octets of the blocks that a part is collected in.
const PART_BLOCK_LEN: usize = BLOCK_LEN / 2;
/// Blocks whose owners are looked at to find where to cut.
const N_SAMPLED_BLOCKS: usize = 32;

/// The first sixteen octets of a name as canonical order compares it.
///
/// `key(a) < key(b)` says that a sorts before b; names with equal keys are compared in full.
pub(crate) fn key(prefix: &[u8]) -> u128 {
    let mut starts = [0u8; MAX_LABELS];
    let mut n_labels = 0;
    let mut at = 0usize;
    while let (Some(&len), Some(start)) = (prefix.get(at), starts.get_mut(n_labels)) {
        *start = u8::try_from(at).unwrap_or(u8::MAX);
        n_labels += 1;
        at += 1 + usize::from(len);
    }
    let mut key = Key { octets: [0; 16], n: 0 };
    for &start in starts.get(..n_labels).unwrap_or(&[]).iter().rev() {
        if key.n >= key.octets.len() {
            break;
        }
        let start = usize::from(start);
        let len = prefix.get(start).copied().map_or(0, usize::from);
        key.label(prefix.get(start + 1..start + 1 + len).unwrap_or(&[]));
    }
    u128::from_be_bytes(key.octets)
}

struct Key {
    octets: [u8; 16],
    n: usize,
}

impl Key {
    /// The label's octets and a zero, which ends it before any longer label; zeros and ones within are written as
    /// two octets that sort the same way.
    fn label(&mut self, label: &[u8]) {
        let room = self.octets.get_mut(self.n..).unwrap_or(&mut []);
        let n_plain = label.len().min(room.len());
        if !label.iter().any(|&octet| octet < 2) {
            if let (Some(to), Some(from)) = (room.get_mut(..n_plain), label.get(..n_plain)) {
                to.copy_from_slice(from);
            }
            self.n += n_plain + 1;
            return;
        }
        for &octet in label {
            if octet < 2 {
                self.put(1);
            }
            self.put(if octet < 2 { octet + 1 } else { octet });
        }
        self.n += 1;
    }

    fn put(&mut self, octet: u8) {
        if let Some(place) = self.octets.get_mut(self.n) {
            *place = octet;
        }
        self.n += 1;
    }
}

/// A run and what sorts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    key: [u64; 2],
    block: u32,
    at: u32,
}

impl Entry {
    #[expect(clippy::cast_possible_truncation, reason = "both halves of the key are kept")]
    fn new(prefix: &[u8], block: u32, at: u32) -> Entry {
        let key = key(prefix);
        Entry { key: [(key >> 64) as u64, key as u64], block, at }
    }

    pub(super) fn run<'p>(&self, blocks: &'p Blocks) -> Option<Run<'p>> {
        blocks.run(self.block, self.at)
    }

    /// Whether both runs have the same owner.
    pub(super) fn is_same_owner(&self, other: &Entry, blocks: &Blocks) -> bool {
        self.key == other.key && self.prefix(blocks) == other.prefix(blocks)
    }

    fn prefix<'p>(&self, blocks: &'p Blocks) -> &'p [u8] {
        self.run(blocks).map_or(&[], |run| run.prefix)
    }

    fn cmp(&self, other: &Entry, blocks: &Blocks) -> Ordering {
        self.key
            .cmp(&other.key)
            .then_with(|| {
                let (left, right) = (self.prefix(blocks), other.prefix(blocks));
                if left == right { Ordering::Equal } else { canonical_cmp(left, right) }
            })
            // Records of an RRset stay in the order of the file.
            .then_with(|| (self.block, self.at).cmp(&(other.block, other.at)))
    }
}

/// The runs of `blocks` in canonical order.
pub(super) fn sorted(blocks: &Blocks) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (number, block) in (0u32..).zip(blocks.blocks()) {
        entries.extend(runs(block).map(|(at, run)| Entry::new(run.prefix, number, at)));
    }
    entries.sort_unstable_by(|a, b| a.cmp(b, blocks));
    entries
}

/// Cuts the runs into parts that follow each other in canonical order.
///
/// All names below one child of the apex are in one part.
pub(super) fn parts(blocks: Blocks, division: Division) -> Vec<Blocks> {
    let cuts = cuts(&blocks, division.part_len);
    let mut blocks = blocks.into_blocks();
    let n_a_thread = blocks.len().div_ceil(division.n_threads.max(1)).max(1);
    let mut shares = Vec::new();
    while blocks.len() > n_a_thread {
        let rest = blocks.split_off(n_a_thread);
        shares.push(std::mem::replace(&mut blocks, rest));
    }
    shares.push(blocks);
    let cuts = cuts.as_slice();
    let shares = super::in_parallel(shares, |share| distributed(share, cuts));
    let mut parts: Vec<Blocks> = std::iter::repeat_with(Blocks::default).take(cuts.len() + 1).collect();
    for share in shares {
        parts.iter_mut().zip(share).for_each(|(part, more)| part.append(more));
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Keys at which parts start: those of children of the apex, evenly spread over a sample.
fn cuts(blocks: &Blocks, part_len: usize) -> Vec<u128> {
    let n_parts = (blocks.n_octets() / part_len).clamp(1, MAX_PARTS);
    let step = blocks.blocks().len().div_ceil(N_SAMPLED_BLOCKS).max(1);
    let sampled = blocks.blocks().iter().step_by(step);
    let mut keys: Vec<u128> =
        sampled.flat_map(|block| runs(block)).map(|(_, run)| key(last_label(run.prefix))).collect();
    keys.sort_unstable();
    let mut cuts: Vec<u128> =
        (1..n_parts).filter_map(|number| keys.get(keys.len() * number / n_parts).copied()).collect();
    cuts.dedup();
    cuts
}

/// The label next to the origin, with its length octet.
fn last_label(prefix: &[u8]) -> &[u8] {
    let mut rest = prefix;
    loop {
        let label_len = 1 + rest.first().copied().map_or(0, usize::from);
        match rest.get(label_len..) {
            Some(after) if !after.is_empty() => rest = after,
            _ => return rest,
        }
    }
}

/// The runs of some blocks in the parts between the cuts; each block is given back when it was read.
fn distributed(blocks: Vec<Vec<u8>>, cuts: &[u128]) -> Vec<Blocks> {
    let mut parts: Vec<Blocks> = std::iter::repeat_with(Blocks::default).take(cuts.len() + 1).collect();
    let mut last = (0, 0);
    for block in blocks {
        for (_, run) in runs(&block) {
            let key = key(run.prefix);
            // Files are often sorted: try the part of the run before.
            let (lower, number) = last;
            let is_same = key >= lower && cuts.get(number).is_none_or(|&cut| key < cut);
            if !is_same {
                let number = cuts.partition_point(|&cut| cut <= key);
                let lower = number.checked_sub(1).and_then(|at| cuts.get(at)).copied().unwrap_or(0);
                last = (lower, number);
            }
            if let Some(part) = parts.get_mut(last.1) {
                part.push_run(run, PART_BLOCK_LEN);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_wire::name::{Name, NameBuf};

    fn prefix(text: &str) -> Vec<u8> {
        let name = NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).unwrap();
        let octets = name.name().octets();
        octets[..octets.len() - 1].to_vec()
    }

    #[test]
    fn keys_tell_a_label_with_an_octet_of_zero_from_one_that_ends() {
        let in_order = ["a", "b.a", "a\\000", "b.a\\000", "a\\001", "a\\002", "a1", "b"];
        for pair in in_order.windows(2) {
            assert!(key(&prefix(pair[0])) < key(&prefix(pair[1])), "{pair:?}");
        }
    }

    proptest! {
        #[test]
        fn keys_never_contradict_canonical_order(
            left in proptest::collection::vec(proptest::collection::vec(0u8..4, 1..12), 0..4),
            right in proptest::collection::vec(proptest::collection::vec(0u8..4, 1..12), 0..4),
        ) {
            let wire = |labels: &[Vec<u8>]| -> Vec<u8> {
                labels.iter().flat_map(|label| [&[u8::try_from(label.len()).unwrap()], &label[..]].concat()).collect()
            };
            let (left, right) = (wire(&left), wire(&right));
            let by_key = key(&left).cmp(&key(&right));
            prop_assert!(by_key == Ordering::Equal || by_key == canonical_cmp(&left, &right));
        }
    }
}
