//! A part of a zone's arena: nodes that follow each other in canonical order, written apart from the others.

use super::order::{self, Entry};
use super::pending::{Blocks, Pending, Run};
use crate::finding::{Finding, FindingList, Rule};
use crate::tree::{self, LINK_LEN, NODE_HEAD_LEN, ProofTypes, RrsetHead, flag};
use std::collections::HashSet;
use weir_wire::image::{ImageMaker, Owner, QUESTION_AT, RECORD_HEAD_LEN};
use weir_wire::name::{Folded, FoldedBuf, HashSeed, MAX_LABELS, Name, NameHash};
use weir_wire::rdata;
use weir_wire::rtype::{Class, Rtype};

/// RRsets up to this size are searched for duplicates pair by pair.
const MAX_PAIRWISE: usize = 16;
/// Most octets of a message over TCP (RFC 1035 section 4.2.2).
const MAX_MESSAGE_LEN: usize = 65_535;
/// Octets of a question behind its name: type and class.
const QUESTION_TAIL_LEN: usize = 4;
/// The apex as what covers a node of another segment; [`Zone`](crate::Zone) positions never get there, because nodes
/// have more than four octets.
const APEX: u32 = u32::MAX;
/// In front of every segment: position 0 stands for "none".
const NOTHING: [u8; 4] = [0; 4];

/// What all segments of a zone share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'b> {
    pub(super) origin: Folded<'b>,
    pub(super) class: Class,
    pub(super) seed: HashSeed,
}

/// Nodes in canonical order and what is to be known of them.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// Positions count from its start.
    pub(super) arena: Vec<u8>,
    pub(super) order: Vec<u32>,
    /// The nodes that queries may find.
    pub(super) hashes: Vec<(NameHash, u32)>,
    pub(super) n_records: u64,
    pub(super) max_depth: usize,
    /// What the segment makes known of the apex, when that is in another one.
    pub(super) apex_flags: u8,
    pub(super) proofs: ProofTypes,
    pub(super) findings: FindingList,
    /// Whether positions or lengths went past 32 bits.
    pub(super) is_full: bool,
}

impl Segment {
    /// Makes it empty; keeps its memory.
    pub(super) fn clear(&mut self) {
        self.arena.clear();
        self.order.clear();
        self.hashes.clear();
        self.n_records = 0;
        self.max_depth = 0;
        self.apex_flags = 0;
        self.proofs = ProofTypes::default();
        self.findings = FindingList::default();
        self.is_full = false;
    }

    /// Puts the nodes of `other` behind these, whose first is the apex.
    pub(super) fn append(&mut self, other: &mut Segment) {
        self.align();
        let base = self.arena.len() / 4;
        let n_before = self.order.len();
        let reach = (self.arena.len() + other.arena.len()) / 4;
        let (Ok(base), Ok(_), Ok(n_before)) =
            (u32::try_from(base), u32::try_from(reach), u32::try_from(n_before))
        else {
            self.is_full = true;
            return;
        };
        let apex = self.order.first().copied().unwrap_or(0);
        self.arena.extend_from_slice(&other.arena);
        for &position in &other.order {
            let position = position + base;
            self.order.push(position);
            self.move_node(position, base, n_before, apex);
        }
        self.hashes.extend(other.hashes.iter().map(|&(hash, position)| (hash, position + base)));
        self.n_records += other.n_records;
        self.max_depth = self.max_depth.max(other.max_depth);
        self.set_flag(apex, other.apex_flags);
        self.proofs.nsec |= other.proofs.nsec;
        self.proofs.nsec3 |= other.proofs.nsec3;
        self.findings.append(std::mem::take(&mut other.findings));
        self.is_full |= other.is_full;
    }

