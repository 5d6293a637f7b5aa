//! Proofs that something is not in a signed zone (RFC 4035 section 3.1.3, RFC 5155 section 7.2).

use crate::build::Page;
use crate::outcome::Source;
use crate::ranks::RankSet;
use weir_wire::answer::{Full, Section, Subject};
use weir_wire::name::QueryName;
use weir_wire::rtype::Rtype;
use weir_zone::denial::{Denial, Nsec3Chain, Nsec3Hash};
use weir_zone::{Node, Zone};

/// The name that something is denied of, and where the zone's origin stands in it.
#[derive(Clone, Copy)]
pub(crate) struct Denied<'n> {
    pub(crate) name: &'n QueryName,
    /// Labels in front of the origin.
    pub(crate) origin_skip: usize,
}

impl<'n> Denied<'n> {
    /// The name's octets in front of the origin.
    fn prefix(&self) -> &'n [u8] {
        let len = self.name.suffix_start(self.origin_skip);
        self.name.folded().octets().get(..len).unwrap_or(&[])
    }
}

impl Denied<'_> {
    /// Whether the name's labels in front of the origin end in `labels`.
    fn has_suffix(&self, labels: &[u8]) -> bool {
        let prefix = self.prefix();
        let Some(start) = prefix.len().checked_sub(labels.len()) else { return false };
        // Octets of a label can look like its length and label: only where a label starts they are.
        let is_start = || (0..self.origin_skip).any(|skip| self.name.suffix_start(skip) == start);
        prefix.ends_with(labels) && is_start()
    }
}

/// The nodes whose NSEC or NSEC3 records go into the authority section, each once.
///
/// They are collected first: a chain of aliases may still add records to the answer section, which comes before.
#[derive(Default)]
pub(crate) struct Proofs {
    nodes: RankSet,
    n_written: usize,
}

impl Proofs {
    /// Adds a node. A chain with a hole has none to give there.
    fn add(&mut self, zone: u32, node: Option<Node<'_>>) {
        if let Some(node) = node {
            self.nodes.add(zone, &node);
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.n_written = 0;
    }

    fn next(&mut self) -> Option<(u32, u32)> {
        let rank = self.nodes.nth(self.n_written)?;
        self.n_written += 1;
        Some(rank)
    }
}

impl<'z> Page<'z, '_, '_> {
    /// Proves that the name does not exist and that no wildcard stands in for it
    /// (RFC 4035 section 3.1.3.2, RFC 5155 section 7.2.2).
    #[inline(never)]
    pub(crate) fn prove_name_error(&mut self, denied: Denied<'_>, closest_encloser: Node<'z>, skip: usize) {
        let zone = self.zone;
        match zone.denial() {
            Denial::Unsigned => {}
            Denial::Nsec(chain) => {
                self.add_proof(chain.covering(zone, denied.prefix()));
                self.add_proof(chain.at_wildcard(zone, &closest_encloser));
            }
            Denial::Nsec3(chain) => {
                // Where that has no record, the wildcard is that of the ancestor that was proven to be the closest
                // (RFC 5155 section 8.4).
                let proven = self.prove_closest_encloser(chain, denied, skip).unwrap_or(closest_encloser);
                self.add_proof(chain.at_wildcard(zone, &proven));
            }
        }
    }

    /// Proves that the name exists, or its wildcard does, without the type asked for (RFC 4035 sections 3.1.3.1 and
    /// 3.1.3.4, RFC 5155 sections 7.2.3 to 7.2.5).
    #[inline(never)]
    pub(crate) fn prove_no_data(&mut self, denied: Denied<'_>, source: Source<'z>) {
        let zone = self.zone;
        match (zone.denial(), source) {
            (Denial::Unsigned, _) => {}
            (Denial::Nsec(chain), Source::Name(node)) => self.add_proof(chain.at(zone, &node)),
            (Denial::Nsec(chain), Source::Wildcard { wildcard, .. }) => {
                self.add_proof(chain.at(zone, &wildcard));
                self.add_proof(chain.covering(zone, denied.prefix()));
            }
            (Denial::Nsec3(chain), Source::Name(node)) => self.prove_type_missing(chain, denied, node),
            (Denial::Nsec3(chain), Source::Wildcard { wildcard, skip, .. }) => {
                let proven = self.prove_closest_encloser(chain, denied, skip);
                // A wildcard that only leads to delegations that opted out has no record; the span that the wildcard of
                // the proven encloser lies in stands in, as when it is denied. That is its own, unless its parent opted
                // out too.
                let matching = chain.matching(zone, &wildcard);
                let covering = || proven.and_then(|encloser| chain.at_wildcard(zone, &encloser));
                self.add_proof(matching.or_else(covering));
            }
        }
    }

