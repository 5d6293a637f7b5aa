//! Signed zones: the examples of the repository with NSEC and NSEC3, and hand-made chains.

use crate::server::{Server, query, query_of, rcode, rtype, types};
use weir_testkit::message::{Answer, Name, Record};

const NSEC_ZONE: &str = include_str!("../../../../zones/example.net.zone");
const NSEC3_ZONE: &str = include_str!("../../../../zones/corpus/nsec3.txt");

fn each() -> [Server; 2] {
    [NSEC_ZONE, NSEC3_ZONE].map(|text| Server::of(&[("example.net", text)]))
}

/// Whether each RRset of a section, NS of referrals and glue aside, comes with a signature.
fn is_signed(records: &[Record]) -> bool {
    records.iter().filter(|r| r.rtype != rtype::RRSIG).all(|record| {
        let covers = |r: &Record| r.rtype == rtype::RRSIG && r.rdata[..2] == record.rtype.to_be_bytes();
        records.iter().any(|r| r.owner == record.owner && covers(r))
    })
}

fn n_of(answer: &Answer, rtype: u16) -> usize {
    answer.authority.iter().filter(|r| r.rtype == rtype).count()
}

#[test]
fn signatures_go_with_their_rrsets_when_asked_for_and_only_then() {
    for server in each() {
        let answer = server.ask_dnssec("example.net", rtype::SOA);
        assert!(is_signed(&answer.answer) && !answer.answer.is_empty());
        let answer = server.tcp(&query("example.net", rtype::SOA).edns(1232).packet());
        assert_eq!(types(&answer.answer), [rtype::SOA], "RFC 4035 section 3.1");
        let answer = server.tcp(&query("nothing.example.net", rtype::A).edns(1232).packet());
        assert_eq!(types(&answer.authority), [rtype::SOA]);
    }
}

#[test]
fn denials_are_proven_and_signed() {
    for (server, proof, n_proofs) in
        each().into_iter().zip([rtype::NSEC, rtype::NSEC3]).zip([2, 3]).map(|((s, p), n)| (s, p, n))
    {
        let answer = server.ask_dnssec("nothing.at.all.example.net", rtype::A);
        assert_eq!(answer.rcode(), rcode::NXDOMAIN);
        assert!(is_signed(&answer.authority));
        assert!((1..=n_proofs).contains(&n_of(&answer, proof)), "{answer:?}");
        let answer = server.ask_dnssec("example.net", 65_400);
        assert_eq!((answer.rcode(), n_of(&answer, proof)), (rcode::NOERROR, 1));
        assert!(is_signed(&answer.authority));
    }
}

#[test]
fn a_signed_answer_is_whole_at_every_size_or_cut_between_rrsets_with_tc() {
    for server in each() {
        for (name, rtype) in [
            ("example.net", 48),
            ("example.net", rtype::MX),
            ("www.example.net", rtype::AAAA),
            ("x.customers.example.net", rtype::MX),
            ("x.customers.example.net", rtype::AAAA),
            ("x.old.example.net", rtype::A),
            ("a.very.deep.example.net", rtype::A),
            ("nothing.at.all.example.net", rtype::A),
            ("x.insecure.example.net", rtype::A),
            ("x.secure.example.net", rtype::A),
            ("example.net", rtype::RRSIG),
        ] {
            let whole = server.ask_dnssec(name, rtype);
            for size in 512..=1232 {
                let answer = server.udp(&query(name, rtype).edns(size).dnssec_ok().packet());
                assert!(answer.octets <= usize::from(size));
                let sections = [(&answer.answer, &whole.answer), (&answer.authority, &whole.authority)];
                for (given, all) in sections {
                    assert!(all.starts_with(given), "{name} {rtype} in {size}: {answer:?}");
                    let is_cut_short = given.len() < all.len();
                    assert!(!is_cut_short || answer.is_truncated(), "{name} {rtype} in {size}: {answer:?}");
                    let ends_between = all.get(given.len()).is_none_or(|next| next.rtype != rtype::RRSIG);
                    assert!(ends_between || rtype == rtype::RRSIG, "{name} {rtype} in {size}: no signature");
                }
                assert!(
                    !answer.is_truncated() || whole.octets > usize::from(size),
                    "{name} {rtype} in {size}"
                );
            }
        }
    }
}

#[test]
fn flags_of_validation_are_cleared() {
    for server in each() {
        let answer = server.udp(&query("example.net", rtype::SOA).flags(0x0130).dnssec_ok().packet());
        // RD is copied; CD (RFC 4035 section 3.1.6) and AD (RFC 6840 section 5.8) are not.
        assert_eq!(answer.flags & 0x0130, 0x0100);
    }
}

#[test]
fn all_signatures_of_a_name_answer_a_question_for_them() {
    for server in each() {
        let answer = server.tcp(&query("example.net", rtype::RRSIG).packet());
        assert!(answer.answer.len() > 2 && answer.answer.iter().all(|r| r.rtype == rtype::RRSIG));
    }
}

#[test]
fn the_owner_of_an_nsec3_record_is_no_name_of_the_zone() {
    let [_, server] = each();
    let denial = server.ask_dnssec("nothing.example.net", rtype::A);
    let owner = &denial.authority.iter().find(|r| r.rtype == rtype::NSEC3).unwrap().owner;
    for asked in [owner.clone(), owner.child(b"below")] {
        for rtype in [rtype::NSEC3, rtype::A, rtype::ANY] {
            let answer = server.udp(&query_of(asked.clone(), rtype).dnssec_ok().packet());
            assert_eq!(answer.rcode(), rcode::NXDOMAIN, "{asked} (RFC 5155 section 7.2.8)");
        }
    }
}