    /// Corrects what a node says of places, now that its segment starts at `base`.
    fn move_node(&mut self, position: u32, base: u32, n_before: u32, apex: u32) {
        let at = tree::position_in_arena(position);
        let Some(head) = self.arena.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>) else { return };
        let [c0, c1, c2, c3, r0, r1, r2, r3] = *head;
        let covering = match u32::from_le_bytes([c0, c1, c2, c3]) {
            0 => 0,
            APEX => apex,
            covering => covering + base,
        };
        let rank = u32::from_le_bytes([r0, r1, r2, r3]) + n_before;
        let (covering, rank) = (covering.to_le_bytes(), rank.to_le_bytes());
        let ([c0, c1, c2, c3], [r0, r1, r2, r3]) = (covering, rank);
        *head = [c0, c1, c2, c3, r0, r1, r2, r3];
    }

    fn align(&mut self) {
        self.arena.resize(self.arena.len().next_multiple_of(4), 0);
    }

    fn write(&mut self, at: usize, octets: &[u8]) {
        if let Some(space) = self.arena.get_mut(at..at + octets.len()) {
            space.copy_from_slice(octets);
        }
    }

    fn set_flag(&mut self, position: u32, flag: u8) {
        if position == APEX {
            self.apex_flags |= flag;
        } else if let Some(flags) = self.arena.get_mut(tree::position_in_arena(position) + NODE_HEAD_LEN - 2)
        {
            *flags |= flag;
        }
    }
}

/// An ancestor of the owner in hand, or the owner itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// Octets of the name in front of the origin.
    prefix_len: usize,
    position: u32,
    hash: NameHash,
    /// What covers the nodes below.
    covers_below: u32,
    /// Whether that is a DNAME record rather than a zone cut.
    is_dname: bool,
}

/// A record of the apex's SOA RRset, kept for what is made of it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) ttl: u32,
    pub(super) rdata: Vec<u8>,
}

impl Kept {
    fn of(record: &Pending<'_>, ttl: u32) -> Kept {
        Kept { ttl, rdata: record.rdata.to_vec() }
    }
}

/// Writes nodes in canonical order.
#[derive(Debug)]
pub(super) struct Writer<'b> {
    frame: Frame<'b>,
    segment: Segment,
    /// The path from the apex to the owner in hand, and that owner's octets in front of the origin.
    path: Vec<Level>,
    last_prefix: Vec<u8>,
    records: ImageMaker,
    signatures: ImageMaker,
    /// Links of the RRset in hand: where in its image the names stand.
    links: Vec<u32>,
    /// The SOA record and its signatures.
    soa: Option<(Kept, Vec<Kept>)>,
}

