//! A query's way in: one pass over the packet, cheapest check first.

use crate::edns::{Edns, OPT_LEN};
use crate::header::{Flags, HEADER_LEN, Opcode, Rcode};
use crate::name::{HashSeed, Name, QueryName};
use crate::rtype::{Class, Rtype};

/// Octets of a question behind its name: type and class.
pub const QUESTION_TAIL_LEN: usize = 4;

/// A query that can be looked up: one question, whole records, at most one OPT.
#[derive(Clone, Copy, Debug)]
pub struct Query<'p> {
    /// The packet from its header on.
    pub packet: &'p [u8],
    /// Flags and opcode as sent.
    pub flags: Flags,
    /// Octets of the question's name.
    pub name_len: usize,
    /// The type asked for.
    pub qtype: Rtype,
    /// The class asked for.
    pub qclass: Class,
    /// What the OPT record says, when there is one.
    pub edns: Option<Edns<'p>>,
    /// The TSIG record from its owner on, when there is one ([`crate::tsig::Tsig::parse`]).
    pub tsig: Option<&'p [u8]>,
}

/// Why a packet is not looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<'p> {
    /// No answer at all: to answer would help an amplifier or start a loop. The packet has no whole header, or it
    /// is itself a response.
    Silence,
    /// An answer of a header alone, with this response code.
    HeaderOnly(Rcode),
    /// A query without a question, which is one for a cookie when it carries that option (RFC 7873 section 5.4),
    /// and otherwise a format error (RFC 9619).
    NoQuestion(Edns<'p>),
}

impl<'p> Query<'p> {
    /// Reads a query and fills `name` with the name of its question.
    ///
    /// # Errors
    /// [`Fault`] says whether to be silent or what code to answer with.
    #[inline]
    pub fn parse(packet: &'p [u8], name: &mut QueryName, seed: HashSeed) -> Result<Query<'p>, Fault<'p>> {
        let (header, body) = packet.split_first_chunk::<HEADER_LEN>().ok_or(Fault::Silence)?;
        let [_, _, flags_high, flags_low, counts @ ..] = *header;
        let flags = Flags(u16::from_be_bytes([flags_high, flags_low]));
        if flags.is_response() {
            return Err(Fault::Silence);
        }
        // What is in a message of an unknown operation cannot be wrong: it is not implemented.
        let is_query = flags.opcode() == Opcode::QUERY;
        let formerr = Fault::HeaderOnly(if is_query { Rcode::FORMERR } else { Rcode::NOTIMP });
        let counts = Counts::of(counts);
        // RFC 9619: a query has exactly one question.
        if counts.questions != 1 {
            return Err(without_question(body, counts)
                .filter(|_| is_query)
                .map_or(formerr, Fault::NoQuestion));
        }
        let name_len = name.fill(body, seed).map_err(|_| formerr)?;
        let (tail, rest) = body
            .get(name_len..)
            .and_then(|rest| rest.split_first_chunk::<QUESTION_TAIL_LEN>())
            .ok_or(formerr)?;
        let [type_high, type_low, class_high, class_low] = *tail;
        let qtype = Rtype(u16::from_be_bytes([type_high, type_low]));
        let records = Records::parse(rest, counts, qtype).ok_or(formerr)?;
        Ok(Query {
            packet,
            flags,
            name_len,
            qtype,
            qclass: Class(u16::from_be_bytes([class_high, class_low])),
            edns: records.edns,
            tsig: records.tsig,
        })
    }

    /// The message's id.
    pub fn id(&self) -> u16 {
        self.packet.first_chunk::<2>().map_or(0, |id| u16::from_be_bytes(*id))
    }

    /// The operation asked for: anything but a standard query has no more in common with one than its layout.
    pub fn opcode(&self) -> Opcode {
        self.flags.opcode()
    }

    /// The octets of the question section.
    pub fn question(&self) -> &'p [u8] {
        self.packet.get(HEADER_LEN..HEADER_LEN + self.name_len + QUESTION_TAIL_LEN).unwrap_or(&[])
    }

    /// Whether the requestor wants DNSSEC records (RFC 4035 section 3.1).
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }
}

#[derive(Clone, Copy)]
struct Counts {
    questions: u16,
    answers: u16,
    authorities: u16,
    additionals: u16,
}

impl Counts {
    fn of([q1, q0, an1, an0, ns1, ns0, ar1, ar0]: [u8; 8]) -> Counts {
        Counts {
            questions: u16::from_be_bytes([q1, q0]),
            answers: u16::from_be_bytes([an1, an0]),
            authorities: u16::from_be_bytes([ns1, ns0]),
            additionals: u16::from_be_bytes([ar1, ar0]),
        }
    }
}

