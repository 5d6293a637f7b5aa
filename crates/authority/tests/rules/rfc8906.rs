//! The tests of RFC 8906 section 8, each by the number of its section: what a server must not be silent about.

use crate::server::{Server, query, rcode, rtype, types};

const AD: u16 = 0x0020;
const CD: u16 = 0x0010;
const Z: u16 = 0x0040;
const RD: u16 = 0x0100;

#[test]
fn section_8_1_1_a_plain_query_for_soa_is_answered() {
    let answer = Server::usual().ask("test", rtype::SOA);
    assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NOERROR, vec![rtype::SOA]));
    assert!(answer.is_authoritative() && answer.opt.is_none());
    assert_eq!(answer.flags & (AD | CD | Z), 0);
}

#[test]
fn section_8_1_2_an_unknown_type_is_no_data() {
    let answer = Server::usual().ask("test", 1000);
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, 0));
    assert!(answer.is_authoritative() && types(&answer.authority) == [rtype::SOA]);
}

#[test]
fn section_8_1_3_header_bits_are_ignored() {
    let server = Server::usual();
    for bit in [CD, AD, Z, RD] {
        let answer = server.udp(&query("test", rtype::SOA).flags(bit).packet());
        assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NOERROR, vec![rtype::SOA]), "{bit:#x}");
        assert_eq!(answer.flags & Z, 0, "8.1.3.3: the reserved bit is not copied");
        assert_eq!(answer.flags & RD, bit & RD, "8.1.3.4: RD is");
    }
}

#[test]
fn section_8_1_4_an_unknown_opcode_is_not_implemented() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).opcode(15).packet());
    assert_eq!((answer.rcode(), answer.flags >> 11 & 0xf), (rcode::NOTIMP, 15));
    assert!(answer.answer.is_empty() && !answer.is_authoritative());
}

#[test]
fn section_8_1_5_the_same_over_tcp() {
    let answer = Server::usual().tcp(&query("test", rtype::SOA).packet());
    assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NOERROR, vec![rtype::SOA]));
}

#[test]
fn section_8_2_1_edns_version_0_is_answered_with_opt() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).edns(4096).packet());
    assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NOERROR, vec![rtype::SOA]));
    assert_eq!(answer.opt.map(|opt| opt.ttl), Some(0));
}

#[test]
fn section_8_2_2_edns_version_1_gets_badvers_with_version_0() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).version(1).packet());
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::BADVERS, 0));
    assert_eq!(answer.opt.map(|opt| opt.ttl.to_be_bytes()[1]), Some(0));
}

#[test]
fn section_8_2_3_an_unknown_option_is_ignored() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).option(100, b"").packet());
    assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NOERROR, vec![rtype::SOA]));
    assert_eq!(answer.opt.map(|opt| opt.rdata.len()), Some(0));
}

#[test]
fn section_8_2_4_unknown_flags_are_ignored_and_not_sent_back() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).opt_flags(0x0040).packet());
    assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NOERROR, vec![rtype::SOA]));
    assert_eq!(answer.opt.map(|opt| opt.ttl), Some(0));
}

#[test]
fn section_8_2_5_version_1_with_flags_is_badvers() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).version(1).opt_flags(0x0040).packet());
    assert_eq!(answer.rcode(), rcode::BADVERS);
    assert_eq!(answer.opt.map(|opt| opt.ttl & 0xffff), Some(0));
}

#[test]
fn section_8_2_6_version_1_with_an_option_is_badvers() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).version(1).option(100, b"").packet());
    assert_eq!(answer.rcode(), rcode::BADVERS);
    assert_eq!(answer.opt.map(|opt| opt.rdata.len()), Some(0));
}

#[test]
fn section_8_2_7_an_answer_that_is_cut_still_has_opt() {
    let text = format!("{}big TXT {}\n", crate::server::ZONE, "\"0123456789\" ".repeat(60));
    let server = Server::of(&[("test", &text)]);
    let answer = server.udp(&query("big.test", rtype::TXT).edns(512).packet());
    assert!(answer.is_truncated() && answer.opt.is_some() && answer.octets <= 512);
}

#[test]
fn section_8_2_8_the_do_bit_comes_back() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).dnssec_ok().packet());
    assert_eq!(answer.opt.map(|opt| opt.ttl), Some(0x8000));
}

#[test]
fn section_8_2_9_version_1_with_the_do_bit_is_badvers() {
    let answer = Server::usual().udp(&query("test", rtype::SOA).dnssec_ok().version(1).packet());
    assert_eq!(answer.rcode(), rcode::BADVERS);
}

#[test]
fn section_8_2_10_defined_options_are_taken_together() {
    // NSID, client subnet, EXPIRE and a cookie in one query.
    let asked =
        query("test", rtype::SOA).option(3, b"").option(8, &[0, 1, 0, 0]).option(9, b"").option(10, &[7; 8]);
    let answer = Server::usual().udp(&asked.packet());
    assert_eq!((answer.rcode(), types(&answer.answer)), (rcode::NOERROR, vec![rtype::SOA]));
}
