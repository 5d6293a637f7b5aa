//! Answers equal those of a naive twin that searches lists of records from the zone's apex down, for random small
//! zones full of cuts, aliases and wildcards.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_authority::cached::{Key, Stored};
use weir_authority::{
    Context, Policy, Received, Scratch, Transport, ZoneSet, ZoneSetBuilder, ZoneState, build, plan, receive,
};
use weir_testkit::message::{Answer, Name, Query, Record};
use weir_wire::name::{FoldedBuf, HashSeed, Name as WireName};
use weir_wire::rtype::{Class, Rtype};
use weir_zone::ZoneBuilder;

const SEED: HashSeed = HashSeed::fixed();
const ORIGIN: &str = "zone";
const SOA_TTL: u32 = 900;
const MINIMUM: u32 = 60;
const TTL: u32 = 300;
const TYPES: [Rtype; 10] = [
    Rtype::SRV,
    Rtype::A,
    Rtype::AAAA,
    Rtype::NS,
    Rtype::CNAME,
    Rtype::DNAME,
    Rtype::MX,
    Rtype::TXT,
    Rtype::DS,
    Rtype::SOA,
];

/// The records of one zone, as the twin holds them.
#[derive(Debug, Clone)]
struct Records(Vec<Record>);

/// What the twin says of an answer.
#[derive(Debug, Default)]
struct Expected {
    rcode: u16,
    is_authoritative: bool,
    answer: BTreeSet<Record>,
    authority: BTreeSet<Record>,
    glue: BTreeSet<Record>,
}

impl Records {
    fn of(&self, owner: &Name, rtype: Rtype) -> Vec<Record> {
        self.0.iter().filter(|r| r.owner == *owner && r.rtype == rtype.0).cloned().collect()
    }

    fn exists(&self, name: &Name) -> bool {
        self.0.iter().any(|record| record.owner.is_at_or_below(name))
    }

    fn negative_soa(&self) -> Vec<Record> {
        let soa = self.of(&Name::from_text(ORIGIN), Rtype::SOA);
        soa.into_iter().map(|record| Record { ttl: MINIMUM.min(SOA_TTL), ..record }).collect()
    }

    /// RFC 1034 section 4.3.2, word for word.
    fn answer(&self, name: &Name, qtype: Rtype) -> Expected {
        let mut expected = Expected::default();
        let mut name = name.clone();
        let mut seen = Vec::new();
        for step in 0.. {
            if !name.is_at_or_below(&Name::from_text(ORIGIN)) || seen.contains(&name) || step == 16 {
                break;
            }
            seen.push(name.clone());
            match self.step(&name, qtype, &mut expected, step == 0) {
                Some(next) => name = next,
                None => break,
            }
        }
        expected
    }

    fn step(&self, name: &Name, qtype: Rtype, expected: &mut Expected, is_first: bool) -> Option<Name> {
        for n_labels in 2..=name.0.len() {
            let ancestor = Name(name.0[name.0.len() - n_labels..].to_vec());
            let ns = self.of(&ancestor, Rtype::NS);
            let is_ds_of_cut = ancestor == *name && qtype == Rtype::DS;
            if !ns.is_empty() && !is_ds_of_cut {
                expected.glue = self.glue(&ancestor, &ns);
                expected.authority.extend(ns);
                return None;
            }
            let dname = self.of(&ancestor, Rtype::DNAME);
            if let ([dname], true) = (&dname[..], ancestor != *name) {
                expected.is_authoritative |= is_first;
                return self.substitute(name, &ancestor, dname, qtype, expected);
            }
            if ancestor == *name && qtype == Rtype::DS && !ns.is_empty() {
                break;
            }
        }
        expected.is_authoritative |= is_first;
        let source = if self.exists(name) {
            name.clone()
        } else {
            let mut encloser = name.parent();
            while !self.exists(&encloser) {
                encloser = encloser.parent();
            }
            encloser.child(b"*")
        };
        if !self.exists(&source) {
            expected.rcode = 3;
            expected.authority.extend(self.negative_soa());
            return None;
        }
        let owned = |record: Record| Record { owner: name.clone(), ..record };
        let found = self.of(&source, qtype);
        let cname = self.of(&source, Rtype::CNAME);
        match (&found[..], &cname[..]) {
            ([], [cname]) => {
                expected.answer.insert(owned(cname.clone()));
                Some(name_in(&cname.rdata))
            }
            ([], _) => {
                expected.authority.extend(self.negative_soa());
                None
            }
            _ => {
                expected.answer.extend(found.into_iter().map(owned));
                None
            }
        }
    }

