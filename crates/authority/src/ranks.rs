//! A small set of nodes that keeps the order in which they were added.

use crate::build::MAX_ALIASES;
use weir_zone::Node;

/// Most nodes that an answer has to remember: three proofs for its last name, and one node for each alias on the
/// way.
const MAX_RANKS: usize = 3 + MAX_ALIASES;

/// Nodes by rank, each once.
#[derive(Default)]
pub(crate) struct RankSet {
    ranks: [u32; MAX_RANKS],
    len: usize,
}

impl RankSet {
    /// Adds a node; false when it was there before.
    pub(crate) fn add(&mut self, node: &Node<'_>) -> bool {
        let is_known = self.ranks.get(..self.len).unwrap_or(&[]).contains(&node.rank());
        match self.ranks.get_mut(self.len) {
            Some(space) if !is_known => {
                *space = node.rank();
                self.len += 1;
                true
            }
            _ => false,
        }
    }

    /// The rank added as number `at`.
    pub(crate) fn nth(&self, at: usize) -> Option<u32> {
        self.ranks.get(..self.len)?.get(at).copied()
    }
}
