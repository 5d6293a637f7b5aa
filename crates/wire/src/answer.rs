//! An answer's way out: header, question, RRsets by section, OPT, written straight into the send buffer.

use crate::edns::OptReply;
use crate::header::{Flags, HEADER_LEN, Rcode};
use crate::image::{
    Image, ImageRecord, MAX_POINTER, POINTER_BITS, QUESTION_AT, RECORD_HEAD_LEN, Target, read_pointer,
};
use crate::name::{MAX_NAME_LEN, Name};
use crate::query::Query;
use crate::rtype::{Class, Rtype};

/// The sections behind the question, in message order (RFC 1035 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Records that answer the question.
    Answer,
    /// Records that point toward an authority, or deny existence.
    Authority,
    /// Records that may help.
    Additional,
}

/// The RRset does not fit; the answer is as it was before the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where an RRset was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Position in the message of the first record's RDATA.
    pub rdata_at: usize,
    /// Where the image lies, when its records were placed as they are.
    image: Option<PlacedImage>,
}

/// An image in a message, perhaps turned so that a later record comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlacedImage {
    at: usize,
    len: usize,
    /// Octets of the records that were moved from the front to the end.
    turned: usize,
}

impl Placed {
    /// Position in the message of what lies at `in_image` in the image; `None` when RDATA was written anew.
    pub fn position(&self, in_image: usize) -> Option<usize> {
        let PlacedImage { at, len, turned } = self.image?;
        let is_behind = in_image >= turned;
        Some(at + if is_behind { in_image - turned } else { in_image + len - turned })
    }
}

/// A record that is in no zone.
#[derive(Clone, Copy, Debug)]
pub struct MadeRecord<'r> {
    /// Its type.
    pub rtype: Rtype,
    /// Its class.
    pub class: Class,
    /// Seconds to live.
    pub ttl: u32,
    /// Its RDATA, up to the name that [`MadeRecord::ends_in`] stands for.
    pub rdata: &'r [u8],
    /// A name of the message that the RDATA ends with, so that it need not be written again (RFC 1035 section 4.1.4).
    pub ends_in: Option<Subject>,
}

/// How far an answer had come.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    len: usize,
    counts: [u16; 3],
}

/// A name that stands somewhere in the message, to be pointed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Position of its first label in the message.
    at: usize,
    /// Octets of the name when written out.
    len: usize,
    /// Whether it is written out at `at`, so that each of its suffixes is found by adding.
    linear: bool,
}

impl Subject {
    /// The question's name without its first `skip` octets, which must be whole labels.
    pub fn in_question(name_len: usize, skip: usize) -> Subject {
        Subject { at: QUESTION_AT + skip, len: name_len.saturating_sub(skip), linear: true }
    }

    /// Octets of the name when written out.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a name is never empty: it holds at least the root label"
    )]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// An answer under construction in the caller's buffer.
///
/// Sections must be written in message order. What does not fit is refused whole ([`Full`]), so that the answer is
/// valid at every moment.
#[derive(Debug)]
pub struct Answer<'b> {
    octets: &'b mut [u8],
    len: usize,
    question_end: usize,
    /// Octets that records may fill: the message's limit less the OPT record to come.
    limit: usize,
    flags: u16,
    rcode: Rcode,
    counts: [u16; 3],
    opt: Option<OptReply<'b>>,
}

