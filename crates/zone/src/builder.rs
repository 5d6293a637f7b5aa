//! From records in any order to an answerable [`Zone`]: sort, group, check, write the arena.

use crate::denial::Denial;
use crate::finding::{Finding, Rule};
use crate::index::HashIndex;
use crate::tree::{LINK_LEN, NODE_HEAD_LEN, RrsetHead, Zone, flag};
use std::cmp::Ordering;
use std::ops::Range;
use weir_wire::image::{ImageMaker, Owner, RECORD_HEAD_LEN};
use weir_wire::name::{Folded, FoldedBuf, HashSeed, Name, NameHash, canonical_cmp};
use weir_wire::rdata;
use weir_wire::rtype::{Class, Rtype};

/// A record cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its owner is not at or below the zone's origin.
    OutOfZone,
    /// Its type can stand only in a message (RFC 6895 section 3.1), or its RDATA has over 65,535 octets.
    NotZoneData,
}

/// Collects the records of one zone.
#[derive(Debug)]
pub struct ZoneBuilder {
    origin: FoldedBuf,
    class: Class,
    seed: HashSeed,
    /// Owners in front of the origin, each behind its length octet.
    owners: Vec<u8>,
    /// Where the owner added last stands in `owners`.
    last_owner: Option<usize>,
    rdata: Vec<u8>,
    records: Vec<Pending>,
}

/// A record that waits for the others.
#[derive(Clone, Copy, Debug)]
struct Pending {
    owner_at: usize,
    rdata_at: usize,
    rdata_len: u16,
    rtype: Rtype,
    ttl: u32,
    tag: u32,
}

