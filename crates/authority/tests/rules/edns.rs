//! EDNS and its options.

use crate::server::{Server, ZONE, extended_error, option, query, rcode, rtype};
use weir_authority::{CookieKeys, ZoneState};
use weir_testkit::message::Answer;

const NSID: u16 = 3;
const EXPIRE: u16 = 9;
const COOKIE: u16 = 10;
const KEEPALIVE: u16 = 11;
const ZONEVERSION: u16 = 19;

fn keys() -> CookieKeys {
    CookieKeys { current: [1; 16], previous: Some([2; 16]), required: false }
}

fn with_cookies() -> Server {
    let mut server = Server::usual();
    server.policy.cookies = Some(keys());
    server
}

#[test]
fn an_answer_has_an_opt_record_exactly_when_the_query_has_one() {
    let server = Server::usual();
    assert!(server.ask("www.test", rtype::A).opt.is_none());
    let answer = server.udp(&query("www.test", rtype::A).edns(4096).packet());
    let opt = answer.opt.expect("RFC 6891 section 6.1.1");
    assert_eq!((opt.class, opt.ttl), (1232, 0), "our size, version 0, DO as asked");
    let answer = server.udp(&query("www.test", rtype::A).dnssec_ok().packet());
    assert_eq!(answer.opt.expect("as before").ttl, 0x8000, "DO is copied (RFC 3225 section 3)");
}

#[test]
fn a_version_above_0_gets_badvers_and_nothing_else() {
    let answer = Server::usual().udp(&query("www.test", rtype::A).version(1).packet());
    assert_eq!(answer.rcode(), rcode::BADVERS);
    assert!(answer.answer.is_empty() && answer.authority.is_empty());
    let [_, version, ..] = answer.opt.expect("the rest of the code is in it").ttl.to_be_bytes();
    assert_eq!(version, 0, "the highest version there is (RFC 6891 section 6.1.3)");
}

#[test]
fn data_of_another_version_are_no_format_error() {
    let mut packet = query("www.test", rtype::A).version(1).option(65_001, b"abc").packet();
    let at = packet.len() - 4;
    packet[at] = 4;
    assert_eq!(Server::usual().udp(&packet).rcode(), rcode::BADVERS, "they may be no options at all");
}

#[test]
fn unknown_options_and_flags_are_ignored_and_not_sent_back() {
    let asked = query("www.test", rtype::A).opt_flags(0x7fff).option(65_001, b"x").option(100, b"");
    let answer = Server::usual().udp(&asked.packet());
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, 3));
    let opt = answer.opt.unwrap();
    assert_eq!((opt.ttl, opt.rdata.len()), (0, 0));
}

#[test]
fn two_opt_records_and_a_misplaced_one_are_format_errors() {
    let server = Server::usual();
    let asked = query("www.test", rtype::A).edns(1232);
    let opt = asked.opt_record();
    for (counts, records) in [
        ([1, 0, 0, 2], [&opt[..], &opt].concat()),
        ([1, 1, 0, 0], opt.clone()),
        ([1, 0, 1, 0], opt.clone()),
        ([1, 0, 0, 1], [&[1, b'a'], &opt[..]].concat()),
    ] {
        assert_eq!(server.udp(&asked.with_counts(counts, &records)).rcode(), rcode::FORMERR, "{counts:?}");
    }
}

#[test]
fn an_option_that_lies_about_its_length_is_a_format_error() {
    let asked = query("www.test", rtype::A).option(65_001, b"abc");
    let mut packet = asked.packet();
    let at = packet.len() - 4;
    packet[at] = 4;
    assert_eq!(Server::usual().udp(&packet).rcode(), rcode::FORMERR);
}

#[test]
fn payload_sizes_are_clamped_from_both_sides_by_address_family() {
    let many: String = (0..250).map(|n| format!("many A 192.0.2.{n}\n")).collect();
    let mut server = Server::of(&[("test", &format!("{ZONE}{many}"))]);
    server.policy.udp_payload_v4 = 4096;
    server.policy.udp_payload_v6 = 1400;
    // 28 octets of header and question, 11 of OPT.
    let whole = 28 + 11 + 250 * 16;
    for (asked, v4, v6) in
        [(0, 512, 512), (511, 512, 512), (1232, 1232, 1232), (4096, 4096, 1400), (u16::MAX, 4096, 1400)]
    {
        let packet = query("many.test", rtype::A).edns(asked).packet();
        for (client, limit) in [("192.0.2.9", v4), ("2001:db8::9", v6)] {
            server.client = client.parse().unwrap();
            let answer = server.udp(&packet);
            assert!(answer.octets <= limit, "{asked} from {client}: {}", answer.octets);
            assert_eq!(answer.is_truncated(), whole > limit);
            let own = if client.contains(':') { 1400 } else { 4096 };
            assert_eq!(answer.opt.map(|opt| opt.class), Some(own));
        }
    }
}

