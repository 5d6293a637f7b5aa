//! An answerable zone: nodes in canonical order in one run of octets, found by hash.
//!
//! # Layout
//! All nodes lie in one arena, each at a multiple of four octets, so that a position in 32 bits reaches 16 GiB.
//! Numbers are little-endian. A node:
//!
//! | octets | what |
//! |---|---|
//! | 4 | position of the node that covers this one (see [`Node::covering`]), 0 for none |
//! | 4 | rank: the node's place in canonical order, the apex being 0 |
//! | 2 | number of RRsets |
//! | 1 | flags |
//! | 1 | octets of the owner in front of the zone's origin |
//! | n | those octets, in lower case |
//!
//! Its RRsets follow in the order of their types. Most are short and start with eight octets:
//!
//! | octets | what |
//! |---|---|
//! | 2 | type |
//! | 1 | number of records, from 1 |
//! | 1 | number of compression pointers in the records' image |
//! | 2 | octets of the records' image |
//! | 1 | number of links to additional addresses |
//! | 1 | unused |
//! | n | records' image, pointers (2 octets each), links (8 octets each) |
//!
//! One with signatures, or with numbers that are too large for that, starts with twenty octets:
//!
//! | octets | what |
//! |---|---|
//! | 2 | type |
//! | 1 | 0 |
//! | 1 | unused |
//! | 2 | number of records |
//! | 2 | number of signatures |
//! | 2 | number of compression pointers in the records' image |
//! | 2 | number of links to additional addresses |
//! | 4 | octets of the records' image |
//! | 4 | octets of the signatures' image |
//! | n | records' image, signatures' image, pointers (2 octets each), links (8 octets each) |
//!
//! A link is the position of the node that a record names and the position of that name in the image.
//!
//! invariant: the arena is written by [`crate::builder`] alone and never changed. Accessors still check every
//! bound, and give an empty view where one fails.

use crate::denial::Denial;
use crate::index::HashIndex;
use weir_wire::image::Image;
use weir_wire::name::{Folded, FoldedBuf, HashSeed, NameHash, QueryName};
use weir_wire::rtype::{Class, Rtype};

/// Octets that a processor loads at once.
const CACHE_LINE_LEN: usize = 64;
/// The asterisk with its length octet.
const WILDCARD_LABEL: &[u8] = b"\x01*";
/// Octets of a node in front of its owner.
pub(crate) const NODE_HEAD_LEN: usize = 12;
/// Octets of a short RRset in front of its image.
const SHORT_HEAD_LEN: usize = 8;
/// Octets of any other RRset in front of its images.
const LONG_HEAD_LEN: usize = 20;
/// Octets of a link.
pub(crate) const LINK_LEN: usize = 8;

/// Where in the arena a position is.
pub(crate) fn position_in_arena(position: u32) -> usize {
    usize::try_from(position).unwrap_or(0) * 4
}

/// What a node's flags say.
pub(crate) mod flag {
    /// NS records below the apex: a zone cut (RFC 1034 section 4.2).
    pub(crate) const DELEGATION: u8 = 1;
    /// A DNAME record (RFC 6672).
    pub(crate) const DNAME: u8 = 2;
    /// A CNAME record.
    pub(crate) const CNAME: u8 = 4;
    /// A child whose label is a single asterisk (RFC 4592).
    pub(crate) const WILDCARD_CHILD: u8 = 8;
}

/// The types of proofs that a zone has anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProofTypes {
    pub(crate) nsec: bool,
    pub(crate) nsec3: bool,
}

/// A zone that answers: immutable once built.
#[derive(Debug)]
// In this order, so that what every lookup needs lies together: of many zones, none is in the processor's cache.
#[repr(C)]
pub struct Zone {
    /// Most labels of an owner in front of the origin.
    pub(crate) max_depth: usize,
    pub(crate) index: HashIndex,
    pub(crate) arena: Vec<u8>,
    pub(crate) origin: FoldedBuf,
    pub(crate) class: Class,
    pub(crate) seed: HashSeed,
    /// Positions of the nodes in canonical order.
    pub(crate) order: Vec<u32>,
    /// Position of the SOA RRset with the TTL of negative answers.
    pub(crate) negative_soa_at: usize,
    pub(crate) serial: u32,
    pub(crate) expire: u32,
    pub(crate) n_records: u64,
    pub(crate) denial: Denial,
    /// The types of proofs that it holds, used or not.
    pub(crate) proofs: ProofTypes,
}