/// The records behind the question.
struct Records<'p> {
    edns: Option<Edns<'p>>,
    tsig: Option<&'p [u8]>,
}

impl<'p> Records<'p> {
    /// Reads them all; `None` is a format error.
    #[inline]
    fn parse(rest: &'p [u8], counts: Counts, qtype: Rtype) -> Option<Records<'p>> {
        // Nearly all queries carry one OPT record without options, or nothing.
        let Counts { answers: 0, authorities: 0, additionals: 1, .. } = counts else {
            return Records::parse_each(rest, counts, qtype);
        };
        let Ok(&[0, 0, 41, c1, c0, ttl3, ttl2, ttl1, ttl0, 0, 0]) = <&[u8; OPT_LEN]>::try_from(rest) else {
            return Records::parse_each(rest, counts, qtype);
        };
        let (class, ttl) = (u16::from_be_bytes([c1, c0]), u32::from_be_bytes([ttl3, ttl2, ttl1, ttl0]));
        Some(Records { edns: Edns::parse(class, ttl, &[]), tsig: None })
    }

    fn parse_each(mut rest: &'p [u8], counts: Counts, qtype: Rtype) -> Option<Records<'p>> {
        // A query carries no answer; the one use of its authority section is the SOA of IXFR (RFC 1995 section 3).
        if counts.answers != 0 || (counts.authorities != 0 && qtype != Rtype::IXFR) {
            return None;
        }
        for _ in 0..counts.authorities {
            let (record, after) = RawRecord::parse(rest)?;
            if record.rtype == Rtype::OPT {
                return None;
            }
            rest = after;
        }
        let mut edns = None;
        let mut tsig = None;
        for left in (0..counts.additionals).rev() {
            let (record, after) = RawRecord::parse(rest)?;
            let octets = rest.get(..rest.len() - after.len())?;
            rest = after;
            match record.rtype {
                Rtype::OPT => {
                    // RFC 6891 section 6.1.1: one OPT at most, its owner the root.
                    if edns.is_some() || !record.owner_is_root {
                        return None;
                    }
                    edns = Some(Edns::parse(record.class, record.ttl, record.rdata)?);
                }
                // RFC 8945 section 5.1: TSIG is the last record.
                Rtype::TSIG if left != 0 => return None,
                Rtype::TSIG => tsig = Some(octets),
                _ => {}
            }
        }
        rest.is_empty().then_some(Records { edns, tsig })
    }
}

/// The OPT record of a query that has no question and nothing else either.
fn without_question(body: &[u8], counts: Counts) -> Option<Edns<'_>> {
    if counts.questions != 0 {
        return None;
    }
    Records::parse(body, counts, Rtype(0))?.edns
}

/// A record of a query, its name skipped over.
struct RawRecord<'p> {
    owner_is_root: bool,
    rtype: Rtype,
    class: u16,
    ttl: u32,
    rdata: &'p [u8],
}

impl<'p> RawRecord<'p> {
    fn parse(octets: &'p [u8]) -> Option<(RawRecord<'p>, &'p [u8])> {
        let after_name = skip_name(octets)?;
        let owner_is_root = octets.len() - after_name.len() == 1;
        let (fixed, rest) = after_name.split_first_chunk::<10>()?;
        let [t1, t0, c1, c0, ttl3, ttl2, ttl1, ttl0, len1, len0] = *fixed;
        let (rdata, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([len1, len0])))?;
        let record = RawRecord {
            owner_is_root,
            rtype: Rtype(u16::from_be_bytes([t1, t0])),
            class: u16::from_be_bytes([c1, c0]),
            ttl: u32::from_be_bytes([ttl3, ttl2, ttl1, ttl0]),
            rdata,
        };
        Some((record, rest))
    }
}

/// What follows a name that may end in a compression pointer; the pointer is not followed, since only the owner
/// names of additional records are skipped like this.
fn skip_name(octets: &[u8]) -> Option<&[u8]> {
    let mut rest = octets;
    loop {
        let (&label_len, after) = rest.split_first()?;
        match label_len {
            0 => return Some(after),
            1..=63 => rest = after.get(usize::from(label_len)..)?,
            0xc0.. => return after.get(1..),
            _ => return None,
        }
    }
}

