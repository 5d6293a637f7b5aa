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
use crate::ring::{Refused, RingEngine};
use crate::sys;
use crate::udp::{SendReport, UdpEngine, Wait};

/// Batches taken from one socket after the other before all are looked at again: at 64 queries a batch and some 5 us a
/// query this is about 2.5 ms, the longest that a busy socket keeps the others waiting.
const BATCHES_BETWEEN_POLLS: u32 = 8;

/// The longest pause, in chances, after guesses that proved wrong; see [`Poll::guess`].
const LONGEST_PAUSE: u32 = 16;

/// The marks of the wake event and of the ring among the epoll events; sockets have their index.
const WAKE: u64 = u64::MAX;
const RING: u64 = u64::MAX - 1;

/// Batches taken from the ring before the sockets are looked at.
const RING_BATCHES_BETWEEN_LOOKS: u32 = 8;

/// The nap after answers were sent and before the ring is looked at again. Frames gather meanwhile, and what is paid once
/// a batch (the wake-up, the send) is paid for more of them: a quarter of the CPU time an answer, for this much latency.
pub const NAP: Duration = Duration::from_micros(50);

/// The UDP sockets of one worker, and its packet ring while it has one.
#[derive(Debug)]
pub struct Ingress {
    engines: Vec<UdpEngine>,
    /// None with a single socket and no ring.
    poll: Option<Poll>,
    /// The engine of the batch that was received last; its answers go out there.
    current: usize,
    ring: Option<RingEngine>,
    /// Whether the last batch came from the ring.
    from_ring: bool,
    /// Batches taken from the ring since the sockets were looked at.
    ring_batches: u32,
    wake: EventFd,
    interval: Duration,
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
        let wake = wake.try_clone()?;
        Ok(Self { engines, poll, current: 0, ring: None, from_ring: false, ring_batches: 0, wake, interval })
    }

    /// Receives from `ring` too, from now on.
    pub fn add_ring(&mut self, ring: RingEngine) -> io::Result<()> {
        let poll = Poll::new(&self.engines, &self.wake, self.interval)?;
        sys::watch(&poll.epoll, &ring, RING)?;
        (self.poll, self.ring) = (Some(poll), Some(ring));
        Ok(())
    }

    /// Gives the ring back, with what is in it.
    pub fn remove_ring(&mut self) -> io::Result<Option<RingEngine>> {
        let Some(ring) = self.ring.take() else { return Ok(None) };
        self.from_ring = false;
        // A new poll is one that does not know the ring.
        self.poll = match self.engines.as_slice() {
            [_] => None,
            several => Some(Poll::new(several, &self.wake, self.interval)?),
        };
        Ok(Some(ring))
    }

    /// Frames that the ring refused since the last call.
    pub fn take_refused(&mut self) -> Refused {
        self.ring.as_mut().map(RingEngine::take_refused).unwrap_or_default()
    }

    /// Whether the last batch came from the ring.
    pub fn is_from_ring(&self) -> bool {
        self.from_ring
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
        if self.ring.is_some() {
            return self.receive_with_ring(batch);
        }
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

    /// The ring first, without a system call while it has frames; the sockets, which have what the ring leaves to them,
    /// when the kernel says so. With nothing to do: a nap, then the wait.
    ///
    /// invariant: the ring's socket is polled after every full batch. The kernel marks a socket as under pressure when
    /// its ring is full, gives it nothing that rolls over, and takes the mark off only when it is polled.
    fn receive_with_ring(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let (Some(poll), Some(ring)) = (&mut self.poll, &mut self.ring) else { return Ok(0) };
        let (mut napped, mut waited) = (!self.from_ring, false);
        loop {
            while let Some(engine) = poll.reported() {
                let count = self.engines[engine].receive(batch, Wait::No)?;
                if count > 0 {
                    (self.current, self.from_ring) = (engine, false);
                    return Ok(count);
                }
            }
            let count = ring.receive(batch);
            if count > 0 {
                self.from_ring = true;
                self.ring_batches += 1;
                if count == batch.capacity() || self.ring_batches >= RING_BATCHES_BETWEEN_LOOKS {
                    self.ring_batches = 0;
                    poll.wait_for(0)?;
                }
                return Ok(count);
            }
            if !napped {
                napped = true;
                std::thread::sleep(NAP);
            } else if waited {
                return Ok(0);
            } else {
                waited = true;
                self.ring_batches = 0;
                poll.wait_for(poll.interval_ms)?;
            }
        }
    }

    /// Fills `batch` with what is left in the ring, without waiting: for a ring that gets no more.
    pub fn receive_left(&mut self, batch: &mut Batch) -> usize {
        self.from_ring = true;
        self.ring.as_mut().map_or(0, |ring| ring.receive(batch))
    }

    /// Sends the answers of `batch` the way that its queries came; those from the ring that are longer than the link
    /// carries, by the socket of the address that was asked.
    ///
    /// # Errors
    /// As for [`UdpEngine::send`].
    pub fn send(&mut self, batch: &mut Batch) -> io::Result<SendReport> {
        let Some(ring) = self.ring.as_mut().filter(|_| self.from_ring) else {
            return self.engines[self.current].send(batch);
        };
        let mut report = SendReport::default();
        if ring.send(batch, &mut report)? > 0 {
            for (listener, engine) in self.engines.iter_mut().enumerate() {
                engine.send_for(batch, listener, &mut report)?;
            }
        }
        Ok(report)
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
            // Room for the wake event and a ring besides.
            events: vec![epoll_event { events: 0, u64: 0 }; engines.len() + 2],
            next_event: 0,
            n_events: 0,
            last: None,
            last_was_full: false,
            batches_since_wait: 0,
            pause: 0,
            pause_left: 0,
        })
    }

    /// The next socket that the kernel reported.
    fn reported(&mut self) -> Option<usize> {
        while self.next_event < self.n_events {
            let mark = self.events[self.next_event].u64;
            self.next_event += 1;
            if mark != WAKE && mark != RING {
                return usize::try_from(mark).ok();
            }
        }
        None
    }

    /// The socket to ask now; `None` when it is time to wait.
    fn candidate(&mut self) -> Option<Candidate> {
        if let Some(engine) = self.reported() {
            return Some(Candidate::Ready(engine));
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
        self.wait_for(self.interval_ms)
    }

    /// Asks the kernel which sockets have queries, and waits for one at most `limit_ms`.
    fn wait_for(&mut self, limit_ms: c_int) -> io::Result<()> {
        (self.next_event, self.n_events) = (0, 0);
        self.n_events = sys::wait_events(&self.epoll, &mut self.events, limit_ms)?;
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