impl ZoneBuilder {
    /// A builder for the zone named `origin`.
    ///
    /// `seed` is that of the zone set that the zone is for.
    pub fn new(origin: Folded<'_>, class: Class, seed: HashSeed) -> ZoneBuilder {
        ZoneBuilder {
            origin: origin.name().fold(),
            class,
            seed,
            owners: Vec::new(),
            last_owner: None,
            rdata: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Adds a record; `rdata` is uncompressed and was checked for its type.
    ///
    /// `tag` comes back in the findings that the record gives rise to.
    ///
    /// # Errors
    /// [`Refused`] says why the record is not taken; the others stay.
    pub fn add(
        &mut self,
        owner: Name<'_>,
        rtype: Rtype,
        ttl: u32,
        rdata: &[u8],
        tag: u32,
    ) -> Result<(), Refused> {
        if rtype.is_meta() {
            return Err(Refused::NotZoneData);
        }
        let rdata_len = u16::try_from(rdata.len()).map_err(|_| Refused::NotZoneData)?;
        let owner_at = self.owner_at(owner)?;
        let rdata_at = self.rdata.len();
        self.rdata.extend_from_slice(rdata);
        self.records.push(Pending { owner_at, rdata_at, rdata_len, rtype, ttl, tag });
        Ok(())
    }

    /// Where the owner stands in `owners`: zone files mostly go on with the owner of the record before.
    fn owner_at(&mut self, owner: Name<'_>) -> Result<usize, Refused> {
        if !owner.is_at_or_below(self.origin.folded().name()) {
            return Err(Refused::OutOfZone);
        }
        let prefix_len = owner.octets().len() - self.origin.folded().octets().len();
        let prefix = owner.octets().get(..prefix_len).ok_or(Refused::OutOfZone)?;
        if let Some(last) = self.last_owner
            && prefix_at(&self.owners, last).eq_ignore_ascii_case(prefix)
        {
            return Ok(last);
        }
        let at = self.owners.len();
        self.owners.extend(u8::try_from(prefix_len));
        self.owners.extend(prefix.iter().map(u8::to_ascii_lowercase));
        self.last_owner = Some(at);
        Ok(at)
    }

    /// Builds the zone; yields it with what was found wrong in passing.
    ///
    /// # Errors
    /// All findings, when one of them makes answering impossible ([`Rule::is_error`]).
    pub fn finish(mut self) -> Result<(Zone, Vec<Finding>), Vec<Finding>> {
        self.sort();
        let records = std::mem::take(&mut self.records);
        let mut writer = ArenaWriter::new(&self, records.len());
        let groups: Vec<&[Pending]> =
            records.chunk_by(|a, b| a.owner_at == b.owner_at || self.prefix(a) == self.prefix(b)).collect();
        // The apex exists even where the file forgets it; the finding names it.
        if groups.first().and_then(|group| group.first()).is_none_or(|record| !self.prefix(record).is_empty())
        {
            writer.push_node(&[]);
            writer.report(Rule::SoaMissing, None);
        }
        for group in groups {
            writer.push_owner(group);
        }
        writer.finish()
    }

    fn sort(&mut self) {
        let owners = std::mem::take(&mut self.owners);
        let order = |a: &Pending, b: &Pending| -> Ordering {
            let by_owner = if a.owner_at == b.owner_at {
                Ordering::Equal
            } else {
                canonical_cmp(prefix_at(&owners, a.owner_at), prefix_at(&owners, b.owner_at))
            };
            by_owner.then_with(|| sort_type(a, &self.rdata).cmp(&sort_type(b, &self.rdata)))
        };
        // The sort is stable: records of an RRset stay in the order of the file. Runs that are sorted already, as
        // in most large zones, cost one comparison a record.
        self.records.sort_by(order);
        self.owners = owners;
    }

    fn prefix(&self, record: &Pending) -> &[u8] {
        prefix_at(&self.owners, record.owner_at)
    }

    fn rdata(&self, record: &Pending) -> &[u8] {
        self.rdata.get(record.rdata_at..record.rdata_at + usize::from(record.rdata_len)).unwrap_or(&[])
    }
}

/// The owner at a position, behind its length octet.
fn prefix_at(owners: &[u8], at: usize) -> &[u8] {
    let len = owners.get(at).copied().map_or(0, usize::from);
    owners.get(at + 1..at + 1 + len).unwrap_or(&[])
}

/// Signatures sort right behind the RRset that they cover.
fn sort_type(record: &Pending, rdata: &[u8]) -> (Rtype, bool) {
    if record.rtype != Rtype::RRSIG {
        return (record.rtype, false);
    }
    let covered = rdata.get(record.rdata_at..).and_then(<[u8]>::first_chunk::<2>);
    (Rtype(covered.map_or(0, |octets| u16::from_be_bytes(*octets))), true)
}

/// An ancestor of the owner in hand, or the owner itself.
#[derive(Clone, Copy)]
struct Level {
    /// The name in front of the origin, in the builder's or the writer's memory of owners.
    prefix_len: usize,
    position: u32,
    hash: NameHash,
    /// What covers the nodes below.
    covers_below: u32,
}

/// A link whose node is looked up once all nodes are there.
struct PendingLink {
    arena_at: usize,
    rdata_at: usize,
    name_len: u8,
}

/// Writes nodes in canonical order.
struct ArenaWriter<'b> {
    builder: &'b ZoneBuilder,
    zone: Zone,
    hashes: Vec<(NameHash, u32)>,
    links: Vec<PendingLink>,
    /// The path from the apex to the owner in hand, and that owner's octets in front of the origin.
    path: Vec<Level>,
    last_prefix: Vec<u8>,
    records: ImageMaker,
    signatures: ImageMaker,
    findings: Vec<Finding>,
    full: bool,
}

impl<'b> ArenaWriter<'b> {
    fn new(builder: &'b ZoneBuilder, n_records: usize) -> ArenaWriter<'b> {
        let zone = Zone {
            origin: builder.origin,
            class: builder.class,
            seed: builder.seed,
            // Position 0 stands for "none", so the arena starts with four octets that are nothing.
            arena: vec![0; 4],
            index: HashIndex::with_capacity(0),
            order: Vec::new(),
            max_depth: 0,
            negative_soa_at: 0,
            serial: 0,
            expire: 0,
            n_records: 0,
            denial: Denial::Unsigned,
        };
        ArenaWriter {
            builder,
            zone,
            hashes: Vec::with_capacity(n_records / 2),
            links: Vec::new(),
            path: Vec::new(),
            last_prefix: Vec::new(),
            records: ImageMaker::default(),
            signatures: ImageMaker::default(),
            findings: Vec::new(),
            full: false,
        }
    }

    /// Writes the node of a group of records that share their owner, and the empty non-terminals above it.
    fn push_owner(&mut self, group: &[Pending]) {
        let Some(first) = group.first() else { return };
        let builder = self.builder;
        self.push_node(builder.prefix(first));
        let covered = self.path.len() >= 2
            && self.path.get(self.path.len() - 2).is_some_and(|parent| parent.covers_below != 0);
        let rrsets = group.chunk_by(|a, b| sort_type(a, &builder.rdata).0 == sort_type(b, &builder.rdata).0);
        let types: Vec<Rtype> = rrsets.clone().filter_map(|rrset| rrset.first()).map(|r| r.rtype).collect();
        self.check_types(&types, first);
        let mut n_rrsets = 0u16;
        for rrset in rrsets {
            n_rrsets += u16::from(self.push_rrset(rrset));
        }
        self.close_node(n_rrsets, &types, covered, first);
    }

    /// Starts the node of `prefix`, with its missing ancestors as empty non-terminals.
    fn push_node(&mut self, prefix: &[u8]) {
        let n_common = self.n_common_labels(prefix);
        self.path.truncate(n_common + 1);
        let mut starts: Vec<usize> = Vec::new();
        let mut at = 0;
        while let Some(&label_len) = prefix.get(at) {
            starts.push(at);
            at += 1 + usize::from(label_len);
        }
        self.zone.max_depth = self.zone.max_depth.max(starts.len());
        if self.path.is_empty() {
            let hash = self.builder.seed.hash(self.builder.origin.folded());
            self.open_node(&[], hash, 0);
        }
        for &start in starts.iter().rev().skip(n_common) {
            let (Some(owner), Some(parent)) = (prefix.get(start..), self.path.last().copied()) else {
                return;
            };
            let label_len = 1 + usize::from(owner.first().copied().unwrap_or(0));
            let label = owner.get(..label_len).unwrap_or(&[]);
            let hash = self.builder.seed.with_label(parent.hash, label);
            if label == b"\x01*" {
                self.set_flag(parent.position, flag::WILDCARD_CHILD);
            }
            self.open_node(owner, hash, parent.covers_below);
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

    fn open_node(&mut self, prefix: &[u8], hash: NameHash, covering: u32) {
        let arena = &mut self.zone.arena;
        arena.resize(arena.len().next_multiple_of(4), 0);
        let rank = self.zone.order.len();
        let (Ok(position), Ok(rank)) = (u32::try_from(arena.len() / 4), u32::try_from(rank)) else {
            self.full = true;
            return;
        };
        arena.extend_from_slice(&covering.to_le_bytes());
        arena.extend_from_slice(&rank.to_le_bytes());
        arena.extend_from_slice(&[0, 0, 0]);
        arena.extend(u8::try_from(prefix.len()));
        arena.extend_from_slice(prefix);
        self.zone.order.push(position);
        self.hashes.push((hash, position));
        self.path.push(Level { prefix_len: prefix.len(), position, hash, covers_below: covering });
    }

    /// Fills in what is known of the node only when its RRsets are.
    fn close_node(&mut self, n_rrsets: u16, types: &[Rtype], covered: bool, first: &Pending) {
        let is_apex = self.path.len() == 1;
        let Some(level) = self.path.last_mut() else { return };
        let position = level.position;
        let is_delegation = types.contains(&Rtype::NS) && !is_apex;
        let has_dname = types.contains(&Rtype::DNAME);
        if !covered && (is_delegation || has_dname) {
            level.covers_below = position;
        }
        let covered_by_dname = covered && {
            let above =
                self.path.len().checked_sub(2).and_then(|at| self.path.get(at)).map_or(0, |l| l.covers_below);
            self.zone.node(above).has_dname() && !self.zone.node(above).is_delegation()
        };
        if covered_by_dname {
            self.report(Rule::BelowDname, Some(first));
        }
        if types == [Rtype::NSEC3] {
            // RFC 5155 section 7.2.8: the owner of an NSEC3 record does not exist for queries.
            self.hashes.pop();
        }
        let at = position_in_arena(position);
        if !covered && is_delegation {
            self.write(at, &position.to_le_bytes());
        }
        self.write(at + 8, &n_rrsets.to_le_bytes());
        for (is_set, flag) in [
            (is_delegation, flag::DELEGATION),
            (has_dname, flag::DNAME),
            (types.contains(&Rtype::CNAME), flag::CNAME),
        ] {
            if is_set {
                self.set_flag(position, flag);
            }
        }
    }

    fn check_types(&mut self, types: &[Rtype], first: &Pending) {
        let is_apex = self.path.len() == 1;
        if is_apex && !types.contains(&Rtype::SOA) {
            self.report(Rule::SoaMissing, None);
        }
        if is_apex && !types.contains(&Rtype::NS) {
            self.report(Rule::NsMissing, None);
        }
        if !is_apex && types.contains(&Rtype::SOA) {
            self.report(Rule::SoaNotAtApex, Some(first));
        }
        // RFC 2181 section 10.1 and RFC 4035 section 2.5: beside a CNAME only what signing adds.
        let may_stand_beside = |rtype: &Rtype| {
            matches!(*rtype, Rtype::CNAME | Rtype::RRSIG | Rtype::NSEC | Rtype::SIG | Rtype::NXT | Rtype::KEY)
        };
        if types.contains(&Rtype::CNAME) && !types.iter().all(may_stand_beside) {
            self.report(Rule::CnameWithOtherData, Some(first));
        }
    }

    /// Writes the records of one type with their signatures; yields whether there was an RRset to write.
    fn push_rrset(&mut self, group: &[Pending]) -> bool {
        let n_records = group.partition_point(|record| record.rtype != Rtype::RRSIG);
        let (records, signatures) = group.split_at_checked(n_records).unwrap_or((group, &[]));
        let Some(first) = records.first() else {
            if let Some(orphan) = signatures.first() {
                self.report(Rule::SignatureOfNothing, Some(orphan));
            }
            return false;
        };
        let records = self.without_duplicates(records);
        self.check_single(first.rtype, &records);
        let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0);
        if let Some(differing) = records.iter().find(|record| record.ttl != ttl) {
            self.report(Rule::TtlsDiffer, Some(differing));
        }
        let signatures = self.without_duplicates(signatures);
        self.write_rrset(&records, &signatures, Some(ttl));
        if first.rtype == Rtype::SOA && self.path.len() == 1 {
            let soa = soa_numbers(self.builder.rdata(first));
            self.zone.serial = soa.as_ref().map_or(0, |soa| soa.serial);
            self.zone.expire = soa.as_ref().map_or(0, |soa| soa.expire);
        }
        true
    }

    fn check_single(&mut self, rtype: Rtype, records: &[Pending]) {
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

    /// The records that are not the same as an earlier one, names compared without case (RFC 4034 section 6.2).
    fn without_duplicates(&mut self, records: &[Pending]) -> Vec<Pending> {
        if let [_] | [] = records {
            return records.to_vec();
        }
        let builder = self.builder;
        let mut seen = std::collections::HashSet::with_capacity(records.len());
        let mut kept = Vec::with_capacity(records.len());
        for record in records {
            let mut canonical = Vec::new();
            rdata::canonical(record.rtype, builder.rdata(record), &mut canonical);
            if seen.insert(canonical) {
                kept.push(*record);
            } else {
                self.report(Rule::Duplicate, Some(record));
            }
        }
        kept
    }

    /// Writes an RRset to the end of the arena; `ttl` replaces that of its records, signatures keep theirs.
    fn write_rrset(&mut self, records: &[Pending], signatures: &[Pending], ttl: Option<u32>) {
        let Some(first) = records.first() else { return };
        let builder = self.builder;
        let prefix = builder.prefix(first);
        let Ok(name) = FoldedBuf::join(prefix, builder.origin.folded()) else { return };
        let owner = Owner { name: name.folded(), class: builder.class };
        self.records.clear();
        self.signatures.clear();
        let mut links: Vec<(u32, PendingLink)> = Vec::new();
        for record in records {
            let at = self.records.push(owner, record.rtype, ttl.unwrap_or(record.ttl), builder.rdata(record));
            if let Some((offset, link)) = self.link_of(record) {
                links
                    .extend(u32::try_from(at + RECORD_HEAD_LEN + offset).ok().map(|name_at| (name_at, link)));
            }
        }
        for signature in signatures {
            self.signatures.push(owner, signature.rtype, signature.ttl, builder.rdata(signature));
        }
        self.zone.n_records += (records.len() + signatures.len()) as u64;
        self.append_rrset(first.rtype, name.folded(), links);
    }

    fn append_rrset(&mut self, rtype: Rtype, owner: Folded<'_>, mut links: Vec<(u32, PendingLink)>) {
        let (records, signatures) = (self.records.image(owner), self.signatures.image(owner));
        links.truncate(usize::from(u16::MAX));
        let lens =
            [records.records.len(), signatures.records.len(), records.pointers.len(), links.len() * LINK_LEN];
        let head = RrsetHead {
            total_len: crate::tree::RRSET_HEAD_LEN + lens.iter().sum::<usize>(),
            rtype,
            n_records: records.n_records,
            records_len: records.records.len(),
            signatures_len: signatures.records.len(),
            n_signatures: signatures.n_records,
            n_pointers: u16::try_from(records.pointers.len() / 2).unwrap_or(0),
            n_links: u16::try_from(links.len()).unwrap_or(0),
        };
        let Some(head) = head.octets() else {
            self.full = true;
            return;
        };
        for part in [&head[..], records.records, signatures.records, records.pointers] {
            self.zone.arena.extend_from_slice(part);
        }
        for (name_at, mut link) in links {
            link.arena_at = self.zone.arena.len();
            self.zone.arena.extend_from_slice(&[0; 4]);
            self.zone.arena.extend_from_slice(&name_at.to_le_bytes());
            self.links.push(link);
        }
    }

    /// The name in RDATA whose addresses go along, when it lies in the zone, and its place in RDATA.
    fn link_of(&self, record: &Pending) -> Option<(usize, PendingLink)> {
        if !has_additional(record.rtype) {
            return None;
        }
        let octets = self.builder.rdata(record);
        let span = rdata::names(record.rtype, octets).next()?;
        let name = Name::from_octets(octets.get(span.offset..span.offset + span.len)?).ok()?;
        if !name.is_at_or_below(self.builder.origin.folded().name()) {
            return None;
        }
        let rdata_at = record.rdata_at + span.offset;
        Some((span.offset, PendingLink { arena_at: 0, rdata_at, name_len: u8::try_from(span.len).ok()? }))
    }

    fn finish(mut self) -> Result<(Zone, Vec<Finding>), Vec<Finding>> {
        if self.full {
            self.report(Rule::TooLarge, None);
        }
        self.write_negative_soa();
        let mut index = HashIndex::with_capacity(self.hashes.len());
        for &(hash, position) in &self.hashes {
            index.insert(hash, position);
        }
        self.zone.index = index;
        self.resolve_links();
        self.zone.denial = Denial::of(&self.zone);
        self.zone.arena.shrink_to_fit();
        self.zone.order.shrink_to_fit();
        if self.findings.iter().any(|finding| finding.rule.is_error()) {
            return Err(self.findings);
        }
        Ok((self.zone, self.findings))
    }

    /// Writes the SOA RRset once more with the TTL that negative answers carry (RFC 2308 section 3).
    fn write_negative_soa(&mut self) {
        let builder = self.builder;
        let Some(soa) = self.zone.apex().rrset(Rtype::SOA) else { return };
        let mut octets = Vec::new();
        let Some(record) = soa.records.iter().next() else { return };
        soa.records.rdata(&record, builder.origin.folded().name(), &mut octets);
        let ttl = soa_numbers(&octets).map_or(0, |soa| soa.minimum).min(record.ttl);
        let owner = Owner { name: builder.origin.folded(), class: builder.class };
        self.records.clear();
        self.signatures.clear();
        self.records.push(owner, Rtype::SOA, ttl, &octets);
        for signature in soa.signatures.iter() {
            self.signatures.push(owner, Rtype::RRSIG, ttl.min(signature.ttl), signature.rdata);
        }
        self.zone.negative_soa_at = self.zone.arena.len();
        self.append_rrset(Rtype::SOA, builder.origin.folded(), Vec::new());
    }

    fn resolve_links(&mut self) {
        for link in std::mem::take(&mut self.links) {
            let end = link.rdata_at + usize::from(link.name_len);
            let octets = self.builder.rdata.get(link.rdata_at..end).unwrap_or(&[]);
            let Ok(name) = Name::from_octets(octets) else { continue };
            let position = self.zone.find_name(name.fold().folded()).map_or(0, |node| node.position());
            self.write(link.arena_at, &position.to_le_bytes());
        }
    }

    fn write(&mut self, at: usize, octets: &[u8]) {
        if let Some(space) = self.zone.arena.get_mut(at..at + octets.len()) {
            space.copy_from_slice(octets);
        }
    }

    fn set_flag(&mut self, position: u32, flag: u8) {
        if let Some(flags) = self.zone.arena.get_mut(position_in_arena(position) + NODE_FLAGS.start) {
            *flags |= flag;
        }
    }

    fn report(&mut self, rule: Rule, record: Option<&Pending>) {
        let prefix = record.map_or(&[][..], |record| self.builder.prefix(record));
        let owner = FoldedBuf::join(prefix, self.builder.origin.folded()).unwrap_or(self.builder.origin);
        let rtype = record.map_or(Rtype::SOA, |record| record.rtype);
        self.findings.push(Finding { rule, owner, rtype, tag: record.map(|record| record.tag) });
    }
}

/// Where the flags stand in a node.
const NODE_FLAGS: Range<usize> = NODE_HEAD_LEN - 2..NODE_HEAD_LEN - 1;

fn position_in_arena(position: u32) -> usize {
    usize::try_from(position).unwrap_or(0) * 4
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

/// The numbers of an SOA record that the server itself uses.
pub(crate) struct SoaNumbers {
    pub(crate) serial: u32,
    pub(crate) expire: u32,
    pub(crate) minimum: u32,
}

/// Reads them from uncompressed RDATA (RFC 1035 section 3.3.13): five numbers behind two names.
pub(crate) fn soa_numbers(rdata: &[u8]) -> Option<SoaNumbers> {
    let (_, rest) = Name::parse(rdata).ok()?;
    let (_, rest) = Name::parse(rest).ok()?;
    let [s3, s2, s1, s0, _, _, _, _, _, _, _, _, e3, e2, e1, e0, m3, m2, m1, m0] =
        *rest.first_chunk::<20>()?;
    Some(SoaNumbers {
        serial: u32::from_be_bytes([s3, s2, s1, s0]),
        expire: u32::from_be_bytes([e3, e2, e1, e0]),
        minimum: u32::from_be_bytes([m3, m2, m1, m0]),
    })
}
