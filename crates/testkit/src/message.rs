//! DNS messages as tests need them: queries built octet by octet, answers taken apart into comparable records.

use std::fmt;

use crate::rdata::{self, Piece};

/// A domain name: lower-cased labels, the root's empty one left out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(pub Vec<Vec<u8>>);

impl Name {
    /// The name that `text` spells; no escapes, a final dot is optional.
    pub fn from_text(text: &str) -> Self {
        let labels = text.split('.').filter(|l| !l.is_empty());
        Name(labels.map(|l| l.to_ascii_lowercase().into_bytes()).collect())
    }

    /// The name below this one whose first label is `label`.
    pub fn child(&self, label: &[u8]) -> Self {
        let mut labels = vec![label.to_vec()];
        labels.extend(self.0.iter().cloned());
        Name(labels)
    }

    /// The name without its first label; the root is its own parent.
    pub fn parent(&self) -> Self {
        Name(self.0.iter().skip(1).cloned().collect())
    }

    /// True if this name is `other` or below it.
    pub fn is_at_or_below(&self, other: &Name) -> bool {
        self.0.len() >= other.0.len() && self.0[self.0.len() - other.0.len()..] == other.0[..]
    }

    /// True if the first label is an asterisk (RFC 4592, section 2.1.1).
    pub fn is_wildcard(&self) -> bool {
        self.0.first().is_some_and(|l| l == b"*")
    }

    /// Length in a message without compression, in octets.
    pub fn wire_len(&self) -> usize {
        1 + self.0.iter().map(|l| l.len() + 1).sum::<usize>()
    }

    /// True if the name keeps the limits of RFC 1035 section 2.3.4: labels of 63 octets, names of 255.
    pub fn fits(&self) -> bool {
        self.wire_len() <= 255 && self.0.iter().all(|l| (1..=63).contains(&l.len()))
    }

    /// The name as octets without compression.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::with_capacity(self.wire_len());
        for label in &self.0 {
            wire.push(u8::try_from(label.len()).expect("labels are short"));
            wire.extend_from_slice(label);
        }
        wire.push(0);
        wire
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for label in &self.0 {
            for &b in label {
                match b {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(b))?,
                    0x21..=0x7e => write!(f, "{}", char::from(b))?,
                    _ => write!(f, "\\{b:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A question to ask.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    /// The name asked for, in lower case.
    pub name: Name,
    /// The type asked for.
    pub rtype: u16,
    /// The octets that the client takes over UDP, if it speaks EDNS.
    pub edns: Option<u16>,
    /// DO: signatures and proofs are wanted (RFC 3225). Goes with EDNS only.
    pub dnssec_ok: bool,
    /// A bit for each letter of the name: set turns it into upper case (the pattern repeats after 64 letters).
    pub case: u64,
}

impl Query {
    /// A question without EDNS, in lower case.
    pub fn new(name: Name, rtype: u16) -> Self {
        Query { name, rtype, edns: None, dnssec_ok: false, case: 0 }
    }

    /// The message, with the id given. RD is clear, class is IN.
    pub fn to_wire(&self, id: u16) -> Vec<u8> {
        let arcount = u8::from(self.edns.is_some());
        let mut wire = id.to_be_bytes().to_vec();
        wire.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, arcount]);
        wire.extend_from_slice(&self.question());
        if let Some(size) = self.edns {
            // RFC 6891, section 6.1.2: root owner, type 41, size in place of the class, DO as only flag, no options.
            wire.extend_from_slice(&[0, 0, 41]);
            wire.extend_from_slice(&size.to_be_bytes());
            wire.extend_from_slice(&[0, 0, u8::from(self.dnssec_ok) << 7, 0, 0, 0]);
        }
        wire
    }

    /// The question section: name as it is spelled, type, class IN.
    pub fn question(&self) -> Vec<u8> {
        let mut wire = self.name.to_wire();
        for (i, b) in wire.iter_mut().enumerate() {
            // Length octets are below 64 and are no letters.
            if b.is_ascii_lowercase() && self.case >> (i % 64) & 1 == 1 {
                *b = b.to_ascii_uppercase();
            }
        }
        wire.extend_from_slice(&self.rtype.to_be_bytes());
        wire.extend_from_slice(&[0, 1]);
        wire
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, rdata::type_text(self.rtype))?;
        match self.edns {
            Some(size) if self.dnssec_ok => write!(f, " (EDNS {size}, DO)"),
            Some(size) => write!(f, " (EDNS {size})"),
            None => f.write_str(" (no EDNS)"),
        }
    }
}

