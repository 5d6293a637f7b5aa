//! Chains of NSEC and NSEC3 records: whole, and with parameters and TTLs that resolvers take.

use super::{Limits, Report, is_occluded};
use crate::denial::{Denial, Nsec3Chain, Parameters};
use crate::finding::Rule;
use crate::tree::{Node, Zone};
use weir_wire::name::Name;
use weir_wire::rdata::bitmap_types;
use weir_wire::rtype::Rtype;

pub(super) fn check(limits: &Limits, report: &mut Report<'_>) {
    let zone = report.zone;
    parameters(limits, report);
    mixed(report);
    match zone.denial() {
        Denial::Unsigned => return,
        Denial::Nsec(_) => nsec_chain(report),
        Denial::Nsec3(chain) => nsec3_chain(chain, report),
    }
    ttls(report);
}

/// RFC 9276 section 3.1: no salt, no iterations; each name that does not exist costs a hash for each iteration.
fn parameters(limits: &Limits, report: &mut Report<'_>) {
    let apex = report.zone.apex();
    let Some(parameters) = apex.rrset(Rtype::NSEC3PARAM) else { return };
    for record in parameters.records.iter() {
        let Some(Parameters { iterations, salt, .. }) = Parameters::read(record.rdata) else { continue };
        if iterations > limits.max_iterations {
            let detail = format!("{iterations}, at most {} are served", limits.max_iterations);
            report.push(Rule::Nsec3TooManyIterations, apex, Rtype::NSEC3PARAM, detail);
        } else if iterations > 0 {
            report.push(Rule::Nsec3Iterations, apex, Rtype::NSEC3PARAM, iterations.to_string());
        }
        if !salt.is_empty() {
            report.push(Rule::Nsec3Salt, apex, Rtype::NSEC3PARAM, "");
        }
    }
}

/// Proofs that are there and that no answer holds: a zone denies by one chain, which its apex announces.
fn mixed(report: &mut Report<'_>) {
    let zone = report.zone;
    let (apex, proofs) = (zone.apex(), zone.proofs);
    let has_parameters = apex.rrset(Rtype::NSEC3PARAM).is_some();
    let is_nsec3 = matches!(zone.denial(), Denial::Nsec3(_));
    if is_nsec3 && proofs.nsec {
        report.push(Rule::NsecMixed, apex, Rtype::NSEC, "there is an NSEC3PARAM record: NSEC is not used");
    }
    // Without any proof or key the record has no effect.
    let is_signed = proofs.nsec || proofs.nsec3 || apex.rrset(Rtype::DNSKEY).is_some();
    if !is_nsec3 && has_parameters && is_signed {
        report.push(Rule::NsecMixed, apex, Rtype::NSEC3PARAM, "no NSEC3 record has these parameters");
    }
    if !is_nsec3 && !has_parameters && proofs.nsec3 {
        report.push(Rule::NsecMixed, apex, Rtype::NSEC3, "there is no NSEC3PARAM record: NSEC3 is not used");
    }
    if matches!(zone.denial(), Denial::Unsigned) && proofs.nsec {
        report.push(Rule::NsecMixed, apex, Rtype::NSEC, "the apex has none: NSEC is not used");
    }
}

