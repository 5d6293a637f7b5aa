//! Lines on their way to standard error: queued by whoever logs, written by one thread.
//!
//! Whoever reads the log may stop reading, go away, or have no room left. None of that may hold up an answer, a
//! reload or the end of the server: so nobody but the writing thread waits for the reader, and lines that find no room
//! are dropped and counted.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most lines that wait: the start of a server with thousands of zones at level debug.
const MAX_LINES: usize = 16_384;
/// Most octets that wait.
const MAX_OCTETS: usize = 4 << 20;
/// What a pipe takes without waiting once it takes anything: `PIPE_BUF` of pipe(7).
const READY_OCTETS: usize = 4096;
/// Pause before a write is tried again on an output that somebody made non-blocking.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Lines that wait to be written.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Told of each new line, and of the moment when all are written.
    changed: Condvar,
    n_dropped: AtomicU64,
}

#[derive(Debug)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    n_octets: usize,
    /// A line is being written.
    writing: bool,
    /// Lines that were dropped since that was last said.
    n_untold: u64,
}

impl Queue {
    /// Nothing waits.
    pub(super) const fn new() -> Queue {
        let waiting = Waiting { lines: VecDeque::new(), n_octets: 0, writing: false, n_untold: 0 };
        Queue { waiting: Mutex::new(waiting), changed: Condvar::new(), n_dropped: AtomicU64::new(0) }
    }

    /// Takes a line with its end, or drops it when too much waits. Never waits itself.
    pub(super) fn push(&self, line: Vec<u8>) {
        let mut waiting = self.lock();
        if waiting.lines.len() >= MAX_LINES || waiting.n_octets + line.len() > MAX_OCTETS {
            self.drop_one(&mut waiting);
            return;
        }
        waiting.n_octets += line.len();
        waiting.lines.push_back(line);
        drop(waiting);
        self.changed.notify_all();
    }

    /// Lines that nobody got, ever.
    pub(super) fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Relaxed)
    }

    /// Writes lines to `output` as they come, and never returns. After a gap that ended, `tell_gap` is called with the
    /// number of lines that are missing.
    pub(super) fn write_to(&self, mut output: impl Write, tell_gap: impl Fn(u64)) -> ! {
        loop {
            let mut waiting = self.lock();
            while waiting.lines.is_empty() {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            drop(waiting);
            self.write_waiting(&mut output, &tell_gap);
        }
    }

    /// Writes the lines that wait now, on the caller's thread.
    pub(super) fn write_waiting(&self, mut output: impl Write, tell_gap: impl Fn(u64)) {
        while self.write_next(&mut output, Some(&tell_gap)) {}
    }

    /// As [`write_waiting`](Self::write_waiting), but ends when `is_ready` says that the next line would have to wait.
    /// Gaps are told of later: this is called while a line is being logged, when no other can be.
    pub(super) fn write_ready(&self, mut output: impl Write, is_ready: impl Fn() -> bool) {
        let is_short = || self.lock().lines.front().is_some_and(|line| line.len() <= READY_OCTETS);
        while is_short() && is_ready() && self.write_next(&mut output, None) {}
    }

    /// Writes a line; yields whether there was one.
    fn write_next(&self, output: &mut impl Write, tell_gap: Option<&dyn Fn(u64)>) -> bool {
        let Some(line) = self.next() else { return false };
        let written = write_line(output, &line);
        let mut waiting = self.lock();
        if written.is_err() {
            self.drop_one(&mut waiting);
        }
        let tell_gap = tell_gap.filter(|_| written.is_ok() && waiting.n_untold > 0);
        let n_untold = if tell_gap.is_some() { std::mem::take(&mut waiting.n_untold) } else { 0 };
        drop(waiting);
        if let Some(tell_gap) = tell_gap {
            tell_gap(n_untold);
        }
        self.lock().writing = false;
        self.changed.notify_all();
        true
    }

    /// Waits until everything is written, at most for `patience`; yields whether it is.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut waiting = self.lock();
        while waiting.writing || !waiting.lines.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The next line; it counts as being written from now on.
    fn next(&self) -> Option<Vec<u8>> {
        let mut waiting = self.lock();
        let line = waiting.lines.pop_front()?;
        waiting.n_octets -= line.len();
        waiting.writing = true;
        Some(line)
    }

    fn drop_one(&self, waiting: &mut Waiting) {
        waiting.n_untold += 1;
        self.n_dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while the lock is held, and the queue would be whole if it did.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a whole line, whatever mode the output is in.
fn write_line(output: &mut impl Write, line: &[u8]) -> io::Result<()> {
    let mut rest = line;
    while !rest.is_empty() {
        match output.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n_octets) => rest = rest.get(n_octets..).unwrap_or(&[]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(RETRY_AFTER),
            Err(error) => return Err(error),
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    /// An output that takes a line, or fails, each time the test says so.
    struct Output {
        may_write: mpsc::Receiver<bool>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Output {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            // When the test is over nobody reads any more.
            if !self.may_write.recv().unwrap_or(false) {
                return Err(ErrorKind::BrokenPipe.into());
            }
            self.written.lock().unwrap().extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Fixture {
        queue: &'static Queue,
        may_write: mpsc::Sender<bool>,
        written: Arc<Mutex<Vec<u8>>>,
        gaps: mpsc::Receiver<u64>,
    }

    /// A queue and its thread, which lives as long as the test program.
    fn fixture() -> Fixture {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let (may_write, permissions) = mpsc::channel();
        let (tell_gap, gaps) = mpsc::channel();
        let written = Arc::default();
        let output = Output { may_write: permissions, written: Arc::clone(&written) };
        std::thread::spawn(move || {
            queue.write_to(output, move |n| {
                let _ = tell_gap.send(n);
            })
        });
        Fixture { queue, may_write, written, gaps }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_reader_that_stops_holds_nobody_up_and_hears_of_what_it_missed() {
        let fixture = fixture();
        // Nobody reads: far more lines than have room come back at once.
        for _ in 0..MAX_LINES + 100 {
            fixture.queue.push(b"x\n".to_vec());
        }
        let n_dropped = fixture.queue.n_dropped();
        assert!((99..=100).contains(&n_dropped), "one line may be on its way: {n_dropped}");
        assert!(!fixture.queue.flush(Duration::from_millis(1)), "flushing gives up in time");
        // The reader is back.
        for _ in 0..=MAX_LINES {
            fixture.may_write.send(true).unwrap();
        }
        assert_eq!(fixture.gaps.recv_timeout(PATIENCE), Ok(n_dropped));
        assert!(fixture.queue.flush(PATIENCE));
        let n_written = fixture.written.lock().unwrap().len() as u64 / 2;
        assert_eq!(n_written + n_dropped, MAX_LINES as u64 + 100);
    }

    #[test]
    fn what_waits_is_bounded_in_octets_as_well() {
        let queue = Queue::new();
        for _ in 0..5 {
            queue.push(vec![b'x'; MAX_OCTETS / 4]);
        }
        assert_eq!(queue.n_dropped(), 1);
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_and_told_later() {
        let fixture = fixture();
        fixture.queue.push(b"lost\n".to_vec());
        fixture.may_write.send(false).unwrap();
        assert!(fixture.queue.flush(PATIENCE));
        assert_eq!(fixture.queue.n_dropped(), 1);
        fixture.queue.push(b"kept\n".to_vec());
        fixture.may_write.send(true).unwrap();
        assert_eq!(fixture.gaps.recv_timeout(PATIENCE), Ok(1));
        assert_eq!(*fixture.written.lock().unwrap(), b"kept\n");
    }
}
