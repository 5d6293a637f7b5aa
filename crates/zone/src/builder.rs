//! From records in any order to an answerable [`Zone`]: collect, sort, check, write the arena.
//!
//! Reading order: `pending` packs records as they come; `order` sorts them and cuts large zones into parts; `segment`
//! writes a part's nodes and checks them; `assembly` puts the parts together; `links` looks up the hosts that records
//! name.

use crate::finding::Finding;
use crate::tree::Zone;
use weir_wire::name::{Folded, FoldedBuf, HashSeed, Name};
use weir_wire::rtype::{Class, Rtype};

mod assembly;
mod links;
mod order;
mod pending;
mod segment;

pub(crate) use order::key as canonical_key;
use pending::{Blocks, Pending};
use segment::Frame;

/// How the work on one zone is divided.
#[derive(Clone, Copy, Debug)]
struct Division {
    n_threads: usize,
    /// Octets of records from which on cutting a zone into parts pays for itself.
    parts_from: usize,
    /// Octets of records that make a part: small enough for a core's cache.
    part_len: usize,
}

impl Division {
    fn for_octets(n_octets: usize) -> Division {
        let parts_from = 4 << 20;
        // How many CPUs there are takes several files to find out: too much for a small zone.
        let n_threads = if n_octets < parts_from { 1 } else { n_threads() };
        Division { n_threads, parts_from, part_len: 1 << 20 }
    }
}

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
    apex: Blocks,
    others: Blocks,
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
            apex: Blocks::default(),
            others: Blocks::default(),
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
        let origin = self.origin.folded().name();
        if !owner.is_at_or_below(origin) {
            return Err(Refused::OutOfZone);
        }
        if rtype.is_meta() {
            return Err(Refused::NotZoneData);
        }
        let prefix_len = owner.octets().len() - origin.octets().len();
        let prefix = owner.octets().get(..prefix_len).ok_or(Refused::OutOfZone)?;
        let blocks = if prefix.is_empty() { &mut self.apex } else { &mut self.others };
        blocks.push(prefix, Pending { rtype, ttl, tag, rdata }).ok_or(Refused::NotZoneData)
    }

    /// Builds the zone; yields it with what was found wrong in passing.
    ///
    /// Large zones are built on several threads.
    ///
    /// # Errors
    /// Findings, when one of them makes answering impossible ([`Rule::is_error`](crate::finding::Rule::is_error)).
    pub fn finish(self) -> Result<(Zone, Vec<Finding>), Vec<Finding>> {
        let division = Division::for_octets(self.others.n_octets());
        self.finish_by(division)
    }

    fn finish_by(self, division: Division) -> Result<(Zone, Vec<Finding>), Vec<Finding>> {
        let frame = Frame { origin: self.origin.folded(), class: self.class, seed: self.seed };
        assembly::assemble(frame, &self.apex, self.others, division)
    }
}

/// Most threads that work on one zone: past that they wait for memory.
const MAX_THREADS: usize = 8;
/// Nodes from which on threads pay for themselves.
const PARALLEL_FROM: usize = 50_000;

fn n_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Threads for going through a number of nodes.
pub(crate) fn threads_for(n_nodes: usize) -> usize {
    if n_nodes < PARALLEL_FROM { 1 } else { n_threads() }
}

/// What `work` makes of each item, in their order; each is done on a thread of its own, the first on the caller's.
pub(crate) fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let mut items = items.into_iter();
    let Some(first) = items.next() else { return Vec::new() };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let first = work(first);
        let others = threads.into_iter().map(|thread| match thread.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(others).collect()
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_wire::name::NameBuf;

    const SEED: HashSeed = HashSeed::fixed();

    /// A zone whose names share labels at several depths, its records in the order given.
    fn build(owners: &[(u8, u8, u8)], division: Division) -> (Zone, Vec<Finding>) {
        let origin = FoldedBuf::from_text("example.").unwrap();
        let mut builder = ZoneBuilder::new(origin.folded(), Class::IN, SEED);
        let name = |text: &str| NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).unwrap();
        let host = |text: &str| name(text).name().octets().to_vec();
        let mut add = |owner: &str, rtype, rdata: &[u8]| {
            builder.add(name(owner).name(), rtype, 3600, rdata, 7).unwrap();
        };
        for &(first, second, kind) in owners {
            let parent = format!("p{}.example.", first % 16);
            let owner = format!("c{}.{parent}", second % 64);
            match kind % 8 {
                0 => add(&parent, Rtype::NS, &host(&owner)),
                1 => add(&parent, Rtype::DNAME, &host("elsewhere.")),
                2 => add(&format!("*.{parent}"), Rtype::TXT, b"\x01x"),
                3 => add(&owner, Rtype::MX, &[&[0, 10][..], &host(&parent)].concat()),
                4 => add(&format!("deep.er.{owner}"), Rtype::A, &[192, 0, 2, second]),
                _ => add(&owner, Rtype::A, &[192, 0, 2, kind]),
            }
        }
        let soa = [&host("ns.example.")[..], &host("mail.example."), &[0; 20]].concat();
        add("example.", Rtype::SOA, &soa);
        add("example.", Rtype::NS, &host("c1.p1.example."));
        builder.finish_by(division).unwrap()
    }

    /// Everything that answers depend on, node by node.
    fn shown(zone: &Zone) -> Vec<String> {
        let node = |node: crate::Node<'_>| {
            let covering = node.covering().map(|covering| covering.rank());
            let hash = zone.seed.hash(node.owner(zone).folded());
            let wildcard = zone.wildcard_below(node, hash).map(|wildcard| wildcard.rank());
            let is_found = zone.find_name(node.owner(zone).folded()).is_some_and(|found| found.is(&node));
            let mut text =
                format!("{} {} {covering:?} {wildcard:?} {is_found}", node.owner(zone), node.rank());
            for rrset in node.rrsets() {
                let hosts: Vec<_> =
                    rrset.links().map(|link| (link.node(zone).rank(), link.name_at)).collect();
                text += &format!("; {} {:?} {hosts:?}", rrset.rtype, rrset.records.records);
            }
            text
        };
        zone.nodes().map(node).collect()
    }

    proptest! {
        #[test]
        fn a_zone_built_in_parts_on_threads_is_the_zone_built_in_one_go(
            owners in proptest::collection::vec((0u8..=255, 0u8..=255, 0u8..=255), 0..400),
        ) {
            let whole = Division { n_threads: 1, parts_from: usize::MAX, part_len: 1 };
            let (expected, findings) = build(&owners, whole);
            for n_threads in [1, 3] {
                let division = Division { n_threads, parts_from: 0, part_len: 256 };
                let (zone, found) = build(&owners, division);
                prop_assert_eq!(shown(&zone), shown(&expected));
                prop_assert_eq!(zone.n_records(), expected.n_records());
                prop_assert_eq!(zone.n_nodes(), expected.n_nodes());
                prop_assert_eq!(found.len(), findings.len());
                prop_assert!(zone.negative_soa().is_some());
            }
        }
    }
}
