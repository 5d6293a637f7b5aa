//! Weir's testkit crate.
