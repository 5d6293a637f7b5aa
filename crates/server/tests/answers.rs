//! Settings of answers, from the file to what a client sees, the same over UDP and TCP.

mod common;

use std::fs;
use std::time::Duration;

use common::{SOA, Server, TXT, folder, weir, write_zone, zone};
use weir_testkit::client;
use weir_testkit::message::{Answer, Name, Query};

const SOON: Duration = Duration::from_secs(5);
const NSID: u16 = 3;
const COOKIE: u16 = 10;
const KEEPALIVE: u16 = 11;

/// A query for the SOA record of example.com with these options.
fn with_options(options: &[(u16, &[u8])]) -> Vec<u8> {
    let query = Query { edns: Some(1232), ..Query::new(Name::from_text("example.com"), SOA) };
    let mut packet = query.to_wire(7);
    let octets: Vec<u8> = options
        .iter()
        .flat_map(|(code, data)| {
            let len = u16::try_from(data.len()).unwrap();
            [&code.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
        })
        .collect();
    let at = packet.len() - 2;
    packet[at..].copy_from_slice(&u16::try_from(octets.len()).unwrap().to_be_bytes());
    [packet, octets].concat()
}

/// The data of an option of an answer.
fn option(answer: &Answer, wanted: u16) -> Option<Vec<u8>> {
    let mut rest = &answer.opt.as_ref()?.rdata[..];
    while let [code1, code0, len1, len0, after @ ..] = rest {
        let (data, more) = after.split_at(usize::from(u16::from_be_bytes([*len1, *len0])));
        if u16::from_be_bytes([*code1, *code0]) == wanted {
            return Some(data.to_vec());
        }
        rest = more;
    }
    None
}

#[test]
fn settings_of_answers_reach_clients_over_udp_and_tcp() {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let config = place.path().join("weir.toml");
    let text = "[server]\nzones = \".\"\nversion = \"1\"\n[edns]\nnsid = \"ams-1\"\nudp_payload_v4 = 1400\n\
                [answers]\nminimal = false\n[tcp]\nidle_timeout = \"3s\"\n";
    fs::write(&config, text).unwrap();
    let mut command = weir();
    command.args(["serve", "--config"]).arg(&config);
    let server = Server::serve_command(command, &[]);

    let packet = with_options(&[(NSID, b""), (COOKIE, &[7; 8]), (KEEPALIVE, b"")]);
    let over_udp = client::exchange_udp(server.address, &packet, SOON).unwrap();
    let over_tcp = client::exchange_tcp(server.address, &packet, SOON).unwrap();
    let [udp, tcp] = [over_udp, over_tcp].map(|octets| Answer::from_wire(&octets).unwrap());
    for answer in [&udp, &tcp] {
        assert_eq!(option(answer, NSID).as_deref(), Some(&b"ams-1"[..]));
        assert_eq!(answer.opt.as_ref().map(|opt| opt.class), Some(1400));
        assert!(answer.authority.iter().any(|record| record.rtype == 2), "full answers name the servers");
    }
    assert_eq!(option(&tcp, KEEPALIVE), Some(vec![0, 30]));
    assert_eq!(option(&udp, KEEPALIVE), None);
    // One secret for all threads: what UDP gives out is what TCP makes, but for the second in which it is made.
    let secret_part =
        |answer: &Answer| option(answer, COOKIE).map(|both| (both.len(), both[12..16].to_vec(), both));
    let (Some(one), Some(two)) = (secret_part(&udp), secret_part(&tcp)) else { panic!("cookies are on") };
    assert_eq!(one.0, 24);
    assert!(one.1 != two.1 || one.2 == two.2, "the same second gives the same cookie");

    let mut version = Query::new(Name::from_text("version.bind"), TXT).to_wire(8);
    *version.last_mut().unwrap() = 3;
    let answer = client::exchange_udp(server.address, &version, SOON).unwrap();
    assert_eq!(Answer::from_wire(&answer).unwrap().answer[0].rdata, b"\x011");
    server.stop();
}