impl<'b> Writer<'b> {
    /// A writer that starts with the apex.
    pub(super) fn new(frame: Frame<'b>) -> Writer<'b> {
        let mut writer = Writer {
            frame,
            segment: Segment::default(),
            path: Vec::new(),
            last_prefix: Vec::new(),
            records: ImageMaker::default(),
            signatures: ImageMaker::default(),
            links: Vec::new(),
            soa: None,
        };
        writer.segment.arena.extend_from_slice(&NOTHING);
        writer
    }

    /// A writer of nodes below an apex that another one wrote.
    pub(super) fn below(frame: Frame<'b>, apex: Level, mut segment: Segment) -> Writer<'b> {
        segment.clear();
        let covers_below = if apex.covers_below == 0 { 0 } else { APEX };
        let mut writer = Writer::new(frame);
        segment.arena.extend_from_slice(&NOTHING);
        writer.segment = segment;
        writer.path.push(Level { position: APEX, covers_below, ..apex });
        writer
    }

    pub(super) fn frame(&self) -> Frame<'b> {
        self.frame
    }

    /// The SOA record of the apex and its signatures, once they are written.
    pub(super) fn take_soa(&mut self) -> Option<(Kept, Vec<Kept>)> {
        self.soa.take()
    }

    pub(super) fn into_segment(self) -> Segment {
        self.segment
    }

    /// Puts a segment that was written apart behind what is written.
    pub(super) fn append(&mut self, segment: &mut Segment) {
        self.segment.append(segment);
    }

    /// Writes the nodes of all runs.
    pub(super) fn push_all(&mut self, blocks: &Blocks) {
        let entries = order::sorted(blocks);
        let mut records: Vec<Pending<'_>> = Vec::new();
        for group in entries.chunk_by(|a, b| a.is_same_owner(b, blocks)) {
            records.clear();
            let runs = group.iter().filter_map(|entry: &Entry| entry.run(blocks));
            records.extend(runs.clone().flat_map(Run::records));
            // Stable: records of an RRset stay in the order of the file.
            if !records.is_sorted_by_key(sort_type) {
                records.sort_by_key(sort_type);
            }
            if let Some(run) = runs.clone().next() {
                self.push_owner(run.prefix, &records);
            }
        }
    }

    /// Writes the apex, with no records when there are none.
    pub(super) fn push_apex(&mut self, blocks: &Blocks) -> Option<Level> {
        self.push_all(blocks);
        if self.path.is_empty() {
            // The apex exists even where the file forgets it; the finding names it.
            self.push_node(&[]);
            self.report(Rule::SoaMissing, None);
        }
        self.path.first().copied()
    }

    /// Writes the node of records that share their owner, and the empty non-terminals above it.
    fn push_owner(&mut self, prefix: &[u8], group: &[Pending<'_>]) {
        if !prefix.is_empty() && group.iter().all(|record| record.rtype == Rtype::RRSIG) {
            return self.leave_out(prefix, group);
        }
        self.push_node(prefix);
        let Ok(name) = FoldedBuf::join(prefix, self.frame.origin) else { return };
        let types = Types::of(group);
        let Some(first) = group.first() else { return };
        self.check_types(&types, first);
        let mut n_rrsets = 0u16;
        for rrset in group.chunk_by(|a, b| sort_type(a).0 == sort_type(b).0) {
            n_rrsets += u16::from(self.push_rrset(name.folded(), rrset));
        }
        self.close_node(n_rrsets, &types, first);
    }

    /// Reports signatures whose owner has nothing else. They make no name exist (RFC 4034 section 3: RRSIG records are
    /// no RRset of their own), so that an answer agrees with the chain of NSEC records, which leaves such a name out.
    fn leave_out(&mut self, prefix: &[u8], signatures: &[Pending<'_>]) {
        for group in signatures.chunk_by(|a, b| sort_type(a).0 == sort_type(b).0) {
            self.report_at(prefix, Rule::SignatureOfNothing, group.first());
        }
    }

    /// Starts the node of `prefix`, with its missing ancestors as empty non-terminals.
    fn push_node(&mut self, prefix: &[u8]) {
        let n_common = self.n_common_labels(prefix);
        self.path.truncate(n_common + 1);
        let mut starts = [0usize; MAX_LABELS];
        let mut n_labels = 0;
        let mut at = 0;
        while let (Some(&label_len), Some(start)) = (prefix.get(at), starts.get_mut(n_labels)) {
            *start = at;
            n_labels += 1;
            at += 1 + usize::from(label_len);
        }
        self.segment.max_depth = self.segment.max_depth.max(n_labels);
        if self.path.is_empty() {
            let hash = self.frame.seed.hash(self.frame.origin);
            self.open_node(&[], hash, 0, false);
        }
        for &start in starts.get(..n_labels).unwrap_or(&[]).iter().rev().skip(n_common) {
            let (Some(owner), Some(parent)) = (prefix.get(start..), self.path.last().copied()) else {
                return;
            };
            let label_len = 1 + usize::from(owner.first().copied().unwrap_or(0));
            let label = owner.get(..label_len).unwrap_or(&[]);
            let hash = self.frame.seed.with_label(parent.hash, label);
            if label == b"\x01*" {
                self.segment.set_flag(parent.position, flag::WILDCARD_CHILD);
            }
            self.open_node(owner, hash, parent.covers_below, parent.is_dname);
        }
        self.last_prefix.clear();
        self.last_prefix.extend_from_slice(prefix);
    }

    /// Number of labels, from the right, that `prefix` shares with the owner written last.
    fn n_common_labels(&self, prefix: &[u8]) -> usize {
        // The path holds the length of each ancestor of the last owner: compare the longest first.
        let shared = self.path.iter().rposition(|level| {
            let in_last =
                self.last_prefix.len().checked_sub(level.prefix_len).map(|at| self.last_prefix.get(at..));
            let in_new = prefix.len().checked_sub(level.prefix_len).map(|at| prefix.get(at..));
            in_last.is_some() && in_last == in_new && is_label_boundary(prefix, level.prefix_len)
        });
        shared.unwrap_or(0)
    }

    fn open_node(&mut self, prefix: &[u8], hash: NameHash, covering: u32, is_dname: bool) {
        self.segment.align();
        let Segment { arena, order, hashes, is_full, .. } = &mut self.segment;
        let (Ok(position), Ok(rank)) = (u32::try_from(arena.len() / 4), u32::try_from(order.len())) else {
            *is_full = true;
            return;
        };
        let prefix_len = u8::try_from(prefix.len()).unwrap_or(0);
        let ([c0, c1, c2, c3], [r0, r1, r2, r3]) = (covering.to_le_bytes(), rank.to_le_bytes());
        let head: [u8; NODE_HEAD_LEN] = [c0, c1, c2, c3, r0, r1, r2, r3, 0, 0, 0, prefix_len];
        arena.extend_from_slice(&head);
        arena.extend_from_slice(prefix);
        order.push(position);
        hashes.push((hash, position));
        self.path.push(Level { prefix_len: prefix.len(), position, hash, covers_below: covering, is_dname });
    }

    /// Fills in what is known of the node only when its RRsets are.
    fn close_node(&mut self, n_rrsets: u16, types: &Types, first: &Pending<'_>) {
        let is_apex = self.path.len() == 1;
        self.segment.proofs.nsec |= types.nsec;
        self.segment.proofs.nsec3 |= types.nsec3;
        let Some(level) = self.path.last_mut() else { return };
        let (position, covered, below_dname) = (level.position, level.covers_below != 0, level.is_dname);
        let is_delegation = types.ns && !is_apex;
        if !covered && (is_delegation || types.dname) {
            level.covers_below = position;
            level.is_dname = !is_delegation;
        }
        // NSEC3 records stand right below the apex whatever it owns (RFC 5155 section 3).
        if covered && below_dname && !types.only_nsec3 {
            self.report(Rule::BelowDname, Some(first));
        }
        if types.only_nsec3 {
            // RFC 5155 section 7.2.8: the owner of an NSEC3 record does not exist for queries.
            self.segment.hashes.pop();
        }
        let at = tree::position_in_arena(position);
        if !covered && is_delegation {
            self.segment.write(at, &position.to_le_bytes());
        }
        self.segment.write(at + 8, &n_rrsets.to_le_bytes());
        for (is_set, flag) in
            [(is_delegation, flag::DELEGATION), (types.dname, flag::DNAME), (types.cname, flag::CNAME)]
        {
            if is_set {
                self.segment.set_flag(position, flag);
            }
        }
    }

    fn check_types(&mut self, types: &Types, first: &Pending<'_>) {
        let is_apex = self.path.len() == 1;
        if is_apex && !types.soa {
            self.report(Rule::SoaMissing, None);
        }
        if is_apex && !types.ns {
            self.report(Rule::NsMissing, None);
        }
        if !is_apex && types.soa {
            self.report(Rule::SoaNotAtApex, Some(first));
        }
        if types.cname && types.beside_cname {
            self.report(Rule::CnameWithOtherData, Some(first));
        }
    }

    /// Writes the records of one type with their signatures; yields whether there was an RRset to write.
    fn push_rrset(&mut self, owner: Folded<'_>, group: &[Pending<'_>]) -> bool {
        let n_records = group.partition_point(|record| record.rtype != Rtype::RRSIG);
        let (records, signatures) = group.split_at_checked(n_records).unwrap_or((group, &[]));
        let Some(first) = records.first() else {
            if let Some(orphan) = signatures.first() {
                self.report(Rule::SignatureOfNothing, Some(orphan));
            }
            return false;
        };
        let mut kept = Vec::new();
        let records = self.without_duplicates(records, &mut kept);
        self.check_single(first.rtype, records);
        let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0);
        if let Some(differing) = records.iter().find(|record| record.ttl != ttl) {
            self.report(Rule::TtlsDiffer, Some(differing));
        }
        let mut kept = Vec::new();
        let signatures = self.without_duplicates(signatures, &mut kept);
        self.push_images(owner, ttl, records, signatures);
        if self.records.image(owner).records.len()
            > MAX_MESSAGE_LEN - QUESTION_AT - owner.octets().len() - QUESTION_TAIL_LEN
        {
            self.report(Rule::RrsetTooLarge, Some(first));
        }
        self.append_rrset(first.rtype, owner);
        self.segment.n_records += (records.len() + signatures.len()) as u64;
        if first.rtype == Rtype::SOA && self.path.len() == 1 {
            let signatures = signatures.iter().map(|signature| Kept::of(signature, signature.ttl)).collect();
            self.soa = Some((Kept::of(first, ttl), signatures));
        }
        true
    }

    fn check_single(&mut self, rtype: Rtype, records: &[Pending<'_>]) {
        let rule = match rtype {
            Rtype::SOA => Rule::SoaMultiple,
            Rtype::CNAME => Rule::CnameMultiple,
            Rtype::DNAME => Rule::DnameMultiple,
            _ => return,
        };
        if let [_, second, ..] = records {
            self.report(rule, Some(second));
        }
    }

    /// The records that are not the same as an earlier one, names compared without case (RFC 4034 section 6.2); they
    /// are moved to `kept` only when some are.
    fn without_duplicates<'r, 'p>(
        &mut self,
        records: &'r [Pending<'p>],
        kept: &'r mut Vec<Pending<'p>>,
    ) -> &'r [Pending<'p>] {
        if records.len() <= MAX_PAIRWISE && !has_likely_duplicates(records) {
            return records;
        }
        let mut seen = HashSet::with_capacity(records.len());
        kept.reserve_exact(records.len());
        for record in records {
            let mut canonical = Vec::new();
            rdata::canonical(record.rtype, record.rdata, &mut canonical);
            if seen.insert(canonical) {
                kept.push(*record);
            } else {
                self.report(Rule::Duplicate, Some(record));
            }
        }
        kept
    }

