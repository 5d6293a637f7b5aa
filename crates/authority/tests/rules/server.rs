//! A server without sockets: zones from text, packets in, packets out.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use weir_authority::{
    Context, Policy, Received, Scratch, Transport, ZoneSet, ZoneSetBuilder, ZoneState, build, plan, receive,
};
use weir_testkit::message::{Answer, Name, Query};
use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::load::{LoadOptions, load};
use weir_zone::text::Source;

const SEED: HashSeed = HashSeed::fixed();

/// Types by number, as testkit has it.
pub(crate) mod rtype {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const MX: u16 = 15;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const DNAME: u16 = 39;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const DS: u16 = 43;
    pub(crate) const RRSIG: u16 = 46;
    pub(crate) const NSEC: u16 = 47;
    pub(crate) const NSEC3: u16 = 50;
    pub(crate) const ANY: u16 = 255;
}

/// Response codes (RFC 1035 section 4.1.1, RFC 2136, RFC 6891, RFC 7873).
pub(crate) mod rcode {
    pub(crate) const NOERROR: u16 = 0;
    pub(crate) const FORMERR: u16 = 1;
    pub(crate) const SERVFAIL: u16 = 2;
    pub(crate) const NXDOMAIN: u16 = 3;
    pub(crate) const NOTIMP: u16 = 4;
    pub(crate) const REFUSED: u16 = 5;
    pub(crate) const YXDOMAIN: u16 = 6;
    pub(crate) const NOTAUTH: u16 = 9;
    pub(crate) const BADVERS: u16 = 16;
    pub(crate) const BADCOOKIE: u16 = 23;
}

/// The zone that most tests ask.
pub(crate) const ZONE: &str = "
$TTL 300
@     SOA   ns1 host 7 7200 1800 1209600 60
@     NS    ns1
@     NS    ns2
@     MX    10 mail
ns1   A     192.0.2.1
ns2   A     192.0.2.2
ns2   AAAA  2001:db8::2
mail  A     192.0.2.3
www   A     192.0.2.4
www   A     192.0.2.5
www   A     192.0.2.6
www   TXT   \"a\"
*.w   TXT   \"wild\"
";

/// Zones, settings, and who asks when.
pub(crate) struct Server {
    zones: ZoneSet,
    pub(crate) policy: Policy,
    pub(crate) client: IpAddr,
    pub(crate) now: u32,
}

impl Server {
    /// Of zones by name and text.
    pub(crate) fn of(zones: &[(&str, &str)]) -> Server {
        let ready = zones.iter().map(|(origin, text)| {
            let name = FoldedBuf::from_text(origin).unwrap();
            let options = LoadOptions::default();
            let loaded = load(Source::Octets(origin, text.as_bytes()), name.folded(), SEED, &options);
            let zone = loaded.unwrap_or_else(|found| panic!("{origin}: {found:?}")).zone;
            (*origin, ZoneState::Ready(Arc::new(zone)))
        });
        Server::of_states(ready)
    }

    /// Of zones in any state.
    pub(crate) fn of_states<'n>(zones: impl IntoIterator<Item = (&'n str, ZoneState)>) -> Server {
        let mut set = ZoneSetBuilder::new(SEED);
        for (origin, state) in zones {
            set.add(FoldedBuf::from_text(origin).unwrap(), state);
        }
        let client = Ipv4Addr::LOCALHOST.into();
        Server { zones: set.finish(1), policy: Policy::default(), client, now: 1_000_000 }
    }

    /// Of [`ZONE`] as `test`.
    pub(crate) fn usual() -> Server {
        Server::of(&[("test", ZONE)])
    }

    /// The answer's octets in a buffer of `room` octets, when there is an answer.
    pub(crate) fn octets(&self, packet: &[u8], transport: Transport, room: usize) -> Option<Vec<u8>> {
        let context = Context { transport, policy: &self.policy, client: self.client, now: self.now };
        let mut scratch = Scratch::new(SEED);
        let mut out = vec![0xee; room];
        let answered = match receive(packet, &context, &mut scratch, &mut out) {
            Received::Silence => None,
            Received::Answered(answered) => Some(answered),
            Received::Query(query) => {
                let plan = plan(&query, &context, &scratch, &self.zones);
                build(&plan, &query, &context, &mut scratch, &mut out)
            }
        };
        out.truncate(answered?.len);
        Some(out)
    }

    /// The answer over UDP.
    pub(crate) fn udp(&self, packet: &[u8]) -> Answer {
        self.parsed(packet, Transport::Udp)
    }

    /// The answer over TCP.
    pub(crate) fn tcp(&self, packet: &[u8]) -> Answer {
        self.parsed(packet, Transport::Tcp)
    }

    fn parsed(&self, packet: &[u8], transport: Transport) -> Answer {
        let octets = self.octets(packet, transport, 65_535).expect("there is an answer");
        assert_eq!(octets[..2], packet[..2], "the id is the query's");
        Answer::from_wire(&octets).unwrap()
    }

    /// The answer over UDP to a plain question without EDNS.
    pub(crate) fn ask(&self, name: &str, rtype: u16) -> Answer {
        self.udp(&query(name, rtype).packet())
    }

    /// The answer over TCP to a question with the DO bit.
    pub(crate) fn ask_dnssec(&self, name: &str, rtype: u16) -> Answer {
        self.tcp(&query(name, rtype).dnssec_ok().packet())
    }
}

