//! EDNS(0): the OPT record of a query and that of an answer (RFC 6891).

use crate::header::Rcode;

/// Smallest UDP payload that every requestor takes (RFC 1035 section 4.2.1); smaller values in OPT mean this one
/// (RFC 6891 section 6.2.3).
pub const MIN_UDP_PAYLOAD: u16 = 512;

/// Octets of an OPT record without options: root name, type, class, TTL and length.
pub const OPT_LEN: usize = 11;

/// Bit of the OPT record's flags that asks for DNSSEC records (RFC 3225 section 3).
const DO: u16 = 0x8000;

/// What a query's OPT record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns<'p> {
    /// Octets of UDP payload that the requestor takes, as sent: may be below 512.
    pub udp_payload: u16,
    /// The EDNS version asked for.
    pub version: u8,
    /// Whether DNSSEC records are wanted.
    pub dnssec_ok: bool,
    /// The options, checked to be whole: code, length and data each. None of a version above 0.
    pub options: Options<'p>,
}

impl<'p> Edns<'p> {
    /// Reads the record from its class, TTL and RDATA; `None` when an option lies about its length.
    ///
    /// What the RDATA of a version above 0 looks like is not known: it has no options then, and is never malformed, so
    /// that the version gets its answer (RFC 6891 section 6.1.3).
    pub(crate) fn parse(class: u16, ttl: u32, rdata: &'p [u8]) -> Option<Edns<'p>> {
        let [_extended_rcode, version, flags @ ..] = ttl.to_be_bytes();
        let options = Options { octets: if version == 0 { rdata } else { &[] } };
        options.are_whole().then_some(Edns {
            udp_payload: class,
            version,
            dnssec_ok: u16::from_be_bytes(flags) & DO != 0,
            options,
        })
    }
}

/// The options of an OPT record in the order sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'p> {
    octets: &'p [u8],
}

impl<'p> Options<'p> {
    /// Whether there is none, as in most queries.
    pub fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    fn are_whole(mut self) -> bool {
        while self.next().is_some() {}
        self.octets.is_empty()
    }
}

/// Yields each option's code and data.
impl<'p> Iterator for Options<'p> {
    type Item = (u16, &'p [u8]);

    fn next(&mut self) -> Option<(u16, &'p [u8])> {
        let (head, rest) = self.octets.split_first_chunk::<4>()?;
        let [code @ .., len_high, len_low] = *head;
        let (data, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([len_high, len_low])))?;
        self.octets = rest;
        Some((u16::from_be_bytes(code), data))
    }
}

/// The OPT record of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptReply<'o> {
    /// Octets of UDP payload that this server takes.
    pub udp_payload: u16,
    /// Whether the query had the DO bit; it is copied (RFC 3225 section 3).
    pub dnssec_ok: bool,
    /// The options: code, length and data each.
    pub options: &'o [u8],
}

impl OptReply<'_> {
    /// Octets of the whole record.
    #[expect(clippy::len_without_is_empty, reason = "a record is never empty")]
    pub fn len(&self) -> usize {
        OPT_LEN + self.options.len()
    }

    /// The record's octets in front of its options. `rcode` gives the upper eight bits of the code.
    pub fn head(&self, rcode: Rcode) -> [u8; OPT_LEN] {
        let [payload_high, payload_low] = self.udp_payload.to_be_bytes();
        let [extended_rcode, _] = (rcode.0 << 4).to_be_bytes();
        let flags = if self.dnssec_ok { DO.to_be_bytes()[0] } else { 0 };
        // Callers give a few short options.
        let [len_high, len_low] = u16::try_from(self.options.len()).unwrap_or(0).to_be_bytes();
        [0, 0, 41, payload_high, payload_low, extended_rcode, 0, flags, 0, len_high, len_low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_lie_about_their_length_make_no_edns() {
        assert!(Edns::parse(1232, 0, b"\x00\x0a\x00\x02ab").is_some());
        assert!(Edns::parse(1232, 0, b"\x00\x0a\x00\x03ab").is_none());
        assert!(Edns::parse(1232, 0, b"\x00\x0a\x00").is_none());
    }

    #[test]
    fn the_data_of_another_version_are_not_read() {
        let edns = Edns::parse(1232, 0x0001_0000, b"\x00\x0a\x00\x03ab").unwrap();
        assert_eq!((edns.version, edns.options.is_empty()), (1, true));
    }

    #[test]
    fn version_and_do_bit_come_from_the_ttl() {
        let edns = Edns::parse(4096, 0x0001_8000, b"").unwrap();
        assert_eq!((edns.version, edns.dnssec_ok, edns.udp_payload), (1, true, 4096));
    }

    #[test]
    fn the_upper_bits_of_the_rcode_stand_in_the_opt_record() {
        let reply = OptReply { udp_payload: 1232, dnssec_ok: true, options: &[] };
        assert_eq!(reply.head(Rcode::BADVERS), [0, 0, 41, 0x04, 0xd0, 1, 0, 0x80, 0, 0, 0]);
    }
}
