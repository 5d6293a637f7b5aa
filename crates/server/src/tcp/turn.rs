//! One turn of a connection: read what has arrived, answer every whole query in it, write the answers at once.
//!
//! All work of a turn happens in [`Buffers`] that belong to the thread, not to the connection: an idle connection
//! holds no buffer at all. What a turn could not finish (a query that has not arrived whole, answers that the client
//! does not take yet) is kept in the connection's [`Backlog`], and counted in its [`Account`].

use std::io;

use super::budget::Account;
use crate::counters::AnswerCounters;
use crate::responder::{Arrival, Responder, Serving};

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
pub(super) struct Buffers {
    responder: Responder,
    input: Box<[u8]>,
    output: Box<[u8]>,
}

/// What a connection keeps between two turns.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The front of a query that has not arrived whole, or queries that wait for the answers before them to be taken.
    pub(super) input: Vec<u8>,
    /// Answers that the client has not taken yet.
    pub(super) output: Vec<u8>,
    account: Account,
}

/// What a turn needs beside the connection and the buffers.
pub(super) struct Context<'c> {
    /// Who asks, and the time of this turn.
    pub(super) arrival: Arrival,
    /// What is answered from.
    pub(super) serving: &'c Serving,
    /// Where queries and answers are counted.
    pub(super) counters: &'c AnswerCounters,
    /// Told of whole queries before their answers leave: once the client has its answer, it counts as active.
    pub(super) note_queries: &'c dyn Fn(),
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Everything that has arrived is answered; wait for more.
    Waiting,
    /// More has arrived; others first.
    Again,
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

impl Backlog {
    /// An empty backlog, counted in `account`.
    pub(super) fn new(account: Account) -> Backlog {
        Backlog { input: Vec::new(), output: Vec::new(), account }
    }

    /// Adjusts what is counted to what is held; yields whether that much may be held.
    fn settle(&mut self) -> bool {
        self.account.settle(self.input.len() + self.output.len())
    }
}

/// Answers on their way out in the buffer for them.
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
    All { used: usize },
    /// The client takes no more answers; this many octets were used up.
    Blocked { used: usize },
}

