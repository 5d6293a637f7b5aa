//! Answers from the cache are those that would be built; what it keeps is what is asked for again, within its bound.

use proptest::prelude::*;
use weir_authority::{Context, Policy, Received, Scratch, Transport, ZoneSet, build, plan, receive};
use weir_cache::{Asked, Cache, Origin};
use weir_wire::rtype::Rtype;

#[path = "../benches/zones/mod.rs"]
mod zones;
use zones::{Denial, SEED, query};

/// Answers one query: with the cache where it is dear, as the server does, or without.
fn answer(
    packet: &[u8],
    zones: &ZoneSet,
    cache: Option<&mut Cache>,
    generation: u64,
) -> (Vec<u8>, Option<Origin>) {
    let (policy, mut scratch, mut out) = (Policy::default(), Scratch::new(SEED), vec![0; 4096]);
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    let context = Context { transport: Transport::Udp, policy: &policy, client, now: 0 };
    let received = receive(packet, &context, &mut scratch, &mut out);
    let Received::Query(query) = received else { panic!("{received:?}") };
    let plan = plan(&query, &context, &scratch, zones);
    let (answered, origin) = match cache {
        Some(cache) if plan.is_dear(&query) => {
            let asked = Asked { query: &query, context: &context, generation };
            let (answered, origin) = cache.answer(&plan, &asked, &mut scratch, &mut out).unwrap();
            (answered, Some(origin))
        }
        _ => (build(&plan, &query, &context, &mut scratch, &mut out).unwrap(), None),
    };
    out.truncate(answered.len);
    (out, origin)
}

fn origin(packet: &[u8], zones: &ZoneSet, cache: &mut Cache) -> Origin {
    answer(packet, zones, Some(cache), 1).1.expect("the question is a dear one")
}

#[test]
fn an_answer_asked_for_again_is_kept_and_then_found() {
    let zones = zones::zones(1000, Denial::Unsigned);
    let mut cache = Cache::new(1 << 20);
    let packet = query("alias7.example", Rtype::A, false);
    let origins: Vec<_> = (0..4).map(|_| origin(&packet, &zones, &mut cache)).collect();
    assert_eq!(origins, [Origin::Built, Origin::Built, Origin::Front, Origin::Front]);
    assert_eq!(cache.usage().n_entries, 1);
}

#[test]
fn plain_answers_do_not_come_near_the_cache() {
    let zones = zones::zones(1000, Denial::Nsec);
    let mut cache = Cache::new(1 << 20);
    for (asked, qtype, dnssec_ok) in [
        ("h7.example", Rtype::A, true),
        ("nothing.example", Rtype::A, false),
        ("h7.example", Rtype::TXT, false),
        ("www.cut7.example", Rtype::A, false),
    ] {
        let packet = query(asked, qtype, dnssec_ok);
        assert_eq!(answer(&packet, &zones, Some(&mut cache), 1).1, None, "{asked}");
    }
}

#[test]
fn another_generation_is_another_answer_and_takes_the_place_of_the_old_one() {
    let zones = zones::zones(100, Denial::Unsigned);
    let mut cache = Cache::new(1 << 20);
    let packet = query("alias0.example", Rtype::A, false);
    for generation in 1..5 {
        let origins = [0; 3].map(|_| answer(&packet, &zones, Some(&mut cache), generation).1.unwrap());
        assert_eq!(origins, [Origin::Built, Origin::Built, Origin::Front], "generation {generation}");
    }
}

#[test]
fn a_flood_of_names_asked_for_once_evicts_nothing() {
    let zones = zones::zones(1000, Denial::Nsec3);
    let mut cache = Cache::new(4 << 20);
    let popular: Vec<_> =
        (0..50).map(|number| query(&format!("absent{number}.example"), Rtype::A, true)).collect();
    for packet in popular.iter().chain(&popular) {
        origin(packet, &zones, &mut cache);
    }
    let before = cache.usage();
    for number in 0..100_000 {
        origin(&query(&format!("flood{number}.example"), Rtype::A, true), &zones, &mut cache);
    }
    // A name of the flood may look like the one before it: one in some thirty thousand does.
    let after = cache.usage();
    assert!(after.n_evicted <= before.n_evicted + 10, "{before:?} {after:?}");
    let n_found = popular.iter().filter(|packet| origin(packet, &zones, &mut cache) != Origin::Built).count();
    assert!(n_found >= 45, "of 50 popular answers {n_found} are left");
}

