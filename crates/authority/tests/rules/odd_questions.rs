//! Questions that are none, or none for a zone: the table in docs/RFC.md.

use crate::server::{Server, ZONE, query, query_of, rcode, rtype};
use weir_authority::Transport;
use weir_testkit::message::Name;

#[test]
fn packets_that_an_answer_would_help_to_abuse_get_silence() {
    let server = Server::usual();
    let packet = query("www.test", rtype::A).packet();
    for len in 0..12 {
        assert_eq!(server.octets(&packet[..len], Transport::Udp, 512), None, "{len} octets");
    }
    let response = query("www.test", rtype::A).flags(0x8000).packet();
    assert_eq!(server.octets(&response, Transport::Udp, 512), None, "RFC 1035 section 4.1.1: QR");
}

#[test]
fn other_operations_are_not_implemented() {
    for opcode in 1..16 {
        let answer = Server::usual().udp(&query("www.test", rtype::A).opcode(opcode).packet());
        assert_eq!(answer.rcode(), rcode::NOTIMP, "opcode {opcode}");
        assert_eq!(answer.flags >> 11 & 0xf, opcode, "the opcode is copied (RFC 1035 section 4.1.1)");
        assert!(!answer.is_authoritative());
    }
}

#[test]
fn an_unknown_operation_is_not_implemented_whatever_is_in_it() {
    let packet = query("www.test", rtype::A).opcode(6).with_counts([0, 0, 0, 0], &[]);
    assert_eq!(
        Server::usual().udp(&packet).rcode(),
        rcode::NOTIMP,
        "a DSO message (RFC 8490) has no question"
    );
}

#[test]
fn a_query_has_exactly_one_question() {
    let server = Server::usual();
    let asked = query("www.test", rtype::A);
    assert_eq!(server.udp(&asked.with_counts([0, 0, 0, 0], &[])).rcode(), rcode::FORMERR);
    let second = b"\x03www\x04test\x00\x00\x01\x00\x01";
    assert_eq!(server.udp(&asked.with_counts([2, 0, 0, 0], second)).rcode(), rcode::FORMERR, "RFC 9619");
}

#[test]
fn records_in_the_answer_or_authority_section_of_a_query_are_format_errors() {
    let server = Server::usual();
    let record = b"\x00\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x01\x02\x03\x04";
    let asked = query("www.test", rtype::A);
    assert_eq!(server.udp(&asked.with_counts([1, 1, 0, 0], record)).rcode(), rcode::FORMERR);
    assert_eq!(server.udp(&asked.with_counts([1, 0, 1, 0], record)).rcode(), rcode::FORMERR);
    let soa = b"\x00\x00\x06\x00\x01\x00\x00\x00\x00\x00\x16\x00\x00aaaabbbbccccddddeeee";
    let ixfr = query("test", 251).with_counts([1, 0, 1, 0], soa);
    assert_eq!(
        server.udp(&ixfr).rcode(),
        rcode::REFUSED,
        "the SOA of IXFR is in its place (RFC 1995 section 3)"
    );
}

#[test]
fn octets_behind_the_last_record_are_a_format_error() {
    for more in [&b"\0"[..], b"abc"] {
        let packet = [&query("www.test", rtype::A).packet()[..], more].concat();
        assert_eq!(Server::usual().udp(&packet).rcode(), rcode::FORMERR);
    }
}

#[test]
fn a_name_that_is_cut_off_compressed_or_too_long_is_a_format_error() {
    let server = Server::usual();
    let asked = query("www.test", rtype::A);
    let packet = asked.packet();
    for len in 12..packet.len() {
        assert_eq!(server.udp(&packet[..len]).rcode(), rcode::FORMERR, "cut to {len} octets");
    }
    let pointer = [&packet[..12], b"\xc0\x0c\x00\x01\x00\x01"].concat();
    assert_eq!(server.udp(&pointer).rcode(), rcode::FORMERR, "RFC 1035 section 4.1.4: a prior occurrence");
    let extended = [&packet[..12], b"\x41a\x00\x00\x01\x00\x01"].concat();
    assert_eq!(server.udp(&extended).rcode(), rcode::FORMERR, "RFC 6891 section 5: extended labels");
    let long = [&packet[..12], &b"\x3f".repeat(64).repeat(4)[..], b"\x00\x00\x01\x00\x01"].concat();
    assert_eq!(server.udp(&long).rcode(), rcode::FORMERR);
}

#[test]
fn classes_that_are_not_held_are_refused_and_any_class_is_answered_without_authority() {
    let server = Server::usual();
    for class in [0, 2, 3, 4, 254, 65_280] {
        let answer = server.udp(&query("www.test", rtype::A).class(class).packet());
        assert_eq!(answer.rcode(), rcode::REFUSED, "class {class}");
    }
    let answer = server.udp(&query("www.test", rtype::A).class(255).packet());
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, 3));
    assert!(!answer.is_authoritative(), "RFC 1035 section 6.2");
}

