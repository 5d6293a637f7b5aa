//! Domain names in wire form (RFC 1035 section 3.1), in the case they were written in or folded to lower case.
//!
//! [`Name`] borrows an uncompressed name in any case; [`Folded`] borrows one whose ASCII letters are all lower case,
//! so that comparing, ordering and hashing it is plain work on octets. [`NameBuf`] and [`FoldedBuf`] own theirs
//! inline, without allocating; [`FoldedArc`] shares one on the heap. [`QueryName`] is the name of a question with
//! everything that a lookup needs, computed once.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

mod hash;
mod query_name;
mod text;

pub use hash::{HashSeed, NameHash};
pub use query_name::QueryName;
pub use text::NameTextError;

/// Most octets of a name, the length octets and the root label included (RFC 1035 section 2.3.4).
pub const MAX_NAME_LEN: usize = 255;
/// Most octets of a label (RFC 1035 section 2.3.4).
pub const MAX_LABEL_LEN: usize = 63;
/// Most labels of a name, the root not counted: 127 labels of one octet fill 255 octets.
pub const MAX_LABELS: usize = 127;

/// Why octets are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The octets end before the root label.
    Incomplete,
    /// A label has over 63 octets, or its length octet is a compression pointer where none is allowed.
    LabelTooLong,
    /// The name has over 255 octets.
    NameTooLong,
    /// Octets follow the root label where the name should end.
    TrailingOctets,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Incomplete => "the name ends before its root label",
            NameError::LabelTooLong => "a label is longer than 63 octets",
            NameError::NameTooLong => "the name is longer than 255 octets",
            NameError::TrailingOctets => "octets follow the name",
        })
    }
}

impl std::error::Error for NameError {}

/// An uncompressed name: 1 to 255 octets, labels of 1 to 63 octets, the root label last.
///
/// Two names are equal when they differ in the case of ASCII letters only (RFC 4343).
///
/// ```
/// use weir_wire::name::Name;
/// let (name, rest) = Name::parse(b"\x03www\x07example\x00\x00\x01").unwrap();
/// assert_eq!(name.to_string(), "www.example.");
/// assert_eq!(rest, b"\x00\x01");
/// ```
#[derive(Clone, Copy)]
pub struct Name<'a> {
    octets: &'a [u8],
}

impl<'a> Name<'a> {
    /// The name of the root zone.
    pub const ROOT: Name<'static> = Name { octets: &[0] };

    /// Reads the name at the start of `octets`; yields it and what follows it.
    ///
    /// Compression pointers are refused as [`NameError::LabelTooLong`].
    pub fn parse(octets: &'a [u8]) -> Result<(Name<'a>, &'a [u8]), NameError> {
        let mut at = 0;
        loop {
            let label_len = usize::from(*octets.get(at).ok_or(NameError::Incomplete)?);
            if label_len > MAX_LABEL_LEN {
                return Err(NameError::LabelTooLong);
            }
            at += 1 + label_len;
            if at > MAX_NAME_LEN {
                return Err(NameError::NameTooLong);
            }
            if label_len == 0 {
                let (octets, rest) = octets.split_at_checked(at).ok_or(NameError::Incomplete)?;
                return Ok((Name { octets }, rest));
            }
        }
    }

    /// Reads `octets` as exactly one name.
    pub fn from_octets(octets: &'a [u8]) -> Result<Name<'a>, NameError> {
        match Name::parse(octets)? {
            (name, []) => Ok(name),
            _ => Err(NameError::TrailingOctets),
        }
    }

    /// The wire form, root label included.
    pub fn octets(self) -> &'a [u8] {
        self.octets
    }

    /// Whether this is the root.
    pub fn is_root(self) -> bool {
        self.octets.len() == 1
    }

    /// The labels from left to right, without their length octets and without the root.
    pub fn labels(self) -> Labels<'a> {
        Labels { octets: self.octets }
    }

    /// Number of labels, the root not counted.
    pub fn n_labels(self) -> usize {
        self.labels().count()
    }

    /// The name without its leftmost label, or `None` for the root.
    pub fn parent(self) -> Option<Name<'a>> {
        let (&label_len, rest) = self.octets.split_first()?;
        let octets = rest.get(usize::from(label_len)..)?;
        if octets.is_empty() { None } else { Some(Name { octets }) }
    }

    /// Whether the leftmost label is a single asterisk (RFC 4592 section 2.1.1).
    pub fn is_wildcard(self) -> bool {
        self.octets.starts_with(b"\x01*")
    }

    /// Whether this name is `ancestor` or lies below it.
    pub fn is_at_or_below(self, ancestor: Name<'_>) -> bool {
        self.prefix_len(ancestor).is_some()
    }

    /// Octets in front of `ancestor` in this name, when the name is at or below it.
    fn prefix_len(self, ancestor: Name<'_>) -> Option<usize> {
        let prefix_len = self.octets.len().checked_sub(ancestor.octets.len())?;
        let mut at = 0;
        while at < prefix_len {
            at += 1 + usize::from(*self.octets.get(at)?);
        }
        let suffix = self.octets.get(prefix_len..)?;
        // Length octets are below 64, so folding case does not touch them.
        (at == prefix_len && suffix.eq_ignore_ascii_case(ancestor.octets)).then_some(prefix_len)
    }

    /// An owned copy in the same case.
    pub fn to_buf(self) -> NameBuf {
        let mut buf = NameBuf::root();
        buf.set(self.octets);
        buf
    }

    /// An owned copy in lower case.
    pub fn fold(self) -> FoldedBuf {
        let mut buf = self.to_buf();
        buf.octets.make_ascii_lowercase();
        FoldedBuf(buf)
    }
}

