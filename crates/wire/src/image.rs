//! RRsets as they stand in an answer, computed when a zone is loaded.
//!
//! An image holds the records of one RRset in wire form, for the place right after the question of an answer whose
//! question name is the owner. There the owner of each record is the pointer `C0 0C`, and the names in RDATA that
//! may be compressed (RFC 3597 section 4) point into the question or into the image itself. The usual positive
//! answer is then one copy. At any other place ([`crate::answer::Answer::push`]) the pointers are moved; their
//! positions are listed beside the image.
//!
//! invariant: an image together with its owner name holds everything that the RRset says: [`Image::rdata`] gives
//! back the RDATA without compression.

use crate::name::{Folded, Name};
use crate::rdata;
use crate::rtype::{Class, Rtype};

/// Position of the question's name in every message: right after the header (RFC 1035 section 4.1).
pub const QUESTION_AT: usize = 12;
/// Octets of a record between its owner and its RDATA: type, class, TTL and length.
const FIXED_LEN: usize = 10;
/// Octets of an image's record in front of its RDATA: a pointer and the fixed part.
pub const RECORD_HEAD_LEN: usize = 2 + FIXED_LEN;
/// Furthest position that a compression pointer can name (RFC 1035 section 4.1.4).
pub const MAX_POINTER: usize = 0x3fff;
/// Images compress only below this position, so that a longer question name or a few records in front of them
/// seldom push a pointer's target out of reach.
const MAX_IMAGE_POINTER: usize = 0x3000;
/// The two high bits that tell a pointer from a label.
pub(crate) const POINTER_BITS: u16 = 0xc000;

/// One RRset as it stands right after a question for its owner.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Octets of the owner name.
    pub owner_len: usize,
    /// Number of records.
    pub n_records: u16,
    /// The records, each with the owner `C0 0C`.
    pub records: &'a [u8],
    /// Positions in `records` of the compression pointers in RDATA: little-endian pairs in ascending order.
    pub pointers: &'a [u8],
}

impl<'a> Image<'a> {
    /// Position in the message where the image stands when nothing has to be moved.
    pub(crate) fn home(&self) -> usize {
        QUESTION_AT + self.owner_len + crate::query::QUESTION_TAIL_LEN
    }

    /// The records one by one.
    pub fn iter(&self) -> ImageRecords<'a> {
        ImageRecords { records: self.records, at: 0 }
    }

    /// The positions of RDATA's pointers in `records`.
    pub(crate) fn pointer_positions(&self) -> impl Iterator<Item = usize> + use<'a> {
        let (pairs, _) = self.pointers.as_chunks::<2>();
        pairs.iter().map(|pair| usize::from(u16::from_le_bytes(*pair)))
    }

    /// Where in the owner or in the image a pointer leads.
    pub(crate) fn target(&self, pointer: usize) -> Target {
        match pointer.checked_sub(self.home()) {
            Some(at) => Target::Image { at },
            None => Target::Owner { suffix_len: (QUESTION_AT + self.owner_len).saturating_sub(pointer) },
        }
    }

    /// Writes the uncompressed RDATA of `record` to the end of `out`, given the owner's name.
    pub fn rdata(&self, record: &ImageRecord<'_>, owner: Name<'_>, out: &mut Vec<u8>) {
        let start = record.at + RECORD_HEAD_LEN;
        let end = start + record.rdata.len();
        let mut at = start;
        for position in self.pointer_positions().filter(|position| (start..end).contains(position)) {
            out.extend_from_slice(self.records.get(at..position).unwrap_or(&[]));
            self.expand(position, owner, out);
            at = position + 2;
        }
        out.extend_from_slice(self.records.get(at..end).unwrap_or(&[]));
    }

    /// Writes the name that starts at `at` in the records, uncompressed, to the end of `out`.
    pub fn name(&self, at: usize, owner: Name<'_>, out: &mut Vec<u8>) {
        let (labels, end) = labels_at(self.records, at);
        out.extend_from_slice(labels);
        match end {
            NameEnd::Root => out.push(0),
            NameEnd::Pointer => self.expand(at + labels.len(), owner, out),
        }
    }

    /// Writes the labels that the pointer at `position` stands for, the root label included.
    fn expand(&self, position: usize, owner: Name<'_>, out: &mut Vec<u8>) {
        let mut position = position;
        loop {
            match self.target(self.pointer_at(position)) {
                Target::Owner { suffix_len } => {
                    let skip = owner.octets().len().saturating_sub(suffix_len);
                    out.extend_from_slice(owner.octets().get(skip..).unwrap_or(&[0]));
                    return;
                }
                Target::Image { at } => {
                    let (labels, end) = labels_at(self.records, at);
                    out.extend_from_slice(labels);
                    match end {
                        NameEnd::Root => {
                            out.push(0);
                            return;
                        }
                        // Pointers lead backwards, so this ends.
                        NameEnd::Pointer => position = at + labels.len(),
                    }
                }
            }
        }
    }

    fn pointer_at(&self, position: usize) -> usize {
        read_pointer(self.records, position).unwrap_or(QUESTION_AT)
    }
}