#[test]
fn extended_errors_say_why() {
    let server =
        Server::of_states([("loading.test", ZoneState::Loading), ("broken.test", ZoneState::Broken)]);
    let ask = |name: &str, rtype: u16| server.udp(&query(name, rtype).edns(1232).packet());
    let both = |answer: &Answer| (answer.rcode(), extended_error(answer));
    assert_eq!(both(&ask("a.loading.test", 1)), (rcode::SERVFAIL, Some(14)), "not ready");
    assert_eq!(both(&ask("a.broken.test", 1)), (rcode::SERVFAIL, Some(24)), "invalid data");
    assert_eq!(both(&ask("elsewhere", 1)), (rcode::REFUSED, Some(20)), "not authoritative");
    let status = query("test", rtype::SOA).edns(1232).opcode(2);
    assert_eq!(both(&Server::usual().udp(&status.packet())), (rcode::NOTIMP, Some(21)), "not supported");
    let axfr = query("test", 252).edns(1232).packet();
    assert_eq!(both(&Server::usual().tcp(&axfr)), (rcode::REFUSED, Some(18)), "prohibited");
    assert_eq!(extended_error(&server.ask("elsewhere", 1)), None, "nowhere to put it without EDNS");
}

#[test]
fn the_identity_is_told_to_who_asks_when_it_is_set() {
    let mut server = Server::usual();
    let asked = query("www.test", rtype::A).option(NSID, b"").packet();
    assert_eq!(option(&server.udp(&asked), NSID), None);
    server.policy.nsid = Some(b"ams-1".as_slice().into());
    assert_eq!(option(&server.udp(&asked), NSID).as_deref(), Some(&b"ams-1"[..]));
    let plain = query("www.test", rtype::A).edns(1232).packet();
    assert_eq!(option(&server.udp(&plain), NSID), None, "RFC 5001 section 2.2");
}

#[test]
fn the_first_cookie_gets_a_full_answer_and_a_server_cookie_that_is_good_next_time() {
    let mut server = with_cookies();
    let answer = server.udp(&query("www.test", rtype::A).option(COOKIE, &[7; 8]).packet());
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, 3));
    let both = option(&answer, COOKIE).expect("RFC 7873 section 5.2.3");
    assert_eq!((both.len(), &both[..8]), (24, &[7; 8][..]));
    // Where cookies are required this one opens the door, and none or a forged one does not.
    server.policy.cookies = Some(CookieKeys { required: true, ..keys() });
    server.now += 60;
    let code = |data: &[u8]| server.udp(&query("www.test", rtype::A).option(COOKIE, data).packet()).rcode();
    assert_eq!(code(&both), rcode::NOERROR);
    assert_eq!(code(&[7; 8]), rcode::BADCOOKIE);
    assert_eq!(code(&[&both[..23], &[both[23] ^ 1]].concat()), rcode::BADCOOKIE);
    let refused = server.udp(&query("www.test", rtype::A).option(COOKIE, &[7; 8]).packet());
    assert!(option(&refused, COOKIE).is_some_and(|both| both.len() == 24), "with a cookie to come back with");
    assert_eq!(server.ask("www.test", rtype::A).rcode(), rcode::NOERROR, "who knows no cookies is served");
    let over_tcp = server.tcp(&query("www.test", rtype::A).option(COOKIE, &[7; 8]).packet());
    assert_eq!(over_tcp.rcode(), rcode::NOERROR, "TCP proves the address by itself");
}

#[test]
fn a_cookie_made_with_the_secret_before_is_still_good() {
    let mut server = with_cookies();
    server.policy.cookies = Some(CookieKeys { current: [2; 16], previous: None, required: false });
    let asked = query("www.test", rtype::A).option(COOKIE, &[7; 8]).packet();
    let both = option(&server.udp(&asked), COOKIE).unwrap();
    server.policy.cookies = Some(CookieKeys { required: true, ..keys() });
    let again = query("www.test", rtype::A).option(COOKIE, &both).packet();
    let answer = server.udp(&again);
    assert_eq!(answer.rcode(), rcode::NOERROR);
    assert_ne!(option(&answer, COOKIE), Some(both), "and is replaced by one of the new secret");
}

