//! Wildcards that do not do what they seem to (RFC 4592).

use super::Report;
use crate::finding::Rule;
use crate::tree::Node;
use weir_wire::rtype::Rtype;

pub(super) fn check(node: Node<'_>, report: &mut Report<'_>) {
    let prefix = node.prefix();
    if !prefix.contains(&b'*') || node.is_empty_non_terminal() {
        return;
    }
    let owner = node.owner(report.zone);
    let name = owner.folded().name();
    if name.labels().skip(1).any(|label| label == b"*") {
        let rtype = node.rrsets().next().map_or(Rtype::A, |rrset| rrset.rtype);
        report.push(Rule::WildcardInside, node, rtype, "");
    }
    if !name.is_wildcard() {
        return;
    }
    for rrset in node.rrsets() {
        // RFC 4592 sections 4.2, 4.4 and 4.6, RFC 6672 section 3.3: NS, DNAME and DS make nothing from a wildcard.
        if matches!(rrset.rtype, Rtype::NS | Rtype::DNAME | Rtype::DS) {
            report.push(Rule::WildcardType, node, rrset.rtype, "");
        }
    }
}