/// What a pointer of an image leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The last `suffix_len` octets of the owner name.
    Owner {
        /// Octets from the label pointed to up to the end of the name.
        suffix_len: usize,
    },
    /// A label of an earlier name in the image.
    Image {
        /// Its position in the records.
        at: usize,
    },
}

/// The position that the two octets at `at` point to, when they are a pointer.
pub(crate) fn read_pointer(octets: &[u8], at: usize) -> Option<usize> {
    let pair = octets.get(at..)?.first_chunk::<2>()?;
    let value = u16::from_be_bytes(*pair);
    (value & POINTER_BITS == POINTER_BITS).then_some(usize::from(value & !POINTER_BITS))
}

enum NameEnd {
    Root,
    Pointer,
}

/// The labels at `at` up to a pointer or the root label, and which of the two ends them.
fn labels_at(octets: &[u8], at: usize) -> (&[u8], NameEnd) {
    let mut end = at;
    loop {
        match octets.get(end) {
            Some(&label_len @ 1..=63) => end += 1 + usize::from(label_len),
            Some(0xc0..) => return (octets.get(at..end).unwrap_or(&[]), NameEnd::Pointer),
            _ => return (octets.get(at..end).unwrap_or(&[]), NameEnd::Root),
        }
    }
}

/// One record of an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageRecord<'a> {
    /// Position of the record in the image.
    pub at: usize,
    /// The record's type.
    pub rtype: Rtype,
    /// Seconds to live.
    pub ttl: u32,
    /// RDATA as it stands in the image: names in it may be compressed.
    pub rdata: &'a [u8],
}

/// The records of an image in order.
#[derive(Clone, Debug)]
pub struct ImageRecords<'a> {
    records: &'a [u8],
    at: usize,
}

impl<'a> Iterator for ImageRecords<'a> {
    type Item = ImageRecord<'a>;

    fn next(&mut self) -> Option<ImageRecord<'a>> {
        let (head, rest) = self.records.get(self.at..)?.split_first_chunk::<RECORD_HEAD_LEN>()?;
        let [_, _, t1, t0, _, _, ttl3, ttl2, ttl1, ttl0, len1, len0] = *head;
        let rdata = rest.get(..usize::from(u16::from_be_bytes([len1, len0])))?;
        let record = ImageRecord {
            at: self.at,
            rtype: Rtype(u16::from_be_bytes([t1, t0])),
            ttl: u32::from_be_bytes([ttl3, ttl2, ttl1, ttl0]),
            rdata,
        };
        self.at += RECORD_HEAD_LEN + rdata.len();
        Some(record)
    }
}

/// Makes images: one maker serves a whole zone and keeps its memory from RRset to RRset.
#[derive(Debug, Default)]
pub struct ImageMaker {
    records: Vec<u8>,
    pointers: Vec<u8>,
    /// Where in the image labels stand that later names may point to.
    label_positions: Vec<u16>,
    n_records: u16,
}

/// How an image's records are owned: what their RDATA may be compressed against.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The owner name.
    pub name: Folded<'a>,
    /// The records' class.
    pub class: Class,
}

impl ImageMaker {
    /// Starts an image anew.
    pub fn clear(&mut self) {
        self.records.clear();
        self.pointers.clear();
        self.label_positions.clear();
        self.n_records = 0;
    }

    /// Adds a record, given its uncompressed RDATA (at most 65,535 octets; more would not fit any message).
    ///
    /// Yields the record's position in the image.
    pub fn push(&mut self, owner: Owner<'_>, rtype: Rtype, ttl: u32, rdata: &[u8]) -> usize {
        let at = self.records.len();
        self.records.extend_from_slice(&[0xc0, 0x0c]);
        self.records.extend_from_slice(&rtype.0.to_be_bytes());
        self.records.extend_from_slice(&owner.class.0.to_be_bytes());
        self.records.extend_from_slice(&ttl.to_be_bytes());
        let length_at = self.records.len();
        self.records.extend_from_slice(&[0, 0]);
        self.push_rdata(owner.name, rtype, rdata);
        let rdata_len = u16::try_from(self.records.len() - length_at - 2).unwrap_or(u16::MAX);
        if let Some(length) = self.records.get_mut(length_at..length_at + 2) {
            length.copy_from_slice(&rdata_len.to_be_bytes());
        }
        self.n_records = self.n_records.saturating_add(1);
        at
    }

