//! From a query and a set of zones to an answer: no sockets, no clock, no log.
//!
//! Reading order: [`receive`] reads a packet; [`Plan`] is the lookup; [`build`] writes the answer, by the outcomes
//! of `outcome`, which reads like RFC 1034 section 4.3.2. [`ZoneSet`] is what is looked up in; [`cached`] turns a
//! stored answer into that of another query.
//!
//! invariant: an answer is a function of the packet, its context (transport, client, second, settings) and the zones,
//! and of nothing else.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod build;
pub mod cached;
mod chaos;
mod cookie;
mod hashes;
mod options;
mod outcome;
mod plan;
mod policy;
mod prefetch;
mod proof;
mod ranks;
mod receive;
mod zone_set;

pub use build::build;
pub use cookie::{CookieKeys, CookieSecret};
pub use options::ExtendedError;
pub use plan::{Plan, plan};
pub use policy::{Context, Policy, Transport};
pub use prefetch::prefetch;
pub use receive::{Received, receive};
pub use zone_set::{Found, ZoneSet, ZoneSetBuilder, ZoneState};

use weir_wire::header::Rcode;
use weir_wire::name::{HashSeed, QueryName};

/// Memory that a worker makes once and uses for every query.
pub struct Scratch {
    seed: HashSeed,
    name: QueryName,
    target: QueryName,
    wanted: options::Wanted,
    options: options::OptionBuf,
    memory: build::Memory,
}

impl Scratch {
    /// Scratch for lookups in zone sets of this seed.
    pub fn new(seed: HashSeed) -> Scratch {
        Scratch {
            seed,
            name: QueryName::new(seed),
            target: QueryName::new(seed),
            wanted: options::Wanted::default(),
            options: options::OptionBuf::new(),
            memory: build::Memory::new(),
        }
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