/// A query to be spelled out.
#[derive(Clone)]
pub(crate) struct Packet {
    question: Vec<u8>,
    flags: u16,
    opt: Option<Opt>,
}

#[derive(Clone)]
struct Opt {
    udp_payload: u16,
    version: u8,
    flags: u16,
    options: Vec<u8>,
}

/// A question in class IN without EDNS.
pub(crate) fn query(name: &str, rtype: u16) -> Packet {
    query_of(Name::from_text(name), rtype)
}

/// The same for a name that text cannot spell.
pub(crate) fn query_of(name: Name, rtype: u16) -> Packet {
    Packet { question: Query::new(name, rtype).question(), flags: 0, opt: None }
}

impl Packet {
    pub(crate) fn class(mut self, class: u16) -> Packet {
        let at = self.question.len() - 2;
        self.question[at..].copy_from_slice(&class.to_be_bytes());
        self
    }

    pub(crate) fn flags(self, flags: u16) -> Packet {
        Packet { flags, ..self }
    }

    pub(crate) fn opcode(self, opcode: u16) -> Packet {
        self.flags(opcode << 11)
    }

    /// With an OPT record.
    pub(crate) fn edns(self, udp_payload: u16) -> Packet {
        Packet { opt: Some(Opt { udp_payload, version: 0, flags: 0, options: Vec::new() }), ..self }
    }

    fn opt(&mut self) -> &mut Opt {
        self.opt.get_or_insert(Opt { udp_payload: 1232, version: 0, flags: 0, options: Vec::new() })
    }

    pub(crate) fn dnssec_ok(mut self) -> Packet {
        self.opt().flags = 0x8000;
        self
    }

    pub(crate) fn opt_flags(mut self, flags: u16) -> Packet {
        self.opt().flags = flags;
        self
    }

    pub(crate) fn version(mut self, version: u8) -> Packet {
        self.opt().version = version;
        self
    }

    pub(crate) fn option(mut self, code: u16, data: &[u8]) -> Packet {
        let len = u16::try_from(data.len()).unwrap();
        self.opt().options.extend([&code.to_be_bytes()[..], &len.to_be_bytes(), data].concat());
        self
    }

    /// The OPT record alone.
    pub(crate) fn opt_record(&self) -> Vec<u8> {
        let Some(opt) = &self.opt else { return Vec::new() };
        let [payload1, payload0] = opt.udp_payload.to_be_bytes();
        let [flags1, flags0] = opt.flags.to_be_bytes();
        let [len1, len0] = u16::try_from(opt.options.len()).unwrap().to_be_bytes();
        let head = [0, 0, 41, payload1, payload0, 0, opt.version, flags1, flags0, len1, len0];
        [&head[..], &opt.options].concat()
    }

    pub(crate) fn packet(&self) -> Vec<u8> {
        self.with_counts([1, 0, 0, u8::from(self.opt.is_some())], &self.opt_record())
    }

    /// With other counts, and other records behind the question.
    pub(crate) fn with_counts(&self, counts: [u8; 4], records: &[u8]) -> Vec<u8> {
        let [flags1, flags0] = self.flags.to_be_bytes();
        let [questions, answers, authorities, additionals] = counts;
        let header = [0x12, 0x34, flags1, flags0, 0, questions, 0, answers, 0, authorities, 0, additionals];
        let question = if questions == 0 { &[][..] } else { &self.question };
        [&header, question, records].concat()
    }
}

/// The data of an option of an answer.
pub(crate) fn option(answer: &Answer, wanted: u16) -> Option<Vec<u8>> {
    let mut rest = &answer.opt.as_ref()?.rdata[..];
    while let [code1, code0, len1, len0, after @ ..] = rest {
        let (data, more) = after.split_at(usize::from(u16::from_be_bytes([*len1, *len0])));
        if u16::from_be_bytes([*code1, *code0]) == wanted {
            return Some(data.to_vec());
        }
        rest = more;
    }
    None
}

/// The info code of an answer's extended error (RFC 8914 section 2).
pub(crate) fn extended_error(answer: &Answer) -> Option<u16> {
    option(answer, 15).and_then(|data| data.first_chunk::<2>().map(|code| u16::from_be_bytes(*code)))
}

/// The last octet of each A record of a section, in order.
pub(crate) fn addresses(records: &[weir_testkit::message::Record]) -> Vec<u8> {
    records.iter().filter(|r| r.rtype == rtype::A).filter_map(|r| r.rdata.last().copied()).collect()
}

/// The types of a section's records, in order.
pub(crate) fn types(records: &[weir_testkit::message::Record]) -> Vec<u16> {
    records.iter().map(|r| r.rtype).collect()
}
