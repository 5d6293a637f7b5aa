//! `$GENERATE RANGE OWNER [TTL] [CLASS] TYPE DATA`: BIND's directive for runs of records.

use super::reader::{Entry, Reader};
use super::scanner::{Scanner, Stop};

impl Reader<'_> {
    pub(super) fn generate_directive(&mut self, scanner: &mut Scanner<'_>) -> Result<Entry, Stop> {
        Err(scanner.wrong("generate", "$GENERATE is not supported yet"))
    }
}