    /// Proves that no closer name exists than the wildcard that answered (RFC 4035 section 3.1.3.3, RFC 5155
    /// section 7.2.6).
    #[inline(never)]
    pub(crate) fn prove_expansion(&mut self, denied: Denied<'_>, skip: usize) {
        let zone = self.zone;
        match zone.denial() {
            Denial::Unsigned => {}
            Denial::Nsec(chain) => self.add_proof(chain.covering(zone, denied.prefix())),
            Denial::Nsec3(chain) => {
                let hash = self.hash_of_next_closer(chain, denied, skip);
                self.add_proof(chain.covering(zone, &hash));
            }
        }
    }

    /// Proves that a zone cut has no DS record: what lies below is not signed, as far as this zone knows
    /// (RFC 4035 section 3.1.4.1, RFC 5155 section 7.2.7).
    pub(crate) fn prove_unsigned_cut(&mut self, denied: Denied<'_>, cut: Node<'z>) {
        self.prove_no_data(denied, Source::Name(cut));
    }

    /// The NSEC3 record of the name, or where it has none (an opt-out span), the closest encloser that has one and
    /// the span of the next closer name.
    fn prove_type_missing(&mut self, chain: &'z Nsec3Chain, denied: Denied<'_>, node: Node<'z>) {
        match chain.matching(self.zone, &node) {
            Some(nsec3) => self.add_proof(Some(nsec3)),
            None => {
                let n_labels = node.owner(self.zone).folded().name().n_labels();
                let skip = denied.name.n_labels().saturating_sub(n_labels);
                let _ = self.prove_closest_encloser(chain, denied, skip + 1);
            }
        }
    }

    /// RFC 5155 section 7.2.1: the closest encloser's record and the one that covers the next closer name. With
    /// opt-out the closest encloser may have no record; then the closest ancestor with one stands in. Yields which
    /// one it is.
    fn prove_closest_encloser(
        &mut self,
        chain: &'z Nsec3Chain,
        denied: Denied<'_>,
        skip: usize,
    ) -> Option<Node<'z>> {
        let zone = self.zone;
        for skip in skip..=denied.origin_skip {
            let Some(ancestor) = zone.ancestor(denied.name, skip, denied.origin_skip) else { continue };
            if let Some(nsec3) = chain.matching(zone, &ancestor) {
                self.add_proof(Some(nsec3));
                let hash = self.hash_of_next_closer(chain, denied, skip);
                self.add_proof(chain.covering(zone, &hash));
                return Some(ancestor);
            }
        }
        None
    }

    /// The hash of the name that has one label more than the closest encloser (RFC 5155 section 1.3).
    fn hash_of_next_closer(&mut self, chain: &Nsec3Chain, denied: Denied<'_>, skip: usize) -> Nsec3Hash {
        let skip = skip.saturating_sub(1);
        self.memory.hashes.of(denied.name.suffix(skip), denied.name.suffix_hash(skip), chain)
    }

    fn add_proof(&mut self, node: Option<Node<'_>>) {
        self.memory.proofs.add(self.zone_number(), node);
    }

    /// Writes the proofs collected since the last time to the authority section, with their signatures.
    pub(crate) fn push_proofs(&mut self) -> Result<(), Full> {
        while let Some((number, rank)) = self.memory.proofs.next() {
            let (zone, apex) = self.zone_numbered(number);
            if let Some(node) = zone.node_by_rank(rank) {
                self.push_proof(zone, apex, node)?;
            }
        }
        Ok(())
    }

    /// The longest end of the node's owner that the question has, where that is more than the zone's origin.
    fn known_suffix(&self, zone: &Zone, node: Node<'_>) -> Option<Subject> {
        let (first_zone, _) = self.zone_numbered(0);
        if !std::ptr::eq(zone, first_zone) {
            return None;
        }
        let asked = self.question.prefix();
        let mut labels = node.prefix();
        while let Some(&label_len) = labels.first() {
            if self.question.has_suffix(labels) {
                return Some(Subject::in_question(self.question.name.len(), asked.len() - labels.len()));
            }
            labels = labels.get(1 + usize::from(label_len)..)?;
        }
        None
    }

    #[inline(never)]
    fn push_proof(&mut self, zone: &'z Zone, apex: Subject, node: Node<'z>) -> Result<(), Full> {
        let rtype = if matches!(zone.denial(), Denial::Nsec3(_)) { Rtype::NSEC3 } else { Rtype::NSEC };
        let Some(rrset) = node.rrset(rtype) else { return Ok(()) };
        let mark = self.answer.mark();
        let known = self.known_suffix(zone, node).unwrap_or(apex);
        let owner = (node.prefix(), zone.origin().name());
        let placed = self.answer.push_with_owner(Section::Authority, rrset.records, owner, known)?;
        self.answer
            .push(Section::Authority, rrset.signatures, placed)
            .inspect_err(|_| self.answer.rewind(mark))
            .map(|_| ())
    }
}
