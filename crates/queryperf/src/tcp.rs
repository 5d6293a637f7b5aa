//! The load over TCP: one thread with connections of its own, each a task.
//!
//! A connection carries several queries at a time (RFC 7766 section 6.2.1.1), or one query and is closed. System calls
//! for connections dwarf everything else here, so tokio does the waiting; octets go straight between the table of what is
//! on its way and two buffers that a task keeps.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::LocalSet;
use tokio::time;
use weir_netio::client;

use crate::clock;
use crate::flight::Flight;
use crate::load::{Load, Share, Supply, Transport};
use crate::queries::MAX_QUERY_OCTETS;
use crate::tally::{Progress, Tally};

/// Queries on their way over one connection when nothing else limits them: 4,096 queries of 50 octets fit into a
/// server's default receive buffer.
const MOST_A_CONNECTION: usize = 4096;
/// Octets gathered before they are written.
const OUT_OCTETS: usize = 64 << 10;
/// Octets read at once: the longest message with its length fits twice.
const IN_OCTETS: usize = 128 << 10;
/// How long a task sleeps at most before it looks at the time.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// The rest after a connection that could not be made.
const PAUSE: Duration = Duration::from_millis(10);
/// Connections that fail one after the other before a task gives up.
const MOST_FAILURES: u32 = 100;
/// How long further answers to answered queries are waited for at the end.
const GRACE: Duration = Duration::from_millis(20);

/// Runs a share to its end.
pub(crate) fn run(share: Share, start: Instant, progress: &Arc<[Progress]>) -> anyhow::Result<Tally> {
    let thread = Rc::new(Thread::new(share, progress));
    thread.supply.borrow_mut().begin(start);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, ask_by_all(&thread))?;
    let end = thread.end.get().unwrap_or_else(Instant::now);
    let mut tally = thread.tally.replace(Tally::new());
    tally.sending_ns = clock::in_ns(end - start);
    tally.unsent = thread.supply.borrow().n_left_out(end);
    thread.progress[thread.number].show(&tally);
    Ok(tally)
}

