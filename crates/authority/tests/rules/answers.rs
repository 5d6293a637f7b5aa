//! Positive and negative answers, their additional records, wildcards, ANY, the order of records.

use crate::server::{Server, ZONE, addresses, query, rcode, rtype, types};
use weir_testkit::message::Name;

#[test]
fn positive_answers_are_minimal_unless_told_otherwise() {
    let mut server = Server::usual();
    let answer = server.ask("www.test", rtype::A);
    assert!(answer.is_authoritative() && answer.authority.is_empty() && answer.additional.is_empty());
    server.policy.minimal_responses = false;
    let answer = server.ask("www.test", rtype::A);
    assert_eq!(types(&answer.authority), [rtype::NS, rtype::NS]);
    assert_eq!(types(&answer.additional), [rtype::A, rtype::A, rtype::AAAA], "the servers' addresses");
    let answer = server.ask("test", rtype::NS);
    assert!(answer.authority.is_empty(), "the answer holds them already");
}

#[test]
fn hosts_that_records_name_come_with_their_addresses() {
    let more = "srv SRV 1 1 53 www\nhttps HTTPS 1 mail alpn=h2\nsvcb SVCB 1 mail\nalias-form HTTPS 0 mail\n\
                naptr NAPTR 1 1 \"s\" \"x\" \"\" www\n";
    let server = Server::of(&[("test", &format!("{ZONE}{more}"))]);
    for (name, rtype, expected) in [
        ("test", rtype::MX, &[3][..]),
        ("test", rtype::NS, &[1, 2]),
        ("srv.test", rtype::SRV, &[4, 5, 6]),
        ("https.test", 65, &[3]),
        ("svcb.test", 64, &[3]),
        ("alias-form.test", 65, &[3]),
        ("naptr.test", 35, &[4, 5, 6]),
    ] {
        assert_eq!(addresses(&server.ask(name, rtype).additional), expected, "{name}");
    }
}

#[test]
fn services_come_with_what_their_targets_have() {
    let more = "self HTTPS 1 . alpn=h2\nself A 192.0.2.77\nnamed HTTPS 1 .\nnamed HTTPS 2 named\nnamed A 192.0.2.78\n\
                alias HTTPS 0 self\ncircle HTTPS 0 circle\ncircle A 192.0.2.79\nnone HTTPS 0 .\nnone A 192.0.2.80\n\
                other SVCB 0 self\n*.wild SVCB 1 .\n*.wild A 192.0.2.81\nto CNAME self\n";
    let server = Server::of(&[("test", &format!("{ZONE}{more}"))]);
    for (name, rtype, expected_types, expected_addresses) in [
        // RFC 9460 section 2.5.2: in service form the root stands for the owner, in alias form for no service.
        ("self.test", 65, &[rtype::A][..], &[77][..]),
        ("to.test", 65, &[rtype::A], &[77]),
        ("none.test", 65, &[], &[]),
        ("named.test", 65, &[rtype::A], &[78]),
        ("a.wild.test", 64, &[rtype::A], &[81]),
        // Section 4.1: SVCB-compatible records of the target, which are of the type asked for.
        ("alias.test", 65, &[65, rtype::A], &[77]),
        ("other.test", 64, &[rtype::A], &[77]),
        ("circle.test", 65, &[rtype::A], &[79]),
    ] {
        let answer = server.ask(name, rtype);
        assert_eq!(types(&answer.additional), expected_types, "{name}");
        assert_eq!(addresses(&answer.additional), expected_addresses, "{name}");
    }
}

#[test]
fn a_denial_carries_the_soa_with_the_lesser_ttl() {
    let server = Server::usual();
    for (name, code) in
        [("nothing.test", rcode::NXDOMAIN), ("ns1.test", rcode::NOERROR), ("w.test", rcode::NOERROR)]
    {
        let answer = server.ask(name, rtype::MX);
        assert_eq!((answer.rcode(), types(&answer.authority)), (code, vec![rtype::SOA]), "{name}");
        assert_eq!(answer.authority[0].ttl, 60, "RFC 2308 section 3");
        assert!(answer.is_authoritative());
    }
}

