//! DNS over TCP (RFC 7766): connections are many and idle, so each is a small task that owns no buffer.
//!
//! A connection waits until something can be read, has its turn in the buffers of whatever thread it runs on, and waits
//! again. Queries are pipelined: all that have arrived are answered in one turn, and leave in one write. There is no
//! task a query.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::warn;

mod budget;
mod connection_table;
mod leave;
pub(crate) mod memory;
mod turn;

use self::budget::Budget;
use self::connection_table::{ConnectionTable, Entry};
use self::leave::Reason;
use self::turn::{Backlog, Buffers, Context, Turn};
use crate::counters::Counters;
use crate::log::Seldom;
use crate::responder::{Arrival, Responder, ResponderConfig, SharedServing, seconds_now};

/// Octets that all connections together may hold over for slow clients, beside the first few of each.
const BACKLOG_BUDGET_OCTETS: usize = 64 << 20;
/// How long queries that are under way when the server stops may take to arrive.
const LAST_QUERIES: Duration = Duration::from_millis(100);
/// How long a connection may go on when the server stops: for clients that take their answers slowly, or never stop asking.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Pause after an accept that failed for want of files or memory, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What a connection may take of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long a connection may stay without a query.
    pub(crate) idle_timeout: Duration,
    /// How long a client may take to accept an answer.
    pub(crate) write_timeout: Duration,
    /// Most connections at once.
    pub(crate) max_connections: usize,
}

/// What all connections share.
pub(crate) struct Service {
    limits: Limits,
    responder: ResponderConfig,
    serving: SharedServing,
    counters: Arc<Counters>,
    connections: Arc<ConnectionTable>,
    budget: Arc<Budget>,
    /// Threads that have buffers, for each to find its own counters.
    n_threads: AtomicUsize,
}

/// Lines about connections that cannot be accepted.
static ACCEPT_ERRORS: Seldom = Seldom::new();

thread_local! {
    /// The buffers of this thread and the index of its counters. A process runs one service.
    static BUFFERS: RefCell<Option<(Buffers, usize)>> = const { RefCell::new(None) };
}

impl Service {
    /// A service that answers from what is `serving`.
    pub(crate) fn new(
        limits: Limits,
        responder: ResponderConfig,
        serving: SharedServing,
        counters: Arc<Counters>,
    ) -> Arc<Service> {
        let connections = ConnectionTable::new(limits.max_connections);
        let budget = Budget::new(BACKLOG_BUDGET_OCTETS);
        Arc::new(Service {
            limits,
            responder,
            serving,
            counters,
            connections,
            budget,
            n_threads: AtomicUsize::new(0),
        })
    }

    /// Accepts connections until `stopping` turns true, and then those that wait already; each keeps a clone of `alive`
    /// until it is over.
    pub(crate) async fn accept(
        self: Arc<Service>,
        listener: TcpListener,
        mut stopping: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
    ) {
        // Connections inherit it. Without it the kernel may hold an answer back to join it with the next; a refusal costs
        // only time.
        let _ = SockRef::from(&listener).set_tcp_nodelay(true);
        loop {
            let accepted = tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer.ip(), alive.clone()).await,
                Err(error) => self.accept_failed(&error).await,
            }
        }
        self.connections.stop();
        let deadline = Instant::now() + LAST_QUERIES;
        while let Ok(Ok((stream, peer))) = timeout_at(deadline, listener.accept()).await {
            self.admit(stream, peer.ip(), alive.clone()).await;
        }
    }

    async fn admit(self: &Arc<Service>, stream: TcpStream, client: IpAddr, alive: mpsc::Sender<()>) {
        let entry = self.connections.enter().await;
        self.counters.tcp.accepted.add_shared(1);
        self.counters.tcp.open.add_shared(1);
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let connection = Connection { service: &service, stream, client, entry };
            let end = connection.run().await;
            let Connection { stream, entry, .. } = connection;
            if matches!(end, End::Unread | End::Evicted | End::OutOfMemory) {
                memory::abandon(&stream);
            }
            // The client's end first: room in the table says that the connection is gone.
            drop(stream);
            drop(entry);
            service.count_end(end);
            drop(alive);
        });
    }

    /// Out of files or memory: make room. All else (ECONNABORTED ...) concerns the one connection that is gone.
    async fn accept_failed(&self, error: &io::Error) {
        self.counters.tcp.accept_errors.add_shared(1);
        let gone = matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset);
        if !gone {
            if ACCEPT_ERRORS.is_due() {
                warn!(
                    "a TCP connection cannot be accepted: {error}; the one that was idle longest is closed for it"
                );
            }
            self.connections.evict_longest_idle();
            sleep(ACCEPT_PAUSE).await;
        }
    }

    fn count_end(&self, end: End) {
        let tcp = &self.counters.tcp;
        tcp.open.subtract_shared(1);
        match end {
            End::Done => tcp.closed.add_shared(1),
            End::TimedOut => tcp.timed_out.add_shared(1),
            End::Failed | End::Unread => tcp.failed.add_shared(1),
            End::Evicted => tcp.evicted.add_shared(1),
            End::OutOfMemory => tcp.out_of_memory.add_shared(1),
        }
    }
}

