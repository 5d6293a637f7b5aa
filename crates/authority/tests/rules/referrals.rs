//! Referrals, glue, occluded data, and parent and child on one server.

use crate::server::{Server, ZONE, addresses, query, rcode, rtype, types};
use weir_testkit::message::Name;

const CUT: &str = "
cut        NS   ns.cut
cut        NS   ns.sibling
cut        NS   ns1
cut        NS   ns.elsewhere.
cut        DS   1 13 2 abababababababababababababababababababababababababababababababab
ns.cut     A    192.0.2.21
sibling    NS   ns.sibling
ns.sibling A    192.0.2.22
hidden.cut TXT  \"occluded\"
inner.cut  NS   ns.cut
to-cut     CNAME host.cut
";

fn server() -> Server {
    Server::of(&[("test", &format!("{ZONE}{CUT}"))])
}

#[test]
fn a_referral_names_the_servers_and_their_addresses_without_authority() {
    for name in ["cut.test", "x.cut.test", "hidden.cut.test", "x.inner.cut.test", "ns.cut.test"] {
        let answer = server().ask(name, rtype::TXT);
        assert_eq!((answer.rcode(), answer.is_authoritative()), (rcode::NOERROR, false), "{name}");
        assert!(answer.answer.is_empty());
        assert_eq!(types(&answer.authority), [rtype::NS; 4], "no DS without DO");
        assert!(answer.authority.iter().all(|r| r.owner == Name::from_text("cut.test")), "the highest cut");
        let mut glue = addresses(&answer.additional);
        glue.sort_unstable();
        assert_eq!(glue, [1, 21, 22], "in-domain, sibling and own addresses");
    }
}

#[test]
fn the_ds_record_is_the_parents() {
    let answer = server().ask("cut.test", rtype::DS);
    assert!(answer.is_authoritative());
    assert_eq!(types(&answer.answer), [rtype::DS], "RFC 4035 section 3.1.4.1");
    let answer = server().ask("sibling.test", rtype::DS);
    assert!(answer.is_authoritative());
    assert_eq!((types(&answer.answer), types(&answer.authority)), (vec![], vec![rtype::SOA]));
    let answer = server().ask("x.cut.test", rtype::DS);
    assert!(!answer.is_authoritative(), "below the cut it is the child's");
    let answer = server().udp(&query("x.cut.test", rtype::A).dnssec_ok().packet());
    assert!(types(&answer.authority).contains(&rtype::DS), "with DO it goes along");
}

#[test]
fn the_ds_record_of_an_apex_is_denied_when_the_parent_is_elsewhere() {
    let answer = Server::usual().ask("test", rtype::DS);
    assert_eq!((answer.rcode(), types(&answer.authority)), (rcode::NOERROR, vec![rtype::SOA]));
    assert!(answer.is_authoritative(), "RFC 4035 section 3.1.4.1: as the child may");
}

#[test]
fn with_parent_and_child_here_the_parent_answers_ds_and_the_child_all_else() {
    let server = Server::of(&[("test", &format!("{ZONE}{CUT}")), ("cut.test", ZONE)]);
    let answer = server.ask("cut.test", rtype::DS);
    assert_eq!((answer.is_authoritative(), types(&answer.answer)), (true, vec![rtype::DS]));
    let answer = server.ask("cut.test", rtype::NS);
    assert!(answer.is_authoritative());
    assert!(answer.answer.iter().any(|r| r.rdata.starts_with(b"\x03ns2")), "the child's own servers");
    assert_eq!(addresses(&server.ask("www.cut.test", rtype::A).answer), [4, 5, 6]);
    assert_eq!(
        server.ask("hidden.cut.test", rtype::TXT).rcode(),
        rcode::NXDOMAIN,
        "the parent's is occluded"
    );
    let answer = server.ask("sibling.test", rtype::A);
    assert!(!answer.is_authoritative(), "other cuts stay referrals");
}

#[test]
fn a_chain_that_ends_in_a_referral_keeps_its_authority() {
    let answer = server().ask("to-cut.test", rtype::A);
    assert!(answer.is_authoritative(), "AA speaks of the first owner (RFC 1035 section 4.1.1)");
    assert_eq!(types(&answer.answer), [rtype::CNAME]);
    assert_eq!(types(&answer.authority), [rtype::NS; 4]);
}

#[test]
fn a_referral_without_room_for_its_in_domain_glue_is_truncated() {
    let glue: String = (0..30).map(|n| format!("ns.big A 192.0.2.{n}\n")).collect();
    let server = Server::of(&[("test", &format!("{ZONE}big NS ns.big\n{glue}"))]);
    let answer = server.ask("x.big.test", rtype::A);
    assert!(answer.is_truncated(), "RFC 9471 section 3.1");
    let whole = server.tcp(&query("x.big.test", rtype::A).packet());
    assert_eq!((whole.additional.len(), whole.is_truncated()), (30, false));
}

#[test]
fn a_referral_without_room_for_sibling_glue_is_not() {
    let glue: String = (0..30).map(|n| format!("ns.other A 192.0.2.{n}\n")).collect();
    let text = format!("{ZONE}small NS ns.other\nother NS ns.other\n{glue}");
    let answer = Server::of(&[("test", &text)]).ask("x.small.test", rtype::A);
    assert!(!answer.is_truncated(), "RFC 9471 section 3.2");
    assert!(answer.additional.is_empty());
}

#[test]
fn what_lies_below_a_dname_is_not_served() {
    let server = Server::of(&[("test", &format!("{ZONE}d DNAME www\nx.d A 192.0.2.99\n"))]);
    let answer = server.ask("x.d.test", rtype::A);
    assert_eq!(types(&answer.answer), [rtype::DNAME, rtype::CNAME], "RFC 6672 section 2.4");
    assert_eq!(answer.rcode(), rcode::NXDOMAIN);
}
