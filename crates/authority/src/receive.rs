//! A packet's first look: is it a query, and one that this server can answer at all?

use crate::options::{About, ExtendedError, OptionBuf, Wanted};
use crate::policy::Context;
use crate::{Answered, Scratch};
use weir_wire::answer::{Answer, without_question};
use weir_wire::edns::{Edns, OptReply};
use weir_wire::header::{Flags, Opcode, Rcode};
use weir_wire::query::{Fault, Query};
use weir_wire::tsig::{BADKEY, Tsig};

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

impl From<Option<Answered>> for Received<'_> {
    /// An answer that found no room is none.
    fn from(answered: Option<Answered>) -> Self {
        answered.map_or(Received::Silence, Received::Answered)
    }
}

/// Reads a packet; writes the answer to `out` when no lookup is needed.
///
/// `out` should have room for 512 octets at least; in less, large answers become silence.
#[inline]
pub fn receive<'p>(
    packet: &'p [u8],
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Received<'p> {
    let query = match Query::parse(packet, &mut scratch.name, scratch.seed) {
        Ok(query) => query,
        Err(fault) => return faulty(packet, fault, context, scratch, out),
    };
    let is_well_formed = scratch.wanted.read(&query, context);
    let needs_cookie = scratch.wanted.needs_cookie(context);
    let mut error = |rcode, error| Received::from(error_answer(&query, rcode, error, context, scratch, out));
    if query.opcode() != Opcode::QUERY {
        return error(Rcode::NOTIMP, Some(ExtendedError::NotSupported));
    }
    // RFC 6891 section 6.1.3: versions above 0 are not known here, and what their options mean neither.
    if query.edns.is_some_and(|edns| edns.version > 0) {
        return error(Rcode::BADVERS, None);
    }
    if !is_well_formed {
        return error(Rcode::FORMERR, None);
    }
    if query.tsig.is_some() {
        return unknown_key(&query, context, scratch, out);
    }
    if needs_cookie {
        return error(Rcode::BADCOOKIE, None);
    }
    Received::Query(query)
}

#[cold]
fn faulty<'p>(
    packet: &[u8],
    fault: Fault<'_>,
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Received<'p> {
    match fault {
        Fault::Silence => Received::Silence,
        Fault::HeaderOnly(rcode) => header_only(packet, rcode, out),
        Fault::NoQuestion(edns) => cookie_only(packet, edns, context, scratch, out),
    }
}

fn header_only<'p>(packet: &[u8], rcode: Rcode, out: &mut [u8]) -> Received<'p> {
    without_question(packet, rcode, None, out).map(|len| Answered { len, rcode, cacheable: false }).into()
}

/// RFC 7873 section 5.4: a query for a cookie alone; without that option, a format error.
fn cookie_only<'p>(
    packet: &[u8],
    edns: Edns<'_>,
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Received<'p> {
    // The version comes first: what another one's options mean is not known (RFC 6891 section 6.1.3).
    let (rcode, options) = match scratch.options.write_cookie(edns, context) {
        _ if edns.version > 0 => (Rcode::BADVERS, &[][..]),
        Some(options) => (Rcode::NOERROR, options),
        None => (Rcode::FORMERR, &[][..]),
    };
    let opt = OptReply { udp_payload: context.udp_payload(), dnssec_ok: edns.dnssec_ok, options };
    let answered = without_question(packet, rcode, Some(opt), out);
    answered.map(|len| Answered { len, rcode, cacheable: false }).into()
}

/// RFC 8945 section 5.2.1: no key is known here, so every signed query is answered unsigned with BADKEY.
fn unknown_key<'p>(
    query: &Query<'_>,
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Received<'p> {
    let Some(tsig) = query.tsig.and_then(Tsig::parse) else {
        return header_only(query.packet, Rcode::FORMERR, out);
    };
    let Some(answered) = error_answer(query, Rcode::NOTAUTH, None, context, scratch, out) else {
        return Received::Silence;
    };
    let limit = context.limit(query).min(out.len());
    let with_tsig = out.get_mut(..limit).and_then(|out| tsig.append_error(BADKEY, answered.len, out));
    if let (None, Some(flags)) = (with_tsig, out.get_mut(2)) {
        // The record that the answer must have did not fit (RFC 8945 section 5.3).
        *flags |= Flags::TC.to_be_bytes()[0];
    }
    Received::Answered(Answered { len: with_tsig.unwrap_or(answered.len), ..answered })
}

/// The OPT record that answers a query with one (RFC 6891 section 6.1.1).
#[inline]
pub(crate) fn opt_reply<'o>(
    query: &Query<'_>,
    wanted: &Wanted,
    context: &Context<'_>,
    about: About<'_>,
    options: &'o mut OptionBuf,
) -> Option<OptReply<'o>> {
    let edns = query.edns?;
    options.write(query, wanted, context, about);
    Some(OptReply {
        udp_payload: context.udp_payload(),
        dnssec_ok: edns.dnssec_ok,
        options: options.octets(),
    })
}

/// An answer of header, question and OPT.
#[cold]
pub(crate) fn error_answer(
    query: &Query<'_>,
    rcode: Rcode,
    error: Option<ExtendedError>,
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Option<Answered> {
    let about = About { error, ..About::default() };
    let opt = opt_reply(query, &scratch.wanted, context, about, &mut scratch.options);
    let mut answer = Answer::begin(out, query, context.limit(query), opt)?;
    answer.set_rcode(rcode);
    Some(Answered { len: answer.finish(), rcode, cacheable: false })
}
