//! What a server tells about itself (RFC 4892).

use crate::server::{Server, extended_error, query, rcode, rtype};

const CH: u16 = 3;

#[test]
fn nothing_is_told_unless_it_is_set() {
    let server = Server::usual();
    for name in ["version.bind", "version.server", "hostname.bind", "id.server", "authors.bind", "test"] {
        let answer = server.udp(&query(name, rtype::TXT).class(CH).edns(1232).packet());
        assert_eq!((answer.rcode(), extended_error(&answer)), (rcode::REFUSED, Some(20)), "{name}");
    }
}

#[test]
fn version_and_host_name_are_told_by_both_of_their_names() {
    let mut server = Server::usual();
    server.policy.version = Some("weir".into());
    server.policy.hostname = Some("ams-1".into());
    for (name, text) in [
        ("version.bind", "weir"),
        ("VERSION.SERVER", "weir"),
        ("hostname.bind", "ams-1"),
        ("id.server", "ams-1"),
    ] {
        let answer = server.udp(&query(name, rtype::TXT).class(CH).packet());
        let [record] = &answer.answer[..] else { panic!("{name}: {answer:?}") };
        assert_eq!((record.class, record.rtype, record.ttl), (CH, rtype::TXT, 0));
        assert_eq!(record.rdata[1..], *text.as_bytes(), "{name}");
        assert!(answer.is_authoritative());
        assert_eq!(server.udp(&query(name, rtype::A).class(CH).packet()).rcode(), rcode::REFUSED);
        assert_eq!(server.ask(name, rtype::TXT).rcode(), rcode::REFUSED, "in class IN it is any name");
    }
}