    fn substitute(
        &self,
        name: &Name,
        owner: &Name,
        dname: &Record,
        qtype: Rtype,
        expected: &mut Expected,
    ) -> Option<Name> {
        expected.answer.insert(dname.clone());
        let mut labels = name.0[..name.0.len() - owner.0.len()].to_vec();
        labels.extend(name_in(&dname.rdata).0);
        let target = Name(labels);
        if !target.fits() {
            expected.rcode = 6;
            return None;
        }
        let rdata = target.to_wire();
        expected.answer.insert(Record { owner: name.clone(), rtype: 5, class: 1, ttl: dname.ttl, rdata });
        (qtype != Rtype::CNAME).then_some(target)
    }

    /// In-domain glue: what a referral must not lack.
    fn glue(&self, cut: &Name, ns: &[Record]) -> BTreeSet<Record> {
        let hosts = ns.iter().map(|record| name_in(&record.rdata)).filter(|host| host.is_at_or_below(cut));
        hosts.flat_map(|host| [self.of(&host, Rtype::A), self.of(&host, Rtype::AAAA)].concat()).collect()
    }
}

fn name_in(rdata: &[u8]) -> Name {
    Name(WireName::from_octets(rdata).unwrap().labels().map(<[u8]>::to_vec).collect())
}

fn record(owner: &Name, rtype: Rtype, rdata: Vec<u8>) -> Record {
    Record { owner: owner.clone(), rtype: rtype.0, class: 1, ttl: TTL, rdata }
}

fn any_owner() -> impl Strategy<Value = Name> {
    proptest::collection::vec(prop_oneof![4 => "[abc]", 1 => Just("*".to_owned())], 1..5)
        .prop_map(|labels| Name::from_text(&format!("{}.{ORIGIN}", labels.join("."))))
}

fn any_target() -> impl Strategy<Value = Name> {
    prop_oneof![
        6 => proptest::collection::vec("[abcd]", 1..4)
            .prop_map(|labels| Name::from_text(&format!("{}.{ORIGIN}", labels.join(".")))),
        1 => Just(Name::from_text(ORIGIN)),
        1 => Just(Name::from_text("elsewhere.example")),
    ]
}

/// The records of one owner: a kind that may stand together.
fn any_owned() -> impl Strategy<Value = Vec<Record>> {
    (any_owner(), 0..9, any_target(), any_target()).prop_map(|(owner, kind, target, other)| {
        let (to_target, to_other) = (target.to_wire(), other.to_wire());
        let address = || record(&owner, Rtype::A, vec![192, 0, 2, 1]);
        // Wildcards at cuts and DNAMEs are undefined (RFC 4592 sections 4.2 and 4.4).
        match if owner.is_wildcard() { kind % 6 } else { kind } {
            0 => vec![address()],
            1 => vec![address(), record(&owner, Rtype::AAAA, vec![7; 16])],
            2 => vec![record(&owner, Rtype::TXT, b"\x04text".to_vec()), address()],
            3 => vec![record(&owner, Rtype::CNAME, to_target)],
            4 => vec![
                record(&owner, Rtype::MX, [&[0, 10], &to_target[..]].concat()),
                record(&owner, Rtype::MX, [&[0, 20], &to_other[..]].concat()),
            ],
            5 => vec![
                record(&owner, Rtype::SRV, [&[0, 1, 0, 1, 0, 53], &to_target[..]].concat()),
                record(&owner, Rtype::SRV, [&[0, 2, 0, 1, 0, 53], &to_other[..]].concat()),
            ],
            6 => vec![record(&owner, Rtype::DNAME, to_target), record(&owner, Rtype::TXT, b"\x01d".to_vec())],
            7 => vec![
                record(&owner, Rtype::NS, to_target),
                record(&owner, Rtype::NS, owner.child(b"a").to_wire()),
            ],
            _ => {
                vec![record(&owner, Rtype::NS, to_target), record(&owner, Rtype::DS, vec![1, 2, 13, 2, 9, 9])]
            }
        }
    })
}

