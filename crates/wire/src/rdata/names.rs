//! Where names stand in RDATA, and the canonical form that follows from it.

use super::walk::{field_len, name_len};
use super::{Field, NameRule, fields};
use crate::rtype::Rtype;

/// A name in RDATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameSpan {
    /// Octets of RDATA in front of the name.
    pub offset: usize,
    /// Octets of the name, its root label included.
    pub len: usize,
    /// Whether an answer may compress it (RFC 3597 section 4).
    pub compressible: bool,
    /// Whether canonical form writes it in lower case (RFC 4034 section 6.2, RFC 6840 section 5.1).
    pub folded: bool,
}

/// The names of `rdata`, which is uncompressed, from left to right.
///
/// The gateway of IPSECKEY and AMTRELAY and the servers of HIP are left out: nothing compresses, folds or follows
/// them. Octets that are not RDATA of the type end the iteration early.
///
/// ```
/// use weir_wire::rdata::names;
/// use weir_wire::rtype::Rtype;
/// let mx = names(Rtype::MX, b"\x00\x0a\x02mx\x00").next().unwrap();
/// assert_eq!((mx.offset, mx.len, mx.compressible), (2, 4, true));
/// ```
#[inline]
pub fn names(rtype: Rtype, rdata: &[u8]) -> Names<'_> {
    Names { fields: fields(rtype), rdata, offset: 0 }
}

/// The names of one record's data: what [`names`] yields.
#[derive(Clone)]
pub struct Names<'a> {
    fields: &'static [Field],
    rdata: &'a [u8],
    offset: usize,
}

impl Iterator for Names<'_> {
    type Item = NameSpan;

    #[inline]
    fn next(&mut self) -> Option<NameSpan> {
        while let Some((&field, after)) = self.fields.split_first() {
            self.fields = after;
            let rest = self.rdata.get(self.offset..)?;
            let Field::Name(rule) = field else {
                if !after.iter().any(|field| matches!(field, Field::Name(_))) {
                    self.fields = &[];
                    return None;
                }
                self.offset += field_len(field, rest).ok()?;
                continue;
            };
            let span = NameSpan {
                offset: self.offset,
                len: name_len(rest).ok()?,
                compressible: rule == NameRule::Compressible,
                folded: rule != NameRule::Verbatim,
            };
            self.offset += span.len;
            return Some(span);
        }
        None
    }
}

/// Appends `rdata` in canonical form to `out`: the names that RFC 4034 section 6.2 lists in lower case, NSEC's
/// left as it is and RRSIG's signer folded as RFC 6840 section 5.1 corrects.
pub fn canonical(rtype: Rtype, rdata: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(rdata);
    for span in names(rtype, rdata).filter(|span| span.folded) {
        let from = start + span.offset;
        // Length octets are below 64, so folding does not touch them.
        if let Some(name) = out.get_mut(from..from + span.len) {
            name.make_ascii_lowercase();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_types_of_rfc_1035_have_compressible_names() {
        let compressible: Vec<Rtype> = (0..=u16::MAX)
            .map(Rtype)
            .filter(|&rtype| fields(rtype).contains(&Field::Name(NameRule::Compressible)))
            .collect();
        let listed = [2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15].map(Rtype);
        assert_eq!(compressible, listed);
    }

    #[test]
    fn canonical_form_folds_the_signer_of_rrsig_and_leaves_the_next_name_of_nsec() {
        let rrsig = b"\x00\x01\x0d\x02\x00\x00\x0e\x10\x00\x00\x00\x02\x00\x00\x00\x01\x00\x07\x01A\x00AB";
        let mut out = Vec::new();
        canonical(Rtype::RRSIG, rrsig, &mut out);
        assert_eq!(&out[18..], b"\x01a\x00AB");
        let nsec = b"\x01A\x00\x00\x01\x40";
        out.clear();
        canonical(Rtype::NSEC, nsec, &mut out);
        assert_eq!(out, nsec);
    }

    #[test]
    fn canonical_form_is_appended_and_folds_each_name_of_soa() {
        let mut out = b"AB".to_vec();
        canonical(Rtype::SOA, b"\x01N\x00\x01H\x00AAAABBBBCCCCDDDDEEEE", &mut out);
        assert_eq!(out, b"AB\x01n\x00\x01h\x00AAAABBBBCCCCDDDDEEEE");
    }

    proptest! {
        #[test]
        fn names_of_any_octets_lie_within_them(rtype in 0u16..300, rdata in proptest::collection::vec(0u8..70, 0..120)) {
            for span in names(Rtype(rtype), &rdata) {
                prop_assert!(span.offset + span.len <= rdata.len());
                prop_assert!(crate::name::Name::from_octets(&rdata[span.offset..span.offset + span.len]).is_ok());
            }
        }
    }
}