/// One connection, as its task sees it.
struct Connection<'s> {
    service: &'s Service,
    stream: TcpStream,
    client: IpAddr,
    entry: Entry,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug)]
enum End {
    /// By the client's wish, or the server's end.
    Done,
    TimedOut,
    /// It made room for another one.
    Evicted,
    /// It held most when memory ran short.
    OutOfMemory,
    /// The client did not take its answers in time.
    Unread,
    Failed,
}

impl Connection<'_> {
    /// Runs the connection to its end, wherever it is when it has to make room or the server stops.
    async fn run(&self) -> End {
        let leave = self.entry.leave();
        let mut backlog = Backlog::new(self.service.budget.account(Arc::clone(leave)));
        let reason = tokio::select! {
            biased;
            reason = leave.asked() => reason,
            end = self.converse(&mut backlog) => return end,
        };
        match reason {
            Reason::Cap => End::Evicted,
            Reason::Memory => End::OutOfMemory,
            Reason::Stopping => {
                // Whoever takes its answers slowly, or never stops asking, has this long.
                let _ = timeout(LAST_ANSWERS, self.finish(&mut backlog)).await;
                End::Done
            }
        }
    }

    /// Reads and answers until the client is done, or too slow.
    async fn converse(&self, backlog: &mut Backlog) -> End {
        // Set anew only when it goes off: activity is noted elsewhere, and costs no timer.
        let mut idle = pin!(sleep_until(self.idle_deadline()));
        loop {
            tokio::select! {
                biased;
                readable = self.stream.readable() => match readable {
                    Ok(()) => {}
                    Err(_) => return End::Failed,
                },
                () = idle.as_mut() => {
                    let deadline = self.idle_deadline();
                    if deadline <= Instant::now() {
                        return End::TimedOut;
                    }
                    idle.as_mut().reset(deadline);
                    continue;
                }
            }
            if let Some(end) = self.turns(backlog).await {
                return end;
            }
        }
    }

    fn idle_deadline(&self) -> Instant {
        self.entry.idle_deadline(self.service.limits.idle_timeout).into()
    }

    /// Answers what has arrived, or is about to.
    async fn finish(&self, backlog: &mut Backlog) {
        if self.write_out(backlog).await.is_none() {
            let _ = timeout(LAST_QUERIES, self.stream.readable()).await;
            self.turns(backlog).await;
        }
    }

    /// Takes turns until there is nothing left to answer; yields how the connection ended, if it did.
    async fn turns(&self, backlog: &mut Backlog) -> Option<End> {
        loop {
            match self.turn(backlog) {
                Turn::Waiting => return None,
                Turn::Again => tokio::task::yield_now().await,
                Turn::Blocked => {
                    let end = self.write_out(backlog).await;
                    if end.is_some() {
                        return end;
                    }
                }
                Turn::Finished => return Some(End::Done),
                Turn::Failed => return Some(End::Failed),
            }
        }
    }

    /// One turn in this thread's buffers.
    fn turn(&self, backlog: &mut Backlog) -> Turn {
        let service = self.service;
        BUFFERS.with_borrow_mut(|buffers| {
            let (buffers, index) = buffers.get_or_insert_with(|| {
                let index = service.n_threads.fetch_add(1, Ordering::Relaxed);
                (Buffers::new(Responder::new(&service.responder)), index)
            });
            // The runtime has as many threads as there are counters.
            let Some(counters) = service.counters.tcp_answers.get(*index) else { return Turn::Failed };
            // Only whole queries count: who sends an octet now and then is idle all the same.
            let note_queries = || self.entry.note_activity();
            let arrival = Arrival { client: self.client, now: seconds_now() };
            let serving = &service.serving.load();
            let context = Context { arrival, serving, counters, note_queries: &note_queries };
            buffers.turn(&self.stream, backlog, &context)
        })
    }

    /// Writes the backlog's output, waiting for the client; yields how the connection ended, if it did. May be dropped at
    /// any moment: what is not written stays in the backlog.
    async fn write_out(&self, backlog: &mut Backlog) -> Option<End> {
        if backlog.output.is_empty() {
            return None;
        }
        match timeout(self.service.limits.write_timeout, write_all(&self.stream, &mut backlog.output)).await {
            Ok(Ok(())) => None,
            Ok(Err(_)) => Some(End::Failed),
            Err(_) => Some(End::Unread),
        }
    }
}

/// Writes all of `output`, and takes out of it what is written.
async fn write_all(stream: &TcpStream, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        stream.writable().await?;
        match stream.try_write(output) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n_octets) => drop(output.drain(..n_octets)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    // An empty backlog holds no memory.
    *output = Vec::new();
    Ok(())
}