/// What a name meets in a zone.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'z> {
    /// The name exists, perhaps as an empty non-terminal.
    Exact(Node<'z>),
    /// The name does not exist.
    Missing {
        /// The longest existing ancestor (RFC 4592 section 3.3.1).
        closest_encloser: Node<'z>,
        /// Labels of the name in front of it.
        skip: usize,
    },
}

impl Zone {
    /// The zone's name.
    pub fn origin(&self) -> Folded<'_> {
        self.origin.folded()
    }

    /// The zone's class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The SOA record's serial number.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Seconds after which a secondary gives the zone up (RFC 1035 section 3.3.13).
    pub fn expire(&self) -> u32 {
        self.expire
    }

    /// Number of records, signatures counted, duplicates not.
    pub fn n_records(&self) -> u64 {
        self.n_records
    }

    /// Number of names, empty non-terminals counted.
    pub fn n_nodes(&self) -> usize {
        self.order.len()
    }

    /// Octets of memory that the zone holds.
    pub fn octets(&self) -> usize {
        self.arena.capacity() + self.order.capacity() * size_of::<u32>() + self.index.octets()
    }

    /// The node of the zone's own name.
    pub fn apex(&self) -> Node<'_> {
        self.node(self.order.first().copied().unwrap_or(0))
    }

    /// The SOA RRset as negative answers carry it: its TTL is the lesser of its own and MINIMUM
    /// (RFC 2308 section 3).
    pub fn negative_soa(&self) -> Option<Rrset<'_>> {
        Rrset::parse(self.arena.get(self.negative_soa_at..)?, self.origin.folded().octets().len())
    }

    /// How the zone denies what it does not hold.
    pub fn denial(&self) -> &Denial {
        &self.denial
    }

    /// The node of the suffix of `name` that has `skip` labels less, when it exists.
    pub fn ancestor(&self, name: &QueryName, skip: usize, origin_skip: usize) -> Option<Node<'_>> {
        if skip >= origin_skip {
            return Some(self.apex());
        }
        self.probe(name, skip, origin_skip)
    }

    /// All nodes in canonical order, the apex first (RFC 4034 section 6.1).
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node<'_>> {
        self.order.iter().map(|&position| self.node(position))
    }

    /// The node at a place in canonical order.
    pub fn node_by_rank(&self, rank: u32) -> Option<Node<'_>> {
        self.order.get(usize::try_from(rank).ok()?).map(|&position| self.node(position))
    }

    /// Looks up `name`, of which suffix `origin_skip` is the zone's origin.
    ///
    /// Tries the whole name first, then its ancestors from the longest on: answers to names that exist take one
    /// probe, and denials seldom take more than two.
    #[inline]
    pub fn find(&self, name: &QueryName, origin_skip: usize) -> Lookup<'_> {
        // No owner is deeper than `max_depth`, so a name of a hundred labels costs no more probes than that.
        let first = origin_skip.saturating_sub(self.max_depth);
        for skip in first..origin_skip {
            if let Some(node) = self.probe(name, skip, origin_skip) {
                return if skip == 0 {
                    Lookup::Exact(node)
                } else {
                    Lookup::Missing { closest_encloser: node, skip }
                };
            }
        }
        let apex = self.apex();
        if origin_skip == 0 {
            Lookup::Exact(apex)
        } else {
            Lookup::Missing { closest_encloser: apex, skip: origin_skip }
        }
    }

    #[inline]
    fn probe(&self, name: &QueryName, skip: usize, origin_skip: usize) -> Option<Node<'_>> {
        self.find_prefix(name.suffix_hash(skip), name.labels(skip, origin_skip))
    }

    /// The node whose owner is `prefix` in front of the origin.
    #[inline]
    fn find_prefix(&self, hash: NameHash, prefix: &[u8]) -> Option<Node<'_>> {
        let position = self.index.find(hash, |position| self.node(position).prefix() == prefix)?;
        Some(self.node(position))
    }

    /// The node of a folded name, which may lie outside the zone.
    pub fn find_name(&self, name: Folded<'_>) -> Option<Node<'_>> {
        if !name.is_at_or_below(self.origin()) {
            return None;
        }
        let prefix_len = name.octets().len() - self.origin().octets().len();
        if prefix_len == 0 {
            return Some(self.apex());
        }
        self.find_prefix(self.seed.hash(name), name.octets().get(..prefix_len)?)
    }

    /// The wildcard right below `encloser`, whose name has this hash, when there is one (RFC 4592 section 3.3.1: the
    /// source of synthesis).
    pub fn wildcard_below<'z>(&'z self, encloser: Node<'z>, hash: NameHash) -> Option<Node<'z>> {
        if !encloser.has(flag::WILDCARD_CHILD) {
            return None;
        }
        // The asterisk sorts behind few labels, but those may have any number of descendants; the hash knows.
        let is_it = |prefix: &[u8]| prefix.strip_prefix(WILDCARD_LABEL) == Some(encloser.prefix());
        let hash = self.seed.with_label(hash, WILDCARD_LABEL);
        let position = self.index.find(hash, |position| is_it(self.node(position).prefix()))?;
        Some(self.node(position))
    }

    /// Where the node of a name with this hash lies, very probably; 0 for nowhere. Loads the slot alone.
    #[inline]
    pub fn probable_position(&self, hash: NameHash) -> u32 {
        self.index.find(hash, |_| true).unwrap_or(0)
    }

    /// Loads `n_octets` (at least one) of the arena from the node at a position on: its head and, where these are enough,
    /// its RRsets. Yields nothing of use.
    #[inline]
    pub fn touch(&self, position: u32, n_octets: usize) -> u8 {
        let at = position_in_arena(position);
        let octet = |at: usize| self.arena.get(at).copied().unwrap_or(0);
        (0..n_octets)
            .step_by(CACHE_LINE_LEN)
            .fold(octet(at + n_octets - 1), |seen, offset| seen ^ octet(at + offset))
    }

    /// The node at a position in the arena.
    #[inline]
    pub(crate) fn node(&self, position: u32) -> Node<'_> {
        let at = usize::try_from(position).unwrap_or(0) * 4;
        Node { arena: &self.arena, at, origin_len: self.origin.folded().octets().len() }
    }
}

