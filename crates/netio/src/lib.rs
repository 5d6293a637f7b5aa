//! Weir's netio crate.
