//! From a query and a set of zones to an answer: no sockets, no clock, no log.
//!
//! Reading order: [`receive`] reads a packet; [`Plan`] is the lookup; [`build`] writes the answer, by the outcomes
//! of [`outcome`], which reads like RFC 1034 section 4.3.2. [`ZoneSet`] is what is looked up in; [`cached`] turns a
//! stored answer into that of another query.
//!
//! invariant: an answer is a function of the packet, the transport, the zones and the policy, and of nothing else.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod build;
pub mod cached;
mod outcome;
mod plan;
mod proof;
mod ranks;
mod receive;
mod zone_set;

pub use build::build;
pub use plan::{Plan, plan};
pub use receive::{Received, receive};
pub use zone_set::{Found, ZoneSet, ZoneSetBuilder, ZoneState};

use weir_wire::header::Rcode;
use weir_wire::name::{HashSeed, QueryName};
use weir_wire::query::Query;

/// How a query came and how its answer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One datagram each way.
    Udp,
    /// A stream of messages behind their lengths (RFC 1035 section 4.2.2).
    Tcp,
}

/// Settings that change answers.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Most octets of an answer over UDP, whatever a requestor says that it takes; also what answers tell
    /// requestors. 1,232 octets cross every usual path without fragments (RFC 9715 section 3.2).
    pub udp_payload: u16,
    /// Whether an ANY query over UDP gets one RRset only (RFC 8482 section 4.1). Over TCP it gets all.
    pub minimal_any: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { udp_payload: 1232, minimal_any: true }
    }
}

impl Policy {
    /// Most octets that the answer to `query` may have (RFC 6891 section 6.2.3, RFC 1035 section 4.2.1).
    pub(crate) fn limit(&self, query: &Query<'_>, transport: Transport) -> usize {
        let smallest = weir_wire::edns::MIN_UDP_PAYLOAD;
        match (transport, query.edns) {
            (Transport::Tcp, _) => usize::from(u16::MAX),
            (Transport::Udp, None) => usize::from(smallest),
            (Transport::Udp, Some(edns)) => usize::from(edns.udp_payload.min(self.udp_payload).max(smallest)),
        }
    }
}

/// Memory that a worker makes once and uses for every query.
pub struct Scratch {
    seed: HashSeed,
    name: QueryName,
    target: QueryName,
}

impl Scratch {
    /// Scratch for lookups in zone sets of this seed.
    pub fn new(seed: HashSeed) -> Scratch {
        Scratch { seed, name: QueryName::new(seed), target: QueryName::new(seed) }
    }

    /// The name of the question read last.
    pub fn name(&self) -> &QueryName {
        &self.name
    }
}

/// An answer in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Octets of the message.
    pub len: usize,
    /// Its response code.
    pub rcode: Rcode,
    /// Whether the answer holds everything that it would at any size, and depends on nothing but its key
    /// ([`cached::Key`]).
    pub cacheable: bool,
}
