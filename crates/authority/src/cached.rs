//! Answers that are kept: what tells them apart, and how a stored one becomes the answer to another query.
//!
//! A stored answer has no OPT record and no question's case of its own: its names point to the question. To answer
//! from it, the id, RD, the question as asked and the query's OPT are put in place.
//!
//! invariant: an answer from [`Stored::replay`] equals the one that [`crate::build()`] would write, octet for octet.

use crate::build::about;
use crate::receive::opt_reply;
use crate::{Answered, Context, Plan, Scratch};
use weir_wire::edns::OPT_LEN;
use weir_wire::header::{Flags, HEADER_LEN, Rcode};
use weir_wire::query::Query;
use weir_wire::rtype::Rtype;

/// Everything that an answer depends on beside the zones' data: name, type, DO bit, and the zone set's generation.
///
/// The id, RD, CD, the question's case, the payload size and other options are left out: they are put in place
/// when an answer is replayed. The name is borrowed, so that a look-up allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Key<'s> {
    hash: u64,
    generation: u64,
    qtype: Rtype,
    dnssec_ok: bool,
    name: &'s [u8],
}

impl<'s> Key<'s> {
    /// The key of the query that was read into `scratch`, against the zone set of this generation.
    #[inline]
    pub fn new(query: &Query<'_>, scratch: &'s Scratch, generation: u64) -> Key<'s> {
        let (qtype, dnssec_ok) = (query.qtype, query.dnssec_ok());
        // The name's own hash was computed with a secret seed; the multiplier spreads the small parts over the word.
        let rest = u64::from(qtype.0) << 1 | u64::from(dnssec_ok) | generation << 17;
        let hash = scratch.name.suffix_hash(0).0 ^ rest.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Key { hash, generation, qtype, dnssec_ok, name: scratch.name.folded().octets() }
    }

    /// The key's hash: nobody outside can choose names that collide.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The generation of the zone set.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// An answer without what belongs to one query only, and what it is the answer to.
#[derive(Clone, Debug)]
pub struct Stored {
    hash: u64,
    generation: u64,
    /// The name that was asked for, in lower case, and the octets of the answer behind its question, up to the OPT
    /// record.
    octets: Box<[u8]>,
    name_len: u8,
    dnssec_ok: bool,
    qtype: Rtype,
    rcode: Rcode,
    /// Flags without RD.
    flags: u16,
    /// Records of the three sections, OPT not counted.
    counts: [u16; 3],
}

impl Stored {
    /// Takes what can be kept of an answer just built for `query` with this scratch; `None` when it must not be.
    pub fn of(
        answered: &Answered,
        query: &Query<'_>,
        scratch: &Scratch,
        generation: u64,
        octets: &[u8],
    ) -> Option<Stored> {
        if !answered.cacheable {
            return None;
        }
        let octets = octets.get(..answered.len)?;
        let [_, _, f1, f0, _, _, an1, an0, ns1, ns0, ar1, ar0] = *octets.first_chunk::<HEADER_LEN>()?;
        let (n_opt, opt_len) = match query.edns {
            Some(_) => (1, OPT_LEN + scratch.options.octets().len()),
            None => (0, 0),
        };
        let sections = octets.get(HEADER_LEN + query.question().len()..octets.len().checked_sub(opt_len)?)?;
        let Key { hash, qtype, dnssec_ok, name, .. } = Key::new(query, scratch, generation);
        Some(Stored {
            hash,
            generation,
            octets: [name, sections].concat().into(),
            name_len: u8::try_from(name.len()).ok()?,
            dnssec_ok,
            qtype,
            rcode: answered.rcode,
            flags: u16::from_be_bytes([f1, f0]) & !Flags::RD,
            counts: [
                u16::from_be_bytes([an1, an0]),
                u16::from_be_bytes([ns1, ns0]),
                u16::from_be_bytes([ar1, ar0]).checked_sub(n_opt)?,
            ],
        })
    }

    /// Whether this is the answer under that key.
    #[inline]
    pub fn is_under(&self, key: &Key<'_>) -> bool {
        self.hash == key.hash
            && self.generation == key.generation
            && self.qtype == key.qtype
            && self.dnssec_ok == key.dnssec_ok
            && self.split().0 == key.name
    }

    /// The hash of its key.
    pub fn key_hash(&self) -> u64 {
        self.hash
    }

    /// The generation of the zone set that it was built from.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Records of all sections, OPT not counted: a measure of what the answer cost.
    pub fn n_records(&self) -> u32 {
        self.counts.iter().map(|&count| u32::from(count)).sum()
    }

    /// Octets that the answer and its key hold.
    pub fn octets(&self) -> usize {
        size_of::<Stored>() + self.octets.len()
    }

    /// The name, and the octets behind the question.
    #[inline]
    fn split(&self) -> (&[u8], &[u8]) {
        self.octets.split_at_checked(usize::from(self.name_len)).unwrap_or_default()
    }

    /// Writes the answer to `query`, which was planned; `None` when it does not fit its limit, so that it must be
    /// built anew.
    pub fn replay(
        &self,
        plan: &Plan<'_>,
        query: &Query<'_>,
        context: &Context<'_>,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Option<Answered> {
        let Plan::Zone { zone, outcome, .. } = plan else { return None };
        let opt = opt_reply(query, &scratch.wanted, context, about(zone, outcome), &mut scratch.options);
        let head = opt.map(|opt| opt.head(self.rcode));
        let (head, options) =
            (head.as_ref().map_or(&[][..], |head| head), opt.map_or(&[][..], |opt| opt.options));
        let (_, sections) = self.split();
        let question = query.question();
        let len = HEADER_LEN + question.len() + sections.len() + head.len() + options.len();
        if len > context.limit(query) {
            return None;
        }
        let [id1, id0, ..] = *query.packet.first_chunk::<HEADER_LEN>()?;
        let [f1, f0] = (self.flags | query.flags.0 & Flags::RD).to_be_bytes();
        let [an, ns, ar] = self.counts;
        let [[an1, an0], [ns1, ns0], [ar1, ar0]] =
            [an, ns, ar + u16::from(opt.is_some())].map(u16::to_be_bytes);
        let header = [id1, id0, f1, f0, 0, 1, an1, an0, ns1, ns0, ar1, ar0];
        let mut at = 0;
        for part in [&header[..], question, sections, head, options] {
            out.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        Some(Answered { len, rcode: self.rcode, cacheable: false })
    }
}
