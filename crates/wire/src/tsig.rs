//! The TSIG record at the end of a signed message (RFC 8945), as far as a server without the key needs it.

use crate::name::Name;
use crate::rtype::{Class, Rtype};

/// The error of a record signed with a key that is not known (RFC 8945 section 3).
pub const BADKEY: u16 = 17;

/// The fields of a query's TSIG record that its answer gives back.
#[derive(Clone, Copy, Debug)]
pub struct Tsig<'p> {
    key: Name<'p>,
    algorithm: Name<'p>,
    time_and_fudge: [u8; 8],
    original_id: [u8; 2],
}

impl<'p> Tsig<'p> {
    /// Reads a whole record from its owner on; `None` when it is malformed. Its names must not be compressed
    /// (RFC 8945 section 4.2).
    pub fn parse(record: &'p [u8]) -> Option<Tsig<'p>> {
        let (key, rest) = Name::parse(record).ok()?;
        // Type and length were checked when the record was found; class is ANY and TTL 0 (RFC 8945 section 4.2).
        let (&[_, _, class1, class0, ttl3, ttl2, ttl1, ttl0, _, _], rdata) =
            rest.split_first_chunk::<10>()?;
        if Class(u16::from_be_bytes([class1, class0])) != Class::ANY || [ttl3, ttl2, ttl1, ttl0] != [0; 4] {
            return None;
        }
        let (algorithm, rest) = Name::parse(rdata).ok()?;
        let (time_and_fudge, rest) = rest.split_first_chunk::<8>()?;
        let (mac_len, rest) = rest.split_first_chunk::<2>()?;
        let rest = rest.get(usize::from(u16::from_be_bytes(*mac_len))..)?;
        let (&[id1, id0, _, _, other1, other0], other) = rest.split_first_chunk::<6>()?;
        let is_whole = other.len() == usize::from(u16::from_be_bytes([other1, other0]));
        is_whole.then_some(Tsig { key, algorithm, time_and_fudge: *time_and_fudge, original_id: [id1, id0] })
    }

    /// Adds the unsigned record that tells of an error to an answer of `len` octets at the front of `out`
    /// (RFC 8945 section 5.2.1); yields its octets then, or `None` when it does not fit, and nothing is changed.
    pub fn append_error(&self, error: u16, len: usize, out: &mut [u8]) -> Option<usize> {
        let rdata_len = u16::try_from(self.algorithm.octets().len() + 8 + 2 + 6).ok()?;
        let parts: [&[u8]; 11] = [
            self.key.octets(),
            &Rtype::TSIG.0.to_be_bytes(),
            &Class::ANY.0.to_be_bytes(),
            &[0; 4],
            &rdata_len.to_be_bytes(),
            self.algorithm.octets(),
            &self.time_and_fudge,
            &[0; 2],
            &self.original_id,
            &error.to_be_bytes(),
            &[0; 2],
        ];
        let record_len: usize = parts.iter().map(|part| part.len()).sum();
        if len + record_len > out.len() {
            return None;
        }
        let mut at = len;
        for part in parts {
            out.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        let additionals = out.get_mut(10..12)?;
        let count = u16::from_be_bytes(*additionals.first_chunk::<2>()?);
        additionals.copy_from_slice(&count.saturating_add(1).to_be_bytes());
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of the key `k.` with the algorithm `a.` and a signature of four octets.
    fn record() -> Vec<u8> {
        let head = [1, b'k', 0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 23];
        [&head[..], &[1, b'a', 0], &[0, 0, 1, 2, 3, 4, 1, 44], &[0, 4], b"sign", &[0x12, 0x34, 0, 0, 0, 0]]
            .concat()
    }

    #[test]
    fn the_error_record_gives_back_key_algorithm_time_and_id() {
        let record = record();
        let mut out = [0; 64];
        let len = Tsig::parse(&record).unwrap().append_error(BADKEY, 12, &mut out).unwrap();
        let expected = [&record[..11], &[0, 19], &record[13..24], &[0, 0, 0x12, 0x34, 0, 17, 0, 0]].concat();
        assert_eq!(out[12..len], expected);
        assert_eq!(out[10..12], [0, 1]);
    }

    #[test]
    fn an_error_record_that_does_not_fit_changes_nothing() {
        let mut out = [0; 40];
        assert_eq!(Tsig::parse(&record()).unwrap().append_error(BADKEY, 12, &mut out), None);
        assert_eq!(out, [0; 40]);
    }

    #[test]
    fn records_that_are_cut_or_of_another_class_or_lasting_are_malformed() {
        let record = record();
        assert!((0..record.len()).all(|len| Tsig::parse(&record[..len]).is_none()));
        for (at, octet) in [(6, 1), (10, 1)] {
            let mut changed = record.clone();
            changed[at] = octet;
            assert!(Tsig::parse(&changed).is_none(), "octet {at}");
        }
    }
}