fn any_zone() -> impl Strategy<Value = Records> {
    proptest::collection::vec(any_owned(), 0..14).prop_map(|owned| {
        let apex = Name::from_text(ORIGIN);
        let host = apex.child(b"a").to_wire();
        let numbers = [1u32, 2, 3, 4, MINIMUM].map(u32::to_be_bytes).concat();
        let soa = Record { ttl: SOA_TTL, ..record(&apex, Rtype::SOA, [&host[..], &host, &numbers].concat()) };
        let mut records = vec![soa, record(&apex, Rtype::NS, host)];
        for group in owned {
            // The first group of an owner stays; a later one might not go with it.
            if !records.iter().any(|known| known.owner == group[0].owner) {
                for record in group {
                    if !records.contains(&record) {
                        records.push(record);
                    }
                }
            }
        }
        Records(records)
    })
}

fn zone_set(records: &Records) -> ZoneSet {
    let origin = FoldedBuf::from_text(ORIGIN).unwrap();
    let mut builder = ZoneBuilder::new(origin.folded(), Class::IN, SEED);
    for record in &records.0 {
        let owner = record.owner.to_wire();
        let owner = WireName::from_octets(&owner).unwrap();
        builder.add(owner, Rtype(record.rtype), record.ttl, &record.rdata, 0).unwrap();
    }
    let (zone, _) = builder.finish().unwrap();
    let mut set = ZoneSetBuilder::new(SEED);
    set.add(origin, ZoneState::Ready(Arc::new(zone)));
    set.finish(1)
}

fn context(transport: Transport, policy: &Policy) -> Context<'_> {
    Context { transport, policy, client: std::net::Ipv4Addr::LOCALHOST.into(), now: 0 }
}

fn ask(zones: &ZoneSet, packet: &[u8], transport: Transport) -> Vec<u8> {
    ask_with(&Policy::default(), zones, packet, transport)
}

fn ask_with(policy: &Policy, zones: &ZoneSet, packet: &[u8], transport: Transport) -> Vec<u8> {
    let mut scratch = Scratch::new(SEED);
    let context = context(transport, policy);
    let mut out = vec![0; 65_535];
    let Received::Query(query) = receive(packet, &context, &mut scratch, &mut out) else {
        panic!("not a query");
    };
    let plan = plan(&query, &context, &scratch, zones);
    let answered = build(&plan, &query, &context, &mut scratch, &mut out).unwrap();
    out.truncate(answered.len);
    out
}

/// What would be kept of the answer to a query over UDP.
fn store(zones: &ZoneSet, packet: &[u8]) -> Option<Stored> {
    let policy = Policy::default();
    let context = context(Transport::Udp, &policy);
    let mut scratch = Scratch::new(SEED);
    let mut out = vec![0; 4096];
    let Received::Query(query) = receive(packet, &context, &mut scratch, &mut out) else {
        panic!("not a query");
    };
    let plan = plan(&query, &context, &scratch, zones);
    let answered = build(&plan, &query, &context, &mut scratch, &mut out)?;
    Stored::of(&answered, &query, &scratch, 1, &out)
}

