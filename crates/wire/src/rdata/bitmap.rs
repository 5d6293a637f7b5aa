//! Sets of types: the windows of NSEC, NSEC3 and CSYNC, and the plain bitmap of NXT.

use super::RdataError;
use crate::rtype::Rtype;

/// Most octets of a set of types: 256 windows of a number, a length and 32 octets.
pub const MAX_BITMAP_LEN: usize = 256 * 34;

/// Length of a set of types in windows that runs to the end of `octets` (RFC 4034 section 4.1.2).
pub(super) fn check(octets: &[u8]) -> Result<usize, RdataError> {
    let mut rest = octets;
    let mut last_window = None;
    while let [window, len, after @ ..] = rest {
        let (bits, after) = after.split_at_checked(usize::from(*len)).ok_or(RdataError::TooShort)?;
        let in_order = last_window.is_none_or(|last| last < *window);
        // Trailing zero octets are omitted and empty windows are not present.
        if !in_order || bits.len() > 32 || bits.last().is_none_or(|&octet| octet == 0) {
            return Err(RdataError::BadBitmap);
        }
        last_window = Some(*window);
        rest = after;
    }
    if rest.is_empty() { Ok(octets.len()) } else { Err(RdataError::TooShort) }
}

/// Length of a set of types up to 127 that runs to the end of `octets` (RFC 2535 section 5.2).
pub(super) fn check_nxt(octets: &[u8]) -> Result<usize, RdataError> {
    // The lowest bit says that the set is not a bitmap; no other form was ever defined.
    let is_bitmap = octets.first().is_some_and(|first| first & 0x80 == 0);
    let well_formed = octets.len() <= 16 && octets.last().is_some_and(|&last| last != 0);
    if is_bitmap && well_formed { Ok(octets.len()) } else { Err(RdataError::BadBitmap) }
}

/// The types in a set that [`Field::TypeBitmap`](super::Field::TypeBitmap) describes, in ascending order.
///
/// Malformed octets end the iteration.
pub fn bitmap_types(octets: &[u8]) -> BitmapTypes<'_> {
    BitmapTypes { rest: octets, window: 0, bits: &[], at: 0 }
}

/// The types of an NXT record's set.
pub(super) fn nxt_types(octets: &[u8]) -> BitmapTypes<'_> {
    BitmapTypes { rest: &[], window: 0, bits: octets, at: 0 }
}

/// The types of a set: what [`bitmap_types`] yields.
#[derive(Clone)]
pub struct BitmapTypes<'a> {
    rest: &'a [u8],
    window: u8,
    bits: &'a [u8],
    at: u16,
}

impl Iterator for BitmapTypes<'_> {
    type Item = Rtype;

    fn next(&mut self) -> Option<Rtype> {
        loop {
            let Some(octet) = self.bits.get(usize::from(self.at / 8)) else {
                let [window, len, after @ ..] = self.rest else { return None };
                (self.bits, self.rest) = after.split_at_checked(usize::from(*len))?;
                (self.window, self.at) = (*window, 0);
                if self.bits.len() > 32 {
                    return None;
                }
                continue;
            };
            let in_set = octet & (0x80 >> (self.at % 8)) != 0;
            let number = u16::from(self.window) << 8 | self.at;
            self.at += 1;
            if in_set {
                return Some(Rtype(number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_4034_section_4_3_lists_its_types() {
        let mut octets = b"\x00\x06\x40\x01\x00\x00\x00\x03\x04\x1b".to_vec();
        octets.extend([0; 26]);
        octets.push(0x20);
        assert_eq!(check(&octets), Ok(octets.len()));
        let types: Vec<String> = bitmap_types(&octets).map(|rtype| rtype.to_string()).collect();
        assert_eq!(types, ["A", "MX", "RRSIG", "NSEC", "TYPE1234"]);
    }

    #[test]
    fn malformed_sets_are_refused() {
        let malformed: [&[u8]; 6] = [
            b"\x00\x00",
            b"\x00\x01\x00",
            b"\x00\x02\x40\x00",
            b"\x01\x01\x40\x00\x01\x40",
            b"\x00\x01\x40\x00\x01\x40",
            b"\x00",
        ];
        for octets in malformed {
            assert!(check(octets).is_err(), "{octets:?}");
        }
        assert_eq!(check(b""), Ok(0));
        assert!(check(&[&[0, 33][..], &[1; 33]].concat()).is_err());
    }
}