#[test]
fn a_cache_stays_within_its_octets_whatever_is_asked() {
    let zones = zones::zones(10_000, Denial::Nsec3);
    for max_octets in [10_000, 100_000, 1 << 20] {
        let mut cache = Cache::new(max_octets);
        for number in 0..10_000 {
            let kind = ["chain", "wide", "absent"][number % 3];
            let packet = query(&format!("{kind}{}.example", number % 300), Rtype::A, true);
            for _ in 0..2 + number % 3 {
                answer(&packet, &zones, Some(&mut cache), 1);
            }
        }
        let usage = cache.usage();
        assert!(usage.n_octets <= max_octets && usage.n_entries > 0, "{usage:?} of {max_octets}");
        assert!(usage.n_evicted > 0, "{usage:?}");
    }
}

#[test]
fn answers_that_share_a_place_are_found_in_the_shard() {
    let zones = zones::zones(10_000, Denial::Nsec);
    // So small that the front has few places.
    let mut cache = Cache::new(128 << 10);
    let packets: Vec<_> =
        (0..30).map(|number| query(&format!("chain{number}.example"), Rtype::A, true)).collect();
    let mut from_shard = 0;
    for packet in packets.iter().cycle().take(3000).flat_map(|packet| [packet; 2]) {
        from_shard += usize::from(origin(packet, &zones, &mut cache) == Origin::Shard);
    }
    assert!(from_shard > 100, "{from_shard} answers of the shard");
}

#[derive(Clone, Debug)]
struct Question {
    name: String,
    qtype: u16,
    dnssec_ok: bool,
    size: u16,
    id: u16,
    flags: [u8; 2],
    is_upper: bool,
}

fn any_question() -> impl Strategy<Value = Question> {
    let name = prop_oneof![
        "(alias|chain|wide|cut|h)[0-3].example",
        "(www.wide|www.cut)[0-1].example",
        "[ab].example",
        "[ab].wild.example",
        Just("example".to_owned())
    ];
    let qtype = prop_oneof![3 => Just(1u16), 1 => Just(28), 1 => Just(2), 1 => Just(5), 1 => Just(43)];
    (
        name,
        qtype,
        any::<bool>(),
        prop_oneof![0u16..1500, Just(1232)],
        any::<u16>(),
        any::<[u8; 2]>(),
        any::<bool>(),
    )
        .prop_map(|(name, qtype, dnssec_ok, size, id, flags, is_upper)| Question {
            name,
            qtype,
            dnssec_ok,
            size,
            id,
            // RD, AD and CD; the others have to be clear in a query.
            flags: [flags[0] & 1, flags[1] & 0x30],
            is_upper,
        })
}

impl Question {
    fn packet(&self) -> Vec<u8> {
        let name = if self.is_upper { self.name.to_uppercase() } else { self.name.clone() };
        let mut packet = query(&name, Rtype(self.qtype), self.dnssec_ok);
        packet[..2].copy_from_slice(&self.id.to_be_bytes());
        packet[2..4].copy_from_slice(&self.flags);
        let size_at = packet.len() - 8;
        packet[size_at..size_at + 2].copy_from_slice(&self.size.to_be_bytes());
        packet
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_is_asked_an_answer_from_the_cache_is_the_one_that_would_be_built(
        questions in proptest::collection::vec(any_question(), 1..100),
        max_octets in 5_000u64..200_000,
        denial in proptest::sample::select(&[Denial::Unsigned, Denial::Nsec, Denial::Nsec3]),
    ) {
        let zones = zones::zones(400, denial);
        let mut cache = Cache::new(max_octets);
        for question in questions.iter().chain(&questions).flat_map(|question| [question; 2]) {
            let packet = question.packet();
            let (cached, origin) = answer(&packet, &zones, Some(&mut cache), 1);
            let (fresh, _) = answer(&packet, &zones, None, 1);
            prop_assert_eq!(cached, fresh, "{:?} from {:?}", question, origin);
        }
    }
}