    /// Makes the images of an RRset; `ttl` replaces that of its records, signatures keep theirs.
    fn push_images(
        &mut self,
        name: Folded<'_>,
        ttl: u32,
        records: &[Pending<'_>],
        signatures: &[Pending<'_>],
    ) {
        let owner = Owner { name, class: self.frame.class };
        self.records.clear();
        self.signatures.clear();
        self.links.clear();
        for record in records {
            let at = self.records.push(owner, record.rtype, ttl, record.rdata);
            if let Some(offset) = link_of(record.rtype, record.rdata, self.frame.origin) {
                self.links.extend(u32::try_from(at + RECORD_HEAD_LEN + offset));
            }
        }
        for signature in signatures {
            self.signatures.push(owner, signature.rtype, signature.ttl, signature.rdata);
        }
    }

    /// Writes the images in hand to the end of the arena.
    fn append_rrset(&mut self, rtype: Rtype, owner: Folded<'_>) {
        let (records, signatures) = (self.records.image(owner), self.signatures.image(owner));
        self.links.truncate(usize::from(u16::MAX));
        let head = RrsetHead {
            rtype,
            n_records: records.n_records,
            records_len: records.records.len(),
            signatures_len: signatures.records.len(),
            n_signatures: signatures.n_records,
            n_pointers: u16::try_from(records.pointers.len() / 2).unwrap_or(0),
            n_links: u16::try_from(self.links.len()).unwrap_or(0),
        };
        let arena = &mut self.segment.arena;
        if head.write(arena).is_none() {
            self.segment.is_full = true;
            return;
        }
        for part in [records.records, signatures.records, records.pointers] {
            arena.extend_from_slice(part);
        }
        for name_at in &self.links {
            let mut link = [0; LINK_LEN];
            let [_, _, _, _, at @ ..] = &mut link;
            *at = name_at.to_le_bytes();
            arena.extend_from_slice(&link);
        }
    }

    /// Writes the SOA RRset of negative answers; yields where it stands.
    pub(super) fn append_negative_soa(&mut self, ttl: u32, soa: &[u8], signatures: &[Pending<'_>]) -> usize {
        let record = Pending { rtype: Rtype::SOA, ttl, tag: 0, rdata: soa };
        self.push_images(self.frame.origin, ttl, &[record], signatures);
        self.links.clear();
        let at = self.segment.arena.len();
        self.append_rrset(Rtype::SOA, self.frame.origin);
        at
    }

    pub(super) fn report(&mut self, rule: Rule, record: Option<&Pending<'_>>) {
        let prefix = if record.is_some() { self.last_prefix.clone() } else { Vec::new() };
        self.report_at(&prefix, rule, record);
    }

    fn report_at(&mut self, prefix: &[u8], rule: Rule, record: Option<&Pending<'_>>) {
        let owner = FoldedBuf::join(prefix, self.frame.origin).unwrap_or(self.frame.origin.name().fold());
        let rtype = record.map_or(Rtype::SOA, |record| record.rtype);
        self.segment.findings.push(Finding {
            rule,
            owner,
            rtype,
            tag: record.map(|record| record.tag),
            detail: String::new(),
        });
    }
}

/// What types a name owns.
#[derive(Clone, Copy, Debug, Default)]
struct Types {
    soa: bool,
    ns: bool,
    cname: bool,
    dname: bool,
    /// Types that must not stand beside a CNAME.
    beside_cname: bool,
    nsec: bool,
    nsec3: bool,
    only_nsec3: bool,
}

impl Types {
    fn of(records: &[Pending<'_>]) -> Types {
        let mut types = Types { only_nsec3: true, ..Types::default() };
        for record in records {
            match record.rtype {
                Rtype::SOA => types.soa = true,
                Rtype::NS => types.ns = true,
                Rtype::CNAME => types.cname = true,
                Rtype::DNAME => types.dname = true,
                Rtype::NSEC => types.nsec = true,
                Rtype::NSEC3 => types.nsec3 = true,
                _ => {}
            }
            // RFC 2181 section 10.1 and RFC 4035 section 2.5: beside a CNAME only what signing adds.
            types.beside_cname |= !matches!(
                record.rtype,
                Rtype::CNAME | Rtype::RRSIG | Rtype::NSEC | Rtype::SIG | Rtype::NXT | Rtype::KEY
            );
            types.only_nsec3 &= sort_type(record).0 == Rtype::NSEC3;
        }
        types
    }
}

/// Signatures sort right behind the RRset that they cover.
fn sort_type(record: &Pending<'_>) -> (Rtype, bool) {
    if record.rtype != Rtype::RRSIG {
        return (record.rtype, false);
    }
    let covered = record.rdata.first_chunk::<2>();
    (Rtype(covered.map_or(0, |octets| u16::from_be_bytes(*octets))), true)
}

/// Whether two records may be the same: canonical form differs from RDATA in the case of letters only.
fn has_likely_duplicates(records: &[Pending<'_>]) -> bool {
    let mut rest = records;
    while let Some((record, others)) = rest.split_first() {
        if others.iter().any(|other| other.rdata.eq_ignore_ascii_case(record.rdata)) {
            return true;
        }
        rest = others;
    }
    false
}

/// Where in RDATA the name stands whose addresses go along, when it lies in the zone.
fn link_of(rtype: Rtype, rdata: &[u8], origin: Folded<'_>) -> Option<usize> {
    if !has_additional(rtype) {
        return None;
    }
    let span = rdata::names(rtype, rdata).next()?;
    let name = Name::from_octets(rdata.get(span.offset..span.offset + span.len)?).ok()?;
    // The root is no host: it stands for "none" (RFC 2782, RFC 7505), or for the owner (RFC 9460 section 2.5.2).
    (!name.is_root() && name.is_at_or_below(origin.name())).then_some(span.offset)
}

/// Whether the last `suffix_len` octets of `prefix` start with a whole label.
fn is_label_boundary(prefix: &[u8], suffix_len: usize) -> bool {
    let Some(boundary) = prefix.len().checked_sub(suffix_len) else { return false };
    let mut at = 0;
    while at < boundary {
        at += 1 + prefix.get(at).copied().map_or(0, usize::from);
    }
    at == boundary
}

/// Types whose RDATA name a host, for which addresses are added (RFC 1035 section 3.3, RFC 2782, RFC 9460
/// section 4.1 and each type's own RFC).
fn has_additional(rtype: Rtype) -> bool {
    matches!(
        rtype,
        Rtype::NS
            | Rtype::MX
            | Rtype::SRV
            | Rtype::KX
            | Rtype::AFSDB
            | Rtype::RT
            | Rtype::NAPTR
            | Rtype::SVCB
            | Rtype::HTTPS
    )
}