#[test]
fn types_that_are_no_data_get_their_codes() {
    let server = Server::usual();
    for (rtype, code) in [
        (0, rcode::FORMERR),
        (rtype::OPT, rcode::FORMERR),
        (250, rcode::FORMERR), // TSIG
        (249, rcode::NOTIMP),  // TKEY
        (253, rcode::NOTIMP),  // MAILB
        (254, rcode::NOTIMP),  // MAILA
        (252, rcode::FORMERR), // AXFR over UDP
        (251, rcode::REFUSED), // IXFR
        (128, rcode::FORMERR), // NXNAME
    ] {
        assert_eq!(server.udp(&query("www.test", rtype).packet()).rcode(), code, "type {rtype}");
    }
    assert_eq!(server.tcp(&query("test", 252).packet()).rcode(), rcode::REFUSED, "AXFR over TCP");
}

#[test]
fn a_type_that_nobody_knows_is_looked_up_like_any_other() {
    let server = Server::of(&[("test", &format!("{ZONE}new TYPE65400 \\# 3 010203\n"))]);
    let answer = server.ask("new.test", 65_400);
    assert_eq!(answer.answer[0].rdata, [1, 2, 3], "RFC 3597 section 3");
    let answer = server.ask("www.test", 65_400);
    assert_eq!((answer.rcode(), answer.answer.len()), (rcode::NOERROR, 0));
    assert_eq!(server.ask("nothing.test", 65_400).rcode(), rcode::NXDOMAIN);
}

#[test]
fn a_signature_by_an_unknown_key_is_answered_unsigned_with_badkey() {
    let tsig = |class: u16, rdata: &[u8]| {
        let len = u16::try_from(rdata.len()).unwrap();
        [b"\x03key\x00\x00\xfa", &class.to_be_bytes()[..], &[0; 4], &len.to_be_bytes(), rdata].concat()
    };
    let rdata = [
        &b"\x0bhmac-sha256\x00\x00\x00\x12\x34\x56\x78\x01\x2c\x00\x20"[..],
        &[9; 32],
        b"\xab\xcd\x00\x00\x00\x00",
    ]
    .concat();
    let server = Server::usual();
    let asked = query("www.test", rtype::A);
    let signed = asked.with_counts([1, 0, 0, 1], &tsig(255, &rdata));
    let answer = server.udp(&signed);
    assert_eq!(answer.rcode(), rcode::NOTAUTH, "RFC 8945 section 5.2.1");
    let [record] = &answer.additional[..] else { panic!("{answer:?}") };
    assert_eq!((record.rtype, record.class), (250, 255));
    let mac_and_after = &record.rdata[13 + 8..];
    assert_eq!(mac_and_after, b"\x00\x00\xab\xcd\x00\x11\x00\x00", "no MAC, the id, BADKEY");
    // Not last, of another class, or cut off: format errors (RFC 8945 sections 5.1 and 4.2).
    let a_record = b"\x00\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x01\x02\x03\x04";
    let not_last = asked.with_counts([1, 0, 0, 2], &[&tsig(255, &rdata)[..], a_record].concat());
    assert_eq!(server.udp(&not_last).rcode(), rcode::FORMERR);
    assert_eq!(server.udp(&asked.with_counts([1, 0, 0, 1], &tsig(1, &rdata))).rcode(), rcode::FORMERR);
    let cut = &rdata[..rdata.len() - 1];
    assert_eq!(server.udp(&asked.with_counts([1, 0, 0, 1], &tsig(255, cut))).rcode(), rcode::FORMERR);
}

#[test]
fn recursion_is_neither_offered_nor_done_and_flags_are_not_echoed() {
    let answer = Server::usual().udp(&query("www.test", rtype::A).flags(0x01f0).packet());
    // RD is copied; RA, Z and AD stay clear, and so does CD (RFC 4035 section 3.1.6).
    assert_eq!(answer.flags, 0x8500);
}

#[test]
fn labels_may_hold_any_octet() {
    let text = format!("{ZONE}a\\.b TXT \"dot\"\n\\000\\255 TXT \"nul\"\nA\\009B TXT \"tab\"\n");
    let server = Server::of(&[("test", &text)]);
    let ask = |label: &[u8]| server.udp(&query_of(Name::from_text("test").child(label), rtype::TXT).packet());
    for (label, text) in [(&b"a.b"[..], &b"\x03dot"[..]), (b"\x00\xff", b"\x03nul"), (b"a\x09b", b"\x03tab")]
    {
        assert_eq!(ask(label).answer[0].rdata, text);
    }
    assert_eq!(ask(b"a").rcode(), rcode::NXDOMAIN, "a dot in a label is no boundary");
    assert_eq!(ask(b"\x00").rcode(), rcode::NXDOMAIN, "a NUL ends nothing");
}

#[test]
fn the_question_comes_back_in_the_case_in_which_it_was_asked() {
    let mut packet = query("www.test", rtype::A).packet();
    packet[13..16].copy_from_slice(b"WwW");
    let octets = Server::usual().octets(&packet, Transport::Udp, 512).unwrap();
    assert_eq!(octets[12..26], packet[12..26]);
}

#[test]
fn a_query_of_127_labels_is_answered() {
    let mut name = Name::from_text("test");
    while name.wire_len() + 2 <= 255 {
        name = name.child(b"a");
    }
    assert_eq!(Server::usual().udp(&query_of(name, rtype::A).packet()).rcode(), rcode::NXDOMAIN);
}
