//! The lookup: which zone, which node, before a single octet of the answer is written.

use crate::outcome::{Outcome, classify};
use crate::{Scratch, Transport, ZoneSet, ZoneState};
use weir_wire::header::Rcode;
use weir_wire::query::Query;
use weir_wire::rtype::{Class, Rtype};
use weir_zone::Zone;

/// How a query will be answered.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives on the stack for the time of a query; a box would allocate"
)]
pub enum Plan<'z> {
    /// With this response code and nothing else.
    Error(Rcode),
    /// From a zone.
    Zone {
        /// The zone.
        zone: &'z Zone,
        /// Labels of the question's name in front of the zone's origin.
        origin_skip: usize,
        /// What the question's name meets there.
        outcome: Outcome<'z>,
    },
}

impl Plan<'_> {
    /// Whether building the answer costs more than finding it in a cache: it takes several lookups, or the proofs
    /// of a signed zone.
    ///
    /// A plain answer is one probe and one copy; no cache is cheaper than that.
    pub fn is_dear(&self, query: &Query<'_>) -> bool {
        match self {
            Plan::Error(_) => false,
            Plan::Zone { outcome, .. } => match outcome {
                Outcome::Rrset { .. } | Outcome::Referral { .. } => false,
                Outcome::Alias { .. } => true,
                Outcome::NoData { .. } | Outcome::NameError { .. } => query.dnssec_ok(),
                // These answers are never the same for two questions, or not kept.
                Outcome::Substitution { .. } | Outcome::Any { .. } | Outcome::Signatures { .. } => false,
            },
        }
    }
}

/// Looks the query up that was read into `scratch`.
#[inline]
pub fn plan<'z>(query: &Query<'_>, transport: Transport, scratch: &Scratch, zones: &'z ZoneSet) -> Plan<'z> {
    if let Some(rcode) = refused_question(query, transport) {
        return Plan::Error(rcode);
    }
    let name = &scratch.name;
    let Some(mut found) = zones.find(name, 0) else {
        // Not authoritative for the name, and no recursion is offered (RFC 1035 section 4.1.1).
        return Plan::Error(Rcode::REFUSED);
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
            let outcome = classify(zone, lookup, query.qtype);
            Plan::Zone { zone, origin_skip: found.origin_skip, outcome }
        }
        ZoneState::Loading | ZoneState::Broken => Plan::Error(Rcode::SERVFAIL),
    }
}

/// The response code of a question that no zone is searched for.
fn refused_question(query: &Query<'_>, _transport: Transport) -> Option<Rcode> {
    match (query.qclass, query.qtype) {
        // Messages' own types are no question (RFC 6895 section 3.1, RFC 6891 section 6.1.1, RFC 8945 section 4.2).
        (_, Rtype(0) | Rtype::OPT | Rtype::TSIG | Rtype::TKEY) => Some(Rcode::FORMERR),
        // Zones of other classes are not served.
        (class, _) if class != Class::IN => Some(Rcode::REFUSED),
        // RFC 1995 and RFC 5936: nobody is allowed to transfer a zone yet. Obsolete query types are not implemented.
        (_, Rtype::AXFR | Rtype::IXFR) => Some(Rcode::REFUSED),
        (_, Rtype::MAILA | Rtype::MAILB) => Some(Rcode::NOTIMP),
        _ => None,
    }
}