impl PartialEq for Name<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.octets.eq_ignore_ascii_case(other.octets)
    }
}

impl Eq for Name<'_> {}

/// The labels of a name from left to right, the root left out.
#[derive(Clone)]
pub struct Labels<'a> {
    octets: &'a [u8],
}

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&label_len, rest) = self.octets.split_first()?;
        let (label, rest) = rest.split_at_checked(usize::from(label_len))?;
        if label.is_empty() {
            return None;
        }
        self.octets = rest;
        Some(label)
    }
}

/// A name whose ASCII letters are all lower case.
///
/// Its order is the canonical order of RFC 4034 section 6.1: by label from the right, shorter labels first.
#[derive(Clone, Copy)]
pub struct Folded<'a> {
    name: Name<'a>,
}

/// Case is folded already: octets compare as they are.
impl PartialEq for Folded<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.octets() == other.octets()
    }
}

impl Eq for Folded<'_> {}

impl<'a> Folded<'a> {
    /// The name of the root zone.
    pub const ROOT: Folded<'static> = Folded { name: Name::ROOT };

    /// Takes a name that holds no upper-case letter, or `None`.
    pub fn new(name: Name<'a>) -> Option<Folded<'a>> {
        (!name.octets.iter().any(u8::is_ascii_uppercase)).then_some(Folded { name })
    }

    /// The same name without the promise on its case.
    pub fn name(self) -> Name<'a> {
        self.name
    }

    /// The wire form, root label included.
    pub fn octets(self) -> &'a [u8] {
        self.name.octets
    }

    /// The name without its leftmost label, or `None` for the root.
    pub fn parent(self) -> Option<Folded<'a>> {
        self.name.parent().map(|name| Folded { name })
    }

    /// An owned copy.
    pub fn to_buf(self) -> FoldedBuf {
        FoldedBuf(self.name.to_buf())
    }

    /// Whether this name is `ancestor` or lies below it.
    pub fn is_at_or_below(self, ancestor: Folded<'_>) -> bool {
        self.name.is_at_or_below(ancestor.name)
    }
}

impl PartialOrd for Folded<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Folded<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        canonical_cmp(self.octets(), other.octets())
    }
}

/// The canonical order of RFC 4034 section 6.1 on lower-case labels in wire form, with or without a root label:
/// by label from the right, a name before its descendants.
pub fn canonical_cmp(left: &[u8], right: &[u8]) -> Ordering {
    let (left, right) = (LabelStarts::of(left), LabelStarts::of(right));
    let mut from_right = left.labels_from_right().zip(right.labels_from_right());
    from_right
        .find_map(|(a, b)| match a.cmp(b) {
            Ordering::Equal => None,
            unequal => Some(unequal),
        })
        .unwrap_or_else(|| left.n_labels.cmp(&right.n_labels))
}

/// Where each label of a name starts: names are stored left to right and ordered right to left.
struct LabelStarts<'a> {
    octets: &'a [u8],
    starts: [u8; MAX_LABELS],
    n_labels: usize,
}

impl<'a> LabelStarts<'a> {
    fn of(octets: &'a [u8]) -> LabelStarts<'a> {
        let mut found = LabelStarts { octets, starts: [0; MAX_LABELS], n_labels: 0 };
        let mut at = 0u8;
        for (label, start) in (Labels { octets }).zip(&mut found.starts) {
            *start = at;
            found.n_labels += 1;
            // A name has at most 255 octets and the root label is not counted here.
            at = at.wrapping_add(1).wrapping_add(u8::try_from(label.len()).unwrap_or(0));
        }
        found
    }

    fn labels_from_right(&self) -> impl Iterator<Item = &'a [u8]> {
        let starts = self.starts.get(..self.n_labels).unwrap_or(&[]);
        starts.iter().rev().map(|&start| {
            let at_label = self.octets.get(usize::from(start)..).unwrap_or(&[]);
            Labels { octets: at_label }.next().unwrap_or(&[])
        })
    }
}

/// An owned name of at most 255 octets, stored inline.
#[derive(Clone, Copy)]
// In this order, so that the length lies beside the octets of a usual name.
#[repr(C)]
pub struct NameBuf {
    len: u8,
    octets: [u8; MAX_NAME_LEN],
}

