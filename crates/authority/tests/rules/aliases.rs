//! CNAME and DNAME.

use crate::server::{Server, ZONE, addresses, query, query_of, rcode, rtype, types};
use weir_testkit::message::Name;

fn server_with(more: &str) -> Server {
    Server::of(&[("test", &format!("{ZONE}{more}"))])
}

#[test]
fn a_chain_is_followed_and_its_last_name_gives_the_code() {
    let server = server_with("a CNAME b\nb CNAME www\nn CNAME nothing\nd CNAME ns1\n*.wild CNAME www\n");
    let answer = server.ask("a.test", rtype::A);
    assert_eq!(types(&answer.answer), [rtype::CNAME, rtype::CNAME, 1, 1, 1]);
    let answer = server.ask("n.test", rtype::A);
    assert_eq!(
        (answer.rcode(), types(&answer.authority)),
        (rcode::NXDOMAIN, vec![rtype::SOA]),
        "RFC 6604 section 3"
    );
    assert!(answer.is_authoritative());
    assert_eq!(server.ask("d.test", rtype::AAAA).rcode(), rcode::NOERROR);
    assert_eq!(types(&server.ask("a.test", rtype::CNAME).answer), [rtype::CNAME], "asked for itself");
    let answer = server.ask("x.wild.test", rtype::A);
    assert_eq!(answer.answer[0].owner, Name::from_text("x.wild.test"));
    assert_eq!(addresses(&answer.answer), [4, 5, 6]);
}

#[test]
fn loops_end_at_the_first_name_that_comes_again() {
    let server = server_with("self CNAME self\na CNAME b\nb CNAME c\nc CNAME a\n");
    for (name, n_aliases) in [("self.test", 1), ("a.test", 3), ("b.test", 3)] {
        let answer = server.ask(name, rtype::A);
        assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, n_aliases), "{name}");
    }
}

#[test]
fn very_long_chains_are_cut() {
    let chain: String = (0..2000).map(|n| format!("c{n} CNAME c{}\n", n + 1)).collect();
    let answer = server_with(&chain).tcp(&query("c0.test", rtype::A).packet());
    assert_eq!((answer.rcode(), answer.answer.len(), answer.is_truncated()), (rcode::NOERROR, 16, false));
}

#[test]
fn a_chain_stops_at_the_zones_edge_unless_it_may_go_on() {
    let zones = [
        ("test", &format!("{ZONE}out CNAME to.example.\naway CNAME www.elsewhere.\nd DNAME example.\n")[..]),
        ("example", "$TTL 1\n@ SOA ns h 1 1 1 1 1\n@ NS ns\nto CNAME back.test.\nhere A 192.0.2.88\n"),
    ];
    let mut server = Server::of(&zones);
    assert_eq!(types(&server.ask("out.test", rtype::A).answer), [rtype::CNAME]);
    assert_eq!(server.ask("out.test", rtype::A).rcode(), rcode::NOERROR);
    server.policy.follow_across_zones = true;
    let answer = server.ask("out.test", rtype::A);
    assert_eq!(types(&answer.answer), [rtype::CNAME, rtype::CNAME], "there and back again");
    assert_eq!((answer.rcode(), &answer.authority[0].owner), (rcode::NXDOMAIN, &Name::from_text("test")));
    assert_eq!(addresses(&server.ask("here.d.test", rtype::A).answer), [88]);
    let answer = server.ask("away.test", rtype::A);
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, 1), "no zone of ours");
}

#[test]
fn a_dname_redirects_what_is_below_it_and_not_itself() {
    let server = server_with("d DNAME w\nd TXT \"own\"\n");
    let answer = server.ask("x.y.d.test", rtype::TXT);
    assert_eq!(types(&answer.answer), [rtype::DNAME, rtype::CNAME, rtype::TXT]);
    assert_eq!(answer.answer[1].rdata, Name::from_text("x.y.w.test").to_wire());
    assert_eq!(answer.answer[1].ttl, answer.answer[0].ttl, "RFC 6672 section 3.1");
    assert_eq!(types(&server.ask("d.test", rtype::TXT).answer), [rtype::TXT], "RFC 6672 section 2.3");
    assert_eq!(types(&server.ask("d.test", rtype::DNAME).answer), [rtype::DNAME]);
    assert_eq!(types(&server.ask("x.d.test", rtype::CNAME).answer), [rtype::DNAME, rtype::CNAME]);
}

#[test]
fn a_dname_at_the_apex_leaves_the_apex_as_it_is() {
    let text = "$TTL 1\n@ SOA ns.x. h.x. 1 1 1 1 1\n@ NS ns.x.\n@ DNAME to.x.\n";
    let server = Server::of(&[("test", text)]);
    assert_eq!(types(&server.ask("test", rtype::SOA).answer), [rtype::SOA]);
    assert_eq!(types(&server.ask("www.test", rtype::A).answer), [rtype::DNAME, rtype::CNAME]);
}

#[test]
fn a_substituted_name_of_255_octets_is_made_and_one_of_256_is_yxdomain() {
    let server = server_with("d DNAME longer-than-d\n");
    // The target is 12 octets longer than the owner.
    let name_of = |len: usize| {
        let mut name = Name::from_text("d.test");
        while name.wire_len() < len {
            let room = len - name.wire_len();
            name = name.child(&vec![b'x'; if room == 65 { 62 } else { (room - 1).min(63) }]);
        }
        assert_eq!(name.wire_len(), len);
        name
    };
    let answer = server.tcp(&query_of(name_of(255 - 12), rtype::A).packet());
    assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NXDOMAIN, vec![rtype::DNAME, rtype::CNAME]));
    for len in [256 - 12, 255] {
        let answer = server.tcp(&query_of(name_of(len), rtype::A).packet());
        assert_eq!(
            (answer.rcode(), types(&answer.answer)),
            (rcode::YXDOMAIN, vec![rtype::DNAME]),
            "RFC 6672 section 2.2"
        );
        assert!(answer.is_authoritative());
    }
}

#[test]
fn a_dname_that_leads_below_itself_ends() {
    let server = server_with("d DNAME x.d\n");
    let answer = server.tcp(&query("a.d.test", rtype::A).packet());
    let n_dnames = answer.answer.iter().filter(|r| r.rtype == rtype::DNAME).count();
    assert_eq!((n_dnames, answer.answer.len()), (1, 17), "the DNAME once, and 16 steps");
}