    /// The image made since the last [`ImageMaker::clear`].
    pub fn image(&self, owner: Folded<'_>) -> Image<'_> {
        Image {
            owner_len: owner.octets().len(),
            n_records: self.n_records,
            records: &self.records,
            pointers: &self.pointers,
        }
    }

    fn push_rdata(&mut self, owner: Folded<'_>, rtype: Rtype, rdata: &[u8]) {
        let mut at = 0;
        for span in rdata::names(rtype, rdata).filter(|span| span.compressible) {
            let end = span.offset + span.len;
            let (Some(before), Some(octets)) = (rdata.get(at..span.offset), rdata.get(span.offset..end))
            else {
                break;
            };
            self.records.extend_from_slice(before);
            match Name::from_octets(octets) {
                Ok(name) => self.push_name(owner, name),
                Err(_) => self.records.extend_from_slice(octets),
            }
            at = end;
        }
        self.records.extend_from_slice(rdata.get(at..).unwrap_or(&[]));
    }

    /// Writes labels until the rest of the name is known to stand in the message already.
    fn push_name(&mut self, owner: Folded<'_>, name: Name<'_>) {
        let home = QUESTION_AT + owner.octets().len() + crate::query::QUESTION_TAIL_LEN;
        let mut rest = Some(name);
        while let Some(suffix) = rest.filter(|suffix| !suffix.is_root()) {
            if let Some(pointer) = self.find(owner, home, suffix) {
                self.push_pointer(pointer);
                return;
            }
            let position = self.records.len();
            if home + position <= MAX_IMAGE_POINTER {
                self.label_positions.extend(u16::try_from(position));
            }
            if let Some(label) = suffix.labels().next() {
                // Labels have at most 63 octets by their type.
                self.records.extend(u8::try_from(label.len()));
                self.records.extend_from_slice(label);
            }
            rest = suffix.parent();
        }
        self.records.push(0);
    }

    fn push_pointer(&mut self, pointer: usize) {
        let Ok(target) = u16::try_from(pointer) else { return };
        self.pointers.extend(u16::try_from(self.records.len()).unwrap_or(u16::MAX).to_le_bytes());
        self.records.extend_from_slice(&(POINTER_BITS | target).to_be_bytes());
    }

    /// Where in the message `suffix` stands, as far as it can be pointed to.
    fn find(&self, owner: Folded<'_>, home: usize, suffix: Name<'_>) -> Option<usize> {
        // Positions of pointers are listed in sixteen bits.
        if home + self.records.len() > MAX_IMAGE_POINTER {
            return None;
        }
        // The asterisk of a wildcard is not in the answers that it makes (RFC 4592 section 2.1.2).
        let pointable = if owner.name().is_wildcard() { owner.parent()? } else { owner };
        if pointable.name().is_at_or_below(suffix) {
            return Some(QUESTION_AT + owner.octets().len() - suffix.octets().len());
        }
        let at = self.label_positions.iter().find(|&&at| self.stands_at(owner, usize::from(at), suffix))?;
        Some(home + usize::from(*at))
    }

    /// Whether the name that starts at `at` in the image is `suffix`.
    fn stands_at(&self, owner: Folded<'_>, at: usize, suffix: Name<'_>) -> bool {
        let mut at = at;
        let mut suffix = suffix;
        loop {
            if let Some(pointer) = read_pointer(&self.records, at) {
                match self.image(owner).target(pointer) {
                    Target::Image { at: earlier } => at = earlier,
                    Target::Owner { suffix_len } => {
                        let skip = owner.octets().len().saturating_sub(suffix_len);
                        let rest = owner.octets().get(skip..).unwrap_or(&[]);
                        return rest.eq_ignore_ascii_case(suffix.octets());
                    }
                }
                continue;
            }
            let Some((&label_len, rest)) = self.records.get(at..).and_then(<[u8]>::split_first) else {
                return false;
            };
            let label = rest.get(..usize::from(label_len)).unwrap_or(&[]);
            match (suffix.labels().next(), suffix.parent()) {
                (Some(first), Some(parent)) if first.eq_ignore_ascii_case(label) => suffix = parent,
                (None, _) => return label.is_empty(),
                _ => return false,
            }
            at += 1 + label.len();
        }
    }
}
