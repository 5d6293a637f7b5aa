//! For tests only: starts Weir and its rivals on loopback ports, asks them, and compares what they say.
//!
//! invariant: nothing here uses Weir's own crates. The DNS messages are built and taken apart by code of this crate, so
//! that a mistake in `weir-wire` cannot hide itself. A test that cannot do its work panics; nothing is skipped.
//!
//! Reading order: [`message`] (octets), [`client`] (asking), [`process`] (children), [`weir`] and [`rival`] (servers),
//! [`questions`] (what to ask of a zone), [`generate`] and [`sign`] (zones to ask about), [`compare`] (what counts as the same answer).
#![forbid(unsafe_code)]

pub mod client;
pub mod compare;
pub mod generate;
pub mod message;
pub mod process;
pub mod questions;
pub mod random;
pub mod rdata;
pub mod rival;
pub mod sign;
pub mod weir;
