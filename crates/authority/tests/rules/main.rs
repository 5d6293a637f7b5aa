//! One test a rule: what a query gets, for small zones written as text. docs/RFC.md names these tests beside the RFCs
//! that they keep.

mod aliases;
mod answers;
mod chaos;
mod edns;
mod odd_questions;
mod oracle;
mod referrals;
mod rfc8906;
mod server;
mod signed;
mod truncation;
