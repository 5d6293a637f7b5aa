//! Weir's zone crate.