/// RFC 4034 section 4.1.1: each name with records of the zone's own has an NSEC record that names the next.
fn nsec_chain(report: &mut Report<'_>) {
    let zone = report.zone;
    let mut expected: Option<(Node<'_>, &[u8])> = None;
    for node in zone.nodes().filter(|node| !is_occluded(node) && !node.is_empty_non_terminal()) {
        let Some(nsec) = node.rrset(Rtype::NSEC) else {
            report.push(Rule::NsecChain, node, Rtype::NSEC, "it has none");
            continue;
        };
        let Some((next, bitmap)) =
            nsec.records.iter().next().and_then(|record| Name::parse(record.rdata).ok())
        else {
            continue;
        };
        if let Some((before, named)) = expected
            && !is_name_of(named, node, zone)
        {
            report.push(Rule::NsecChain, before, Rtype::NSEC, "the next name is another");
        }
        expected = Some((node, next.octets()));
        if !has_types(node, bitmap, true) {
            report.push(Rule::NsecChain, node, Rtype::NSEC, "its types are others");
        }
    }
    if let Some((last, named)) = expected
        && !is_name_of(named, zone.apex(), zone)
    {
        report.push(Rule::NsecChain, last, Rtype::NSEC, "the last one must name the apex");
    }
}

fn is_name_of(octets: &[u8], node: Node<'_>, zone: &Zone) -> bool {
    octets.eq_ignore_ascii_case(node.owner(zone).folded().octets())
}

/// Whether a set of types is that of a node.
fn has_types(node: Node<'_>, bitmap: &[u8], is_nsec: bool) -> bool {
    let mut types: Vec<Rtype> = node.rrsets().map(|rrset| rrset.rtype).collect();
    if node.is_delegation() {
        // RFC 4035 section 2.3: below the parent's own types, glue at a cut does not count.
        types.retain(|rtype| matches!(*rtype, Rtype::NS | Rtype::DS | Rtype::NSEC));
    }
    if is_nsec || node.rrsets().any(|rrset| rrset.signatures.n_records > 0) {
        types.push(Rtype::RRSIG);
    }
    types.sort_unstable();
    bitmap_types(bitmap).eq(types)
}

/// RFC 5155 section 7.1: each record names the next hash, the last the first; each name has one, or may lie in a span
/// that opts out.
fn nsec3_chain(chain: &Nsec3Chain, report: &mut Report<'_>) {
    let zone = report.zone;
    let mut opts_out = false;
    let mut entries = chain.entries(zone).peekable();
    let first = entries.peek().map(|(hash, _)| *hash);
    while let Some((_, node)) = entries.next() {
        let following = entries.peek().map(|(hash, _)| *hash).or(first);
        let Some(record) = node.rrset(Rtype::NSEC3).and_then(|rrset| rrset.records.iter().next()) else {
            continue;
        };
        let Some((parameters, rest)) = Parameters::split(record.rdata) else { continue };
        opts_out |= parameters.flags & 1 != 0;
        let next = rest.split_first().and_then(|(&len, rest)| rest.get(..usize::from(len)));
        if next != following.as_ref().map(<[u8; 20]>::as_slice) {
            report.push(Rule::NsecChain, node, Rtype::NSEC3, "the next hash is another");
        }
    }
    for node in zone.nodes().filter(|node| !is_occluded(node) && node.rrset(Rtype::NSEC3).is_none()) {
        match chain.matching(zone, &node) {
            Some(nsec3) if types_of(nsec3).is_some_and(|bitmap| !has_types(node, bitmap, false)) => {
                report.push(Rule::NsecChain, node, Rtype::NSEC3, "its types are others");
            }
            None if !opts_out || must_have_nsec3(zone, node) => {
                report.push(Rule::NsecChain, node, Rtype::NSEC3, "it has none");
            }
            _ => {}
        }
    }
}

/// The set of types of an NSEC3 record, behind its parameters and the next hash.
fn types_of(nsec3: Node<'_>) -> Option<&[u8]> {
    let record = nsec3.rrset(Rtype::NSEC3)?.records.iter().next()?;
    let (_, rest) = Parameters::split(record.rdata)?;
    let (&hash_len, rest) = rest.split_first()?;
    rest.get(usize::from(hash_len)..)
}

/// Whether a name has to have an NSEC3 record also where others opt out (RFC 5155 section 7.1): those may that are
/// delegations without DS records, and empty non-terminals that only lead to such.
fn must_have_nsec3(zone: &Zone, node: Node<'_>) -> bool {
    let owns_signed_data = |node: Node<'_>| match node.is_delegation() {
        true => node.rrset(Rtype::DS).is_some(),
        false => !node.is_empty_non_terminal(),
    };
    // What lies below a name follows it in canonical order; below a delegation all is occluded.
    let owner = node.owner(zone);
    (node.rank()..)
        .map_while(|rank| zone.node_by_rank(rank))
        .take_while(|there| there.owner(zone).folded().is_at_or_below(owner.folded()))
        .any(|there| !is_occluded(&there) && owns_signed_data(there))
}

/// RFC 9077 section 3: proofs live no longer than the lesser of the SOA record's TTL and MINIMUM.
fn ttls(report: &mut Report<'_>) {
    let zone = report.zone;
    let Some(most) = zone.negative_soa().and_then(|soa| soa.records.iter().next()).map(|soa| soa.ttl) else {
        return;
    };
    for node in zone.nodes() {
        let proof = node.rrsets().find(|rrset| matches!(rrset.rtype, Rtype::NSEC | Rtype::NSEC3));
        let ttl = proof.and_then(|rrset| Some((rrset.rtype, rrset.records.iter().next()?.ttl)));
        if let Some((rtype, ttl)) = ttl.filter(|&(_, ttl)| ttl > most) {
            report.push(Rule::NsecTtl, node, rtype, format!("{ttl}, at most {most}"));
            // What signs a zone does so the same way everywhere: one line says it.
            return;
        }
    }
}
