//! Asks one question over UDP until it is answered.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;

/// How often the question is repeated: the resolution of the times from start to first answer.
const EVERY: Duration = Duration::from_millis(5);
/// TYPE numbers of the questions that workloads begin with (RFC 1035, RFC 3596, RFC 4034, RFC 3658).
const TYPES: [(&str, u16); 6] = [("A", 1), ("MX", 15), ("TXT", 16), ("AAAA", 28), ("DS", 43), ("DNSKEY", 48)];

/// Prints `asking`, asks until an answer comes with NOERROR or NXDOMAIN, and prints `answered`.
pub(crate) fn ask(server: SocketAddr, name: &str, kind: &str) -> anyhow::Result<()> {
    let query = query(name, kind)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(EVERY))?;
    say("asking")?;
    let mut answer = [0; 4096];
    loop {
        // Refused while nobody listens: asked again after the same pause.
        if socket.send(&query).is_err() {
            std::thread::sleep(EVERY);
            continue;
        }
        match socket.recv(&mut answer) {
            Ok(n) if is_answer(&answer[..n]) => return say("answered"),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => std::thread::sleep(EVERY),
            Err(_) => {}
        }
    }
}

/// Asks one question from a port of its own, by a socket that is connected or not, and prints the port.
pub(crate) fn ask_once(server: SocketAddr, name: &str, kind: &str, connected: bool) -> anyhow::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let query = query(name, kind)?;
    if connected {
        socket.connect(server)?;
        socket.send(&query)?;
    } else {
        socket.send_to(&query, server)?;
    }
    socket.recv_from(&mut [0; 4096]).context("no answer")?;
    say(&socket.local_addr()?.port().to_string())
}

fn say(word: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}")?;
    Ok(out.flush()?)
}

/// A response with NOERROR or NXDOMAIN: servers say SERVFAIL or REFUSED while they load.
fn is_answer(message: &[u8]) -> bool {
    matches!(message, [_, _, flags, rcode, ..] if flags & 0x80 != 0 && matches!(rcode & 0x0f, 0 | 3))
}

/// A message that asks one question, without EDNS.
fn query(name: &str, kind: &str) -> anyhow::Result<Vec<u8>> {
    let (_, number) =
        TYPES.into_iter().find(|(text, _)| *text == kind).with_context(|| format!("type {kind}"))?;
    let mut query = vec![0x13, 0x37, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        query.push(u8::try_from(label.len())?);
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(number.to_be_bytes());
    query.extend([0, 1]);
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_header_a_name_a_type_and_a_class() {
        assert_eq!(query("a.bc", "AAAA").unwrap()[12..], [1, b'a', 2, b'b', b'c', 0, 0, 28, 0, 1]);
        assert_eq!(query(".", "A").unwrap()[12..], [0, 0, 1, 0, 1]);
        assert!(query("a", "WKS").is_err());
    }

    #[test]
    fn a_failing_server_has_not_answered() {
        assert!(is_answer(&[0, 0, 0x84, 3]));
        assert!(!is_answer(&[0, 0, 0x80, 2]) && !is_answer(&[0, 0, 0, 0]) && !is_answer(&[0]));
    }
}
