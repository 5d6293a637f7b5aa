//! Answers one kind of query a number of times: what `benchmarks/instructions` counts the instructions of.
//!
//! `instructions KIND TIMES`, where KIND is hit, nxdomain, referral, nodata or alias.

use std::sync::Arc;
use weir_authority::{
    Context, Policy, Received, Scratch, Transport, ZoneSet, ZoneSetBuilder, ZoneState, build, plan, receive,
};
use weir_wire::name::{FoldedBuf, HashSeed, Name, NameBuf};
use weir_wire::query;
use weir_wire::rtype::{Class, Rtype};
use weir_zone::ZoneBuilder;

const SEED: HashSeed = HashSeed::fixed();

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).expect("the names here are well formed")
}

fn zone() -> ZoneSet {
    let origin = FoldedBuf::from_text("example").expect("a name");
    let mut builder = ZoneBuilder::new(origin.folded(), Class::IN, SEED);
    let mut add = |owner: &str, rtype: Rtype, rdata: &[u8]| {
        builder.add(name(owner).name(), rtype, 3600, rdata, 0).expect("owners lie in the zone");
    };
    let host = |text: &str| name(text).name().octets().to_vec();
    let soa = [&host("ns.example")[..], &host("mail.example"), &[0; 20]].concat();
    add("example", Rtype::SOA, &soa);
    add("example", Rtype::NS, &host("ns.example"));
    add("ns.example", Rtype::A, &[192, 0, 2, 1]);
    for number in 0..100_000u32 {
        add(&format!("h{number}.example"), Rtype::A, &number.to_be_bytes());
    }
    for number in 0..1000 {
        let cut = format!("cut{number}.example");
        for server in ["ns1", "ns2"] {
            add(&cut, Rtype::NS, &host(&format!("{server}.{cut}")));
            add(&format!("{server}.{cut}"), Rtype::A, &[192, 0, 2, 2]);
        }
        add(&format!("alias{number}.example"), Rtype::CNAME, &host(&format!("h{number}.example")));
    }
    let (zone, _) = builder.finish().expect("the zone is whole");
    let mut set = ZoneSetBuilder::new(SEED);
    set.add(origin, ZoneState::Ready(Arc::new(zone)));
    set.finish(1)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let times: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (asked, qtype) = match kind.as_str() {
        "hit" => ("h4711.example", Rtype::A),
        "nxdomain" => ("nothing.example", Rtype::A),
        "referral" => ("www.cut7.example", Rtype::A),
        "nodata" => ("h4711.example", Rtype::TXT),
        "alias" => ("alias7.example", Rtype::A),
        _ => panic!("usage: instructions hit|nxdomain|referral|nodata|alias TIMES"),
    };
    let zones = zone();
    let mut packet = [0; 512];
    let len = query::write(&mut packet, 1, name(asked).name(), qtype, Some(1232)).expect("it fits");
    let packet = &packet[..len];
    let policy = Policy::default();
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    let context = Context { transport: Transport::Udp, policy: &policy, client, now: 0 };
    let mut scratch = Scratch::new(SEED);
    let mut out = [0; 4096];
    let mut n_octets = 0;
    for _ in 0..times {
        if let Received::Query(query) = receive(packet, &context, &mut scratch, &mut out) {
            let plan = plan(&query, &context, &scratch, &zones);
            let answered = build(&plan, &query, &context, &mut scratch, &mut out);
            n_octets += answered.map_or(0, |answered| answered.len);
        }
    }
    println!("{n_octets}");
}