impl NameBuf {
    /// The root.
    pub fn root() -> NameBuf {
        NameBuf { len: 1, octets: [0; MAX_NAME_LEN] }
    }

    /// Borrows the name.
    pub fn name(&self) -> Name<'_> {
        Name { octets: self.octets.get(..usize::from(self.len)).unwrap_or(&[0]) }
    }

    /// Joins labels, given in wire form without a root label, to a name on their right.
    pub fn join(prefix: &[u8], suffix: Name<'_>) -> Result<NameBuf, NameError> {
        let mut joined = NameBuf { len: 0, octets: [0; MAX_NAME_LEN] };
        let len = prefix.len() + suffix.octets.len();
        let (front, back) = joined
            .octets
            .get_mut(..len)
            .and_then(|octets| octets.split_at_mut_checked(prefix.len()))
            .ok_or(NameError::NameTooLong)?;
        front.copy_from_slice(prefix);
        back.copy_from_slice(suffix.octets);
        joined.len = u8::try_from(len).map_err(|_| NameError::NameTooLong)?;
        Name::from_octets(joined.name().octets)?;
        Ok(joined)
    }

    /// Takes over octets that are known to be a name.
    fn set(&mut self, octets: &[u8]) {
        if let (Some(space), Ok(len)) = (self.octets.get_mut(..octets.len()), u8::try_from(octets.len())) {
            space.copy_from_slice(octets);
            self.len = len;
        }
    }
}

/// An owned name in lower case.
#[derive(Clone, Copy)]
pub struct FoldedBuf(NameBuf);

impl FoldedBuf {
    /// The root.
    pub fn root() -> FoldedBuf {
        FoldedBuf(NameBuf::root())
    }

    /// Borrows the name.
    pub fn folded(&self) -> Folded<'_> {
        Folded { name: self.0.name() }
    }

    /// Joins lower-case labels, given in wire form without a root label, to a name on their right.
    pub fn join(prefix: &[u8], suffix: Folded<'_>) -> Result<FoldedBuf, NameError> {
        let mut joined = NameBuf::join(prefix, suffix.name)?;
        joined.octets.make_ascii_lowercase();
        Ok(FoldedBuf(joined))
    }
}

/// A shared name in lower case that takes no more octets than it has: for many names that are kept.
#[derive(Clone, PartialEq, Eq)]
pub struct FoldedArc(Arc<[u8]>);

impl FoldedArc {
    /// Borrows the name.
    pub fn folded(&self) -> Folded<'_> {
        Folded { name: Name { octets: &self.0 } }
    }
}

impl From<Folded<'_>> for FoldedArc {
    fn from(name: Folded<'_>) -> FoldedArc {
        FoldedArc(name.octets().into())
    }
}

impl From<FoldedBuf> for FoldedArc {
    fn from(name: FoldedBuf) -> FoldedArc {
        name.folded().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).unwrap()
    }

    #[test]
    fn canonical_order_is_that_of_rfc_4034_section_6_1() {
        let in_order = [
            "example.",
            "a.example.",
            "yljkjljk.a.example.",
            "Z.a.example.",
            "zABC.a.EXAMPLE.",
            "z.example.",
            "\\001.z.example.",
            "*.z.example.",
            "\\200.z.example.",
        ];
        let folded: Vec<FoldedBuf> = in_order.iter().map(|text| name(text).name().fold()).collect();
        for pair in folded.windows(2) {
            assert!(pair[0].folded() < pair[1].folded(), "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn a_name_is_below_its_ancestors_only_at_label_boundaries() {
        let (www, example, ample) = (name("www.Example."), name("eXample."), name("ample."));
        assert!(www.name().is_at_or_below(example.name()));
        assert!(www.name().is_at_or_below(Name::ROOT));
        assert!(!www.name().is_at_or_below(ample.name()));
        assert!(!example.name().is_at_or_below(www.name()));
        // The octet 0x07 before "example" here is data of the label, not its length.
        assert!(!name("a\\007example.").name().is_at_or_below(example.name()));
    }

    #[test]
    fn names_that_lie_about_their_length_are_refused() {
        assert_eq!(Name::parse(b"").err(), Some(NameError::Incomplete));
        assert_eq!(Name::parse(b"\x03ww").err(), Some(NameError::Incomplete));
        assert_eq!(Name::parse(b"\xc0\x0c").err(), Some(NameError::LabelTooLong));
        assert_eq!(Name::from_octets(b"\x01a\x00\x00").err(), Some(NameError::TrailingOctets));
        let mut long = b"\x3f".repeat(1 + 63).repeat(4);
        long.push(0);
        assert_eq!(Name::parse(&long).err(), Some(NameError::NameTooLong));
    }

    proptest! {
        #[test]
        fn parsing_any_octets_neither_panics_nor_reads_past_them(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((name, rest)) = Name::parse(&octets) {
                prop_assert!(name.octets().len() <= MAX_NAME_LEN);
                prop_assert_eq!(name.octets().len() + rest.len(), octets.len());
                prop_assert!(name.fold().folded().name() == name);
            }
        }
    }
}
