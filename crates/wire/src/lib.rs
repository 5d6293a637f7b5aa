//! Weir's wire crate.