/// One name of a zone and the RRsets that it owns; none make it an empty non-terminal.
#[derive(Clone, Copy)]
pub struct Node<'z> {
    arena: &'z [u8],
    at: usize,
    origin_len: usize,
}

impl<'z> Node<'z> {
    fn head(&self) -> [u8; NODE_HEAD_LEN] {
        self.arena.get(self.at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default()
    }

    /// What answers in this node's place: the zone cut at or above it, or the DNAME above it, whichever is higher.
    /// Data below either are occluded (RFC 1034 section 4.2.1, RFC 6672 section 2.4).
    #[inline]
    pub fn covering(&self) -> Option<Node<'z>> {
        let [c0, c1, c2, c3, ..] = self.head();
        let position = u32::from_le_bytes([c0, c1, c2, c3]);
        (position != 0).then(|| self.sibling(position))
    }

    /// The node's place in canonical order.
    pub fn rank(&self) -> u32 {
        let [_, _, _, _, r0, r1, r2, r3, ..] = self.head();
        u32::from_le_bytes([r0, r1, r2, r3])
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        let [_, _, _, _, _, _, _, _, _, _, flags, _] = self.head();
        flags & flag != 0
    }

    /// Whether the node is a zone cut: NS records below the apex.
    pub fn is_delegation(&self) -> bool {
        self.has(flag::DELEGATION)
    }

    /// Whether the node owns a DNAME record.
    pub fn has_dname(&self) -> bool {
        self.has(flag::DNAME)
    }

    /// Whether the node owns a CNAME record.
    pub fn has_cname(&self) -> bool {
        self.has(flag::CNAME)
    }

    /// Whether the node owns nothing and exists for its descendants' sake (RFC 4592 section 2.2.2).
    pub fn is_empty_non_terminal(&self) -> bool {
        let [_, _, _, _, _, _, _, _, n0, n1, ..] = self.head();
        u16::from_le_bytes([n0, n1]) == 0
    }

