//! What fits is sent, and what does not is left out whole.

use crate::server::{Server, ZONE, query, rtype};
use weir_authority::Transport;
use weir_testkit::message::Answer;

/// A zone with one RRset for each size: `sN` has TXT records that fill an answer of N octets with OPT.
fn server_for(sizes: impl Iterator<Item = usize>) -> Server {
    let mut text = ZONE.to_owned();
    for size in sizes {
        // Header, question `sNNNN.test`, OPT; then records of 12 octets and their strings.
        let mut left = size - 12 - (5 + 1 + 5 + 1 + 4) - 11;
        let mut n = 100;
        while left > 0 {
            // A last record has room for itself; one before leaves at least 20 octets for the next.
            let len = if left <= 200 { left } else { 180.min(left - 20) };
            text += &format!("s{size:04} TXT \"{n}{}\"\n", "x".repeat(len - 12 - 1 - 3));
            left -= len;
            n += 1;
        }
    }
    Server::of(&[("test", &text)])
}

#[test]
fn truncation_is_exact_at_every_size() {
    let sizes = || (512..=1232).chain([4096]);
    let mut server = server_for(sizes());
    server.policy.udp_payload_v4 = 4096;
    for size in sizes() {
        let ask = |payload: usize| {
            let payload = u16::try_from(payload).unwrap();
            server.udp(&query(&format!("s{size:04}.test"), rtype::TXT).edns(payload).packet())
        };
        let answer = ask(size);
        assert_eq!((answer.octets, answer.is_truncated()), (size, false));
        let cut = ask((size - 1).max(512));
        if size > 512 {
            assert!(cut.is_truncated() && cut.answer.is_empty(), "{size}: the RRset is left out whole");
            assert!(cut.opt.is_some(), "OPT has its room (RFC 6891 section 7)");
        }
    }
}

#[test]
fn without_edns_an_answer_has_512_octets_at_most() {
    let server = server_for(500..540);
    for size in 500..540 {
        let answer = server.ask(&format!("s{size:04}.test"), rtype::TXT);
        // Without OPT the answer is 11 octets shorter.
        assert_eq!(answer.is_truncated(), size - 11 > 512, "{size}");
    }
}

#[test]
fn optional_addresses_never_truncate() {
    let many: String =
        (0..40).map(|n| format!("@ MX {n} m{n}\nm{n} A 192.0.2.{n}\nm{n} AAAA 2001:db8::{n}\n")).collect();
    let server = Server::of(&[("test", &format!("{ZONE}{many}"))]);
    let answer = server.udp(&query("test", rtype::MX).edns(1232).packet());
    assert!(!answer.is_truncated());
    assert_eq!(answer.answer.len(), 41);
    assert!(!answer.additional.is_empty() && answer.additional.len() < 81, "as far as they fit");
}

#[test]
fn a_buffer_of_any_size_is_enough_or_gives_silence() {
    let server = Server::usual();
    let packet = query("test", rtype::MX).edns(1232).packet();
    for room in 0..600 {
        if let Some(octets) = server.octets(&packet, Transport::Udp, room) {
            assert!(octets.len() <= room);
            Answer::from_wire(&octets).unwrap();
        }
    }
}

#[test]
fn nothing_points_past_16383_octets() {
    let many: String =
        (0..900).map(|n| format!("big MX {n} host{n}.big\nhost{n}.big A 192.0.2.1\n")).collect();
    let server = Server::of(&[("test", &format!("{ZONE}{many}"))]);
    // The reader of the tests checks every pointer.
    let answer = server.tcp(&query("big.test", rtype::MX).packet());
    assert_eq!(answer.answer.len(), 900);
    assert!(answer.octets > 16_384);
    let all = server.tcp(&query("big.test", rtype::ANY).packet());
    assert_eq!(all.answer.len(), 900);
}