#[test]
fn cookies_of_a_wrong_length_are_format_errors() {
    let server = with_cookies();
    for len in [0, 1, 7, 9, 15, 41, 60] {
        let asked = query("www.test", rtype::A).option(COOKIE, &vec![7; len]).packet();
        assert_eq!(server.udp(&asked).rcode(), rcode::FORMERR, "{len} octets (RFC 7873 section 5.2.2)");
    }
    for len in [8, 16, 24, 40] {
        let asked = query("www.test", rtype::A).option(COOKIE, &vec![7; len]).packet();
        assert_eq!(server.udp(&asked).rcode(), rcode::NOERROR, "{len} octets");
    }
}

#[test]
fn a_query_for_a_cookie_alone_has_no_question() {
    let asked = query("www.test", rtype::A).option(COOKIE, &[7; 8]);
    let packet = asked.with_counts([0, 0, 0, 1], &asked.opt_record());
    let answer = with_cookies().udp(&packet);
    assert_eq!(answer.rcode(), rcode::NOERROR, "RFC 7873 section 5.4");
    assert!(answer.question.is_empty() && answer.answer.is_empty());
    assert_eq!(option(&answer, COOKIE).map(|both| both.len()), Some(24));
    assert_eq!(Server::usual().udp(&packet).rcode(), rcode::FORMERR, "cookies are off");
    let without = query("www.test", rtype::A).edns(1232);
    let packet = without.with_counts([0, 0, 0, 1], &without.opt_record());
    assert_eq!(with_cookies().udp(&packet).rcode(), rcode::FORMERR, "RFC 9619 section 4");
}

#[test]
fn keepalive_is_answered_over_tcp_and_ignored_over_udp() {
    let mut server = Server::usual();
    server.policy.tcp_keepalive = 100;
    let asked = query("www.test", rtype::A).option(KEEPALIVE, b"").packet();
    assert_eq!(option(&server.tcp(&asked), KEEPALIVE), Some(vec![0, 100]));
    assert_eq!(option(&server.udp(&asked), KEEPALIVE), None, "RFC 7828 section 3.2.1");
    let with_time = query("www.test", rtype::A).option(KEEPALIVE, &[0, 1]).packet();
    assert_eq!(server.tcp(&with_time).rcode(), rcode::FORMERR, "RFC 7828 section 3.2.1");
    assert_eq!(server.udp(&with_time).rcode(), rcode::NOERROR);
    let plain = query("www.test", rtype::A).edns(1232).packet();
    assert_eq!(option(&server.tcp(&plain), KEEPALIVE), None);
}

#[test]
fn expire_is_told_beside_the_soa() {
    let server = Server::usual();
    let expire = |rtype: u16| option(&server.udp(&query("test", rtype).option(EXPIRE, b"").packet()), EXPIRE);
    assert_eq!(expire(rtype::SOA), Some(1_209_600u32.to_be_bytes().to_vec()), "RFC 7314 section 3.2");
    assert_eq!(expire(rtype::NS), None);
}

#[test]
fn the_zones_version_is_told_with_its_number_of_labels() {
    let server = Server::of(&[("test", ZONE), ("a.b.example", ZONE)]);
    let version = |name: &str, rtype: u16| {
        option(&server.udp(&query(name, rtype).option(ZONEVERSION, b"").packet()), ZONEVERSION)
    };
    assert_eq!(version("www.test", rtype::A), Some(vec![1, 0, 0, 0, 0, 7]), "RFC 9660 section 3");
    assert_eq!(version("x.a.b.example", rtype::A), Some(vec![3, 0, 0, 0, 0, 7]), "a denial has one too");
    assert_eq!(version("elsewhere", rtype::A), None);
}

#[test]
fn a_referral_has_no_zone_version() {
    let text = format!("{ZONE}cut NS ns.cut\nns.cut A 192.0.2.9\n");
    let server = Server::of(&[("test", &text)]);
    let asked = query("x.cut.test", rtype::A).option(ZONEVERSION, b"").packet();
    assert_eq!(option(&server.udp(&asked), ZONEVERSION), None, "RFC 9660 section 3.2");
}
