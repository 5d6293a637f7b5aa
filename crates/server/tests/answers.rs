//! Settings of answers, from the file to what a client sees, the same over UDP and TCP.

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{SOA, Server, TXT, folder, write_zone, zone};
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

/// A server of example.com with this configuration besides.
fn serve(place: &Path, config: &str) -> Server {
    write_zone(place, "example.com", &zone(1, "192.0.2.1"));
    Server::serve_config(place, config)
}

#[test]
fn settings_of_answers_reach_clients_over_udp_and_tcp() {
    let place = folder();
    let text = "[server]\nzones = \".\"\nversion = \"1\"\n[edns]\nnsid = \"ams-1\"\nudp_payload_v4 = 1400\n\
                [answers]\nminimal = false\n[tcp]\nidle_timeout = \"3s\"\n";
    let server = serve(place.path(), text);

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

#[test]
fn cookie_secrets_are_exchanged_without_a_restart_and_without_a_query_lost() {
    const OLD: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf\n";
    const NEW: &str = "445536bcd2513298075a5d379663c962\n";
    const BADCOOKIE: u16 = 23;
    let place = folder();
    let write = |secrets: &[&str]| fs::write(place.path().join("secrets"), secrets.concat()).unwrap();
    write(&[OLD]);
    let config = "[server]\nzones = \".\"\n[cookies]\nsecrets_file = \"secrets\"\nrequired = true\n";
    let server = serve(place.path(), config);
    let ask = |cookie: &[u8]| {
        let octets = client::exchange_udp(server.address, &with_options(&[(COOKIE, cookie)]), SOON).unwrap();
        Answer::from_wire(&octets).unwrap()
    };
    let is_good = |cookie: &[u8]| match ask(cookie).rcode() {
        0 => true,
        BADCOOKIE => false,
        other => panic!("response code {other}"),
    };
    let exchange_for = |secrets: &[&str]| {
        write(secrets);
        let log = server.reload();
        assert!(log.contains("in force from now on: cookies") && !log.contains("445536"), "{log}");
    };

    let old = option(&ask(&[7; 8]), COOKIE).unwrap();
    let n_asked = std::thread::scope(|scope| {
        let exchanging = scope.spawn(|| [[OLD, NEW], [NEW, OLD]].iter().for_each(|both| exchange_for(both)));
        let mut n_asked = 0;
        while !exchanging.is_finished() {
            assert!(is_good(&old), "the old cookie is good at any moment");
            n_asked += 1;
        }
        n_asked
    });
    assert!(n_asked > 2);
    let new = option(&ask(&[7; 8]), COOKIE).unwrap();
    let over_tcp = client::exchange_tcp(server.address, &with_options(&[(COOKIE, &[7; 8])]), SOON).unwrap();
    let new_over_tcp = option(&Answer::from_wire(&over_tcp).unwrap(), COOKIE).unwrap();
    exchange_for(&[NEW]);
    assert!(is_good(&new) && is_good(&new_over_tcp), "cookies were made with the new secret");
    assert!(!is_good(&old), "the old secret is gone");
    server.stop();
}

#[test]
fn settings_of_answers_are_in_force_after_a_reload() {
    let place = folder();
    let text = "[server]\nzones = \".\"\n";
    let server = serve(place.path(), text);
    let ask = || {
        let octets = client::exchange_udp(server.address, &with_options(&[(NSID, b"")]), SOON).unwrap();
        Answer::from_wire(&octets).unwrap()
    };
    assert!(option(&ask(), NSID).is_none() && ask().authority.is_empty());
    let new = format!("{text}[edns]\nnsid = \"ams-1\"\n[answers]\nminimal = false\n");
    fs::write(place.path().join("weir.toml"), &new).unwrap();
    let log = server.reload();
    assert!(log.contains("in force from now on: answers, edns\""), "{log}");
    assert_eq!(option(&ask(), NSID).as_deref(), Some(&b"ams-1"[..]));
    assert!(!ask().authority.is_empty(), "full answers name the servers");
    fs::write(place.path().join("weir.toml"), format!("{text}[edns]\nnsid = 7\n")).unwrap();
    server.reload();
    assert!(option(&ask(), NSID).is_some(), "a bad configuration changes nothing");
    server.stop();
}

#[test]
fn a_reload_names_what_it_took_over_though_no_answer_changes_by_it() {
    let place = folder();
    let text = "[server]\nzones = \".\"\n";
    let server = serve(place.path(), text);
    fs::write(place.path().join("weir.toml"), format!("{text}[checks]\nmax_nsec3_iterations = 9\n")).unwrap();
    let log = server.reload();
    assert!(log.contains("in force from now on: checks\""), "{log}");
    let log = server.reload();
    assert!(!log.contains("in force"), "nothing was changed: {log}");
    server.stop();
}
