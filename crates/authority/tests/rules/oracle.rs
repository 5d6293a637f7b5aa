//! hickory-proto as the judge of octets: every answer parses with it, and says what our own reader says.

use crate::server::{Server, query_of};
use hickory_proto::op::Message;
use hickory_proto::rr::Name as OtherName;
use proptest::prelude::*;
use weir_authority::Transport;
use weir_testkit::generate::generate;
use weir_testkit::message::{Answer, Name};
use weir_testkit::random::Random;

const TYPES: [u16; 12] = [1, 2, 5, 6, 15, 16, 28, 33, 39, 43, 46, 255];

/// A name of the zone, or one near it.
fn name_for(text: &str, origin: &Name, random: &mut Random) -> Name {
    let owners: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let owner = random.pick(&owners);
    // Escaped names are left to other tests.
    let name = if owner.contains('\\') { origin.clone() } else { Name::from_text(owner) };
    let name = if random.one_in(3) { name.child(b"x") } else { name };
    if name.fits() { name } else { origin.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn answers_parse_with_another_reader_and_keep_their_room(number in 0usize..5000, seed: u64) {
        let zone = generate(9, number);
        let origin = zone.origin.to_string();
        let server = Server::of(&[(&origin, &zone.text)]);
        let mut random = Random::new(seed);
        for _ in 0..40 {
            let name = name_for(&zone.text, &zone.origin, &mut random);
            let asked = query_of(name, *random.pick(&TYPES));
            let asked = if random.one_in(2) { asked.edns(1232).dnssec_ok() } else { asked };
            let packet = asked.packet();
            let room = random.below(2000);
            for transport in [Transport::Udp, Transport::Tcp] {
                let Some(octets) = server.octets(&packet, transport, room) else { continue };
                prop_assert!(octets.len() <= room);
                let ours = Answer::from_wire(&octets).unwrap();
                let theirs = Message::from_vec(&octets).unwrap();
                prop_assert_eq!(theirs.answers.len(), ours.answer.len());
                prop_assert_eq!(theirs.authorities.len(), ours.authority.len());
                prop_assert_eq!(theirs.additionals.len(), ours.additional.len());
                let owners = theirs.answers.iter().chain(&theirs.authorities).chain(&theirs.additionals);
                let own = ours.answer.iter().chain(&ours.authority).chain(&ours.additional);
                for (theirs, ours) in owners.zip(own) {
                    let labels: Vec<&[u8]> = ours.owner.0.iter().map(Vec::as_slice).collect();
                    prop_assert_eq!(&theirs.name.to_lowercase(), &OtherName::from_labels(labels).unwrap().to_lowercase());
                    prop_assert_eq!(theirs.ttl, ours.ttl);
                    prop_assert_eq!(u16::from(theirs.record_type()), ours.rtype);
                }
            }
        }
    }
}
