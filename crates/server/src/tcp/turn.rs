//! One turn of a connection: read what has arrived, answer every whole query in it, write the answers at once.
//!
//! All work of a turn happens on a [`Desk`] that belongs to the thread, not to the connection: an idle connection
//! holds no buffer at all. What a turn could not finish (a query that has not arrived whole, answers that the client
//! does not take yet) is kept in the connection's [`Backlog`], and counted against one [`Budget`] for all of them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::counters::AnswerCounters;
use crate::responder::{Responder, Zones};

/// Octets of the length in front of each message (RFC 1035 section 4.2.2).
const PREFIX_OCTETS: usize = 2;
/// The longest message with its length in front.
const MAX_FRAME_OCTETS: usize = PREFIX_OCTETS + 65_535;
/// Octets read at once, when no longer query is under way: some 300 pipelined queries.
const READ_OCTETS: usize = 16 << 10;
/// Answers are written when this many octets have gathered: a few TCP segments.
const WRITE_OCTETS: usize = 16 << 10;
/// Reads of one turn; then other connections have theirs.
const READS_A_TURN: usize = 4;

/// The buffers of one thread.
pub(super) struct Desk {
    responder: Responder,
    input: Box<[u8]>,
    output: Box<[u8]>,
}

/// What a connection keeps between two turns.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The front of a query that has not arrived whole, or queries that wait for the answers before them to be taken.
    pub(super) input: Vec<u8>,
    /// Answers that the client has not taken yet.
    pub(super) output: Vec<u8>,
    reserved: usize,
}

/// Octets that all backlogs together may have.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicUsize,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Everything that has arrived is answered, `n_queries` of them; wait for more.
    Waiting {
        /// Queries answered in this turn.
        n_queries: usize,
    },
    /// More has arrived; others first.
    Again {
        /// Queries answered in this turn.
        n_queries: usize,
    },
    /// The client does not take its answers: they are in the backlog.
    Blocked,
    /// The client is done and has all its answers.
    Finished,
    /// The connection is of no use: it broke, sent what is no message, or holds too much memory.
    Failed,
}

/// The two directions of a connection, never waiting.
pub(super) trait Stream {
    /// Reads what is there; 0 is the end.
    fn try_read(&self, into: &mut [u8]) -> io::Result<usize>;
    /// Writes what the kernel takes.
    fn try_write(&self, from: &[u8]) -> io::Result<usize>;
}

impl Stream for tokio::net::TcpStream {
    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        tokio::net::TcpStream::try_read(self, into)
    }

    fn try_write(&self, from: &[u8]) -> io::Result<usize> {
        tokio::net::TcpStream::try_write(self, from)
    }
}

impl Budget {
    /// A budget of `octets`.
    pub(super) fn new(octets: usize) -> Budget {
        Budget { left: AtomicUsize::new(octets) }
    }

    fn take(&self, octets: usize) -> bool {
        let taken = |left: usize| left.checked_sub(octets);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    fn give_back(&self, octets: usize) {
        self.left.fetch_add(octets, Ordering::Relaxed);
    }
}

impl Backlog {
    /// Adjusts what is reserved to what is held; yields whether the budget allows it.
    fn settle(&mut self, budget: &Budget) -> bool {
        let held = self.input.len() + self.output.len();
        let allowed = held <= self.reserved || budget.take(held - self.reserved);
        if allowed {
            budget.give_back(self.reserved.saturating_sub(held));
            self.reserved = held;
        }
        allowed
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, budget: &Budget) {
        *self = Backlog { reserved: self.reserved, ..Backlog::default() };
        self.settle(budget);
    }
}

/// Answers on their way out in the desk's buffer.
struct Outgoing<'d> {
    buffer: &'d mut [u8],
    filled: usize,
    written: usize,
}

impl Outgoing<'_> {
    /// Room for one more answer, with its length in front.
    fn space(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.filled..).unwrap_or(&mut [])
    }

    /// Writes until all is written or the client takes no more; yields whether all is written.
    fn flush(&mut self, stream: &impl Stream) -> io::Result<bool> {
        while self.written < self.filled {
            match stream.try_write(self.buffer.get(self.written..self.filled).unwrap_or(&[])) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n_octets) => self.written += n_octets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        (self.filled, self.written) = (0, 0);
        Ok(true)
    }
}

/// What came of the queries in a buffer.
enum Answered {
    /// All whole ones are answered; this many octets were used up.
    All { used: usize, n_queries: usize },
    /// The client takes no more answers; this many octets were used up.
    Blocked { used: usize },
}

