//! `weir healthcheck`: asks a server one question and is content with any answer; tells by the way when its zones are
//! still being loaded.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weir_wire::header::{Flags, HEADER_LEN};
use weir_wire::name::Name;
use weir_wire::query;
use weir_wire::rtype::Rtype;

use crate::cli::HealthcheckArgs;

/// How long one address may take: two addresses and their repetition stay below Docker's usual timeout of 3 s.
const PATIENCE: Duration = Duration::from_millis(1200);
/// When the query is sent again: a datagram may be lost on a busy host.
const REPEAT_AFTER: Duration = Duration::from_millis(400);

/// The request for what /readyz says.
const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n";
/// How long /readyz may take: it only adds to what is known.
const PATIENCE_WITH_HTTP: Duration = Duration::from_millis(300);

/// A server that answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Healthy {
    /// Where.
    address: SocketAddr,
    /// What /readyz says when it does not say that all zones are loaded.
    reservation: Option<String>,
}

impl fmt::Display for Healthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers", self.address)?;
        self.reservation.as_ref().map_or(Ok(()), |text| write!(f, ", {text}"))
    }
}

/// The server that answered, or why none did.
pub(crate) fn check(args: &HealthcheckArgs) -> Result<Healthy, String> {
    let mut failures = Vec::new();
    for address in args.candidates() {
        match ask(address) {
            Ok(()) => {
                return Ok(Healthy { address, reservation: args.metrics_address().and_then(reservation) });
            }
            Err(error) => failures.push(format!("{address}: {error}")),
        }
    }
    Err(format!("no answer from {}; is the server running, and is --server right?", failures.join(", ")))
}

/// Asks for the SOA of the root: REFUSED from most servers, and an answer all the same.
fn ask(server: SocketAddr) -> io::Result<()> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Connected: the kernel hands over what comes from the server alone, and its refusals as errors.
    socket.connect(server)?;
    socket.set_read_timeout(Some(REPEAT_AFTER))?;
    let (id, mut message, deadline) = (random_id(), [0; 64], Instant::now() + PATIENCE);
    let n_octets =
        query::write(&mut message, id, Name::ROOT, Rtype::SOA, None).ok_or(io::ErrorKind::InvalidData)?;
    let query = message.get(..n_octets).unwrap_or(&[]);
    let mut answer = [0; 4096];
    while Instant::now() < deadline {
        socket.send(query)?;
        match socket.recv(&mut answer) {
            Ok(n_octets) if is_answer(answer.get(..n_octets).unwrap_or(&[]), query) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} ms", PATIENCE.as_millis())))
}

/// The line of /readyz when it is no success; none when nobody speaks HTTP there either.
fn reservation(metrics: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&metrics, PATIENCE_WITH_HTTP).ok()?;
    stream.write_all(REQUEST).ok()?;
    let (mut octets, mut n_octets, deadline) = ([0; 4096], 0, Instant::now() + PATIENCE_WITH_HTTP);
    loop {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(octets.get_mut(n_octets..)?).ok()? {
            0 => break,
            n_more => n_octets += n_more,
        }
    }
    let answer = std::str::from_utf8(octets.get(..n_octets)?).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 503").then(|| body.lines().next().unwrap_or_default().to_owned())
}

/// Whether `answer` is a response to `query`: its id, QR set, and the question as asked if there is one.
fn is_answer(answer: &[u8], query: &[u8]) -> bool {
    let (Some(header), Some(asked)) = (answer.first_chunk::<HEADER_LEN>(), query.first_chunk::<HEADER_LEN>())
    else {
        return false;
    };
    let flags = Flags(u16::from_be_bytes([header[2], header[3]]));
    let has_question = header[4..6] == [0, 1];
    let question = query.get(HEADER_LEN..).unwrap_or(&[]);
    header[..2] == asked[..2]
        && flags.is_response()
        && (!has_question || answer.get(HEADER_LEN..).is_some_and(|rest| rest.starts_with(question)))
}

/// An id that is hard to guess: nobody else's late answer passes for this one.
fn random_id() -> u16 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let [low, high, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    u16::from_ne_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn args(server: SocketAddr) -> HealthcheckArgs {
        HealthcheckArgs { server: server.to_string().parse().ok(), listen: Vec::new(), metrics: None }
    }

    /// A server that sends `reply(query)` to one query.
    fn server(reply: fn(&mut [u8])) -> (SocketAddr, thread::JoinHandle<()>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let mut message = [0; 512];
            let (n_octets, client) = socket.recv_from(&mut message).unwrap();
            reply(&mut message[..n_octets]);
            socket.send_to(&message[..n_octets], client).unwrap();
        });
        (address, thread)
    }

    #[test]
    fn a_server_that_answers_at_all_is_healthy() {
        let (address, thread) = server(|message| {
            message[2] |= 0x80;
            message[3] |= 5;
        });
        assert_eq!(check(&args(address)), Ok(Healthy { address, reservation: None }));
        thread.join().unwrap();
    }

    #[test]
    fn zones_that_are_being_loaded_are_told_of() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
            let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 31\r\n\r\n";
            writeln!(stream, "{head}loading: 3 of 10 zones are done").unwrap();
        });
        assert_eq!(reservation(metrics).as_deref(), Some("loading: 3 of 10 zones are done"));
        thread.join().unwrap();
        assert_eq!(reservation(metrics), None);
    }

    #[test]
    fn an_echo_of_the_query_is_no_answer() {
        let (address, thread) = server(|_| {});
        let error = check(&args(address)).unwrap_err();
        assert!(error.contains(&address.to_string()), "{error}");
        thread.join().unwrap();
    }

    #[test]
    fn a_port_where_nobody_listens_is_unhealthy_at_once() {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(check(&args(address)).unwrap_err().contains("refused"));
    }
}