    /// The owner's octets in front of the origin.
    #[inline]
    pub fn prefix(&self) -> &'z [u8] {
        let start = self.at + NODE_HEAD_LEN;
        let [.., prefix_len] = self.head();
        self.arena.get(start..start + usize::from(prefix_len)).unwrap_or(&[])
    }

    /// Octets of the owner name.
    #[inline]
    pub fn owner_len(&self) -> usize {
        let [.., prefix_len] = self.head();
        usize::from(prefix_len) + self.origin_len
    }

    /// The owner name; `zone` is the zone that the node is of.
    pub fn owner(&self, zone: &Zone) -> FoldedBuf {
        // Owners were checked to be names when they were added, so joining gives back the same name.
        FoldedBuf::join(self.prefix(), zone.origin()).unwrap_or_else(|_| FoldedBuf::root())
    }

    /// The RRsets in the order of their types.
    #[inline]
    pub fn rrsets(&self) -> Rrsets<'z> {
        let [_, _, _, _, _, _, _, _, n0, n1, _, prefix_len] = self.head();
        let start = self.at + NODE_HEAD_LEN + usize::from(prefix_len);
        Rrsets {
            octets: self.arena.get(start..).unwrap_or(&[]),
            left: u16::from_le_bytes([n0, n1]),
            owner_len: usize::from(prefix_len) + self.origin_len,
        }
    }

    /// The RRset of a type.
    #[inline]
    pub fn rrset(&self, rtype: Rtype) -> Option<Rrset<'z>> {
        self.rrsets().find(|rrset| rrset.rtype == rtype)
    }

    /// Where in the arena the links of one of the node's RRsets stand.
    pub(crate) fn links_at(&self, rrset: &Rrset<'z>) -> Option<usize> {
        let after =
            self.arena.as_ptr_range().end.addr().checked_sub(rrset.links.as_ptr_range().end.addr())?;
        self.arena.len().checked_sub(after + rrset.links.len())
    }

    /// The node's position in the arena.
    pub(crate) fn position(&self) -> u32 {
        u32::try_from(self.at / 4).unwrap_or(0)
    }

    fn sibling(&self, position: u32) -> Node<'z> {
        Node { at: usize::try_from(position).unwrap_or(0) * 4, ..*self }
    }

    /// Whether both are the same node of the same zone.
    pub fn is(&self, other: &Node<'_>) -> bool {
        self.at == other.at && std::ptr::eq(self.arena, other.arena)
    }
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("at", &self.at).field("prefix", &self.prefix().escape_ascii()).finish()
    }
}

/// The RRsets of a node.
#[derive(Clone, Debug)]
pub struct Rrsets<'z> {
    octets: &'z [u8],
    left: u16,
    owner_len: usize,
}

impl<'z> Iterator for Rrsets<'z> {
    type Item = Rrset<'z>;

    #[inline]
    fn next(&mut self) -> Option<Rrset<'z>> {
        self.left = self.left.checked_sub(1)?;
        let rrset = Rrset::parse(self.octets, self.owner_len)?;
        self.octets = self.octets.get(rrset.octets.len()..)?;
        Some(rrset)
    }
}

/// The records of one owner and type, with their signatures.
#[derive(Clone, Copy, Debug)]
pub struct Rrset<'z> {
    /// The records' type.
    pub rtype: Rtype,
    /// The records.
    pub records: Image<'z>,
    /// The RRSIG records that cover them (RFC 4034 section 3); none in an unsigned zone.
    pub signatures: Image<'z>,
    octets: &'z [u8],
    links: &'z [u8],
}

impl<'z> Rrset<'z> {
    #[inline]
    fn parse(octets: &'z [u8], owner_len: usize) -> Option<Rrset<'z>> {
        let (head, head_len) = RrsetHead::parse(octets)?;
        let n_pointer_octets = 2 * usize::from(head.n_pointers);
        let n_link_octets = LINK_LEN * usize::from(head.n_links);
        let total_len = head_len + head.records_len + head.signatures_len + n_pointer_octets + n_link_octets;
        let octets = octets.get(..total_len)?;
        let (records, rest) = octets.get(head_len..)?.split_at_checked(head.records_len)?;
        let (signatures, rest) = rest.split_at_checked(head.signatures_len)?;
        let (pointers, links) = rest.split_at_checked(n_pointer_octets)?;
        let (n_records, n_signatures) = (head.n_records, head.n_signatures);
        Some(Rrset {
            rtype: head.rtype,
            records: Image { owner_len, n_records, records, pointers },
            // Signers' names are not compressed (RFC 4034 section 3.1.7), so no pointer is ever moved.
            signatures: Image { owner_len, n_records: n_signatures, records: signatures, pointers: &[] },
            octets,
            links,
        })
    }

    /// Whether both are the same RRset of the same zone.
    pub fn is_same(&self, other: &Rrset<'_>) -> bool {
        std::ptr::eq(self.octets, other.octets)
    }

    /// Whether any record names a host in the zone.
    #[inline]
    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// The names in the records' RDATA that lie in the zone: where they stand in the image, and the position of their
    /// node, 0 for those that do not exist.
    pub(crate) fn named_hosts(&self) -> impl Iterator<Item = (usize, u32)> + use<'z> {
        let (links, _) = self.links.as_chunks::<LINK_LEN>();
        links.iter().filter_map(|&[n0, n1, n2, n3, p0, p1, p2, p3]| {
            let name_at = usize::try_from(u32::from_le_bytes([p0, p1, p2, p3])).ok()?;
            Some((name_at, u32::from_le_bytes([n0, n1, n2, n3])))
        })
    }

