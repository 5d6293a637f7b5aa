//! Which records deny what: NSEC and NSEC3 chains, indexed when a zone is built.

use crate::builder::canonical_key;
use crate::tree::{Node, Zone};
use sha1::{Digest, Sha1};
use std::cmp::Ordering;
use weir_wire::name::{Folded, MAX_NAME_LEN, canonical_cmp};
use weir_wire::rdata::encoding::decode_base32hex;
use weir_wire::rtype::Rtype;

/// Octets of a SHA-1 hash, the only algorithm that NSEC3 has (RFC 5155 section 11).
const HASH_LEN: usize = 20;

/// A hashed owner name (RFC 5155 section 5).
pub type Nsec3Hash = [u8; HASH_LEN];

/// How a zone denies that something exists.
#[derive(Debug)]
pub enum Denial {
    /// By its SOA alone: the zone is not signed.
    Unsigned,
    /// By NSEC records (RFC 4034 section 4).
    Nsec(NsecChain),
    /// By NSEC3 records (RFC 5155).
    Nsec3(Nsec3Chain),
}

/// The NSEC records of a zone.
#[derive(Debug)]
pub struct NsecChain {
    /// For each node by rank: the position of the nearest node with an NSEC record that does not sort behind it.
    at_or_before: Vec<u32>,
    /// For each node by rank: the start of its name as it sorts, so that a search seldom reads a name.
    sort_keys: Vec<u64>,
}

/// The NSEC3 records of a zone that share the parameters of its NSEC3PARAM record.
#[derive(Debug)]
pub struct Nsec3Chain {
    iterations: u16,
    salt: Box<[u8]>,
    /// The hashes in ascending order, each with the position of the node that owns its record.
    entries: Vec<(Nsec3Hash, u32)>,
    /// For each value of a hash's first bits the number of entries that sort before it, and the number of all: hashes
    /// are spread evenly, so that a search has one or two entries to look at.
    starts: Vec<u32>,
    /// For each node by rank: what is known of its name's hash.
    by_rank: Vec<KnownHashes>,
}

/// Entry numbers, computed when the zone is built so that an answer hashes one name at most.
#[derive(Clone, Copy, Debug)]
struct KnownHashes {
    /// The entry that matches the node's name, or [`NO_MATCH`].
    matching: u32,
    /// The entry that covers or matches the wildcard right below the node.
    at_wildcard: u32,
}

/// The node's name has no NSEC3 record: it lies in an opt-out span, or is no name of its own.
const NO_MATCH: u32 = u32::MAX;

impl Denial {
    /// Indexes the chains of a zone whose nodes are all in place.
    pub(crate) fn of(zone: &Zone) -> Denial {
        match Nsec3Chain::of(zone) {
            Some(chain) => Denial::Nsec3(chain),
            None if zone.apex().rrset(Rtype::NSEC).is_some() => Denial::Nsec(NsecChain::of(zone)),
            None => Denial::Unsigned,
        }
    }
}

impl NsecChain {
    fn of(zone: &Zone) -> NsecChain {
        let mut last = 0;
        let at_or_before = zone
            .nodes()
            .map(|node| {
                // Below a cut nothing is authoritative, and no NSEC record of the parent's.
                let is_authoritative = node.covering().is_none_or(|covering| covering.is(&node));
                if is_authoritative && node.rrset(Rtype::NSEC).is_some() {
                    last = node.position();
                }
                last
            })
            .collect();
        NsecChain { at_or_before, sort_keys: zone.nodes().map(|node| sort_key(node.prefix())).collect() }
    }

    /// The node whose NSEC record matches `node`'s name or covers it.
    pub fn at<'z>(&self, zone: &'z Zone, node: &Node<'_>) -> Option<Node<'z>> {
        self.by_rank(zone, node.rank())
    }