/// Builds a query in a caller's buffer: for health checks, load generation and tests.
///
/// Yields the octets written, or `None` when they do not fit.
pub fn write(
    out: &mut [u8],
    id: u16,
    name: Name<'_>,
    qtype: Rtype,
    edns_payload: Option<u16>,
) -> Option<usize> {
    let [id1, id0] = id.to_be_bytes();
    let n_additionals = u8::from(edns_payload.is_some());
    let header = [id1, id0, 0, 0, 0, 1, 0, 0, 0, 0, 0, n_additionals];
    let [t1, t0] = qtype.0.to_be_bytes();
    let opt = edns_payload.map(|payload| {
        crate::edns::OptReply { udp_payload: payload, dnssec_ok: false, options: &[] }.head(Rcode::NOERROR)
    });
    let mut at = 0;
    for part in [&header[..], name.octets(), &[t1, t0, 0, 1], opt.as_ref().map_or(&[], |opt| &opt[..])] {
        out.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::NameBuf;
    use proptest::prelude::*;

    const SEED: HashSeed = HashSeed::fixed();

    fn parse(packet: &[u8]) -> Result<Query<'_>, Fault<'_>> {
        Query::parse(packet, &mut QueryName::new(SEED), SEED)
    }

    fn query(edns_payload: Option<u16>) -> Vec<u8> {
        let name = NameBuf::from_text(b"www.Example.", None).unwrap();
        let mut out = vec![0; 512];
        let len = write(&mut out, 0x1234, name.name(), Rtype::AAAA, edns_payload).unwrap();
        out.truncate(len);
        out
    }

    #[test]
    fn a_plain_query_is_read_whole() {
        let packet = query(Some(1232));
        let query = parse(&packet).unwrap();
        assert_eq!((query.qtype, query.qclass, query.name_len), (Rtype::AAAA, Class::IN, 13));
        assert_eq!(query.edns.map(|edns| edns.udp_payload), Some(1232));
        assert_eq!(query.question(), b"\x03www\x07Example\x00\x00\x1c\x00\x01");
    }

    #[test]
    fn a_response_and_a_short_packet_get_silence() {
        let mut packet = query(None);
        assert_eq!(parse(&packet[..11]).unwrap_err(), Fault::Silence);
        packet[2] |= 0x80;
        assert_eq!(parse(&packet).unwrap_err(), Fault::Silence);
    }

    #[test]
    fn other_opcodes_are_not_implemented() {
        let mut packet = query(None);
        packet[2] |= 0x10;
        assert_eq!(parse(&packet).unwrap().opcode(), Opcode(2));
        packet.pop();
        assert_eq!(parse(&packet).unwrap_err(), Fault::HeaderOnly(Rcode::NOTIMP));
    }

    #[test]
    fn misplaced_or_doubled_records_are_format_errors() {
        let formerr = Err(Fault::HeaderOnly(Rcode::FORMERR));
        let check = |packet: &[u8]| {
            parse(packet).map(|_| ()).map_err(|fault| match fault {
                Fault::NoQuestion(_) => Fault::HeaderOnly(Rcode::FORMERR),
                Fault::HeaderOnly(rcode) => Fault::HeaderOnly(rcode),
                Fault::Silence => Fault::Silence,
            })
        };
        let with_opt = query(Some(1232));
        let opt = with_opt[with_opt.len() - 11..].to_vec();

        let two_opts = [&with_opt[..11], &[2], &with_opt[12..], &opt].concat();
        assert_eq!(check(&two_opts), formerr, "two OPT records");
        let opt_as_answer = [&with_opt[..7], &[1, 0, 0, 0, 0], &with_opt[12..]].concat();
        assert_eq!(check(&opt_as_answer), formerr, "OPT in the answer section");
        let trailing = [&with_opt[..], &[0]].concat();
        assert_eq!(check(&trailing), formerr, "trailing octets");
        let no_question = [&with_opt[..5], &[0], &with_opt[6..]].concat();
        assert_eq!(check(&no_question), formerr, "no question");
        for len in 12..with_opt.len() {
            assert_eq!(check(&with_opt[..len]), formerr, "cut to {len} octets");
        }
    }

    proptest! {
        #[test]
        fn no_packet_makes_the_parser_panic(packet in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(query) = parse(&packet) {
                prop_assert!(query.question().len() > QUESTION_TAIL_LEN);
            }
        }

        #[test]
        fn a_changed_octet_never_makes_the_parser_panic(at in 0usize..40, octet: u8) {
            let mut packet = query(Some(4096));
            packet[at] = octet;
            let _ = parse(&packet);
        }
    }
}
