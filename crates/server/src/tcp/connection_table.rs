//! Who is connected, and who has to go when there are as many as there may be.
//!
//! At the cap the connection that has been idle longest is closed for the new one (RFC 7766 section 6.2.3). Being
//! active costs a connection one store; the order is kept lazily: a heap of last-known times, in which an entry that
//! proves outdated is put back with the time that is true now. The first entry that is not outdated is the longest
//! idle, since every other one was active at least as recently as its entry says.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::leave::{Leave, Reason};

/// How long a connection that was asked to leave may take for it before the next one is asked as well. It has only to
/// be woken, which takes long on a machine that is short of processors alone.
const LEAVING: Duration = Duration::from_millis(100);

/// All connections of the server.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    /// One permit for each connection that may still come. One that was asked to leave keeps its permit until it is
    /// gone: the cap holds.
    free: Arc<Semaphore>,
    /// Where time starts; connections keep microseconds since then.
    start: Instant,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    next_id: u64,
    by_id: HashMap<u64, Arc<Connection>>,
    /// Last-known time of activity and id; entries of connections that are gone are skipped when they come up.
    by_idleness: BinaryHeap<Reverse<(u64, u64)>>,
    /// Whether the server stops: who comes now is asked to leave at once.
    stopping: bool,
}

#[derive(Debug)]
struct Connection {
    last_active_us: AtomicU64,
    leave: Arc<Leave>,
}

/// A connection's entry; it is given back when dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    table: Arc<ConnectionTable>,
    id: u64,
    connection: Arc<Connection>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionTable {
    /// A table for `max_connections` at once, at least one.
    pub(crate) fn new(max_connections: usize) -> Arc<ConnectionTable> {
        let free = Arc::new(Semaphore::new(max_connections.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(ConnectionTable { free, start: Instant::now(), entries: Mutex::default() })
    }

    /// An entry, as soon as there may be one more: at the cap the connection that was idle longest is asked to leave.
    pub(crate) async fn enter(self: &Arc<ConnectionTable>) -> Entry {
        let mut permit = Arc::clone(&self.free).try_acquire_owned().ok();
        while permit.is_none() {
            self.evict_longest_idle();
            let freed = timeout(LEAVING, Arc::clone(&self.free).acquire_owned()).await;
            permit = freed.ok().and_then(Result::ok);
        }
        self.insert(permit)
    }

    fn insert(self: &Arc<ConnectionTable>, permit: Option<OwnedSemaphorePermit>) -> Entry {
        let now_us = self.now_us();
        let connection =
            Arc::new(Connection { last_active_us: AtomicU64::new(now_us), leave: Arc::default() });
        let mut entries = self.lock();
        let id = entries.next_id;
        entries.next_id += 1;
        if entries.stopping {
            connection.leave.ask(Reason::Stopping);
        }
        entries.by_id.insert(id, Arc::clone(&connection));
        entries.by_idleness.push(Reverse((now_us, id)));
        entries.forget_the_gone();
        drop(entries);
        Entry { table: Arc::clone(self), id, connection, _permit: permit }
    }

    /// Asks the connection that was idle longest to leave, if there is one that was not asked yet.
    pub(crate) fn evict_longest_idle(&self) {
        self.lock().evict_longest_idle();
    }

    /// Asks every connection to end, and all that still come.
    pub(crate) fn stop(&self) {
        let mut entries = self.lock();
        entries.stopping = true;
        for connection in entries.by_id.values() {
            connection.leave.ask(Reason::Stopping);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // Nothing panics while the lock is held, and the maps would be whole if it did.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Entries {
    fn evict_longest_idle(&mut self) {
        while let Some(Reverse((known_us, id))) = self.by_idleness.pop() {
            let Some(connection) = self.by_id.get(&id) else { continue };
            let last_active_us = connection.last_active_us.load(Ordering::Relaxed);
            if last_active_us > known_us {
                self.by_idleness.push(Reverse((last_active_us, id)));
                continue;
            }
            connection.leave.ask(Reason::Cap);
            self.by_id.remove(&id);
            return;
        }
    }

    /// Keeps the heap at no more than twice the connections there are: rebuilt rarely enough to cost little each.
    fn forget_the_gone(&mut self) {
        if self.by_idleness.len() > 2 * self.by_id.len() + 64 {
            let by_id = &self.by_id;
            self.by_idleness.retain(|Reverse((_, id))| by_id.contains_key(id));
        }
    }
}

impl Entry {
    /// Notes that the client sent a whole query just now.
    pub(crate) fn note_activity(&self) {
        self.connection.last_active_us.store(self.table.now_us(), Ordering::Relaxed);
    }

    /// When the connection will have been idle for `timeout`.
    pub(crate) fn idle_deadline(&self, timeout: Duration) -> Instant {
        let last_active = Duration::from_micros(self.connection.last_active_us.load(Ordering::Relaxed));
        self.table.start + last_active + timeout
    }

    /// Tells when the connection has to make room for another one.
    pub(super) fn leave(&self) -> &Arc<Leave> {
        &self.connection.leave
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.table.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Sets the time of activity, so that the tests depend on no clock.
    fn active_at(entry: &Entry, us: u64) {
        entry.connection.last_active_us.store(us, Ordering::Relaxed);
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// An entry, without waiting.
    fn enter(table: &Arc<ConnectionTable>) -> Entry {
        let Poll::Ready(entry) = poll(pin!(table.enter())) else { panic!("the table is full") };
        entry
    }

    #[test]
    fn at_the_cap_the_longest_idle_connection_leaves_before_another_one_comes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _in_runtime = runtime.enter();
        let table = ConnectionTable::new(3);
        let mut early: Vec<Entry> = (0..3).map(|_| enter(&table)).collect();
        // All of them were active after they came, in another order.
        for (entry, us) in early.iter().zip([3_000_000, 1_000_000, 2_000_000]) {
            active_at(entry, us);
        }
        let mut late = pin!(table.enter());
        assert!(poll(late.as_mut()).is_pending(), "there is room once it is gone");
        let reasons: Vec<_> = early.iter().map(|entry| entry.leave().reason()).collect();
        assert_eq!(reasons, [None, Some(Reason::Cap), None]);
        drop(early.remove(1));
        assert!(poll(late.as_mut()).is_ready());
    }

    #[test]
    fn an_entry_given_back_is_free() {
        let table = ConnectionTable::new(2);
        for _ in 0..1_000 {
            drop(enter(&table));
        }
        let entries = table.lock();
        assert!(entries.by_id.is_empty());
        assert!(
            entries.by_idleness.len() <= 65,
            "entries of the gone are forgotten: {}",
            entries.by_idleness.len()
        );
    }

    #[test]
    fn nobody_is_asked_to_leave_twice() {
        let table = ConnectionTable::new(2);
        table.evict_longest_idle();
        let entry = enter(&table);
        table.evict_longest_idle();
        assert_eq!(entry.leave().reason(), Some(Reason::Cap));
        assert!(table.lock().by_id.is_empty());
    }
}