/// A resource record, made comparable: names without compression and in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// The owner's name.
    pub owner: Name,
    /// The type.
    pub rtype: u16,
    /// The class; in OPT the size of the sender's UDP buffer.
    pub class: u16,
    /// Seconds; in OPT version and flags.
    pub ttl: u32,
    /// The data, with names as [`Name::to_wire`] gives them.
    pub rdata: Vec<u8>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.owner, self.ttl, rdata::type_text(self.rtype))?;
        match (self.rtype, &self.rdata[..]) {
            (1, [a, b, c, d]) => write!(f, "{a}.{b}.{c}.{d}"),
            (2 | 5 | 12 | 39, wire) => match read_name(wire, 0) {
                Ok((name, _)) => write!(f, "{name}"),
                Err(_) => f.write_str("?"),
            },
            (_, octets) => octets.iter().try_for_each(|o| write!(f, "{o:02x}")),
        }
    }
}

/// An answer, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The id of the message.
    pub id: u16,
    /// The 16 bits of flags, opcode and response code.
    pub flags: u16,
    /// The question section as it came.
    pub question: Vec<u8>,
    /// The answer section.
    pub answer: Vec<Record>,
    /// The authority section.
    pub authority: Vec<Record>,
    /// The additional section, without OPT.
    pub additional: Vec<Record>,
    /// The OPT record, if there is one.
    pub opt: Option<Record>,
    /// How long the message is, in octets.
    pub octets: usize,
}

impl Answer {
    /// AA: the answer comes from the zone's own data.
    pub fn is_authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }

    /// TC: the answer did not fit.
    pub fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// The response code, its upper bits from OPT included (RFC 6891, section 6.1.3).
    pub fn rcode(&self) -> u16 {
        let upper = self.opt.as_ref().map_or(0, |opt| opt.ttl.to_be_bytes()[0]);
        u16::from(upper) << 4 | self.flags & 0x000f
    }

    /// Takes a message apart. `Err` says what is wrong with it; octets after the last record are wrong too.
    pub fn from_wire(wire: &[u8]) -> Result<Self, String> {
        let mut at = Reader { wire, at: 0 };
        let id = at.u16()?;
        let flags = at.u16()?;
        let counts = [at.u16()?, at.u16()?, at.u16()?, at.u16()?];
        let start = at.at;
        for _ in 0..counts[0] {
            at.name()?;
            at.octets(4)?;
        }
        let question = wire[start..at.at].to_vec();
        let answer = at.records(counts[1])?;
        let authority = at.records(counts[2])?;
        let (opts, additional): (Vec<_>, Vec<_>) =
            at.records(counts[3])?.into_iter().partition(|r| r.rtype == 41);
        if at.at != wire.len() {
            return Err(format!("{} octets after the last record", wire.len() - at.at));
        }
        if opts.len() > 1 {
            return Err("more than one OPT record".into());
        }
        let opt = opts.into_iter().next();
        Ok(Answer { id, flags, question, answer, authority, additional, opt, octets: wire.len() })
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |is, text| if is { text } else { "" };
        let (aa, tc) = (flag(self.is_authoritative(), " AA"), flag(self.is_truncated(), " TC"));
        write!(f, "rcode {} flags {:04x}{aa}{tc} {} octets", self.rcode(), self.flags, self.octets)?;
        let sections =
            [("answer", &self.answer), ("authority", &self.authority), ("additional", &self.additional)];
        for (name, records) in sections.iter().filter(|(_, records)| !records.is_empty()) {
            write!(f, " {name} {records:?}")?;
        }
        match &self.opt {
            Some(opt) => write!(f, " opt size {} flags {:08x}", opt.class, opt.ttl),
            None => Ok(()),
        }
    }
}

