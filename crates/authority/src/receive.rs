//! A packet's first look: is it a query, and one that this server can answer at all?

use crate::{Answered, Policy, Scratch, Transport};
use weir_wire::answer::{Answer, header_only};
use weir_wire::edns::OptReply;
use weir_wire::header::Rcode;
use weir_wire::query::{Fault, Query};

/// What to do with a packet.
#[derive(Clone, Copy, Debug)]
pub enum Received<'p> {
    /// Nothing: to answer would help an amplifier or start a loop.
    Silence,
    /// The answer is written: the query cannot be looked up.
    Answered(Answered),
    /// A query to look up; its name is in the scratch.
    Query(Query<'p>),
}

/// Reads a packet; writes the answer to `out` when no lookup is needed.
///
/// `out` should have room for 512 octets at least; in less, large answers become silence.
#[inline]
pub fn receive<'p>(
    packet: &'p [u8],
    transport: Transport,
    policy: &Policy,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Received<'p> {
    match Query::parse(packet, &mut scratch.name, scratch.seed) {
        Ok(query) => match query.edns {
            // RFC 6891 section 6.1.3: versions above 0 are not known here.
            Some(edns) if edns.version > 0 => bad_version(&query, transport, policy, out),
            _ => Received::Query(query),
        },
        Err(Fault::Silence) => Received::Silence,
        Err(Fault::HeaderOnly(rcode)) => match header_only(packet, rcode, out) {
            Some(len) => Received::Answered(Answered { len, rcode, cacheable: false }),
            None => Received::Silence,
        },
    }
}

fn bad_version<'p>(query: &Query<'_>, transport: Transport, policy: &Policy, out: &mut [u8]) -> Received<'p> {
    match error_answer(query, Rcode::BADVERS, transport, policy, out) {
        Some(answered) => Received::Answered(answered),
        None => Received::Silence,
    }
}

/// The OPT record that answers a query with one (RFC 6891 section 6.1.1).
pub(crate) fn opt_reply(query: &Query<'_>, policy: &Policy) -> Option<OptReply> {
    let edns = query.edns?;
    Some(OptReply { udp_payload: policy.udp_payload, dnssec_ok: edns.dnssec_ok })
}

/// An answer of header, question and OPT.
pub(crate) fn error_answer(
    query: &Query<'_>,
    rcode: Rcode,
    transport: Transport,
    policy: &Policy,
    out: &mut [u8],
) -> Option<Answered> {
    let mut answer = Answer::begin(out, query, policy.limit(query, transport), opt_reply(query, policy))?;
    answer.set_rcode(rcode);
    Some(Answered { len: answer.finish(), rcode, cacheable: false })
}
