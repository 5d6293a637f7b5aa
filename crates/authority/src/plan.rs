//! The lookup: which zone, which node, before a single octet of the answer is written.

use crate::chaos;
use crate::options::ExtendedError;
use crate::outcome::{Outcome, Source, classify};
use crate::policy::{Context, Transport};
use crate::{Scratch, ZoneSet, ZoneState};
use weir_wire::header::Rcode;
use weir_wire::query::Query;
use weir_wire::rtype::{Class, Rtype};
use weir_zone::denial::Denial;
use weir_zone::{Rrset, Zone};

/// How a query will be answered.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives on the stack for the time of a query; a box would allocate"
)]
pub enum Plan<'z> {
    /// With this response code and nothing else.
    Error(Rcode, Option<ExtendedError>),
    /// With a text about the server itself (RFC 4892).
    Identity(&'z str),
    /// From a zone.
    Zone {
        /// The set that the zone is of.
        zones: &'z ZoneSet,
        /// The zone.
        zone: &'z Zone,
        /// Labels of the question's name in front of the zone's origin.
        origin_skip: usize,
        /// What the question's name meets there.
        outcome: Outcome<'z>,
    },
}

impl Plan<'_> {
    /// Whether building the answer costs clearly more than finding it in a cache: it takes several lookups, or the
    /// proofs of a signed zone.
    ///
    /// A plain answer is one probe and one copy; no cache is cheaper than that.
    #[inline]
    pub fn is_dear(&self, query: &Query<'_>) -> bool {
        // Keys hold no class.
        let Plan::Zone { zone, outcome, .. } = self else { return false };
        let has_proofs = || query.dnssec_ok() && !matches!(zone.denial(), Denial::Unsigned);
        let is_dear = match outcome {
            Outcome::Rrset { rrset, source: Source::Name(_) } => names_many_hosts(rrset),
            Outcome::Rrset { rrset, source: Source::Wildcard { .. } } => {
                has_proofs() || names_many_hosts(rrset)
            }
            Outcome::Referral { cut, ns } => {
                names_many_hosts(ns) || has_proofs() && cut.rrset(Rtype::DS).is_none()
            }
            Outcome::Alias { .. } => true,
            Outcome::NoData { .. } | Outcome::NameError { .. } => has_proofs(),
            // These answers are never the same for two questions, or not kept.
            Outcome::Substitution { .. } | Outcome::Any { .. } | Outcome::Signatures { .. } => false,
        };
        is_dear && query.qclass == Class::IN
    }
}

/// Fewest hosts whose addresses make an answer dear: each is a record or two to be placed.
const MANY_HOSTS: u16 = 4;

/// Whether addresses of many hosts go along with an RRset.
#[inline]
fn names_many_hosts(rrset: &Rrset<'_>) -> bool {
    rrset.has_links() && rrset.records.n_records >= MANY_HOSTS
}

/// Looks the query up that was read into `scratch`.
#[inline]
pub fn plan<'z>(query: &Query<'_>, context: &Context<'z>, scratch: &Scratch, zones: &'z ZoneSet) -> Plan<'z> {
    match query.qclass {
        Class::IN => {}
        // RFC 1035 section 3.2.5: any class includes this one.
        Class::ANY => {}
        Class::CH => return chaos::plan(query, context, scratch),
        _ => return Plan::Error(Rcode::REFUSED, Some(ExtendedError::NotAuthoritative)),
    }
    if let Some(refused) = refused_type(query.qtype, context.transport) {
        return refused;
    }
    let name = &scratch.name;
    let Some(mut found) = zones.find(name, 0) else {
        // Not authoritative for the name, and no recursion is offered (RFC 1035 section 4.1.1).
        return Plan::Error(Rcode::REFUSED, Some(ExtendedError::NotAuthoritative));
    };
    if query.qtype == Rtype::DS && found.origin_skip == 0 {
        // RFC 4035 section 3.1.4.1: DS records of an apex are the parent's; ask it when it is served here too.
        if let Some(parent) = zones.find(name, 1) {
            found = parent;
        }
    }
    match found.state {
        ZoneState::Ready(zone) => {
            let lookup = zone.find(name, found.origin_skip);
            let outcome = classify(zone, name, lookup, query.qtype);
            Plan::Zone { zones, zone, origin_skip: found.origin_skip, outcome }
        }
        ZoneState::Loading => Plan::Error(Rcode::SERVFAIL, Some(ExtendedError::NotReady)),
        ZoneState::Broken => Plan::Error(Rcode::SERVFAIL, Some(ExtendedError::InvalidData)),
    }
}

/// The answer to a type that no zone is searched for; docs/RFC.md has the table.
#[inline]
fn refused_type<'z>(qtype: Rtype, transport: Transport) -> Option<Plan<'z>> {
    if !qtype.is_meta() {
        return None;
    }
    let (rcode, error) = match (qtype, transport) {
        (Rtype::ANY, _) => return None,
        // Records of messages are no question (RFC 6891 section 6.1.1, RFC 8945 section 4.2); neither is type 0
        // (RFC 6895 section 3.1). RFC 5936 section 4.2: there is no AXFR over UDP.
        (Rtype(0) | Rtype::OPT | Rtype::TSIG, _) | (Rtype::AXFR, Transport::Udp) => (Rcode::FORMERR, None),
        // RFC 5936 section 2.2.1: nobody is allowed to transfer a zone yet.
        (Rtype::AXFR | Rtype::IXFR, _) => (Rcode::REFUSED, Some(ExtendedError::Prohibited)),
        // RFC 2930, and the types that RFC 1035 section 3.2.3 has for mail before MX.
        (Rtype::TKEY | Rtype::MAILA | Rtype::MAILB, _) => (Rcode::NOTIMP, Some(ExtendedError::NotSupported)),
        // RFC 9824 section 3.5: it is a mark in denials and never asked for.
        (Rtype::NXNAME, _) => (Rcode::FORMERR, Some(ExtendedError::InvalidQueryType)),
        // What has no meaning yet is looked up like any type, and not found (RFC 3597 section 3).
        _ => return None,
    };
    Some(Plan::Error(rcode, error))
}
