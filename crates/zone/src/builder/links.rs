//! Links: which node a name in RDATA names, looked up once all nodes are there.

use super::in_parallel;
use crate::tree::{LINK_LEN, Node, Rrset, Zone};
use weir_wire::name::{Folded, Name};

/// Nodes that one thread looks at before what it found is written.
const N_NODES_AT_ONCE: usize = 1 << 15;

/// Fills in the links of all RRsets, on `n_threads` threads.
pub(super) fn resolve(zone: &mut Zone, n_threads: usize) {
    let mut next = 0;
    while next < zone.order.len() {
        let mut ranges = Vec::new();
        for _ in 0..n_threads.max(1) {
            let end = (next + N_NODES_AT_ONCE).min(zone.order.len());
            ranges.push(next..end);
            next = end;
        }
        let found = in_parallel(ranges, |range| {
            let mut resolver = Resolver { zone, name: Vec::new(), last: Vec::new(), last_position: 0 };
            let mut links = Vec::new();
            for &position in zone.order.get(range).unwrap_or(&[]) {
                resolver.node(zone.node(position), &mut links);
            }
            links
        });
        for (at, position) in found.into_iter().flatten() {
            if let Some(space) = zone.arena.get_mut(at..at + 4) {
                space.copy_from_slice(&position.to_le_bytes());
            }
        }
    }
}

struct Resolver<'z> {
    zone: &'z Zone,
    name: Vec<u8>,
    /// The name looked up before, which the next record often repeats.
    last: Vec<u8>,
    last_position: u32,
}

impl<'z> Resolver<'z> {
    /// The links of a node: where in the arena they stand and what they lead to.
    fn node(&mut self, node: Node<'z>, links: &mut Vec<(usize, u32)>) {
        for rrset in node.rrsets().filter(Rrset::has_links) {
            let Some(links_at) = node.links_at(&rrset) else { continue };
            let owner = node.owner(self.zone);
            for (number, (name_at, _)) in rrset.named_hosts().enumerate() {
                self.name.clear();
                rrset.records.name(name_at, owner.folded().name(), &mut self.name);
                // Length octets are below 64, so folding does not touch them.
                self.name.make_ascii_lowercase();
                let position = self.position();
                if position != 0 {
                    links.push((links_at + number * LINK_LEN, position));
                }
            }
        }
    }

    fn position(&mut self) -> u32 {
        if self.name != self.last {
            let name = Name::from_octets(&self.name).ok().and_then(Folded::new);
            let node = name.and_then(|name| self.zone.find_name(name));
            self.last_position = node.map_or(0, |node| node.position());
            std::mem::swap(&mut self.name, &mut self.last);
        }
        self.last_position
    }
}
