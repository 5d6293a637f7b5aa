//! All sockets of one worker, and how it waits for them.
//!
//! A worker with one socket sleeps in `recvmmsg` itself: two system calls a batch, one in and one out. A worker with
//! several sockets sleeps in `epoll_wait`, but takes a batch without asking first when the last one suggests that more
//! is there, so that a busy worker makes no more calls than one with a single socket.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, epoll_event};

use crate::batch::Batch;
use crate::event::EventFd;
use crate::sys;
use crate::udp::{SendReport, UdpEngine, Wait};

/// Batches taken from one socket after the other before all are looked at again: at 64 queries a batch and some 5 us a
/// query this is about 2.5 ms, the longest that a busy socket keeps the others waiting.
const BATCHES_BETWEEN_POLLS: u32 = 8;

/// The longest pause, in chances, after guesses that proved wrong; see [`Poll::guess`].
const LONGEST_PAUSE: u32 = 16;

/// The mark of the wake event among the epoll events; sockets have their index.
const WAKE: u64 = u64::MAX;

/// The UDP sockets of one worker.
#[derive(Debug)]
pub struct Ingress {
    engines: Vec<UdpEngine>,
    /// None with a single socket.
    poll: Option<Poll>,
    /// The engine of the batch that was received last; its answers go out there.
    current: usize,
}

impl Ingress {
    /// Takes over `engines`. [`Ingress::receive`] returns after `interval` without a query, so that the worker can look
    /// after its counters, and when `wake` is notified; `wake` stays notified until its owner clears it.
    ///
    /// With a single socket `wake` is not watched: the worker then returns within `interval`, which is the price of
    /// saving a system call a batch. Choose it to suit a shutdown: 100 ms is ten calls a second on an idle worker.
    pub fn new(engines: Vec<UdpEngine>, wake: &EventFd, interval: Duration) -> io::Result<Self> {
        let poll = match engines.as_slice() {
            [] => return Err(io::Error::new(io::ErrorKind::InvalidInput, "a worker without a socket")),
            [engine] => {
                // Zero would mean "for ever".
                engine.set_receive_timeout(Some(interval.max(Duration::from_millis(1))))?;
                None
            }
            several => Some(Poll::new(several, wake, interval)?),
        };
        Ok(Self { engines, poll, current: 0 })
    }

    /// The sockets, in the order in which they were given.
    pub fn engines(&self) -> &[UdpEngine] {
        &self.engines
    }

    /// The index of the socket that the last batch came from.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Waits for queries, fills `batch` from one of the sockets and yields how many there are.
    ///
    /// 0 means that the interval is over or that somebody woke the worker: look at the flags, then call again. Under load
    /// 0 may not come for a long time, so look at the flags every so many batches too.
    ///
    /// # Errors
    /// A socket or the poll that is of no use any more; the worker has to stop.
    pub fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let Some(poll) = &mut self.poll else {
            return self.engines[0].receive(batch, Wait::ForOne);
        };
        let mut waited = false;
        loop {
            match poll.candidate() {
                Some(candidate) => {
                    let engine = candidate.engine();
                    let count = self.engines[engine].receive(batch, Wait::No)?;
                    poll.learn(candidate, count, batch.capacity());
                    if count > 0 {
                        self.current = engine;
                        return Ok(count);
                    }
                }
                None if waited => return Ok(0),
                None => {
                    poll.wait()?;
                    waited = true;
                }
            }
        }
    }

    /// Sends the answers of `batch` by the socket that its queries came from.
    ///
    /// # Errors
    /// As for [`UdpEngine::send`].
    pub fn send(&mut self, batch: &mut Batch) -> io::Result<SendReport> {
        self.engines[self.current].send(batch)
    }
}

/// A socket that may have queries, and why.
#[derive(Debug, Clone, Copy)]
enum Candidate {
    /// The kernel said so.
    Ready(usize),
    /// Its last batch was full.
    More(usize),
    /// It was the last to have any; see [`Poll::guess`].
    Guess(usize),
}

impl Candidate {
    fn engine(self) -> usize {
        let (Self::More(engine) | Self::Ready(engine) | Self::Guess(engine)) = self;
        engine
    }
}

/// Which socket to ask next, without a system call as long as possible.
#[derive(Debug)]
struct Poll {
    epoll: OwnedFd,
    interval_ms: c_int,
    /// What the last `wait` reported; those before `next_event` have been asked.
    events: Vec<epoll_event>,
    next_event: usize,
    n_events: usize,
    /// The socket of the last batch, if there was one since the last `wait` and no guess has failed since.
    last: Option<usize>,
    last_was_full: bool,
    batches_since_wait: u32,
    /// Chances for a guess that are let go: after a wrong one, twice as many as the time before.
    pause: u32,
    pause_left: u32,
}

