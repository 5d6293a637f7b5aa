//! Loads over UDP against servers that answer, and that do not answer as they should: counts agree to the packet.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Report, Responder, names, queryperf};

/// A server that answers everything.
fn echo() -> Responder {
    Responder::udp(|query| vec![query.answer()])
}

#[test]
fn each_query_of_the_file_is_asked_and_answered_once_a_run() {
    let server = echo();
    let report = Report::of(server.address, &names(300), &["-n", "3", "-T", "2", "-c", "5"]);
    assert_eq!(
        report.counts(["sent", "answered", "lost", "doubled", "wrong", "late"]),
        [900, 900, 0, 0, 0, 0]
    );
    let mut times_asked: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for query in server.seen() {
        *times_asked.entry(query.question().to_vec()).or_default() += 1;
    }
    assert_eq!(times_asked.len(), 300);
    assert!(times_asked.values().all(|&n| n == 3));
    assert!(report.number("answers_per_second") > 0.0);
}

#[test]
fn a_query_without_an_answer_is_lost() {
    let server = Responder::udp(|query| query.unless_every(10));
    let report = Report::of(server.address, &names(1000), &["-t", "2"]);
    assert_eq!(report.counts(["sent", "answered", "lost"]), [1000, 900, 100]);
    assert_eq!(server.seen().len(), 1000);
}

#[test]
fn a_second_answer_is_doubled_and_not_an_answer() {
    let server = Responder::udp(|query| {
        let n_answers = if query.number.is_multiple_of(7) { 2 } else { 1 };
        vec![query.answer(); n_answers]
    });
    let report = Report::of(server.address, &names(1000), &[]);
    assert_eq!(report.counts(["sent", "answered", "lost", "doubled"]), [1000, 1000, 0, 142]);
}

/// What is counted when every fifth of 1,000 answers is spoilt.
fn spoilt(spoil: impl Fn(&mut [u8]) + Send + 'static) -> [usize; 4] {
    let server = Responder::udp(move |query| {
        let mut answer = query.answer();
        if query.number.is_multiple_of(5) {
            spoil(&mut answer);
        }
        vec![answer]
    });
    let report = Report::of(server.address, &names(1000), &["-t", "2"]);
    report.counts(["sent", "answered", "lost", "wrong"])
}

#[test]
fn an_answer_with_another_id_is_wrong() {
    assert_eq!(spoilt(|answer| answer[0] ^= 0x80), [1000, 800, 200, 200]);
}

#[test]
fn an_answer_to_another_question_is_wrong() {
    assert_eq!(spoilt(|answer| answer[14] ^= 1), [1000, 800, 200, 200]);
}

#[test]
fn a_query_that_comes_back_as_it_was_is_wrong() {
    assert_eq!(spoilt(|answer| answer[2] &= 0x7f), [1000, 800, 200, 200]);
}

#[test]
fn an_answer_from_another_port_than_asked_is_not_taken() {
    // Connected sockets do not even receive it.
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = Responder::udp(move |query| {
        stranger.send_to(&query.answer(), query.peer).unwrap();
        query.unless_every(2)
    });
    let report = Report::of(server.address, &names(40), &["-t", "1"]);
    assert_eq!(report.counts(["sent", "answered", "lost", "doubled"]), [40, 20, 20, 0]);
}

#[test]
fn response_codes_and_truncated_answers_are_counted() {
    let server = Responder::udp(|query| {
        let mut answer = query.answer();
        answer[2] |= if query.number.is_multiple_of(4) { 0x02 } else { 0 };
        answer[3] |= if query.number.is_multiple_of(2) { 3 } else { 0 };
        vec![answer]
    });
    let report = Report::of(server.address, &names(100), &[]);
    assert_eq!(report.count("truncated"), 25);
    assert_eq!(report.value("rcodes"), &serde_json::json!({"NOERROR": 50, "NXDOMAIN": 50}));
}

#[test]
fn an_open_loop_sends_what_its_rate_says_or_says_what_it_left_out() {
    let server = echo();
    let report = Report::of(server.address, &names(100), &["-Q", "2000", "-l", "1", "-T", "2"]);
    let [sent, answered, lost, unsent] = report.counts(["sent", "answered", "lost", "unsent"]);
    assert_eq!(sent + unsent, 2000);
    assert_eq!(answered + lost, sent);
    assert!(sent > 0 && report.number("seconds") >= 0.9);
}

#[test]
fn an_open_loop_does_not_wait_for_answers() {
    // Only the 500th is answered; a closed loop would stop at 100.
    let server = Responder::udp(|query| if query.number == 500 { vec![query.answer()] } else { Vec::new() });
    let report = Report::of(server.address, &names(500), &["-Q", "5000", "-t", "1"]);
    assert_eq!(report.counts(["sent", "answered", "lost"]), [500, 1, 499]);
}

#[test]
fn an_open_loop_is_not_limited_by_the_ids_of_one_port() {
    // Nobody reads: everything is on its way until it is given up.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let arguments = ["-Q", "60000", "-l", "2", "-t", "2.5", "-c", "4", "--json"];
    let output = queryperf(silent.local_addr().unwrap(), &names(100), &arguments);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [sent, lost, unsent] = ["sent", "lost", "unsent"].map(|key| report[key].as_u64().unwrap());
    assert_eq!((sent + unsent, lost), (120_000, sent));
    assert!(sent > 1 << 16, "{sent}");
}