    /// The node whose NSEC record covers a name that does not exist: `prefix` are the name's octets in front of the
    /// origin, in lower case.
    pub fn covering<'z>(&self, zone: &'z Zone, prefix: &[u8]) -> Option<Node<'z>> {
        self.by_rank(zone, self.rank_before(zone, prefix))
    }

    /// The node whose NSEC record matches the wildcard right below `encloser`, or covers it where there is none.
    pub fn at_wildcard<'z>(&self, zone: &'z Zone, encloser: &Node<'_>) -> Option<Node<'z>> {
        let mut wildcard = [0; 2 + MAX_NAME_LEN];
        let len = 2 + encloser.prefix().len();
        wildcard.get_mut(..2)?.copy_from_slice(b"\x01*");
        wildcard.get_mut(2..len)?.copy_from_slice(encloser.prefix());
        let wildcard = wildcard.get(..len)?;
        // The asterisk sorts before the letters and digits that names are made of, so that the next name in order is
        // nearly always behind it, and the encloser right before it.
        let is_before_next = zone
            .node_by_rank(encloser.rank() + 1)
            .is_none_or(|next| canonical_cmp(next.prefix(), wildcard) == Ordering::Greater);
        if is_before_next { self.at(zone, encloser) } else { self.covering(zone, wildcard) }
    }

    /// The rank of the last node that does not sort behind the name made of `prefix` and the origin.
    fn rank_before(&self, zone: &Zone, prefix: &[u8]) -> u32 {
        let key = sort_key(prefix);
        let n_below = self.sort_keys.partition_point(|other| *other < key);
        let alike = self.sort_keys.get(n_below..).unwrap_or(&[]);
        let alike = alike.get(..alike.partition_point(|other| *other == key)).unwrap_or(&[]);
        let nodes = zone.order.get(n_below..n_below + alike.len()).unwrap_or(&[]);
        let n_before = n_below
            + nodes.partition_point(|&position| {
                canonical_cmp(zone.node(position).prefix(), prefix) != Ordering::Greater
            });
        u32::try_from(n_before.saturating_sub(1)).unwrap_or(0)
    }

    fn by_rank<'z>(&self, zone: &'z Zone, rank: u32) -> Option<Node<'z>> {
        let position = *self.at_or_before.get(usize::try_from(rank).ok()?)?;
        (position != 0).then(|| zone.node(position))
    }
}

/// Eight octets of a name as canonical order compares it: of two names with different keys the one with the lesser key
/// comes first.
fn sort_key(prefix: &[u8]) -> u64 {
    u64::try_from(canonical_key(prefix) >> 64).unwrap_or(0)
}

impl Nsec3Chain {
    fn of(zone: &Zone) -> Option<Nsec3Chain> {
        let parameters = zone.apex().rrset(Rtype::NSEC3PARAM)?;
        let (iterations, salt) =
            parameters.records.iter().find_map(|record| match Parameters::read(record.rdata)? {
                // RFC 5155 section 4.1.2: a record with other flags is not for answering.
                Parameters { algorithm: 1, flags: 0, iterations, salt } => Some((iterations, salt)),
                _ => None,
            })?;
        let mut entries: Vec<(Nsec3Hash, u32)> = zone
            .nodes()
            .filter(|node| {
                node.rrset(Rtype::NSEC3).is_some_and(|nsec3| has_parameters(nsec3, iterations, salt))
            })
            .filter_map(|node| Some((hash_of_owner(node)?, node.position())))
            .collect();
        // The text form of hashes sorts as they do, so this is a check more than a sort.
        entries.sort_unstable();
        if entries.is_empty() {
            return None;
        }
        let starts = starts(&entries);
        let mut chain = Nsec3Chain { iterations, salt: salt.into(), entries, starts, by_rank: Vec::new() };
        chain.by_rank = zone.nodes().map(|node| chain.known_hashes(zone, &node)).collect();
        Some(chain)
    }

    fn known_hashes(&self, zone: &Zone, node: &Node<'_>) -> KnownHashes {
        let is_below_cut = node.covering().is_some_and(|covering| !covering.is(node));
        if is_below_cut || hash_of_owner(*node).is_some_and(|hash| self.search(&hash).is_ok()) {
            return KnownHashes { matching: NO_MATCH, at_wildcard: NO_MATCH };
        }
        let owner = node.owner(zone);
        let number = |found: usize| u32::try_from(found).unwrap_or(NO_MATCH);
        let matching = self.search(&self.hash_octets(owner.folded().octets())).map_or(NO_MATCH, number);
        let wildcard = [b"\x01*", owner.folded().octets()].concat();
        let at_wildcard = number(self.at_or_before(&self.hash_octets(&wildcard)));
        KnownHashes { matching, at_wildcard }
    }

