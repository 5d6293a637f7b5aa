//! Images placed anywhere in an answer say the same as their RRsets, by the word of a decoder that shares no code
//! with the builder.

use proptest::prelude::*;
use weir_wire::answer::{Answer, Section, Subject};
use weir_wire::image::{ImageMaker, Owner};
use weir_wire::name::{FoldedBuf, HashSeed, MAX_NAME_LEN, NameBuf, QueryName};
use weir_wire::query::{self, Query};
use weir_wire::rtype::{Class, Rtype};

/// A record as a reader of the message sees it: names written out, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    owner: Vec<u8>,
    rtype: u16,
    ttl: u32,
    rdata: Vec<u8>,
}

/// The naive twin: reads the name at `at`; yields it in lower case and the position behind it.
fn read_name(message: &[u8], at: usize) -> (Vec<u8>, usize) {
    let mut name = Vec::new();
    let mut at = at;
    let mut end = None;
    for _ in 0..200 {
        let octet = message[at];
        if octet >= 0xc0 {
            let target = usize::from(u16::from_be_bytes([octet & 0x3f, message[at + 1]]));
            assert!(target < at, "a pointer leads forward");
            end = end.or(Some(at + 2));
            at = target;
        } else {
            let label = &message[at..=at + usize::from(octet)];
            name.extend(label.iter().map(u8::to_ascii_lowercase));
            at += label.len();
            if octet == 0 {
                return (name, end.unwrap_or(at));
            }
        }
    }
    panic!("a name has no end");
}

fn read_record(message: &[u8], at: usize) -> (Seen, usize) {
    let (owner, at) = read_name(message, at);
    let rtype = u16::from_be_bytes([message[at], message[at + 1]]);
    let ttl = u32::from_be_bytes(message[at + 4..at + 8].try_into().unwrap());
    let start = at + 10;
    let end = start + usize::from(u16::from_be_bytes([message[at + 8], message[at + 9]]));
    let rdata = match Rtype(rtype) {
        Rtype::NS | Rtype::CNAME => {
            let (name, name_end) = read_name(message, start);
            assert_eq!(name_end, end);
            name
        }
        Rtype::MX => [&message[start..start + 2], &read_name(message, start + 2).0].concat(),
        _ => message[start..end].to_vec(),
    };
    (Seen { owner, rtype, ttl, rdata }, end)
}

/// All records of a message behind its question.
fn read_records(message: &[u8]) -> Vec<Seen> {
    let count = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    assert_eq!(count(4), 1);
    let (_, mut at) = read_name(message, 12);
    at += 4;
    let mut records = Vec::new();
    for _ in 0..count(6) + count(8) + count(10) {
        let (record, end) = read_record(message, at);
        records.push(record);
        at = end;
    }
    assert_eq!(at, message.len(), "octets follow the last record");
    records
}

/// Names of few labels from few letters, so that suffixes are often shared.
fn any_name() -> impl Strategy<Value = NameBuf> {
    proptest::collection::vec("[abAB]{1,2}", 0..4).prop_map(|labels| {
        NameBuf::from_text(
            format!("{}.zone.", labels.join(".")).trim_matches('.').as_bytes(),
            Some(weir_wire::name::Name::ROOT),
        )
        .unwrap()
    })
}

#[derive(Debug, Clone)]
struct Records {
    rtype: Rtype,
    rdata: Vec<Vec<u8>>,
}

fn any_records() -> impl Strategy<Value = Records> {
    let names = proptest::collection::vec(any_name(), 1..6);
    (names, 0..4).prop_map(|(names, kind)| match kind {
        0 => Records { rtype: Rtype::NS, rdata: names.iter().map(|n| n.name().octets().to_vec()).collect() },
        1 => Records {
            rtype: Rtype::MX,
            rdata: names.iter().map(|n| [&[0, 10], n.name().octets()].concat()).collect(),
        },
        2 => Records { rtype: Rtype::CNAME, rdata: vec![names[0].name().octets().to_vec()] },
        _ => Records {
            rtype: Rtype::TXT,
            rdata: names.iter().map(|n| [&[9u8][..], &[b'x'; 9], n.name().octets()].concat()).collect(),
        },
    })
}

/// Makes the image of `records` at `owner` and lists what a reader should see where it is owned by `seen_owner`.
fn make(maker: &mut ImageMaker, owner: &FoldedBuf, records: &Records, seen_owner: &[u8]) -> Vec<Seen> {
    maker.clear();
    let image_owner = Owner { name: owner.folded(), class: Class::IN };
    records
        .rdata
        .iter()
        .map(|rdata| {
            maker.push(image_owner, records.rtype, 300, rdata);
            let rdata = if records.rtype == Rtype::TXT { rdata.clone() } else { rdata.to_ascii_lowercase() };
            Seen { owner: seen_owner.to_ascii_lowercase(), rtype: records.rtype.0, ttl: 300, rdata }
        })
        .collect()
}

