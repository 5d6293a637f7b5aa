//! A DNS client for loopback: single questions, and thousands of them with a window in flight.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::message::{Answer, Name, Query};

/// Questions in flight to one server. Below what the smallest default receive buffer (208 KiB) takes.
const WINDOW: usize = 48;
/// How long an answer may take before its question is asked again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a question is asked before its server counts as silent.
const TRIES: u32 = 6;
/// Questions written to a TCP connection before their answers are read: BIND reads no more than 23 ahead.
const PIPELINED: usize = 16;
/// Questions before a new TCP connection is made.
const PER_CONNECTION: usize = 512;
/// TCP connections at a time. Servers that write each answer on its own wait for the client's delayed acknowledgements:
/// that time is spent in parallel.
const CONNECTIONS: usize = 8;

/// Sends a datagram and gives the first one that comes back, if one does before `patience` ends.
pub fn exchange_udp(server: SocketAddr, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(patience))?;
    socket.send(request)?;
    let mut buffer = vec![0; 65_535];
    let n = socket.recv(&mut buffer)?;
    buffer.truncate(n);
    Ok(buffer)
}

/// Opens a TCP connection, sends one message with its length and gives the one that comes back.
pub fn exchange_tcp(server: SocketAddr, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = connect(server, patience)?;
    stream.write_all(&framed(request))?;
    read_framed(&mut stream)
}

/// True as soon as the server answers for `zone` with NOERROR over UDP; tries until `deadline`.
pub fn answers_for(server: SocketAddr, zone: &Name, deadline: Instant) -> bool {
    let request = Query::new(zone.clone(), 6).to_wire(1);
    while Instant::now() < deadline {
        let reply = exchange_udp(server, &request, Duration::from_millis(50));
        if reply
            .ok()
            .and_then(|r| Answer::from_wire(&r).ok())
            .is_some_and(|a| a.rcode() == 0 && a.id == 1 && a.flags & 0x8000 != 0)
        {
            return true;
        }
        // A port that nothing listens on yet refuses at once.
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Asks all questions over UDP, a window of them at a time, lost ones again. Answers come in the order of the questions.
///
/// # Panics
/// When the server stays silent, or answers with something that is not a message or repeats another question.
pub fn ask_udp(server: SocketAddr, queries: &[Query]) -> Vec<Answer> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback port is free");
    socket.connect(server).expect("loopback can be reached");
    socket.set_read_timeout(Some(PATIENCE / 4)).expect("the time is not zero");
    let mut answers: Vec<Option<Answer>> = vec![None; queries.len()];
    let mut in_flight: Vec<(usize, Instant, u32)> = Vec::with_capacity(WINDOW);
    let mut next = 0;
    let mut buffer = vec![0; 65_535];
    while next < queries.len() || !in_flight.is_empty() {
        while in_flight.len() < WINDOW && next < queries.len() {
            socket.send(&queries[next].to_wire(id_of(next))).expect("the server's port is open");
            in_flight.push((next, Instant::now(), 1));
            next += 1;
        }
        if let Ok(n) = socket.recv(&mut buffer) {
            let answer = parse(server, &buffer[..n]);
            if let Some(place) = in_flight.iter().position(|(i, ..)| id_of(*i) == answer.id) {
                let (index, ..) = in_flight.swap_remove(place);
                check_question(server, &queries[index], &answer);
                answers[index] = Some(answer);
            }
        }
        ask_again(&socket, server, queries, &mut in_flight);
    }
    answers.into_iter().map(|a| a.expect("every question left the window with an answer")).collect()
}

/// Asks all questions over TCP, pipelined, on several connections. Answers come in the order of the questions.
///
/// # Panics
/// As [`ask_udp`], and when the connection ends early.
pub fn ask_tcp(server: SocketAddr, queries: &[Query]) -> Vec<Answer> {
    let share = queries.len().div_ceil(CONNECTIONS).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            queries.chunks(share).map(|part| scope.spawn(move || ask_part(server, part))).collect();
        threads.into_iter().flat_map(|t| t.join().expect("every connection gets its answers")).collect()
    })
}

/// The records of a whole zone by AXFR (RFC 5936), the closing SOA left out.
///
/// # Panics
/// When the transfer is refused or broken.
pub fn transfer(server: SocketAddr, zone: &Name) -> Vec<crate::message::Record> {
    let mut stream = connect(server, Duration::from_secs(30)).expect("the server takes connections");
    stream.write_all(&framed(&Query::new(zone.clone(), 252).to_wire(7))).expect("the connection stays open");
    let mut records = Vec::new();
    loop {
        let message = read_framed(&mut stream).expect("the transfer goes on");
        let answer = parse(server, &message);
        assert_eq!(answer.rcode(), 0, "{server} refuses the transfer of {zone}");
        records.extend(answer.answer);
        if records.len() > 1 && records.last().is_some_and(|r| r.rtype == 6) {
            records.pop();
            return records;
        }
    }
}

fn connect(server: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn ask_part(server: SocketAddr, queries: &[Query]) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(queries.len());
    for batch in queries.chunks(PER_CONNECTION) {
        let mut stream = connect(server, Duration::from_secs(10)).expect("the server takes connections");
        for window in batch.chunks(PIPELINED) {
            answers.extend(ask_window(&mut stream, server, window));
        }
    }
    answers
}

/// Writes a window of questions at once and reads as many answers, in whatever order they come (RFC 7766, section 7).
fn ask_window(stream: &mut TcpStream, server: SocketAddr, window: &[Query]) -> Vec<Answer> {
    let requests: Vec<u8> =
        window.iter().enumerate().flat_map(|(i, q)| framed(&q.to_wire(id_of(i)))).collect();
    stream.write_all(&requests).expect("the connection stays open");
    let mut answers: Vec<Option<Answer>> = vec![None; window.len()];
    for _ in window {
        let reply = read_framed(stream)
            .unwrap_or_else(|e| panic!("{server} ends the connection: {e}, asked {window:?}"));
        let answer = parse(server, &reply);
        let index = usize::from(answer.id);
        check_question(server, &window[index], &answer);
        answers[index] = Some(answer);
    }
    answers.into_iter().map(|a| a.expect("as many answers as questions, each with its id")).collect()
}

fn ask_again(
    socket: &UdpSocket,
    server: SocketAddr,
    queries: &[Query],
    in_flight: &mut [(usize, Instant, u32)],
) {
    for (index, sent, tries) in in_flight.iter_mut().filter(|(_, sent, _)| sent.elapsed() > PATIENCE) {
        assert!(*tries < TRIES, "{server} does not answer {}", queries[*index]);
        socket.send(&queries[*index].to_wire(id_of(*index))).expect("the server's port is open");
        *sent = Instant::now();
        *tries += 1;
    }
}

/// The id of the question with this index: unique among those in flight.
fn id_of(index: usize) -> u16 {
    u16::try_from(index % 65_536).expect("it is below 65,536")
}

fn parse(server: SocketAddr, message: &[u8]) -> Answer {
    Answer::from_wire(message)
        .unwrap_or_else(|e| panic!("{server} sends a broken message: {e}: {message:02x?}"))
}

/// The question comes back octet for octet, in the case in which it was asked.
fn check_question(server: SocketAddr, query: &Query, answer: &Answer) {
    assert!(answer.flags & 0x8000 != 0, "{server} answers {query} with a query");
    assert_eq!(answer.question, query.question(), "{server} repeats another question than {query}");
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("messages are below 64 KiB");
    [&length.to_be_bytes()[..], message].concat()
}

fn read_framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    Ok(message)
}