const HEAD: &str = "$TTL 60\n@ SOA ns1 host 1 2 3 4 60\n@ NS ns1\n";

/// A zone whose NSEC3 chain has one record only: its span is everything.
fn with_one_nsec3(more: &str) -> Server {
    // The hash of `test` with no salt and no iteration is found by asking which record covers it: any will do here.
    let text = format!(
        "{HEAD}{more}@ NSEC3PARAM 1 0 0 -\n\
         0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 0 0 - 0p9mhaveqvm6t7vbl5lop2u3t2rp3ton A RRSIG\n\
         0p9mhaveqvm6t7vbl5lop2u3t2rp3tom RRSIG NSEC3 13 2 60 20800101000000 20260101000000 1 test. AAAA\n"
    );
    Server::of(&[("test", &text)])
}

#[test]
fn a_broken_chain_gives_what_it_has_and_no_panic() {
    let server = with_one_nsec3("www A 192.0.2.1\n*.w A 192.0.2.2\ncut NS ns.cut\nns.cut A 192.0.2.3\n");
    for name in ["test", "www.test", "x.w.test", "nothing.test", "x.cut.test", "cut.test", "w.test"] {
        for rtype in [rtype::A, rtype::DS, rtype::TXT, rtype::NSEC3] {
            let answer = server.ask_dnssec(name, rtype);
            assert!(n_of(&answer, rtype::NSEC3) <= 3, "{name}");
        }
    }
}

#[test]
fn a_wildcard_that_opted_out_is_denied_by_the_span_that_it_lies_in() {
    // The hashes of names that have a record; that of `x.test` lies between those of `d.test` and `y.test`, that of
    // `*.test`, which only leads to a delegation, behind all.
    let (apex, a) = ("5u2i2h5co0ebb4r9hipbku7pea6ggpsv", "egsha6ge3ji35edojbk05a41a4e2jkr9");
    let (d, y) = ("gg0g3h1qsrb66nkbtbbjdhtgru03e9ov", "osffmmi4jpr2o5bd2995mtg9gd9st445");
    let text = format!(
        "{HEAD}@ NSEC3PARAM 1 0 0 -\na TXT a\nd TXT d\ny TXT y\nb.* NS ns.elsewhere.\n\
         {apex} NSEC3 1 1 0 - {a} NS SOA NSEC3PARAM\n{a} NSEC3 1 1 0 - {d} TXT\n\
         {d} NSEC3 1 1 0 - {y} TXT\n{y} NSEC3 1 1 0 - {apex} TXT\n"
    );
    let server = Server::of(&[("test", &text)]);
    let answer = server.ask_dnssec("x.test", rtype::A);
    assert_eq!((answer.rcode(), n_of(&answer, rtype::SOA)), (rcode::NOERROR, 1));
    let mut owners: Vec<String> =
        answer.authority.iter().filter(|r| r.rtype == rtype::NSEC3).map(|r| r.owner.to_string()).collect();
    owners.sort();
    // The closest encloser is `test`, the next closer name lies between `d` and `y`, the wildcard behind `y`.
    assert_eq!(owners, [apex, d, y].map(|hash| format!("{hash}.test.")), "RFC 5155 sections 7.2.5 and 8.7");
}

#[test]
fn names_of_255_octets_are_hashed_and_denied() {
    let mut longest = Name::from_text("test");
    while longest.wire_len() < 255 {
        let room = 255 - longest.wire_len();
        longest = longest.child(&vec![b'l'; if room == 65 { 62 } else { (room - 1).min(63) }]);
    }
    let server = with_one_nsec3(&format!("{longest} A 192.0.2.1\n"));
    assert_eq!(server.udp(&query_of(longest.clone(), rtype::A).dnssec_ok().packet()).answer.len(), 1);
    let answer = server.udp(&query_of(longest.clone(), rtype::TXT).dnssec_ok().packet());
    assert_eq!(answer.rcode(), rcode::NOERROR);
    let mut other = longest.clone();
    other.0[0][0] = b'm';
    let answer = server.udp(&query_of(other, rtype::A).dnssec_ok().packet());
    assert_eq!(
        answer.rcode(),
        rcode::NXDOMAIN,
        "the wildcard at its parent would be too long a name for some"
    );
}

#[test]
fn the_nsec_record_at_a_cut_stays_behind_the_referral() {
    let text =
        format!("{HEAD}cut NS ns.cut\nns.cut A 192.0.2.1\n@ NSEC cut SOA NS NSEC\ncut NSEC @ NS NSEC\n");
    let server = Server::of(&[("test", &text)]);
    let answer = server.ask("cut.test", rtype::NSEC);
    assert!(
        !answer.is_authoritative() && answer.answer.is_empty(),
        "RFC 4035 section 3.1.4.1 excepts DS alone"
    );
    let answer = server.ask_dnssec("x.cut.test", rtype::A);
    assert_eq!(n_of(&answer, rtype::NSEC), 1, "it proves that the cut has no DS (RFC 4035 section 3.1.4)");
}