impl Poll {
    fn new(engines: &[UdpEngine], wake: &EventFd, interval: Duration) -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = sys::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was opened just now and nobody else knows it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        for (mark, engine) in (0_u64..).zip(engines) {
            sys::watch(&epoll, engine, mark)?;
        }
        sys::watch(&epoll, wake, WAKE)?;
        Ok(Self {
            epoll,
            interval_ms: c_int::try_from(interval.as_millis()).unwrap_or(c_int::MAX),
            events: vec![epoll_event { events: 0, u64: 0 }; engines.len() + 1],
            next_event: 0,
            n_events: 0,
            last: None,
            last_was_full: false,
            batches_since_wait: 0,
            pause: 0,
            pause_left: 0,
        })
    }

    /// The socket to ask now; `None` when it is time to wait.
    fn candidate(&mut self) -> Option<Candidate> {
        while self.next_event < self.n_events {
            let mark = self.events[self.next_event].u64;
            self.next_event += 1;
            if mark != WAKE {
                return usize::try_from(mark).ok().map(Candidate::Ready);
            }
        }
        let more = self.last.filter(|_| self.last_was_full && self.may_go_on());
        more.map(Candidate::More).or_else(|| self.guess())
    }

    /// The socket of the last batch, when asking it blindly has a fair chance.
    ///
    /// While a batch is answered, new queries arrive on a busy socket: asking it at once saves the wait. On an idle one
    /// the question is a call for nothing, so that wrong guesses are followed by pauses that double.
    fn guess(&mut self) -> Option<Candidate> {
        let engine = self.last.filter(|_| self.may_go_on())?;
        if self.pause_left > 0 {
            self.pause_left -= 1;
            return None;
        }
        Some(Candidate::Guess(engine))
    }

    /// Whether the other sockets have not been kept waiting for too long.
    fn may_go_on(&self) -> bool {
        self.batches_since_wait < BATCHES_BETWEEN_POLLS
    }

    /// Takes note of what came of `candidate`.
    fn learn(&mut self, candidate: Candidate, count: usize, capacity: usize) {
        if count > 0 {
            self.last = Some(candidate.engine());
            self.last_was_full = count == capacity;
            self.batches_since_wait += 1;
        } else {
            self.last = None;
        }
        if let Candidate::Guess(_) = candidate {
            self.pause = if count > 0 { 0 } else { (self.pause * 2).clamp(1, LONGEST_PAUSE) };
            self.pause_left = self.pause;
        }
    }

    /// Sleeps until a socket has queries, somebody wakes the worker, or the interval is over. A signal ends it too.
    fn wait(&mut self) -> io::Result<()> {
        (self.last, self.batches_since_wait) = (None, 0);
        (self.next_event, self.n_events) = (0, 0);
        self.n_events = sys::wait_events(&self.epoll, &mut self.events, self.interval_ms)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpSocketConfig;

    fn poll() -> Poll {
        let engines = [0; 2]
            .map(|_| UdpEngine::bind("127.0.0.1:0".parse().unwrap(), &UdpSocketConfig::default()).unwrap());
        Poll::new(&engines, &EventFd::new().unwrap(), Duration::from_millis(1)).unwrap()
    }

    /// How many waits, and how many guesses in vain, it takes to receive `n_batches` batches of one query. When `busy`, the
    /// next batch is always there already; otherwise it comes only after a wait.
    fn cost_of(poll: &mut Poll, n_batches: u32, busy: bool) -> (u32, u32) {
        let (mut n_waits, mut n_vain, mut n_received) = (0, 0, 0);
        while n_received < n_batches {
            match poll.candidate() {
                Some(guess @ Candidate::Guess(_)) if !busy => {
                    poll.learn(guess, 0, 64);
                    n_vain += 1;
                }
                Some(candidate) => {
                    poll.learn(candidate, 1, 64);
                    n_received += 1;
                }
                None => {
                    n_waits += 1;
                    poll.wait().unwrap();
                    // As if the kernel had reported the second socket.
                    (poll.events[0].u64, poll.n_events, poll.next_event) = (1, 1, 0);
                }
            }
        }
        (n_waits, n_vain)
    }

    #[test]
    fn a_busy_socket_is_asked_without_waiting_most_of_the_time() {
        assert_eq!(cost_of(&mut poll(), 800, true), (100, 0));
    }

    #[test]
    fn an_idle_socket_is_waited_for_each_time_and_seldom_asked_in_vain() {
        // A chance after each batch but the last. The first is taken, then 1, 2, 4, 8 and from there 16 are let go: five
        // guesses in the first 20 chances, one in 17 of the others.
        assert_eq!(cost_of(&mut poll(), 20 + 17 * 10 + 1, false), (191, 15));
    }

    #[test]
    fn a_socket_becomes_busy_again_after_one_guess_that_is_right() {
        let mut poll = poll();
        cost_of(&mut poll, 200, false);
        // The longest pause, then the guess, then as on a busy socket.
        let (n_waits, _) = cost_of(&mut poll, 800, true);
        assert!((100..=100 + LONGEST_PAUSE).contains(&n_waits), "{n_waits}");
    }

    #[test]
    fn a_worker_without_a_socket_is_refused() {
        assert!(Ingress::new(Vec::new(), &EventFd::new().unwrap(), Duration::from_secs(1)).is_err());
    }
}