    /// Times that a name is hashed again (RFC 5155 section 3.1.3); 0 is best practice (RFC 9276 section 3.1).
    pub fn iterations(&self) -> u16 {
        self.iterations
    }

    /// The salt; none is best practice (RFC 9276 section 3.1).
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// The hash of a name (RFC 5155 section 5).
    pub fn hash(&self, name: Folded<'_>) -> Nsec3Hash {
        self.hash_octets(name.octets())
    }

    fn hash_octets(&self, octets: &[u8]) -> Nsec3Hash {
        let mut hash: Nsec3Hash = Sha1::new().chain_update(octets).chain_update(&self.salt).finalize().into();
        for _ in 0..self.iterations {
            hash = Sha1::new().chain_update(hash).chain_update(&self.salt).finalize().into();
        }
        hash
    }

    /// The node whose NSEC3 record matches the name of `node`; none for a name in an opt-out span.
    pub fn matching<'z>(&self, zone: &'z Zone, node: &Node<'_>) -> Option<Node<'z>> {
        self.entry(zone, self.known(node)?.matching)
    }

    /// The node whose NSEC3 record covers (or, where the wildcard exists, matches) the wildcard right below `node`.
    pub fn at_wildcard<'z>(&self, zone: &'z Zone, node: &Node<'_>) -> Option<Node<'z>> {
        self.entry(zone, self.known(node)?.at_wildcard)
    }

    /// Whether a hash depends on the name alone: no salt, and nothing is hashed again, which is best practice.
    pub fn hashes_names_alone(&self) -> bool {
        self.iterations == 0 && self.salt.is_empty()
    }

    /// The node whose NSEC3 record covers the hash of a name that has none.
    pub fn covering<'z>(&self, zone: &'z Zone, hash: &Nsec3Hash) -> Option<Node<'z>> {
        self.entry(zone, u32::try_from(self.at_or_before(hash)).ok()?)
    }

    /// Where a search for `hash` begins among the entries. Loads that alone.
    #[inline]
    pub fn start_of_search(&self, hash: &Nsec3Hash) -> u32 {
        self.starts.get(first_bits(hash, self.starts.len() - 1)).copied().unwrap_or(0)
    }

    /// Loads an entry. Yields nothing of use.
    #[inline]
    pub fn touch(&self, number: u32) -> u8 {
        let entry = usize::try_from(number).ok().and_then(|number| self.entries.get(number));
        entry.map_or(0, |([first, ..], _)| *first)
    }

    /// Where the node lies whose NSEC3 record covers or matches `hash`.
    #[inline]
    pub fn position_covering(&self, hash: &Nsec3Hash) -> u32 {
        self.entries.get(self.at_or_before(hash)).map_or(0, |(_, position)| *position)
    }

    /// The hashes in ascending order, each with the node that owns its record.
    pub(crate) fn entries<'z>(&self, zone: &'z Zone) -> impl Iterator<Item = (Nsec3Hash, Node<'z>)> {
        self.entries.iter().map(|&(hash, position)| (hash, zone.node(position)))
    }

    fn known(&self, node: &Node<'_>) -> Option<&KnownHashes> {
        self.by_rank.get(usize::try_from(node.rank()).ok()?)
    }

    fn entry<'z>(&self, zone: &'z Zone, number: u32) -> Option<Node<'z>> {
        let (_, position) = self.entries.get(usize::try_from(number).ok()?)?;
        Some(zone.node(*position))
    }

    fn search(&self, hash: &Nsec3Hash) -> Result<usize, usize> {
        let bits = first_bits(hash, self.starts.len() - 1);
        let start = |at: usize| self.starts.get(at).map_or(0, |&n| usize::try_from(n).unwrap_or(0));
        let (from, to) = (start(bits), start(bits + 1));
        let near = self.entries.get(from..to).unwrap_or(&[]);
        let found = near.binary_search_by(|(entry, _)| entry.cmp(hash));
        found.map(|at| from + at).map_err(|at| from + at)
    }

    /// The number of the entry that matches `hash` or covers it. The chain is a ring: the last record covers what lies
    /// before the first (RFC 5155 section 3.1.7).
    fn at_or_before(&self, hash: &Nsec3Hash) -> usize {
        self.search(hash).unwrap_or_else(|insert_at| {
            insert_at.checked_sub(1).unwrap_or(self.entries.len().saturating_sub(1))
        })
    }
}