impl<'b> Answer<'b> {
    /// Starts an answer to `query` of at most `limit` octets with its header and question as asked, in the case
    /// that it was asked in.
    ///
    /// `None` when not even these and the OPT record fit: a question has at most 259 octets and an OPT record with
    /// all options that are written here 267, so that 538 octets are always enough, and 512 without long options.
    #[inline]
    pub fn begin(
        out: &'b mut [u8],
        query: &Query<'_>,
        limit: usize,
        opt: Option<OptReply<'b>>,
    ) -> Option<Answer<'b>> {
        let head_len = HEADER_LEN + query.question().len();
        let limit = limit.min(out.len()).checked_sub(opt.map_or(0, |opt| opt.len()))?;
        if head_len > limit {
            return None;
        }
        out.get_mut(..head_len)?.copy_from_slice(query.packet.get(..head_len)?);
        let flags = query.flags.of_response().0;
        let question_end = head_len;
        Some(Answer {
            octets: out,
            len: head_len,
            question_end,
            limit,
            flags,
            rcode: Rcode::NOERROR,
            counts: [0; 3],
            opt,
        })
    }

    /// Octets written so far, the OPT record not counted.
    #[expect(clippy::len_without_is_empty, reason = "an answer holds at least its header")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Sets AA, TC or another of [`Flags`]' bits.
    pub fn set_flag(&mut self, flag: u16) {
        self.flags |= flag;
    }

    /// Sets the response code.
    pub fn set_rcode(&mut self, rcode: Rcode) {
        self.rcode = rcode;
    }

    /// The response code set last.
    pub fn rcode(&self) -> Rcode {
        self.rcode
    }

    /// Number of records in a section so far.
    pub fn n_records(&self, section: Section) -> u16 {
        match (section, self.counts) {
            (Section::Answer, [n, _, _])
            | (Section::Authority, [_, n, _])
            | (Section::Additional, [_, _, n]) => n,
        }
    }

    fn add_records(&mut self, section: Section, n_records: u16) {
        let [answer, authority, additional] = &mut self.counts;
        let count = match section {
            Section::Answer => answer,
            Section::Authority => authority,
            Section::Additional => additional,
        };
        *count = count.saturating_add(n_records);
    }

    /// The state to come back to when what follows cannot be finished.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { len: self.len, counts: self.counts }
    }

    /// Takes back everything placed since `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.len = mark.len;
        self.counts = mark.counts;
    }

    /// Places an RRset whose owner stands at `subject`.
    ///
    /// For a wildcard's image the subject is the name that it is expanded to. For all others it is the owner.
    ///
    /// # Errors
    /// [`Full`] when it does not fit; nothing is written then.
    #[inline]
    pub fn push(&mut self, section: Section, image: Image<'_>, subject: Subject) -> Result<Placed, Full> {
        let at = self.len;
        let end = at + image.records.len();
        if end > self.limit {
            return Err(Full);
        }
        if subject.at > MAX_POINTER || (end > MAX_POINTER && !image.pointers.is_empty()) {
            return self.push_expanded(section, image, subject);
        }
        let placed = self.octets.get_mut(at..end).ok_or(Full)?;
        placed.copy_from_slice(image.records);
        let in_place = at == image.home() && subject.at == QUESTION_AT && subject.len == image.owner_len;
        if !in_place {
            self.move_pointers(image, subject, at);
        }
        self.len = end;
        self.add_records(section, image.n_records);
        let image = PlacedImage { at, len: image.records.len(), turned: 0 };
        Ok(Placed { rdata_at: at + RECORD_HEAD_LEN, image: Some(image) })
    }

    /// Places an RRset like [`Answer::push`], starting with record number `first` and going round.
    ///
    /// RRsets whose RDATA holds compressed names keep their order: a name may point to one in a record before it.
    ///
    /// # Errors
    /// [`Full`] when it does not fit; nothing is written then.
    pub fn push_rotated(
        &mut self,
        section: Section,
        image: Image<'_>,
        subject: Subject,
        first: usize,
    ) -> Result<Placed, Full> {
        let mut placed = self.push(section, image, subject)?;
        if let (Some(placed), true) = (&mut placed.image, image.pointers.is_empty())
            && let Some(record) = image.iter().nth(first)
            && let Some(octets) = self.octets.get_mut(placed.at..placed.at + placed.len)
        {
            octets.rotate_left(record.at);
            placed.turned = record.at;
        }
        Ok(placed)
    }

    /// Points the owners of the records placed at `at` to the subject, and the names in their RDATA to where their
    /// suffixes stand now.
    fn move_pointers(&mut self, image: Image<'_>, subject: Subject, at: usize) {
        if image.n_records == 1 {
            self.write_pointer(at, subject.at);
        } else {
            for record in image.iter() {
                self.write_pointer(at + record.at, subject.at);
            }
        }
        if image.pointers.is_empty() {
            return;
        }
        for position in image.pointer_positions() {
            let Some(pointer) = read_pointer(image.records, position) else { continue };
            let moved = match image.target(pointer) {
                Target::Image { at: earlier } => at + earlier,
                Target::Owner { suffix_len } => self.suffix_at(subject, suffix_len),
            };
            self.write_pointer(at + position, moved);
        }
    }

    fn write_pointer(&mut self, at: usize, target: usize) {
        if let (Some(space), Ok(target)) = (self.octets.get_mut(at..at + 2), u16::try_from(target)) {
            space.copy_from_slice(&(POINTER_BITS | target).to_be_bytes());
        }
    }

    /// The last `suffix_len` octets of `subject`, which must be whole labels.
    pub fn suffix(&self, subject: Subject, suffix_len: usize) -> Subject {
        let skip = subject.len.saturating_sub(suffix_len);
        if subject.linear {
            return Subject { at: subject.at + skip, len: suffix_len, linear: true };
        }
        self.name_in_rdata(self.suffix_at(subject, suffix_len), suffix_len)
    }

    /// The name of `len` octets, when written out, that stands at `at` in RDATA. Its end may be compressed.
    pub fn name_in_rdata(&self, at: usize, len: usize) -> Subject {
        let at = read_pointer(self.octets, at).unwrap_or(at);
        // Below the end of the question nothing is compressed.
        Subject { at, len, linear: at < self.question_end }
    }

    /// The name that RDATA placed at `at` consists of, such as the target of a CNAME.
    pub fn rdata_name(&self, at: usize) -> Subject {
        let len = self.copy_name(at, &mut [0; MAX_NAME_LEN]);
        self.name_in_rdata(at, len)
    }

    /// Where the last `suffix_len` octets of `subject` stand.
    fn suffix_at(&self, subject: Subject, suffix_len: usize) -> usize {
        let mut skip = subject.len.saturating_sub(suffix_len);
        let mut at = subject.at;
        if subject.linear {
            return at + skip;
        }
        loop {
            if let Some(target) = read_pointer(self.octets, at) {
                at = target;
            } else if skip == 0 {
                return at;
            } else {
                let label_len = self.octets.get(at).copied().map_or(0, usize::from);
                at += 1 + label_len;
                skip = skip.saturating_sub(1 + label_len);
            }
        }
    }

    /// Like [`Answer::push`] for what pointers do not reach: a place, or a subject, past 16,383 octets. RDATA is
    /// written without compression.
    #[cold]
    fn push_expanded(
        &mut self,
        section: Section,
        image: Image<'_>,
        subject: Subject,
    ) -> Result<Placed, Full> {
        let start = self.len;
        let mut copy = [0; MAX_NAME_LEN];
        let owner = self.name_at(subject, &mut copy);
        let mut first_rdata_at = None;
        for record in image.iter() {
            match self.append_record(image, &record, [owner.octets(), &[]], &[], subject.at) {
                Ok(rdata_at) => first_rdata_at = first_rdata_at.or(Some(rdata_at)),
                Err(full) => {
                    self.len = start;
                    return Err(full);
                }
            }
        }
        self.add_records(section, image.n_records);
        Ok(Placed { rdata_at: first_rdata_at.unwrap_or(start), image: None })
    }

    /// Writes a record whose owner is `labels` in front of the name at `suffix_at`, or `owner`, in two parts, in full
    /// where no pointer reaches that. RDATA is written without compression; its position is the result.
    fn append_record(
        &mut self,
        image: Image<'_>,
        record: &ImageRecord<'_>,
        owner: [&[u8]; 2],
        labels: &[u8],
        suffix_at: usize,
    ) -> Result<usize, Full> {
        let pointer = (POINTER_BITS | u16::try_from(suffix_at).unwrap_or(0)).to_be_bytes();
        let [labels, tail] = if suffix_at <= MAX_POINTER { [labels, &pointer] } else { owner };
        let head = image.records.get(record.at + 2..record.at + RECORD_HEAD_LEN).ok_or(Full)?;
        if image.pointers.is_empty() {
            self.append(&[labels, tail, head, record.rdata])?;
            return Ok(self.len - record.rdata.len());
        }
        let mut rdata = Vec::new();
        let whole_owner = owner.concat();
        image.rdata(record, Name::from_octets(&whole_owner).map_err(|_| Full)?, &mut rdata);
        let rdata_len = u16::try_from(rdata.len()).map_err(|_| Full)?.to_be_bytes();
        let (type_class_ttl, _) = head.split_at_checked(head.len() - 2).ok_or(Full)?;
        self.append(&[labels, tail, type_class_ttl, &rdata_len, &rdata])?;
        Ok(self.len - rdata.len())
    }

    fn append(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        for part in parts {
            let end = self.len + part.len();
            if end > self.limit {
                return Err(Full);
            }
            self.octets.get_mut(self.len..end).ok_or(Full)?.copy_from_slice(part);
            self.len = end;
        }
        Ok(())
    }

    /// Copies out the name at `at`, following its pointers; yields its octets. What is not a name gives the root.
    fn copy_name(&self, at: usize, copy: &mut [u8; MAX_NAME_LEN]) -> usize {
        let mut len = 0;
        let mut at = at;
        loop {
            if let Some(target) = read_pointer(self.octets, at) {
                at = target;
                continue;
            }
            let label_len = self.octets.get(at).copied().map_or(0, usize::from);
            let label = self.octets.get(at..at + 1 + label_len).unwrap_or(&[0]);
            match copy.get_mut(len..len + label.len()) {
                Some(space) => space.copy_from_slice(label),
                None => {
                    copy[0] = 0;
                    return 1;
                }
            }
            len += label.len();
            at += label.len();
            if label_len == 0 {
                return len;
            }
        }
    }

    /// The name at `subject`, written out into `copy`.
    pub fn name_at<'c>(&self, subject: Subject, copy: &'c mut [u8; MAX_NAME_LEN]) -> Name<'c> {
        let len = self.copy_name(subject.at, copy);
        Name::from_octets(copy.get(..len).unwrap_or(&[0])).unwrap_or(Name::ROOT)
    }

    /// Places an RRset whose owner stands nowhere in the message yet, such as an NSEC record's: writes the owner's
    /// labels in front of `known` out and points to `known` for the rest. Yields where the owner stands now.
    ///
    /// The owner is given as its labels in front of the zone's origin, and that; `known` is the origin or longer.
    ///
    /// # Errors
    /// [`Full`] when it does not fit; nothing is written then.
    pub fn push_with_owner(
        &mut self,
        section: Section,
        image: Image<'_>,
        (prefix, origin): (&[u8], Name<'_>),
        known: Subject,
    ) -> Result<Subject, Full> {
        let start = self.len;
        let owner_len = prefix.len() + origin.octets().len();
        let labels = prefix.get(..owner_len.saturating_sub(known.len)).unwrap_or(&[]);
        let is_plain = image.pointers.is_empty() && known.at <= MAX_POINTER && start <= MAX_POINTER;
        let placed = if is_plain {
            self.append_plain(image, labels, known.at)
        } else {
            self.append_each(image, [prefix, origin.octets()], labels, known.at)
        };
        if let Err(full) = placed {
            self.len = start;
            return Err(full);
        }
        self.add_records(section, image.n_records);
        Ok(self.name_in_rdata(start, owner_len))
    }

    /// Writes an image whose RDATA holds no pointers: `labels` in front of the name at `suffix_at` are the first
    /// record's owner, and the others point to that.
    fn append_plain(&mut self, image: Image<'_>, labels: &[u8], suffix_at: usize) -> Result<(), Full> {
        let start = self.len;
        let (_, behind_owner) = image.records.split_at_checked(2).ok_or(Full)?;
        let pointer = (POINTER_BITS | u16::try_from(suffix_at).unwrap_or(0)).to_be_bytes();
        self.append(&[labels, &pointer, behind_owner])?;
        if image.n_records > 1 {
            for record in image.iter().skip(1) {
                self.write_pointer(start + labels.len() + record.at, start);
            }
        }
        Ok(())
    }

    /// The same for any image, record by record: `owner` is the whole name in two parts.
    #[cold]
    fn append_each(
        &mut self,
        image: Image<'_>,
        owner: [&[u8]; 2],
        labels: &[u8],
        suffix_at: usize,
    ) -> Result<(), Full> {
        let start = self.len;
        for (n, record) in image.iter().enumerate() {
            let (labels, suffix_at) = if n == 0 { (labels, suffix_at) } else { (&[][..], start) };
            self.append_record(image, &record, owner, labels, suffix_at)?;
        }
        Ok(())
    }

    /// Places one record made for this answer, such as the CNAME of a DNAME substitution (RFC 6672 section 3.1);
    /// yields the position of its RDATA.
    ///
    /// # Errors
    /// [`Full`] when it does not fit; nothing is written then.
    pub fn push_made(
        &mut self,
        section: Section,
        owner: Subject,
        made: MadeRecord<'_>,
    ) -> Result<usize, Full> {
        let start = self.len;
        let mut copy = [0; MAX_NAME_LEN];
        let len = self.copy_name(owner.at, &mut copy);
        let pointer = (POINTER_BITS | u16::try_from(owner.at).unwrap_or(0)).to_be_bytes();
        let owner_octets =
            if owner.at <= MAX_POINTER { &pointer[..] } else { copy.get(..len).unwrap_or(&[0]) };
        let (rdata_end, rdata_end_len) = self.pointer_or_copy(made.ends_in);
        let rdata_end = rdata_end.get(..rdata_end_len).unwrap_or(&[]);
        let rdata_len = u16::try_from(made.rdata.len() + rdata_end_len).map_err(|_| Full)?;
        let parts = [
            owner_octets,
            &made.rtype.0.to_be_bytes(),
            &made.class.0.to_be_bytes(),
            &made.ttl.to_be_bytes(),
            &rdata_len.to_be_bytes(),
            made.rdata,
            rdata_end,
        ];
        if self.append(&parts).is_err() {
            self.len = start;
            return Err(Full);
        }
        self.add_records(section, 1);
        Ok(self.len - usize::from(rdata_len))
    }

    /// What stands for a name in RDATA: a pointer where one reaches it, or its octets; nothing for no name.
    fn pointer_or_copy(&self, name: Option<Subject>) -> ([u8; MAX_NAME_LEN], usize) {
        let Some(name) = name else { return ([0; MAX_NAME_LEN], 0) };
        let mut pointer = [0; MAX_NAME_LEN];
        match (u16::try_from(name.at), pointer.first_chunk_mut::<2>()) {
            (Ok(at), Some(space)) if name.at <= MAX_POINTER => {
                *space = (POINTER_BITS | at).to_be_bytes();
                (pointer, 2)
            }
            _ => {
                let len = self.copy_name(name.at, &mut pointer);
                (pointer, len)
            }
        }
    }

    /// Writes counts, flags and the OPT record; yields the message's octets.
    #[inline]
    pub fn finish(self) -> usize {
        let flags = self.flags | self.rcode.0 & 0x0f;
        let [answers, authorities, mut additionals] = self.counts;
        let mut len = self.len;
        if let Some(opt) = self.opt {
            for part in [&opt.head(self.rcode)[..], opt.options] {
                if let Some(space) = self.octets.get_mut(len..len + part.len()) {
                    space.copy_from_slice(part);
                    len += part.len();
                }
            }
            additionals = additionals.saturating_add(1);
        }
        let fields = [flags, 1, answers, authorities, additionals];
        if let Some(space) = self.octets.get_mut(2..HEADER_LEN) {
            for (to, field) in space.as_chunks_mut::<2>().0.iter_mut().zip(fields) {
                *to = field.to_be_bytes();
            }
        }
        len
    }
}

/// Writes an answer without a question, to a packet that has at least a header; yields its octets.
pub fn without_question(
    packet: &[u8],
    rcode: Rcode,
    opt: Option<OptReply<'_>>,
    out: &mut [u8],
) -> Option<usize> {
    let [id1, id0, f1, f0, ..] = *packet.first_chunk::<HEADER_LEN>()?;
    let flags = Flags(u16::from_be_bytes([f1, f0])).of_response().0 | rcode.0 & 0x0f;
    let [f1, f0] = flags.to_be_bytes();
    let header = [id1, id0, f1, f0, 0, 0, 0, 0, 0, 0, 0, u8::from(opt.is_some())];
    let head = opt.map(|opt| opt.head(rcode));
    let mut at = 0;
    for part in [&header[..], head.as_ref().map_or(&[], |head| head), opt.map_or(&[], |opt| opt.options)] {
        out.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(at)
}