async fn ask_by_all(thread: &Rc<Thread>) -> anyhow::Result<()> {
    let ask = |_| {
        let thread = Rc::clone(thread);
        tokio::task::spawn_local(async move { keep_asking(&thread).await })
    };
    let tasks: Vec<_> = (0..thread.n_ports).map(ask).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Holds one connection after the other until the supply is over.
async fn keep_asking(thread: &Thread) -> anyhow::Result<()> {
    let mut talk = Talk::new(thread);
    while let Some(first) = thread.next_query().await {
        let began_ns = clock::now_ns();
        match thread.keep_connecting().await? {
            Some(stream) => talk.hold(thread, &stream, first, began_ns).await,
            None => thread.supply.borrow_mut().give_back(1),
        }
    }
    Ok(())
}

/// What the connections of a thread share. Its tasks never run at the same time, and none holds a borrow while it waits.
struct Thread {
    load: Arc<Load>,
    supply: RefCell<Supply>,
    tally: RefCell<Tally>,
    progress: Arc<[Progress]>,
    number: usize,
    n_ports: usize,
    /// Queries on their way over one connection at most.
    window: usize,
    /// Counts connections, for the choice of the address to ask from.
    next_local: Cell<usize>,
    /// When the supply was seen to be over.
    end: Cell<Option<Instant>>,
}

impl Thread {
    fn new(share: Share, progress: &Arc<[Progress]>) -> Thread {
        let window = share.window.map_or(MOST_A_CONNECTION, |window| window.div_ceil(share.n_ports));
        Thread {
            load: share.load,
            supply: RefCell::new(share.supply),
            tally: RefCell::new(Tally::new()),
            progress: Arc::clone(progress),
            number: share.thread,
            n_ports: share.n_ports,
            window: window.min(MOST_A_CONNECTION),
            next_local: Cell::new(share.first_port),
            end: Cell::new(None),
        }
    }

    /// How many queries may be sent now, or `None` when there will be no more.
    fn allowance(&self) -> Option<usize> {
        let now = Instant::now();
        let allowed = self.supply.borrow_mut().allowance(now);
        if allowed.is_none() && self.end.get().is_none() {
            self.end.set(Some(now));
        }
        allowed
    }

    /// How long until a query is due.
    fn until_due(&self) -> Duration {
        let until_due = self.supply.borrow().until_due(1, Instant::now());
        until_due.map_or(LONGEST_REST, |until_due| until_due.min(LONGEST_REST))
    }

    /// Waits until a query is due and takes it.
    async fn next_query(&self) -> Option<u32> {
        while self.allowance()? == 0 {
            time::sleep(self.until_due()).await;
        }
        Some(self.supply.borrow_mut().take())
    }

    /// Makes a connection, with several attempts; `None` when the time is over before one succeeds.
    async fn keep_connecting(&self) -> anyhow::Result<Option<TcpStream>> {
        let mut n_failures = 0;
        loop {
            let error = match self.connect().await {
                Ok(stream) => return Ok(Some(stream)),
                Err(error) => error,
            };
            self.tally.borrow_mut().refused += 1;
            n_failures += 1;
            if n_failures == MOST_FAILURES {
                return Err(error)
                    .with_context(|| format!("cannot connect to {} over TCP", self.load.server));
            }
            if !self.supply.borrow().has_time(Instant::now()) {
                return Ok(None);
            }
            time::sleep(PAUSE).await;
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let number = self.next_local.get();
        self.next_local.set(number.wrapping_add(1));
        let fd = client::tcp_socket(self.load.server, self.load.local(number)).map_err(io::Error::other)?;
        let connecting = TcpSocket::from_std_stream(fd.into()).connect(self.load.server);
        let stream = time::timeout(self.load.timeout, connecting).await??;
        self.tally.borrow_mut().connections += 1;
        Ok(stream)
    }
}

/// Why a connection goes no further.
enum End {
    /// All its queries have their answers, or are given up.
    Done,
    /// The server closed it, or it broke.
    Closed,
}

/// One conversation after the other, in the same buffers.
struct Talk {
    flight: Flight,
    /// Queries a connection.
    budget: u64,
    n_asked: u64,
    outgoing: Vec<u8>,
    incoming: Box<[u8]>,
    /// Octets of `incoming` that hold the beginning of a message.
    n_incoming: usize,
}

impl Talk {
    fn new(thread: &Thread) -> Talk {
        let budget = match thread.load.transport {
            Transport::Tcp { queries_a_connection: Some(n) } => n,
            Transport::Tcp { queries_a_connection: None } | Transport::Udp => u64::MAX,
        };
        let window = usize::try_from(budget).unwrap_or(usize::MAX).min(thread.window);
        Talk {
            // Ids are used again as late as can be, so that a doubled answer is known as such.
            flight: Flight::new((window * 4).next_power_of_two()),
            budget,
            n_asked: 0,
            outgoing: Vec::with_capacity(OUT_OCTETS),
            incoming: vec![0; IN_OCTETS].into_boxed_slice(),
            n_incoming: 0,
        }
    }

    /// Asks over `stream`, beginning with `first`, until the connection has carried its queries or the supply is over.
    async fn hold(&mut self, thread: &Thread, stream: &TcpStream, first: u32, began_ns: u64) {
        (self.n_asked, self.n_incoming) = (0, 0);
        self.outgoing.clear();
        // A client that connects for one query waits for the connection as well.
        self.ask(thread, first, if self.budget == 1 { began_ns } else { clock::now_ns() });
        let end = self.converse(thread, stream).await;
        if matches!(end, End::Done) && self.budget == u64::MAX {
            self.listen_on(thread, stream).await;
        }
        let mut tally = thread.tally.borrow_mut();
        tally.lost += self.flight.abandon();
        thread.progress[thread.number].show(&tally);
    }

    async fn converse(&mut self, thread: &Thread, stream: &TcpStream) -> End {
        loop {
            let goes_on = self.fill(thread);
            let n_waiting = self.flight.n_waiting();
            if !goes_on && n_waiting == 0 {
                return End::Done;
            }
            let reading_alone = self.outgoing.is_empty();
            let interest =
                if reading_alone { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            let has_room = goes_on && n_waiting < self.window(thread);
            let rest = if has_room { thread.until_due() } else { LONGEST_REST };
            match time::timeout(rest, stream.ready(interest)).await {
                Ok(Ok(ready)) => {
                    let written = if ready.is_writable() { self.write(stream) } else { Ok(()) };
                    let read = if ready.is_readable() { self.read(thread, stream) } else { Ok(()) };
                    if written.and(read).is_err() {
                        return End::Closed;
                    }
                }
                Ok(Err(_)) => return End::Closed,
                // The server does not even read any more.
                Err(_) if self.expire(thread) > 0 && !self.outgoing.is_empty() => return End::Closed,
                Err(_) => {}
            }
        }
    }

    /// Takes answers to queries that had theirs, for a moment.
    async fn listen_on(&mut self, thread: &Thread, stream: &TcpStream) {
        let end = time::Instant::now() + GRACE;
        while let Ok(Ok(())) = time::timeout_at(end, stream.readable()).await {
            if self.read(thread, stream).is_err() {
                return;
            }
        }
    }

    fn window(&self, thread: &Thread) -> usize {
        usize::try_from(self.budget - self.n_asked).unwrap_or(usize::MAX).min(thread.window)
    }

    /// Takes the queries that may be sent now; yields whether there will be more.
    fn fill(&mut self, thread: &Thread) -> bool {
        if self.n_asked == self.budget {
            return false;
        }
        let Some(allowed) = thread.allowance() else { return false };
        let room = thread.window.saturating_sub(self.flight.n_waiting());
        // What is due is spread over the connections.
        let fair = if thread.load.rate.is_some() { allowed.div_ceil(thread.n_ports) } else { allowed };
        let n = fair.min(room).min(usize::try_from(self.budget - self.n_asked).unwrap_or(usize::MAX));
        let now_ns = if n > 0 { clock::now_ns() } else { 0 };
        for _ in 0..n {
            if self.outgoing.len() + MAX_QUERY_OCTETS + 2 > OUT_OCTETS {
                break;
            }
            let query = thread.supply.borrow_mut().take();
            self.ask(thread, query, now_ns);
        }
        true
    }

    /// Puts a query behind those to be written.
    fn ask(&mut self, thread: &Thread, query: u32, now_ns: u64) {
        let Some(place) = self.flight.begin(query, 0) else { return };
        self.flight.sent(place, now_ns);
        self.n_asked += 1;
        let packet = thread.load.queries.packet(query);
        // Queries have some 300 octets at most.
        let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        self.outgoing.extend_from_slice(&length.to_be_bytes());
        self.outgoing.extend_from_slice(&place.id.to_be_bytes());
        self.outgoing.extend_from_slice(&packet[2..]);
        thread.tally.borrow_mut().sent += 1;
    }

    fn write(&mut self, stream: &TcpStream) -> io::Result<()> {
        match stream.try_write(&self.outgoing) {
            Ok(n) => drop(self.outgoing.drain(..n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn read(&mut self, thread: &Thread, stream: &TcpStream) -> io::Result<()> {
        match stream.try_read(&mut self.incoming[self.n_incoming..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.n_incoming += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let arrived_ns = clock::now_ns();
        let mut tally = thread.tally.borrow_mut();
        let mut start = 0;
        while let Some(message) = first_message(&self.incoming[start..self.n_incoming]) {
            let verdict = self.flight.judge(message, 0, &thread.load.queries);
            tally.count(verdict, message.len(), arrived_ns);
            start += 2 + message.len();
        }
        self.incoming.copy_within(start..self.n_incoming, 0);
        self.n_incoming -= start;
        thread.progress[thread.number].show(&tally);
        Ok(())
    }

    fn expire(&mut self, thread: &Thread) -> u64 {
        let limit_ns = clock::now_ns().saturating_sub(clock::in_ns(thread.load.timeout));
        let n_lost = self.flight.expire(limit_ns);
        thread.tally.borrow_mut().lost += n_lost;
        n_lost
    }
}

/// The message at the start of `octets`, without its length, once it is whole (RFC 1035 section 4.2.2).
fn first_message(octets: &[u8]) -> Option<&[u8]> {
    let (length, rest) = octets.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_when_it_is_whole() {
        assert_eq!(first_message(b"\0\x03abcd"), Some(&b"abc"[..]));
        assert_eq!(first_message(b"\0\x03ab"), None);
        assert_eq!(first_message(b"\0"), None);
        assert_eq!(first_message(b"\0\0"), Some(&b""[..]));
    }
}
