//! Records in the order that digests and listings want (RFC 4034 section 6): by owner, type and canonical RDATA.

use crate::tree::{Node, Zone};
use std::io::{self, Write};
use weir_wire::rdata;
use weir_wire::rtype::Rtype;

/// A record of a node, its RDATA uncompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalRecord {
    /// The type.
    pub rtype: Rtype,
    /// RDATA in canonical form: the names that RFC 4034 section 6.2 lists in lower case.
    pub canonical: Vec<u8>,
    /// RDATA as it was written.
    pub rdata: Vec<u8>,
    /// Seconds to live.
    pub ttl: u32,
}

/// The records of a node: by type, then by canonical RDATA; signatures stand under their own type.
pub fn records(zone: &Zone, node: Node<'_>) -> Vec<CanonicalRecord> {
    let owner = node.owner(zone);
    let mut records = Vec::new();
    for rrset in node.rrsets() {
        for image in [rrset.records, rrset.signatures] {
            for record in image.iter() {
                let (mut rdata, mut canonical) = (Vec::new(), Vec::new());
                image.rdata(&record, owner.folded().name(), &mut rdata);
                rdata::canonical(record.rtype, &rdata, &mut canonical);
                records.push(CanonicalRecord { rtype: record.rtype, canonical, rdata, ttl: record.ttl });
            }
        }
    }
    records.sort_by(|a, b| (a.rtype, &a.canonical).cmp(&(b.rtype, &b.canonical)));
    records
}

/// Whether two zones of one seed hold the same records, whatever the order in their files.
pub fn has_same_records(left: &Zone, right: &Zone) -> bool {
    // What was built of the same records in the same order has the same octets.
    if left.arena == right.arena {
        return true;
    }
    let owns_same = |(left_node, right_node): (Node<'_>, Node<'_>)| {
        left_node.prefix() == right_node.prefix() && records(left, left_node) == records(right, right_node)
    };
    left.n_records() == right.n_records()
        && left.n_nodes() == right.n_nodes()
        && left.nodes().zip(right.nodes()).all(owns_same)
}

/// Writes the zone as text, one record a line, that loads again to the same zone.
///
/// Owners are in canonical order; only the SOA record goes in front of all others, where most programs want it.
/// Names are absolute and every record has its TTL, so that no line depends on another.
///
/// # Errors
/// Those of `out`.
pub fn print(zone: &Zone, out: &mut dyn Write) -> io::Result<()> {
    let write = |out: &mut dyn Write, node: Node<'_>, record: &CanonicalRecord| {
        let (owner, shown) = (node.owner(zone), rdata::display(record.rtype, &record.rdata));
        writeln!(out, "{owner} {} {} {} {shown}", record.ttl, zone.class(), record.rtype)
    };
    let apex = records(zone, zone.apex());
    let (soa, others): (Vec<_>, Vec<_>) = apex.iter().partition(|record| record.rtype == Rtype::SOA);
    for record in soa.into_iter().chain(others) {
        write(out, zone.apex(), record)?;
    }
    for node in zone.nodes().skip(1) {
        for record in &records(zone, node) {
            write(out, node, record)?;
        }
    }
    Ok(())
}