/// Reads on from a place in a message.
struct Reader<'a> {
    wire: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn octets(&mut self, n: usize) -> Result<&[u8], String> {
        let octets =
            self.wire.get(self.at..self.at + n).ok_or_else(|| format!("the message ends at {}", self.at))?;
        self.at += n;
        Ok(octets)
    }

    fn u16(&mut self) -> Result<u16, String> {
        Ok(u16::from_be_bytes(self.octets(2)?.try_into().expect("two octets")))
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_be_bytes(self.octets(4)?.try_into().expect("four octets")))
    }

    fn name(&mut self) -> Result<Name, String> {
        let (name, end) = read_name(self.wire, self.at)?;
        self.at = end;
        Ok(name)
    }

    fn records(&mut self, n: u16) -> Result<Vec<Record>, String> {
        (0..n).map(|_| self.record()).collect()
    }

    fn record(&mut self) -> Result<Record, String> {
        let owner = self.name()?;
        let (rtype, class, ttl, length) = (self.u16()?, self.u16()?, self.u32()?, self.u16()?);
        let end = self.at + usize::from(length);
        if end > self.wire.len() {
            return Err(format!("RDATA of {owner} {} passes the end", rdata::type_text(rtype)));
        }
        let mut data = Vec::new();
        for piece in rdata::pieces(rtype) {
            match *piece {
                Piece::Name => data.extend(self.name()?.to_wire()),
                Piece::Octets(n) => data.extend_from_slice(self.octets(n)?),
                Piece::Text => {
                    let n = self.octets(1)?[0];
                    data.push(n);
                    data.extend_from_slice(self.octets(usize::from(n))?);
                }
                Piece::Rest => data.extend_from_slice(self.octets(end.saturating_sub(self.at))?),
            }
        }
        if self.at != end {
            return Err(format!("RDATA of {owner} {} is not as long as it says", rdata::type_text(rtype)));
        }
        Ok(Record { owner, rtype, class, ttl, rdata: data })
    }
}

/// The name at `start` of a message, in lower case, and where the octets after it begin.
///
/// A pointer has to point back (RFC 1035, section 4.1.4: "a prior occurrence"), so that reading ends.
fn read_name(wire: &[u8], start: usize) -> Result<(Name, usize), String> {
    let (mut at, mut end, mut earliest) = (start, None, start);
    let mut labels = Vec::new();
    loop {
        let length = *wire.get(at).ok_or("a name passes the end")?;
        match length {
            0 => {
                let name = Name(labels);
                let fits = name.wire_len() <= 255;
                return if fits {
                    Ok((name, end.unwrap_or(at + 1)))
                } else {
                    Err("a name over 255 octets".into())
                };
            }
            1..=63 => {
                let label = wire.get(at + 1..at + 1 + usize::from(length)).ok_or("a label passes the end")?;
                labels.push(label.to_ascii_lowercase());
                at += 1 + usize::from(length);
            }
            192.. => {
                let low = *wire.get(at + 1).ok_or("a pointer passes the end")?;
                end.get_or_insert(at + 2);
                at = usize::from(length & 0x3f) << 8 | usize::from(low);
                if at >= earliest {
                    return Err(format!("a pointer to {at} that does not point back"));
                }
                earliest = at;
            }
            _ => return Err(format!("a label of type {length:#x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_keeps_its_case_pattern_and_its_edns_size() {
        let query = Query {
            name: Name::from_text("ab.c"),
            rtype: 28,
            edns: Some(1232),
            dnssec_ok: false,
            case: 0b10010,
        };
        let expected =
            b"\x12\x34\0\0\0\x01\0\0\0\0\0\x01\x02Ab\x01C\0\0\x1c\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
        assert_eq!(query.to_wire(0x1234), expected);
    }

    #[test]
    fn names_in_rdata_are_read_without_compression_and_case() {
        let wire = b"\0\x07\x84\0\0\x01\0\x01\0\0\0\0\x01A\0\0\x0f\0\x01\xc0\x0c\0\x0f\0\x01\0\0\0\x3c\0\x06\0\x0a\x01M\xc0\x0c";
        let answer = Answer::from_wire(wire).unwrap();
        assert!(answer.is_authoritative() && !answer.is_truncated());
        let owner = Name::from_text("a");
        let rdata = b"\0\x0a\x01m\x01a\0".to_vec();
        assert_eq!(answer.answer, [Record { owner, rtype: 15, class: 1, ttl: 60, rdata }]);
    }

    #[test]
    fn a_pointer_to_itself_is_an_error() {
        assert!(read_name(b"\xc0\x00", 0).is_err());
        assert!(read_name(b"\x01a\xc0\x00", 0).is_err());
    }

    #[test]
    fn octets_after_the_last_record_are_an_error() {
        assert!(Answer::from_wire(b"\0\0\x80\0\0\0\0\0\0\0\0\0\0").is_err());
    }
}
