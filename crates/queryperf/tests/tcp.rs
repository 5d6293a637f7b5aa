//! Loads over TCP: pipelined, a connection a query, and against servers that close connections.

mod common;

use std::collections::BTreeSet;

use common::{Report, Responder, names};

fn echo() -> Responder {
    Responder::tcp(|query| Some(vec![query.answer()]))
}

#[test]
fn connections_carry_many_queries_and_each_is_answered_once() {
    let server = echo();
    let arguments = ["-m", "tcp", "-c", "4", "-T", "2", "-n", "2"];
    let report = Report::of(server.address, &names(500), &arguments);
    assert_eq!(report.counts(["sent", "answered", "lost", "doubled", "wrong"]), [1000, 1000, 0, 0, 0]);
    assert_eq!(report.count("connections"), 4);
    let peers: BTreeSet<_> = server.seen().iter().map(|query| query.peer).collect();
    let questions: BTreeSet<_> = server.seen().iter().map(|query| query.question().to_vec()).collect();
    assert_eq!((peers.len(), questions.len(), server.seen().len()), (4, 500, 1000));
}

#[test]
fn queries_are_sent_ahead_of_answers_over_one_connection() {
    // The first answers come when the tenth query is there.
    let held = std::sync::Mutex::new(Vec::new());
    let server = Responder::tcp(move |query| {
        let mut held = held.lock().unwrap();
        held.push(query.answer());
        Some(if query.number.is_multiple_of(10) { std::mem::take(&mut *held) } else { Vec::new() })
    });
    let report = Report::of(server.address, &names(200), &["-m", "tcp", "-c", "1", "-q", "10", "-t", "30"]);
    assert_eq!(report.counts(["sent", "answered", "lost"]), [200, 200, 0]);
}

#[test]
fn a_connection_a_query_comes_from_each_address_in_turn() {
    let server = echo();
    let arguments = ["-m", "tcp", "--queries-per-conn", "1", "-a", "127.0.0.2,127.0.0.3", "-c", "8"];
    let report = Report::of(server.address, &names(200), &arguments);
    assert_eq!(report.counts(["sent", "answered", "lost", "connections"]), [200, 200, 0, 200]);
    let seen = server.seen();
    let peers: BTreeSet<_> = seen.iter().map(|query| query.peer).collect();
    assert_eq!(peers.len(), 200);
    let from_first = peers.iter().filter(|peer| peer.ip().to_string() == "127.0.0.2").count();
    assert_eq!(from_first, 100);
}

#[test]
fn answers_that_stay_away_or_come_twice_or_are_wrong_are_counted() {
    let server = Responder::tcp(|query| {
        let mut answer = query.answer();
        Some(match query.number % 100 {
            0 => vec![],
            1 => vec![answer.clone(), answer],
            2 => {
                answer[14] ^= 1;
                vec![answer]
            }
            _ => vec![answer],
        })
    });
    let report = Report::of(server.address, &names(1000), &["-m", "tcp", "-c", "2", "-t", "2"]);
    assert_eq!(report.counts(["sent", "answered", "lost", "doubled", "wrong"]), [1000, 980, 20, 10, 10]);
}

#[test]
fn a_connection_that_the_server_closes_is_made_again() {
    let server = Responder::tcp(|query| (!query.number.is_multiple_of(50)).then(|| vec![query.answer()]));
    let report = Report::of(server.address, &names(500), &["-m", "tcp", "-q", "1"]);
    assert_eq!(report.counts(["sent", "answered", "lost"]), [500, 490, 10]);
    // The last query closes the last connection.
    assert_eq!(report.count("connections"), 10);
}

#[test]
fn an_open_loop_spreads_its_rate_over_connections() {
    let server = echo();
    let report = Report::of(server.address, &names(50), &["-m", "tcp", "-Q", "500", "-l", "1", "-c", "4"]);
    let [sent, answered, unsent] = report.counts(["sent", "answered", "unsent"]);
    assert_eq!((sent + unsent, answered), (500, sent));
    let peers: BTreeSet<_> = server.seen().iter().map(|query| query.peer).collect();
    assert_eq!(peers.len(), 4);
}

#[test]
fn a_port_where_nobody_listens_ends_the_load_with_its_name() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = common::queryperf(address, &names(3), &["-m", "tcp"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(&format!("cannot connect to {address} over TCP")), "{errors}");
}
