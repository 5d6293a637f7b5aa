//! Weir's authority crate.