fn any_question() -> impl Strategy<Value = Query> {
    let name = proptest::collection::vec("[abcd*]", 0..6)
        .prop_map(|labels| Name::from_text(&format!("{}.{ORIGIN}", labels.join("."))));
    (name, proptest::sample::select(&TYPES[..]), any::<u64>(), proptest::option::of(0u16..2000))
        .prop_map(|(name, qtype, case, edns)| Query { name, rtype: qtype.0, edns, dnssec_ok: false, case })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_answer_is_what_the_naive_twin_says(
        records in any_zone(),
        questions in proptest::collection::vec(any_question(), 30),
        rotate: bool,
    ) {
        let zones = zone_set(&records);
        let policy = Policy { rotate, ..Policy::default() };
        for question in questions {
            let wire = ask_with(&policy, &zones, &question.to_wire(77), Transport::Tcp);
            let answer = Answer::from_wire(&wire).unwrap();
            let expected = records.answer(&question.name, Rtype(question.rtype));
            let context = format!("{question}\n{answer:?}\n{expected:?}\n{records:?}");
            prop_assert_eq!(&answer.question, &question.question(), "{}", context);
            prop_assert_eq!(answer.rcode(), expected.rcode, "{}", context);
            prop_assert_eq!(answer.is_authoritative(), expected.is_authoritative, "{}", context);
            prop_assert!(!answer.is_truncated());
            let sets = [&answer.answer, &answer.authority, &answer.additional].map(|s| s.iter().cloned().collect::<BTreeSet<_>>());
            let lens = [answer.answer.len(), answer.authority.len(), answer.additional.len()];
            prop_assert_eq!(sets.each_ref().map(BTreeSet::len), lens, "a record stands twice: {}", context);
            let [in_answer, in_authority, in_additional] = sets;
            prop_assert_eq!(&in_answer, &expected.answer, "{}", context);
            prop_assert_eq!(&in_authority, &expected.authority, "{}", context);
            prop_assert!(in_additional.is_superset(&expected.glue), "{}", context);
            prop_assert!(in_additional.iter().all(|r| records.0.contains(r) && matches!(r.rtype, 1 | 28)), "{}", context);
        }
    }

    #[test]
    fn an_answer_over_udp_keeps_its_limit_and_is_whole_or_says_so(
        records in any_zone(),
        questions in proptest::collection::vec(any_question(), 10),
    ) {
        let zones = zone_set(&records);
        for question in questions {
            let packet = question.to_wire(9);
            let (udp, tcp) = (ask(&zones, &packet, Transport::Udp), ask(&zones, &packet, Transport::Tcp));
            let limit = usize::from(question.edns.unwrap_or(512).clamp(512, 1232));
            prop_assert!(udp.len() <= limit);
            let (udp, tcp) = (Answer::from_wire(&udp).unwrap(), Answer::from_wire(&tcp).unwrap());
            if !udp.is_truncated() {
                prop_assert_eq!((udp.answer, udp.authority), (tcp.answer, tcp.authority));
            }
        }
    }

    #[test]
    fn a_replayed_answer_equals_a_fresh_one(
        records in any_zone(),
        first in any_question(),
        again in proptest::collection::vec((any::<u64>(), proptest::option::of(0u16..2000), any::<u16>(), any::<bool>()), 4),
    ) {
        let zones = zone_set(&records);
        let policy = Policy::default();
        let context = context(Transport::Udp, &policy);
        let mut scratch = Scratch::new(SEED);
        let mut out = vec![0; 65_535];
        let packet = first.to_wire(1);
        let Received::Query(query) = receive(&packet, &context, &mut scratch, &mut out) else {
            panic!("not a query");
        };
        let planned = plan(&query, &context, &scratch, &zones);
        let answered = build(&planned, &query, &context, &mut scratch, &mut out).unwrap();
        // Class ANY is answered without AA, and a key holds no class: such answers are not kept.
        let mut in_any_class = packet.clone();
        let class_at = 12 + query.name_len + 2;
        in_any_class[class_at..class_at + 2].copy_from_slice(&Class::ANY.0.to_be_bytes());
        prop_assert!(store(&zones, &in_any_class).is_none());
        let Some(stored) = Stored::of(&answered, &query, &scratch, 1, &out) else { return Ok(()) };
        for (case, edns, id, recursion_desired) in again {
            let mut packet = Query { case, edns, ..first.clone() }.to_wire(id);
            packet[2] |= u8::from(recursion_desired);
            // CD is no part of the key; it is cleared in every answer.
            packet[3] |= 0x10;
            let Received::Query(query) = receive(&packet, &context, &mut scratch, &mut out) else {
                panic!("not a query");
            };
            prop_assert!(stored.is_under(&Key::new(&query, &scratch, 1)));
            prop_assert!(!stored.is_under(&Key::new(&query, &scratch, 2)));
            let fresh = ask(&zones, &packet, Transport::Udp);
            if let Some(replayed) = stored.replay(&planned, &query, &context, &mut scratch, &mut out) {
                prop_assert_eq!(&out[..replayed.len], &fresh[..]);
            }
        }
    }
}
