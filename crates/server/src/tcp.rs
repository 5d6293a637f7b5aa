//! DNS over TCP (RFC 7766): connections are many and idle, so each is a small task that owns no buffer.
//!
//! A connection waits until something can be read, has its turn in the buffers of whatever thread it runs on, and waits
//! again. Queries are pipelined: all that have arrived are answered in one turn, and leave in one write. There is no
//! task a query.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
        loop {
            let accepted = tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.admit(stream, stopping.clone(), alive.clone()).await,
                Err(error) => self.accept_failed(&error).await,
            }
        }
        let deadline = Instant::now() + LAST_QUERIES;
        while let Ok(Ok((stream, _))) = timeout_at(deadline, listener.accept()).await {
            self.admit(stream, stopping.clone(), alive.clone()).await;
        }
    }

    async fn admit(
        self: &Arc<Service>,
        stream: TcpStream,
        stopping: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
    ) {
        let entry = self.connections.enter().await;
        self.counters.tcp.accepted.add_shared(1);
        self.counters.tcp.open.add_shared(1);
        // Without it the kernel may hold an answer back to join it with the next; a refusal costs only time.
        let _ = stream.set_nodelay(true);
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let end = service.run(&stream, &entry, stopping).await;
            if matches!(end, End::Unread | End::MadeRoom(_)) {
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
            End::MadeRoom(Reason::Cap) => tcp.evicted.add_shared(1),
            End::MadeRoom(Reason::Memory) => tcp.out_of_memory.add_shared(1),
        }
    }

    /// Runs a connection to its end, wherever it is when it has to make room or the server stops.
    async fn run(&self, stream: &TcpStream, entry: &Entry, stopping: watch::Receiver<bool>) -> End {
        let mut server_stops = stopping.clone();
        let last_moment = async {
            // An error means that whoever would say so is gone: then it is the end as well.
            let _ = server_stops.wait_for(|stopping| *stopping).await;
            sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            biased;
            reason = entry.leave().asked() => End::MadeRoom(reason),
            end = self.converse(stream, entry, stopping) => end,
            () = last_moment => End::Done,
        }
    }

    /// Reads and answers until the client is done, or too slow.
    async fn converse(&self, stream: &TcpStream, entry: &Entry, mut stopping: watch::Receiver<bool>) -> End {
        let mut backlog = Backlog::new(self.budget.account(Arc::clone(entry.leave())));
        loop {
            match self.wait(stream, entry, &mut stopping).await {
                Wake::Readable => {}
                // What has arrived, or is about to, is answered; then the connection ends.
                Wake::Stopping => {
                    let _ = timeout(LAST_QUERIES, stream.readable()).await;
                    self.turns(stream, entry, &mut backlog).await;
                    return End::Done;
                }
                Wake::Ended(end) => return end,
            }
            if let Some(end) = self.turns(stream, entry, &mut backlog).await {
                return end;
            }
        }
    }

    async fn wait(&self, stream: &TcpStream, entry: &Entry, stopping: &mut watch::Receiver<bool>) -> Wake {
        let deadline = entry.idle_deadline(self.limits.idle_timeout);
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => Wake::Stopping,
            readable = stream.readable() => match readable {
                Ok(()) => Wake::Readable,
                Err(_) => Wake::Ended(End::Failed),
            },
            () = sleep_until(deadline.into()) => Wake::Ended(End::TimedOut),
        }
    }

    /// Takes turns until there is nothing left to answer; yields how the connection ended, if it did.
    async fn turns(&self, stream: &TcpStream, entry: &Entry, backlog: &mut Backlog) -> Option<End> {
        loop {
            match self.turn(stream, entry, backlog) {
                Turn::Waiting => return None,
                Turn::Again => tokio::task::yield_now().await,
                Turn::Blocked => {
                    let written = timeout(self.limits.write_timeout, write_out(stream, backlog)).await;
                    match written {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return Some(End::Failed),
                        Err(_) => return Some(End::Unread),
                    }
                }
                Turn::Finished => return Some(End::Done),
                Turn::Failed => return Some(End::Failed),
            }
        }
    }

    /// One turn in this thread's buffers.
    fn turn(&self, stream: &TcpStream, entry: &Entry, backlog: &mut Backlog) -> Turn {
        BUFFERS.with_borrow_mut(|buffers| {
            let (buffers, index) = buffers.get_or_insert_with(|| {
                let index = self.n_threads.fetch_add(1, Ordering::Relaxed);
                (Buffers::new(Responder::new(&self.responder)), index)
            });
            // The runtime has as many threads as there are counters.
            let Some(counters) = self.counters.tcp_answers.get(*index) else { return Turn::Failed };
            // Only whole queries count: who sends an octet now and then is idle all the same.
            let note_queries = || entry.note_activity();
            // A connection without a peer any more is found out by the first read.
            let Ok(peer) = stream.peer_addr() else { return Turn::Failed };
            let arrival = Arrival { client: peer.ip(), now: seconds_now() };
            let serving = &self.serving.load();
            let context = Context { arrival, serving, counters, note_queries: &note_queries };
            buffers.turn(stream, backlog, &context)
        })
    }
}

/// Why a connection stopped waiting.
enum Wake {
    Readable,
    Stopping,
    Ended(End),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug)]
enum End {
    /// By the client's wish, or the server's end.
    Done,
    TimedOut,
    MadeRoom(Reason),
    /// The client did not take its answers in time.
    Unread,
    Failed,
}

/// Writes the backlog's output, waiting for the client.
async fn write_out(stream: &TcpStream, backlog: &mut Backlog) -> io::Result<()> {
    let output = std::mem::take(&mut backlog.output);
    let mut rest = output.as_slice();
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n_octets) => rest = rest.get(n_octets..).unwrap_or(&[]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
