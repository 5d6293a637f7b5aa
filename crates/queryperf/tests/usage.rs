//! What queryperf refuses, and how it says so.

mod common;

use std::fs;
use std::io::Write;

use common::{Responder, names, queryperf, run};

fn refusal(arguments: &[&str], queries: &str) -> (Option<i32>, String) {
    let output = run(arguments, queries);
    assert!(output.stdout.is_empty());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_server_of_others_is_refused_without_a_word() {
    // Addresses for documentation: nothing would answer there even if queries left (RFC 5737, RFC 3849).
    for server in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
        let (code, message) = refusal(&["-s", server], "a. A\n");
        assert_eq!(code, Some(1), "{server}");
        assert!(message.contains("--yes-really"), "{message}");
        assert_eq!(message.lines().count(), 1);
    }
}

#[test]
fn a_mistake_in_the_query_file_is_named_by_file_and_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"; fine\na. A\nb. NOTATYPE\n").unwrap();
    let path = file.path().to_str().unwrap();
    let (code, message) = refusal(&["-d", path], "");
    assert_eq!(code, Some(1));
    assert!(
        message.contains(path) && message.contains("line 3") && message.contains("NOTATYPE"),
        "{message}"
    );
    fs::remove_file(path).unwrap();
    let (code, message) = refusal(&["-d", path], "");
    assert_eq!(code, Some(1));
    assert!(message.contains(path) && message.contains("No such file"), "{message}");
    assert!(refusal(&[], "").1.contains("standard input: no query in it"));
}

#[test]
fn wrong_usage_ends_with_two() {
    for arguments in [&["-Q", "fast"][..], &["-m", "dot"], &["--ramp", "-Q", "5"], &["-a", "10.0.0.0/2"]] {
        assert_eq!(refusal(arguments, "").0, Some(2), "{arguments:?}");
    }
}

#[test]
fn addresses_of_another_family_cannot_send() {
    let (code, message) = refusal(&["-s", "127.0.0.1", "-a", "::1"], "a. A\n");
    assert_eq!(code, Some(1));
    assert!(message.contains("::1 cannot send to 127.0.0.1"), "{message}");
}

#[test]
fn the_report_for_people_says_what_was_asked_and_what_came() {
    let server = Responder::udp(|query| query.unless_every(5));
    let output = queryperf(server.address, &names(100), &["-t", "0.5", "-S", "0.2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |line: &[&str]| words.windows(line.len()).any(|window| window == line);
    assert!(text.starts_with(&format!("{} over UDP", server.address)), "{text}");
    assert!(has(&["sent", "100"]) && has(&["answered", "80", "80.000", "%"]), "{text}");
    assert!(has(&["lost", "20", "20.000", "%"]) && has(&["NOERROR", "80"]) && has(&["p99.9"]), "{text}");
    let lines = String::from_utf8(output.stderr).unwrap();
    assert!(lines.contains("answered/s"), "{lines}");
}
