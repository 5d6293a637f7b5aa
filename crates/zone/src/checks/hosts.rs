//! Hosts that NS, MX and SRV records name: they have addresses, and are no aliases (RFC 2181 section 10.3).

use super::Report;
use crate::finding::Rule;
use crate::tree::{Node, Rrset, Zone};
use weir_wire::name::{Folded, Name};
use weir_wire::rtype::Rtype;

/// What a host is, as far as its zone tells.
enum Host<'z> {
    HasAddress,
    IsAlias,
    HasNone,
    /// Below a zone cut, and without an address as glue.
    NoGlue(Node<'z>),
}

pub(super) fn check(node: Node<'_>, report: &mut Report<'_>) {
    let zone = report.zone;
    let judged =
        |rrset: &Rrset<'_>| rrset.has_links() && matches!(rrset.rtype, Rtype::NS | Rtype::MX | Rtype::SRV);
    for rrset in node.rrsets().filter(judged) {
        for (name_at, position) in rrset.named_hosts() {
            let host = match position {
                0 => missing(zone, node, &rrset, name_at),
                position => existing(zone.node(position)),
            };
            let rule = match host {
                Host::IsAlias => Rule::TargetAlias,
                Host::HasNone => Rule::TargetWithoutAddress,
                // Only what lies below the cut itself cannot be found without glue.
                Host::NoGlue(cut) if rrset.rtype == Rtype::NS && cut.is(&node) => Rule::GlueMissing,
                Host::HasAddress | Host::NoGlue(_) => continue,
            };
            let mut octets = Vec::new();
            rrset.records.name(name_at, node.owner(zone).folded().name(), &mut octets);
            let name = Name::from_octets(&octets).map(|name| name.to_string());
            report.push(rule, node, rrset.rtype, name.unwrap_or_default());
        }
    }
}

fn existing(host: Node<'_>) -> Host<'_> {
    let has_address = has_address(host);
    match host.covering() {
        Some(covering) if covering.is_delegation() => {
            if has_address {
                Host::HasAddress
            } else {
                Host::NoGlue(covering)
            }
        }
        Some(_) => Host::IsAlias,
        None if host.has_cname() => Host::IsAlias,
        None if has_address => Host::HasAddress,
        None => Host::HasNone,
    }
}

fn has_address(node: Node<'_>) -> bool {
    node.rrsets().any(|rrset| matches!(rrset.rtype, Rtype::A | Rtype::AAAA))
}

/// A host that owns nothing in the zone: what its closest encloser makes of it (RFC 4592 section 3.3.1).
fn missing<'z>(zone: &'z Zone, node: Node<'z>, rrset: &Rrset<'z>, name_at: usize) -> Host<'z> {
    let mut octets = Vec::new();
    rrset.records.name(name_at, node.owner(zone).folded().name(), &mut octets);
    octets.make_ascii_lowercase();
    let mut name = Name::from_octets(&octets).ok().and_then(Folded::new);
    while let Some(ancestor) = name {
        let Some(encloser) = zone.find_name(ancestor) else {
            name = ancestor.parent();
            continue;
        };
        let covering = encloser.covering().or_else(|| encloser.has_dname().then_some(encloser));
        return match covering {
            Some(cut) if cut.is_delegation() => Host::NoGlue(cut),
            Some(_) => Host::IsAlias,
            None => zone.wildcard_below(encloser, zone.seed.hash(ancestor)).map_or(Host::HasNone, existing),
        };
    }
    // Not in the zone at all: nothing is known of it.
    Host::HasAddress
}
