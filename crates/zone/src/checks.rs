//! What a zone that can be answered from may still have wrong: hosts, signatures, proofs, digest.
//!
//! The rules here look at the finished tree. Records have forgotten their lines by then; [`crate::load`] finds them
//! again.

use crate::finding::{Finding, FindingList, Rule};
use crate::tree::{Node, Zone};
use weir_wire::name::FoldedBuf;
use weir_wire::rtype::Rtype;

mod denial;
mod digest;
mod hosts;
mod keys;
mod signatures;
mod wildcards;

/// What the rules go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Seconds since 1970 that signatures are judged at; they are not when it is not known.
    pub now: Option<u64>,
    /// Seconds before their end from which on signatures are reported.
    pub signature_margin: u32,
    /// Most iterations of NSEC3 that a zone may have: each costs a hash for each name that does not exist.
    pub max_iterations: u16,
}

impl Default for Limits {
    fn default() -> Limits {
        // Two days of margin let a weekend pass. 500 iterations: validators treat zones with more as insecure or bogus
        // (RFC 9276 section 3.2).
        Limits { now: None, signature_margin: 2 * 86_400, max_iterations: 500 }
    }
}

/// What breaks the rules in a zone.
pub(crate) fn check(zone: &Zone, limits: &Limits) -> FindingList {
    let n_threads = crate::builder::threads_for(zone.order.len());
    let n_a_share = zone.order.len().div_ceil(n_threads).max(1);
    let keys = keys::Keys::of(zone);
    let shares = zone.order.chunks(n_a_share).collect();
    let checked = crate::builder::in_parallel(shares, |share: &[u32]| {
        let mut report = Report { zone, list: FindingList::default() };
        for &position in share {
            check_node(zone.node(position), &keys, limits, &mut report);
        }
        report.list
    });
    let mut report = Report { zone, list: FindingList::default() };
    checked.into_iter().for_each(|list| report.list.append(list));
    keys::check(&keys, &mut report);
    denial::check(limits, &mut report);
    digest::check(&mut report);
    report.list
}

fn check_node(node: Node<'_>, keys: &keys::Keys, limits: &Limits, report: &mut Report<'_>) {
    wildcards::check(node, report);
    if is_occluded(&node) {
        return;
    }
    hosts::check(node, report);
    if keys.is_signed() {
        signatures::check(node, keys, limits, report);
    }
}

/// Whether the node lies below a zone cut or a DNAME record.
fn is_occluded(node: &Node<'_>) -> bool {
    node.covering().is_some_and(|covering| !covering.is(node))
}

/// Findings on the way.
struct Report<'z> {
    zone: &'z Zone,
    list: FindingList,
}

impl Report<'_> {
    fn push(&mut self, rule: Rule, node: Node<'_>, rtype: Rtype, detail: impl Into<String>) {
        self.push_at(rule, node.owner(self.zone), rtype, detail);
    }

    fn push_at(&mut self, rule: Rule, owner: FoldedBuf, rtype: Rtype, detail: impl Into<String>) {
        self.list.push(Finding { rule, owner, rtype, tag: None, detail: detail.into() });
    }
}
