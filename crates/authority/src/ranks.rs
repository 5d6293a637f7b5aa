//! A small set of nodes that keeps the order in which they were added.

use crate::build::MAX_ALIASES;
use weir_zone::Node;

/// Most nodes that an answer has to remember: three proofs for its last name, and one node for each alias on the
/// way.
const MAX_RANKS: usize = 3 + MAX_ALIASES;

/// Nodes of the zones that an answer goes through, by the zone's place in it and the node's rank, each once.
#[derive(Default)]
pub(crate) struct RankSet {
    ranks: [(u32, u32); MAX_RANKS],
    len: usize,
}

impl RankSet {
    /// Adds a node of the zone numbered `zone`; false when it was there before.
    pub(crate) fn add(&mut self, zone: u32, node: &Node<'_>) -> bool {
        let rank = (zone, node.rank());
        let is_known = self.ranks.get(..self.len).unwrap_or(&[]).contains(&rank);
        match self.ranks.get_mut(self.len) {
            Some(space) if !is_known => {
                *space = rank;
                self.len += 1;
                true
            }
            _ => false,
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// The zone's number and the node's rank added as number `at`.
    pub(crate) fn nth(&self, at: usize) -> Option<(u32, u32)> {
        self.ranks.get(..self.len)?.get(at).copied()
    }
}