fn question(name: &NameBuf) -> Vec<u8> {
    let mut packet = vec![0; 512];
    let len = query::write(&mut packet, 7, name.name(), Rtype::ANY, None).unwrap();
    packet.truncate(len);
    packet
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn images_placed_one_behind_another_say_what_their_rrsets_say(
        name in any_name(),
        answer_records in any_records(),
        authority_records in any_records(),
        skip in 0usize..4,
        fill in prop_oneof![Just(0usize), 16_000usize..16_600],
    ) {
        let seed = HashSeed::fixed();
        let packet = question(&name);
        let mut scratch = QueryName::new(seed);
        let query = Query::parse(&packet, &mut scratch, seed).unwrap();
        let mut out = vec![0; 65_535];
        let mut answer = Answer::begin(&mut out, &query, 65_535, None).unwrap();
        let mut expected = Vec::new();
        let mut maker = ImageMaker::default();
        let whole = Subject::in_question(query.name_len, 0);

        // Something long in front moves what follows to where pointers hardly reach.
        if fill > 0 {
            let filler = Records { rtype: Rtype::TXT, rdata: vec![vec![b'f'; fill]] };
            expected.extend(make(&mut maker, &name.name().fold(), &filler, name.name().octets()));
            answer.push(Section::Answer, maker.image(name.name().fold().folded()), whole).unwrap();
        }
        let owner = name.name().fold();
        expected.extend(make(&mut maker, &owner, &answer_records, name.name().octets()));
        let placed = answer.push(Section::Answer, maker.image(owner.folded()), whole).unwrap();

        // The authority section is owned by an ancestor, or by the name that stands in the first record's RDATA.
        let skip = skip.min(scratch.n_labels());
        let (subject, ancestor) = if answer_records.rtype == Rtype::CNAME {
            let target = answer.rdata_name(placed.rdata_at);
            let mut copy = [0; MAX_NAME_LEN];
            let target_name = answer.name_at(target, &mut copy).fold();
            (target, target_name)
        } else {
            (Subject::in_question(query.name_len, scratch.suffix_start(skip)), scratch.suffix(skip).name().fold())
        };
        expected.extend(make(&mut maker, &ancestor, &authority_records, ancestor.folded().octets()));
        answer.push(Section::Authority, maker.image(ancestor.folded()), subject).unwrap();

        let len = answer.finish();
        prop_assert_eq!(read_records(&out[..len]), expected);
    }

    #[test]
    fn a_wildcards_image_is_owned_by_the_name_it_is_expanded_to(
        encloser in any_name(),
        front in "[ab]{1,9}",
        records in any_records(),
    ) {
        let seed = HashSeed::fixed();
        let wildcard = FoldedBuf::join(b"\x01*", encloser.name().fold().folded()).unwrap();
        let prefix = [&[u8::try_from(front.len()).unwrap()][..], front.as_bytes()].concat();
        let name = NameBuf::join(&prefix, encloser.name()).unwrap();
        let packet = question(&name);
        let mut scratch = QueryName::new(seed);
        let query = Query::parse(&packet, &mut scratch, seed).unwrap();
        let mut out = vec![0; 4096];
        let mut answer = Answer::begin(&mut out, &query, 4096, None).unwrap();
        let mut maker = ImageMaker::default();
        let expected = make(&mut maker, &wildcard, &records, name.name().octets());
        answer.push(Section::Answer, maker.image(wildcard.folded()), Subject::in_question(query.name_len, 0)).unwrap();
        let len = answer.finish();
        prop_assert_eq!(read_records(&out[..len]), expected);
    }

    #[test]
    fn rdata_taken_back_from_an_image_is_what_was_put_in(owner in any_name(), records in any_records()) {
        let folded = owner.name().fold();
        let mut maker = ImageMaker::default();
        make(&mut maker, &folded, &records, folded.folded().octets());
        let image = maker.image(folded.folded());
        let mut taken = Vec::new();
        for (record, put_in) in image.iter().zip(&records.rdata) {
            taken.clear();
            image.rdata(&record, folded.folded().name(), &mut taken);
            prop_assert!(taken.eq_ignore_ascii_case(put_in), "{:?} {:?}", taken, put_in);
        }
    }

    #[test]
    fn an_rrset_that_does_not_fit_leaves_the_answer_as_it_was(
        name in any_name(),
        records in any_records(),
        limit in 30usize..200,
    ) {
        let seed = HashSeed::fixed();
        let packet = question(&name);
        let query = Query::parse(&packet, &mut QueryName::new(seed), seed).unwrap();
        let mut out = vec![0xee; 512];
        let Some(mut answer) = Answer::begin(&mut out, &query, limit, None) else { return Ok(()) };
        let owner = name.name().fold();
        let mut maker = ImageMaker::default();
        let expected = make(&mut maker, &owner, &records, name.name().octets());
        let placed = answer.push(Section::Answer, maker.image(owner.folded()), Subject::in_question(query.name_len, 0));
        let len = answer.finish();
        prop_assert!(len <= limit);
        prop_assert_eq!(read_records(&out[..len]), if placed.is_ok() { expected } else { Vec::new() });
        prop_assert!(out[limit..].iter().all(|octet| *octet == 0xee));
    }
}
