//! Answers that are kept: what tells them apart, and how a stored one becomes the answer to another query.
//!
//! A stored answer has no OPT record and no question's case of its own: its names point to the question. To answer
//! from it, the id, RD, the question as asked and the query's OPT are put in place.
//!
//! invariant: an answer from [`Stored::replay`] equals the one that [`crate::build()`] would write, octet for octet.

use crate::build::about;
use crate::receive::opt_reply;
use crate::{Answered, Context, Plan, Scratch};
use std::hash::{Hash, Hasher};
use weir_wire::edns::OPT_LEN;
use weir_wire::header::{Flags, HEADER_LEN, Rcode};
use weir_wire::name::NameHash;
use weir_wire::query::Query;
use weir_wire::rtype::Rtype;

/// Everything that an answer depends on beside the zones' data: name, type, DO bit, and the zone set's generation.
///
/// The id, RD, CD, the question's case, the payload size and other options are left out: they are put in place
/// when an answer is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    generation: u64,
    hash: NameHash,
    qtype: Rtype,
    dnssec_ok: bool,
    name: Box<[u8]>,
}

/// A key that borrows the name it is looked up by, so that a look-up allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'s> {
    generation: u64,
    hash: NameHash,
    qtype: Rtype,
    dnssec_ok: bool,
    name: &'s [u8],
}

impl<'s> KeyRef<'s> {
    /// The key of the query that was read into `scratch`, against the zone set of this generation.
    pub fn new(query: &Query<'_>, scratch: &'s Scratch, generation: u64) -> KeyRef<'s> {
        KeyRef {
            generation,
            hash: scratch.name.suffix_hash(0),
            qtype: query.qtype,
            dnssec_ok: query.dnssec_ok(),
            name: scratch.name.folded().octets(),
        }
    }

    /// An owned key.
    pub fn to_key(&self) -> Key {
        let KeyRef { generation, hash, qtype, dnssec_ok, name } = *self;
        Key { generation, hash, qtype, dnssec_ok, name: name.into() }
    }

    /// Whether this is the key of that entry: the form that caches look up with a borrowed key.
    pub fn equals(&self, key: &Key) -> bool {
        self.hash == key.hash
            && self.generation == key.generation
            && self.qtype == key.qtype
            && self.dnssec_ok == key.dnssec_ok
            && *self.name == *key.name
    }

    /// The key's hash: the name's own, which was computed with a secret seed, mixed with the rest.
    pub fn hash(&self) -> u64 {
        mixed(self.hash, self.qtype, self.dnssec_ok, self.generation)
    }
}

impl Key {
    /// Octets that the key holds.
    pub fn octets(&self) -> usize {
        size_of::<Key>() + self.name.len()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(mixed(self.hash, self.qtype, self.dnssec_ok, self.generation));
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(KeyRef::hash(self));
    }
}

/// One number of all parts: the multiplier spreads the small ones over the word.
fn mixed(hash: NameHash, qtype: Rtype, dnssec_ok: bool, generation: u64) -> u64 {
    let rest = u64::from(qtype.0) << 1 | u64::from(dnssec_ok) | generation << 17;
    hash.0 ^ rest.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// An answer without what belongs to one query only.
#[derive(Clone, Debug)]
pub struct Stored {
    rcode: Rcode,
    /// Flags without RD.
    flags: u16,
    /// Records of the three sections, OPT not counted.
    counts: [u16; 3],
    /// The octets behind the question, up to the OPT record.
    sections: Box<[u8]>,
}

impl Stored {
    /// Takes what can be kept of an answer just built for `query` with this scratch; `None` when it must not be.
    pub fn of(answered: &Answered, query: &Query<'_>, scratch: &Scratch, octets: &[u8]) -> Option<Stored> {
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
        Some(Stored {
            rcode: answered.rcode,
            flags: u16::from_be_bytes([f1, f0]) & !Flags::RD,
            counts: [
                u16::from_be_bytes([an1, an0]),
                u16::from_be_bytes([ns1, ns0]),
                u16::from_be_bytes([ar1, ar0]).checked_sub(n_opt)?,
            ],
            sections: sections.into(),
        })
    }

    /// Octets that the entry holds.
    pub fn octets(&self) -> usize {
        size_of::<Stored>() + self.sections.len()
    }

    /// Writes the answer to `query`, which was planned; `None` when it does not fit its limit, so that it must be built anew.
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
        let question = query.question();
        let len = HEADER_LEN + question.len() + self.sections.len() + head.len() + options.len();
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
        for part in [&header[..], question, &self.sections, head, options] {
            out.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        Some(Answered { len, rcode: self.rcode, cacheable: false })
    }
}