#[test]
fn a_closed_loop_keeps_as_many_on_their_way_as_it_may() {
    const WINDOW: usize = 20;
    // Answers only when the window is full and stays so.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let address = socket.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut octets = [0; 512];
        let (mut n_rounds, mut held) = (0, Vec::new());
        while n_rounds < 10 {
            match socket.recv_from(&mut octets) {
                Ok((n, peer)) => held.push((octets[..n].to_vec(), peer)),
                Err(_) if held.len() < WINDOW => {}
                Err(_) => {
                    assert_eq!(held.len(), WINDOW);
                    for (mut answer, peer) in held.drain(..) {
                        answer[2] |= 0x80;
                        socket.send_to(&answer, peer).unwrap();
                    }
                    n_rounds += 1;
                }
            }
        }
    });
    let report = Report::of(address, &names(10 * WINDOW), &["-q", "20", "-c", "3", "-t", "30"]);
    server.join().unwrap();
    assert_eq!(report.counts(["sent", "answered", "lost"]), [200, 200, 0]);
}

#[test]
fn queries_come_from_as_many_ports_and_addresses_as_asked_for() {
    let server = echo();
    let arguments = ["-c", "50", "-T", "3", "-a", "127.0.0.2,127.9.0.0/30", "--in-a-row", "1"];
    Report::of(server.address, &names(500), &arguments);
    let peers: BTreeSet<_> = server.seen().iter().map(|query| query.peer).collect();
    assert_eq!(peers.len(), 50);
    let addresses: BTreeSet<_> = peers.iter().map(|peer| peer.ip().to_string()).collect();
    assert_eq!(addresses.into_iter().collect::<Vec<_>>(), ["127.0.0.2", "127.9.0.1", "127.9.0.2"]);
}

#[test]
fn a_server_on_ipv6_is_asked() {
    let server = Responder::udp_on("[::1]:0", |query| vec![query.answer()]);
    let report = Report::of(server.address, &names(10), &[]);
    assert_eq!(report.counts(["sent", "answered"]), [10, 10]);
}

#[test]
fn dnssec_records_are_asked_for_in_an_edns_record() {
    let server = echo();
    Report::of(server.address, "a. A\n", &["-D", "--edns-size", "4096"]);
    Report::of(server.address, "a. A\n", &["-e"]);
    Report::of(server.address, "a. A\n", &[]);
    let seen = server.seen();
    let tails: Vec<&[u8]> = seen.iter().map(|query| &query.question()[7..]).collect();
    let with_do = b"\0\0\x29\x10\0\0\0\x80\0\0\0";
    let without = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
    assert_eq!(tails, [&with_do[..], &without[..], &[]]);
}

#[test]
fn the_first_lines_are_the_most_popular_by_zipf() {
    let server = echo();
    Report::of(server.address, &names(1000), &["--zipf", "1"]);
    let seen = server.seen();
    let times = |name: &[u8]| seen.iter().filter(|query| query.question().starts_with(name)).count();
    // About 134 of 1,000 for the first by the harmonic number of 1,000; the seed is fixed.
    let first = times(b"\x05host0\x07");
    assert!((90..180).contains(&first), "{first}");
    assert!(times(b"\x07host900\x07") < 10);
}

#[test]
fn the_search_ends_at_the_rate_at_which_the_server_begins_to_lose() {
    // Each step comes from a port of its own, and 40 queries a port are answered: 200 a second in 0.2 s.
    let mut n_answered: BTreeMap<u16, usize> = BTreeMap::new();
    let server = Responder::udp(move |query| {
        let n_answered = n_answered.entry(query.peer.port()).or_default();
        *n_answered += 1;
        if *n_answered <= 40 { vec![query.answer()] } else { Vec::new() }
    });
    let arguments = ["--ramp", "--ramp-from", "100", "-c", "1", "-l", "0.2", "-t", "0.5"];
    let report = Report::of(server.address, &names(100), &arguments);
    let ramp = report.value("ramp");
    let rate = ramp["highest_rate"].as_f64().unwrap();
    // 41 queries a step are 205 a second. A busy machine may find less.
    assert!((20.0..205.1).contains(&rate), "{ramp}");
    let steps = ramp["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["verdict"] == "lost_too_much"), "{ramp}");
    assert_eq!(report.number("rate").to_bits(), rate.to_bits());
}

#[test]
fn a_port_where_nobody_listens_is_a_failure_that_says_so() {
    let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = queryperf(address, &names(3), &["-t", "0.1", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["refused"].as_u64().unwrap() > 0);
    assert_eq!(report["answered"], 0);
}

#[test]
fn a_slow_server_ranks_behind_a_quick_one() {
    let quick = echo();
    // The nap is the fault under test: no more than 500 answers a second.
    let slow = Responder::udp(|query| {
        std::thread::sleep(Duration::from_millis(2));
        vec![query.answer()]
    });
    let rate = |server: &Responder| {
        Report::of(server.address, &names(500), &["-n", "2"]).number("answers_per_second")
    };
    let (quick, slow) = (rate(&quick), rate(&slow));
    assert!(slow <= 500.0 && slow < quick, "slow {slow}, quick {quick}");
}