    /// The names in the records' RDATA that exist in the zone, for additional addresses.
    #[inline]
    pub fn links(&self) -> impl Iterator<Item = Link> + use<'z> {
        let (links, _) = self.links.as_chunks::<LINK_LEN>();
        links.iter().filter_map(|link| {
            let [n0, n1, n2, n3, p0, p1, p2, p3] = *link;
            let node = u32::from_le_bytes([n0, n1, n2, n3]);
            let name_at = u32::from_le_bytes([p0, p1, p2, p3]);
            (node != 0).then_some(Link { node, name_at })
        })
    }
}

/// A name in RDATA and the node that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    node: u32,
    /// Position of the name in the RRset's image.
    pub name_at: u32,
}

impl Link {
    /// Whether both name the same node of the same zone.
    pub fn is_same_host(&self, other: &Link) -> bool {
        self.node == other.node
    }

    /// The node that is named; `zone` is the zone that the link is of.
    pub fn node<'z>(&self, zone: &'z Zone) -> Node<'z> {
        zone.node(self.node)
    }
}

/// The fixed octets in front of an RRset.
#[derive(Clone, Copy)]
pub(crate) struct RrsetHead {
    pub(crate) rtype: Rtype,
    pub(crate) n_records: u16,
    pub(crate) records_len: usize,
    pub(crate) signatures_len: usize,
    pub(crate) n_signatures: u16,
    pub(crate) n_pointers: u16,
    pub(crate) n_links: u16,
}

impl RrsetHead {
    /// Reads a head; yields its octets as well.
    #[inline]
    fn parse(octets: &[u8]) -> Option<(RrsetHead, usize)> {
        let [y0, y1, n_records, n_pointers, r0, r1, n_links, _] = *octets.first_chunk::<SHORT_HEAD_LEN>()?;
        if n_records == 0 {
            return RrsetHead::parse_long(octets);
        }
        let head = RrsetHead {
            rtype: Rtype(u16::from_le_bytes([y0, y1])),
            n_records: u16::from(n_records),
            records_len: usize::from(u16::from_le_bytes([r0, r1])),
            signatures_len: 0,
            n_signatures: 0,
            n_pointers: u16::from(n_pointers),
            n_links: u16::from(n_links),
        };
        Some((head, SHORT_HEAD_LEN))
    }

    #[cold]
    fn parse_long(octets: &[u8]) -> Option<(RrsetHead, usize)> {
        let [y0, y1, _, _, n0, n1, m0, m1, p0, p1, l0, l1, r0, r1, r2, r3, s0, s1, s2, s3] =
            *octets.first_chunk::<LONG_HEAD_LEN>()?;
        let len = |octets| usize::try_from(u32::from_le_bytes(octets)).ok();
        let head = RrsetHead {
            rtype: Rtype(u16::from_le_bytes([y0, y1])),
            n_records: u16::from_le_bytes([n0, n1]),
            records_len: len([r0, r1, r2, r3])?,
            signatures_len: len([s0, s1, s2, s3])?,
            n_signatures: u16::from_le_bytes([m0, m1]),
            n_pointers: u16::from_le_bytes([p0, p1]),
            n_links: u16::from_le_bytes([l0, l1]),
        };
        Some((head, LONG_HEAD_LEN))
    }

    /// Writes the head to the end of `out`; `None` when a length needs more than 32 bits.
    pub(crate) fn write(self, out: &mut Vec<u8>) -> Option<()> {
        let [y0, y1] = self.rtype.0.to_le_bytes();
        if let Some([n_records, n_pointers, r0, r1, n_links]) = self.short() {
            out.extend_from_slice(&[y0, y1, n_records, n_pointers, r0, r1, n_links, 0]);
            return Some(());
        }
        let long = |value: usize| u32::try_from(value).ok().map(u32::to_le_bytes);
        let lens = [long(self.records_len)?, long(self.signatures_len)?];
        out.extend_from_slice(&[y0, y1, 0, 0]);
        for number in [self.n_records, self.n_signatures, self.n_pointers, self.n_links] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(lens.as_flattened());
        Some(())
    }

    /// What the short form holds behind the type, when everything fits.
    fn short(self) -> Option<[u8; 5]> {
        let n_records = u8::try_from(self.n_records).ok().filter(|&n_records| n_records > 0)?;
        let [r0, r1] = u16::try_from(self.records_len).ok()?.to_le_bytes();
        let (n_pointers, n_links) = (u8::try_from(self.n_pointers).ok()?, u8::try_from(self.n_links).ok()?);
        (self.n_signatures == 0).then_some([n_records, n_pointers, r0, r1, n_links])
    }
}