impl Buffers {
    /// Buffers for one thread: 64 KiB of input, 80 KiB of output.
    pub(super) fn new(responder: Responder) -> Buffers {
        Buffers {
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
        context: &Context<'_>,
    ) -> Turn {
        let turn = self.try_turn(stream, backlog, context).unwrap_or(Turn::Failed);
        if backlog.settle() { turn } else { Turn::Failed }
    }

    fn try_turn(
        &mut self,
        stream: &impl Stream,
        backlog: &mut Backlog,
        context: &Context<'_>,
    ) -> io::Result<Turn> {
        let mut filled = backlog.input.len();
        self.input.get_mut(..filled).ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(&backlog.input);
        backlog.input = Vec::new();
        let mut turn = Turn::Again;
        for _ in 0..READS_A_TURN {
            // What was held over is answered before more is read.
            let (used, blocked) = match self.answer_all(filled, stream, backlog, context)? {
                Answered::All { used } => (used, false),
                Answered::Blocked { used } => (used, true),
            };
            self.input.copy_within(used..filled, 0);
            filled -= used;
            if blocked {
                turn = Turn::Blocked;
                break;
            }
            let end = (filled + READ_OCTETS).max(self.frame_octets(filled)).min(MAX_FRAME_OCTETS);
            match stream.try_read(self.input.get_mut(filled..end).unwrap_or(&mut [])) {
                Ok(0) => return Ok(Turn::Finished),
                Ok(n_octets) => filled += n_octets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    turn = Turn::Waiting;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        backlog.input = self.input.get(..filled).unwrap_or(&[]).to_vec();
        Ok(turn)
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
        context: &Context<'_>,
    ) -> io::Result<Answered> {
        let mut out = Outgoing { buffer: &mut self.output, filled: 0, written: 0 };
        let mut rest = self.input.get(..filled).unwrap_or(&[]);
        loop {
            let (message, after) = match split_frame(rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                // The queries before it have their answers all the same, as far as the client takes them.
                Err(error) => return out.flush(stream).and(Err(error)),
            };
            rest = after;
            if let Some((prefix, space)) = out.space().split_first_chunk_mut::<PREFIX_OCTETS>() {
                let n_octets =
                    self.responder.answer(message, context.arrival, context.serving, space, context.counters);
                *prefix = u16::try_from(n_octets).map_err(|_| io::ErrorKind::InvalidData)?.to_be_bytes();
                out.filled += if n_octets > 0 { PREFIX_OCTETS + n_octets } else { 0 };
            }
            if out.filled >= WRITE_OCTETS && !out.flush(stream)? {
                break;
            }
        }
        let used = filled - rest.len();
        if used > 0 {
            (context.note_queries)();
        }
        if out.flush(stream)? {
            return Ok(Answered::All { used });
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

#[cfg(test)]
mod tests {
    use super::super::budget::{Budget, FREE_OCTETS};
    use super::*;
    use crate::responder::ResponderConfig;
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::sync::Arc;
    use weir_authority::{Policy, ZoneSet};
    use weir_wire::name::{HashSeed, Name};
    use weir_wire::rtype::Rtype;

    const SEED: HashSeed = HashSeed::fixed();

    /// A connection made of what arrives, one element a read, and of room for what is written.
    struct Script {
        arriving: RefCell<VecDeque<Vec<u8>>>,
        ends: bool,
        room: RefCell<usize>,
        written: RefCell<Vec<u8>>,
    }

    impl Script {
        fn new(arriving: impl IntoIterator<Item = Vec<u8>>) -> Script {
            let arriving = RefCell::new(arriving.into_iter().collect());
            Script { arriving, ends: false, room: RefCell::new(usize::MAX), written: RefCell::default() }
        }
    }

    impl Stream for Script {
        fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
            let mut arriving = self.arriving.borrow_mut();
            let Some(mut octets) = arriving.pop_front() else {
                return if self.ends { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            };
            let n_octets = octets.len().min(into.len());
            into[..n_octets].copy_from_slice(&octets[..n_octets]);
            if n_octets < octets.len() {
                arriving.push_front(octets.split_off(n_octets));
            }
            Ok(n_octets)
        }

        fn try_write(&self, from: &[u8]) -> io::Result<usize> {
            let mut room = self.room.borrow_mut();
            let n_octets = from.len().min(*room);
            if n_octets == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            *room -= n_octets;
            self.written.borrow_mut().extend_from_slice(&from[..n_octets]);
            Ok(n_octets)
        }
    }

    /// A query that every server refuses here, with its length in front.
    fn frame(id: u16) -> Vec<u8> {
        let mut message = [0; 64];
        let n_octets = weir_wire::query::write(&mut message, id, Name::ROOT, Rtype::A, None).unwrap();
        let prefix = u16::try_from(n_octets).unwrap().to_be_bytes();
        [&prefix[..], &message[..n_octets]].concat()
    }

    fn ids(written: &[u8]) -> Vec<u16> {
        let mut rest = written;
        let mut ids = Vec::new();
        while let Some((message, after)) = split_frame(rest).unwrap() {
            ids.push(u16::from_be_bytes([message[0], message[1]]));
            rest = after;
        }
        assert!(rest.is_empty(), "only whole answers are written");
        ids
    }

    struct Fixture {
        buffers: Buffers,
        backlog: Backlog,
        budget: Arc<Budget>,
        serving: Serving,
        counters: AnswerCounters,
        n_noted: usize,
    }

    impl Fixture {
        fn new(budget: usize) -> Fixture {
            let budget = Budget::new(budget);
            Fixture {
                buffers: Buffers::new(Responder::new(&ResponderConfig::tcp(SEED))),
                backlog: Backlog::new(budget.account(Arc::default())),
                budget,
                serving: Serving { zones: ZoneSet::empty(SEED), policy: Policy::default() },
                counters: AnswerCounters::default(),
                n_noted: 0,
            }
        }

        fn turn(&mut self, stream: &Script) -> Turn {
            let n_noted = Cell::new(self.n_noted);
            let note_queries = || n_noted.set(n_noted.get() + 1);
            let context = Context {
                arrival: Arrival { client: std::net::Ipv4Addr::LOCALHOST.into(), now: 0 },
                serving: &self.serving,
                counters: &self.counters,
                note_queries: &note_queries,
            };
            let turn = self.buffers.turn(stream, &mut self.backlog, &context);
            self.n_noted = n_noted.get();
            turn
        }

        fn left(&self) -> usize {
            self.budget.left()
        }
    }

    #[test]
    fn queries_cut_anywhere_are_answered_once_each_and_in_order() {
        let octets: Vec<u8> = (0..20).flat_map(frame).collect();
        for size in [1, 2, 3, 7, 19, 20, 41, 400] {
            let stream = Script::new(octets.chunks(size).map(<[u8]>::to_vec));
            let mut fixture = Fixture::new(1 << 20);
            let last = loop {
                match fixture.turn(&stream) {
                    Turn::Again => {}
                    other => break other,
                }
            };
            assert_eq!(last, Turn::Waiting, "chunks of {size}");
            assert_eq!(ids(&stream.written.borrow()), (0..20).collect::<Vec<_>>(), "chunks of {size}");
            assert_eq!(fixture.left(), 1 << 20, "an idle connection holds nothing");
        }
    }

    #[test]
    fn half_a_query_is_held_until_the_rest_comes_whatever_others_hold() {
        let frame = frame(1);
        let stream = Script::new([frame[..5].to_vec()]);
        let mut fixture = Fixture::new(0);
        assert_eq!(fixture.turn(&stream), Turn::Waiting);
        assert_eq!((fixture.backlog.input.len(), fixture.n_noted), (5, 0));
        stream.arriving.borrow_mut().push_back(frame[5..].to_vec());
        assert_eq!(fixture.turn(&stream), Turn::Waiting);
        assert_eq!((fixture.backlog.input.len(), fixture.n_noted), (0, 1));
    }

    #[test]
    fn what_a_client_does_not_take_is_held_and_goes_on_where_it_stopped() {
        let stream = Script::new([(0..1_000).flat_map(frame).collect()]);
        *stream.room.borrow_mut() = 10;
        let mut fixture = Fixture::new(1 << 20);
        assert_eq!(fixture.turn(&stream), Turn::Blocked);
        let held = fixture.backlog.input.len() + fixture.backlog.output.len();
        assert_eq!(fixture.left(), (1 << 20) - (held - FREE_OCTETS));
        // As the connection's task does once the client reads again.
        *stream.room.borrow_mut() = usize::MAX;
        stream.written.borrow_mut().append(&mut fixture.backlog.output);
        while fixture.turn(&stream) == Turn::Again {}
        assert_eq!(ids(&stream.written.borrow()), (0..1_000).collect::<Vec<_>>());
        assert_eq!(fixture.left(), 1 << 20);
    }

    #[test]
    fn a_connection_that_would_hold_more_than_the_budget_ends() {
        let stream = Script::new([vec![0xff; FREE_OCTETS + 5]]);
        let mut fixture = Fixture::new(4);
        assert_eq!(fixture.turn(&stream), Turn::Failed);
        assert_eq!(fixture.left(), 4);
    }

    #[test]
    fn the_end_of_the_stream_comes_after_the_answers() {
        let mut stream = Script::new([frame(9)]);
        stream.ends = true;
        let mut fixture = Fixture::new(1000);
        assert_eq!(fixture.turn(&stream), Turn::Finished);
        assert_eq!(ids(&stream.written.borrow()), [9]);
    }

    #[test]
    fn a_message_of_the_longest_length_is_read_whole() {
        let mut message = vec![0xff, 0xff];
        message.resize(MAX_FRAME_OCTETS, 0);
        let stream = Script::new(message.chunks(1460).map(<[u8]>::to_vec));
        let mut fixture = Fixture::new(1 << 20);
        while fixture.turn(&stream) == Turn::Again {}
        assert!(fixture.backlog.input.is_empty());
        assert_eq!(fixture.counters.queries.value(), 1);
    }
}