impl Desk {
    /// Buffers for one thread: 64 KiB of input, 80 KiB of output.
    pub(super) fn new(responder: Responder) -> Desk {
        Desk {
            responder,
            input: vec![0; MAX_FRAME_OCTETS].into_boxed_slice(),
            output: vec![0; WRITE_OCTETS + MAX_FRAME_OCTETS].into_boxed_slice(),
        }
    }

    /// Gives the connection its turn. The backlog's output must be empty: it goes out first.
    pub(super) fn turn(
        &mut self,
        stream: &impl Stream,
        backlog: &mut Backlog,
        budget: &Budget,
        zones: &Zones,
        counters: &AnswerCounters,
    ) -> Turn {
        let turn = self.try_turn(stream, backlog, zones, counters).unwrap_or(Turn::Failed);
        if backlog.settle(budget) { turn } else { Turn::Failed }
    }

    fn try_turn(
        &mut self,
        stream: &impl Stream,
        backlog: &mut Backlog,
        zones: &Zones,
        counters: &AnswerCounters,
    ) -> io::Result<Turn> {
        let mut filled = backlog.input.len();
        self.input.get_mut(..filled).ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(&backlog.input);
        backlog.input = Vec::new();
        let mut total = 0;
        for _ in 0..READS_A_TURN {
            // What is held over is answered before more is read.
            let (used, blocked) = match self.answer_all(filled, stream, backlog, zones, counters)? {
                Answered::All { used, n_queries } => {
                    total += n_queries;
                    (used, false)
                }
                Answered::Blocked { used } => (used, true),
            };
            self.input.copy_within(used..filled, 0);
            filled -= used;
            if blocked {
                backlog.input = self.input.get(..filled).unwrap_or(&[]).to_vec();
                return Ok(Turn::Blocked);
            }
            let end = (filled + READ_OCTETS).max(self.frame_octets(filled)).min(MAX_FRAME_OCTETS);
            match stream.try_read(self.input.get_mut(filled..end).unwrap_or(&mut [])) {
                Ok(0) => return Ok(Turn::Finished),
                Ok(n_octets) => filled += n_octets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    backlog.input = self.input.get(..filled).unwrap_or(&[]).to_vec();
                    return Ok(Turn::Waiting { n_queries: total });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        backlog.input = self.input.get(..filled).unwrap_or(&[]).to_vec();
        Ok(Turn::Again { n_queries: total })
    }

    /// Octets of the message that starts at the front of the input, as far as its length has arrived.
    fn frame_octets(&self, filled: usize) -> usize {
        match self.input.get(..filled).and_then(|input| input.first_chunk::<PREFIX_OCTETS>()) {
            Some(prefix) => PREFIX_OCTETS + usize::from(u16::from_be_bytes(*prefix)),
            None => PREFIX_OCTETS,
        }
    }

    /// Answers every whole query in the first `filled` octets of the input, and writes the answers.
    fn answer_all(
        &mut self,
        filled: usize,
        stream: &impl Stream,
        backlog: &mut Backlog,
        zones: &Zones,
        counters: &AnswerCounters,
    ) -> io::Result<Answered> {
        let mut out = Outgoing { buffer: &mut self.output, filled: 0, written: 0 };
        let mut rest = self.input.get(..filled).unwrap_or(&[]);
        let mut n_queries = 0;
        while let Some((message, after)) = split_frame(rest)? {
            rest = after;
            n_queries += 1;
            if let Some((prefix, space)) = out.space().split_first_chunk_mut::<PREFIX_OCTETS>() {
                let n_octets = self.responder.answer(message, zones, space, counters);
                *prefix = u16::try_from(n_octets).map_err(|_| io::ErrorKind::InvalidData)?.to_be_bytes();
                out.filled += if n_octets > 0 { PREFIX_OCTETS + n_octets } else { 0 };
            }
            if out.filled >= WRITE_OCTETS && !out.flush(stream)? {
                break;
            }
        }
        let used = filled - rest.len();
        if out.flush(stream)? {
            return Ok(Answered::All { used, n_queries });
        }
        backlog.output = out.buffer.get(out.written..out.filled).unwrap_or(&[]).to_vec();
        Ok(Answered::Blocked { used })
    }
}

/// The first message of `octets` and what follows it; `None` when it has not arrived whole.
///
/// # Errors
/// A message without octets: whoever sends that speaks something else.
fn split_frame(octets: &[u8]) -> io::Result<Option<(&[u8], &[u8])>> {
    let Some((prefix, rest)) = octets.split_first_chunk::<PREFIX_OCTETS>() else { return Ok(None) };
    match usize::from(u16::from_be_bytes(*prefix)) {
        0 => Err(io::ErrorKind::InvalidData.into()),
        n_octets => Ok(rest.split_at_checked(n_octets)),
    }
}
