//! Octets and types of the Domain Name System: no zones, no sockets, no clock.
//!
//! Reading order: [`name`], [`rtype`], [`header`], [`rdata`], then a query's way in ([`query`], [`edns`]) and an
//! answer's way out ([`image`], [`answer`]).
//!
//! invariant: nothing in this crate panics on octets from a packet or a zone; what is too long or lies about its
//! length is an error value.
//!
//! invariant: nothing on a query's way allocates; the caller provides the memory.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod answer;
pub mod edns;
pub mod header;
pub mod image;
pub mod name;
pub mod query;
pub mod rdata;
pub mod rtype;
pub mod tsig;
