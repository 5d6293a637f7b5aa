//! What a server tells about itself in class CHAOS (RFC 4892): nothing unless the operator wants it to.

use crate::options::ExtendedError;
use crate::policy::Context;
use crate::{Plan, Scratch};
use weir_wire::header::Rcode;
use weir_wire::query::Query;
use weir_wire::rtype::Rtype;

/// The names that are asked for, in wire form.
const VERSION_NAMES: [&[u8]; 2] = [b"\x07version\x04bind\x00", b"\x07version\x06server\x00"];
const HOST_NAMES: [&[u8]; 2] = [b"\x08hostname\x04bind\x00", b"\x02id\x06server\x00"];

/// Looks up the text that is asked for.
#[cold]
pub(crate) fn plan<'z>(query: &Query<'_>, context: &Context<'z>, scratch: &Scratch) -> Plan<'z> {
    let name = scratch.name().folded();
    let text = match name.octets() {
        octets if VERSION_NAMES.contains(&octets) => context.policy.version.as_deref(),
        octets if HOST_NAMES.contains(&octets) => context.policy.hostname.as_deref(),
        _ => None,
    };
    match text {
        Some(text) if matches!(query.qtype, Rtype::TXT | Rtype::ANY) => Plan::Identity(text),
        _ => Plan::Error(Rcode::REFUSED, Some(ExtendedError::NotAuthoritative)),
    }
}