#[test]
fn a_wildcard_makes_names_below_its_parent_that_do_not_exist() {
    let server = Server::of(&[("test", &format!("{ZONE}deep.ent.w A 192.0.2.9\n*.x.*.w TXT \"inner\"\n"))]);
    for (name, code, n_records) in [
        ("a.w.test", rcode::NOERROR, 1),
        ("a.b.w.test", rcode::NOERROR, 1),
        ("*.w.test", rcode::NOERROR, 1),
        ("**.w.test", rcode::NOERROR, 1),
        // An empty non-terminal exists, and so does what blocks the wildcard for the names below it.
        ("ent.w.test", rcode::NOERROR, 0),
        ("a.ent.w.test", rcode::NXDOMAIN, 0),
        // RFC 4592 section 2.1.3: the asterisk inside of a name is a label like any other.
        ("a.x.*.w.test", rcode::NOERROR, 1),
        ("a.*.w.test", rcode::NXDOMAIN, 0),
        ("w.test", rcode::NOERROR, 0),
    ] {
        let answer = server.ask(name, rtype::TXT);
        assert_eq!((answer.rcode(), answer.answer.len()), (code, n_records), "{name}");
        assert!(answer.answer.iter().all(|r| r.owner == Name::from_text(name)), "{name} is the owner");
    }
}

#[test]
fn a_wildcard_that_owns_nothing_makes_names_that_own_nothing() {
    let server = Server::of(&[("test", &format!("{ZONE}a.*.e TXT \"x\"\n"))]);
    let answer = server.ask("b.e.test", rtype::TXT);
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, 0), "RFC 4592 section 4.7");
}

#[test]
fn undefined_wildcards_are_answered_as_what_their_names_say() {
    let text = format!("{ZONE}*.n NS ns.elsewhere.\n*.d DNAME elsewhere.\n");
    let server = Server::of(&[("test", &text)]);
    // RFC 4592 section 4.2: a cut at the asterisk's own name; the names that it would make are no cuts.
    let answer = server.ask("a.*.n.test", rtype::A);
    assert_eq!((answer.is_authoritative(), types(&answer.authority)), (false, vec![rtype::NS]));
    // RFC 4592 section 4.4: a DNAME at the asterisk's own name; RFC 6672 section 3.3 discourages it.
    let answer = server.ask("a.*.d.test", rtype::A);
    assert_eq!(types(&answer.answer), [rtype::DNAME, rtype::CNAME]);
}

#[test]
fn any_gets_one_rrset_over_udp_and_all_over_tcp() {
    let mut server = Server::usual();
    let packet = query("www.test", rtype::ANY).packet();
    assert_eq!(types(&server.udp(&packet).answer), [rtype::A; 3], "RFC 8482 section 4.1");
    let all = [rtype::A, rtype::A, rtype::A, rtype::TXT];
    assert_eq!(types(&server.tcp(&packet).answer), all);
    server.policy.minimal_any = false;
    assert_eq!(types(&server.udp(&packet).answer), all);
    assert_eq!(server.ask("nothing.test", rtype::ANY).rcode(), rcode::NXDOMAIN);
    assert_eq!(server.ask("w.test", rtype::ANY).authority.len(), 1, "an empty non-terminal has no data");
}

#[test]
fn records_keep_the_order_of_the_zone_unless_they_rotate() {
    let mut server = Server::usual();
    let ask = |server: &Server, id: u16| {
        let mut packet = query("www.test", rtype::A).packet();
        packet[..2].copy_from_slice(&id.to_be_bytes());
        addresses(&server.udp(&packet).answer)
    };
    for id in 0..6 {
        assert_eq!(ask(&server, id), [4, 5, 6]);
    }
    server.policy.rotate = true;
    let orders: std::collections::BTreeSet<Vec<u8>> = (0..6).map(|id| ask(&server, id)).collect();
    assert_eq!(orders, [vec![4, 5, 6], vec![5, 6, 4], vec![6, 4, 5]].into());
}

#[test]
fn rdata_that_lies_about_its_inner_lengths_is_refused_when_loaded() {
    use weir_wire::name::{FoldedBuf, HashSeed};
    use weir_zone::load::{LoadOptions, load};
    use weir_zone::text::Source;
    for line in [
        "x TYPE64 \\# 10 0001 00 0001 00ff 0268 32", // SVCB: a parameter of 255 octets that has 3
        "x TYPE64 \\# 6 0001 3f61 0000",             // SVCB: a target that passes the end
        "x TYPE42 \\# 5 0001 18 84 c0",              // APL: an address of 4 octets that has 1
        "x TYPE42 \\# 3 0001 18",                    // APL: cut off
        "x TYPE16 \\# 3 ff 6162",                    // TXT: a string of 255 octets that has 2
        "x TYPE46 \\# 4 0001 0d 01",                 // RRSIG: cut off
    ] {
        let text = format!("{ZONE}{line}\n");
        let origin = FoldedBuf::from_text("test").unwrap();
        let source = Source::Octets("test", text.as_bytes());
        let loaded = load(source, origin.folded(), HashSeed::fixed(), &LoadOptions::default());
        assert!(loaded.is_err(), "{line}");
    }
}