/// Half as many starts as there are entries, or a little more, and the end.
fn starts(entries: &[(Nsec3Hash, u32)]) -> Vec<u32> {
    let n_starts = (entries.len() / 2).max(1).next_power_of_two();
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let before = |bits| entries.partition_point(|(hash, _)| first_bits(hash, n_starts) < bits);
    (0..=n_starts).map(|bits| number(before(bits))).collect()
}

/// The first bits of a hash, as many as it takes to number `n_starts`, a power of two.
fn first_bits(hash: &Nsec3Hash, n_starts: usize) -> usize {
    let [h0, h1, h2, h3, ..] = *hash;
    let first = u64::from(u32::from_be_bytes([h0, h1, h2, h3]));
    usize::try_from((first * n_starts as u64) >> 32).unwrap_or(0)
}

/// The fields that NSEC3 and NSEC3PARAM start with (RFC 5155 sections 3.2 and 4.2).
pub(crate) struct Parameters<'z> {
    algorithm: u8,
    pub(crate) flags: u8,
    pub(crate) iterations: u16,
    pub(crate) salt: &'z [u8],
}

impl<'z> Parameters<'z> {
    pub(crate) fn read(rdata: &'z [u8]) -> Option<Parameters<'z>> {
        Parameters::split(rdata).map(|(parameters, _)| parameters)
    }

    /// Reads them; yields what follows as well.
    pub(crate) fn split(rdata: &'z [u8]) -> Option<(Parameters<'z>, &'z [u8])> {
        let (&[algorithm, flags, i1, i0, salt_len], rest) = rdata.split_first_chunk::<5>()?;
        let (salt, rest) = rest.split_at_checked(usize::from(salt_len))?;
        Some((Parameters { algorithm, flags, iterations: u16::from_be_bytes([i1, i0]), salt }, rest))
    }
}

fn has_parameters(nsec3: crate::Rrset<'_>, iterations: u16, salt: &[u8]) -> bool {
    nsec3.records.iter().any(|record| {
        Parameters::read(record.rdata)
            .is_some_and(|found| found.algorithm == 1 && found.iterations == iterations && found.salt == salt)
    })
}

/// The hash that an NSEC3 record's owner spells in its first label.
fn hash_of_owner(node: Node<'_>) -> Option<Nsec3Hash> {
    node.rrset(Rtype::NSEC3)?;
    let (&label_len, rest) = node.prefix().split_first()?;
    let mut hash = Vec::with_capacity(HASH_LEN);
    decode_base32hex(rest.get(..usize::from(label_len))?, &mut hash).ok()?;
    hash.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hash_is_found_where_a_search_through_all_finds_it(
            hashes in proptest::collection::btree_set(any::<[u8; 2]>(), 1..60),
            wanted: [u8; 2],
        ) {
            let spread = |[first, last]: [u8; 2]| {
                let mut hash = [0; HASH_LEN];
                (hash[0], hash[19]) = (first, last);
                hash
            };
            let entries: Vec<_> = hashes.into_iter().map(|hash| (spread(hash), 1)).collect();
            let naive = entries.binary_search_by(|(hash, _)| hash.cmp(&spread(wanted)));
            let starts = starts(&entries);
            let chain = Nsec3Chain { iterations: 0, salt: [].into(), entries, starts, by_rank: Vec::new() };
            prop_assert_eq!(chain.search(&spread(wanted)), naive);
        }
    }
}
