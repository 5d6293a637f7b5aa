//! RDATA by descriptor: what fields a type has, where names stand in them.
