//! Zones: from master files to immutable trees that answer.
//!
//! Reading order: [`tree`] is what everything else is for; [`builder`] makes it from records and reports what the
//! records have wrong together ([`finding`], [`checks`]); [`index`] finds names in it by hash; [`denial`] finds the records that prove what is not in it.
//!
//! invariant: a [`Zone`] never changes. A reload builds another one beside it.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod builder;
pub mod canonical;
pub mod checks;
pub mod denial;
pub mod diagnostic;
pub mod files;
pub mod finding;
pub mod index;
pub mod load;
pub mod text;
pub mod tree;

pub use builder::ZoneBuilder;
pub use tree::{Lookup, Node, Rrset, Zone};
