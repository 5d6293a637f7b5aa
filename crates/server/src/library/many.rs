//! Many zones at once: threads that load one after the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_wire::name::HashSeed;

use super::Source;
use super::read::{Loaded, load};
use crate::config::Checks;

/// How long a zone that is loaded may wait to be taken over. Waking the taker for each of many small zones would cost
/// as much as loading them.
const TAKE_EVERY: Duration = Duration::from_millis(5);

/// Threads for loading zones: one a CPU.
pub(crate) fn n_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What was loaded and is not taken over yet.
struct Done {
    loaded: Mutex<Waiting>,
    has_ended: Condvar,
}

struct Waiting {
    zones: Vec<(usize, Loaded)>,
    n_threads: usize,
}

impl Done {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A list is whole whoever panicked.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is after a while, or after the last thread's end; yields whether that was.
    fn take(&self) -> (Vec<(usize, Loaded)>, bool) {
        let waited = self.has_ended.wait_timeout_while(self.lock(), TAKE_EVERY, |done| done.n_threads > 0);
        let (mut done, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut done.zones), done.n_threads == 0)
    }
}

/// Counts a thread until it is dropped, by a panic as well.
struct Working<'d>(&'d Done);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.lock().n_threads -= 1;
        self.0.has_ended.notify_one();
    }
}

/// Loads zones on `n_threads` threads; hands those that are done to `each` with their numbers, every few milliseconds,
/// and also when there are none. `n_done` counts them.
pub(super) fn load_each(
    sources: &[Source],
    seed: HashSeed,
    checks: &Checks,
    n_threads: usize,
    n_done: &AtomicU64,
    mut each: impl FnMut(Vec<(usize, Loaded)>),
) {
    let n_threads = n_threads.clamp(1, sources.len().max(1));
    let next = AtomicUsize::new(0);
    let done =
        Done { loaded: Mutex::new(Waiting { zones: Vec::new(), n_threads }), has_ended: Condvar::new() };
    let work = || {
        let _working = Working(&done);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = sources.get(number) else { return };
            let loaded = load(source, seed, checks);
            done.lock().zones.push((number, loaded));
            n_done.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        loop {
            let (loaded, is_end) = done.take();
            each(loaded);
            if is_end {
                break;
            }
        }
        // The scope alone waits for the work only: rights are dropped when no other thread is there any more.
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Loads zones on `n_threads` threads; yields them in the order given. `n_done` counts them.
pub(crate) fn load_all(
    sources: &[Source],
    seed: HashSeed,
    checks: &Checks,
    n_threads: usize,
    n_done: &AtomicU64,
) -> Vec<Loaded> {
    let mut all = Vec::with_capacity(sources.len());
    load_each(sources, seed, checks, n_threads, n_done, |loaded| all.extend(loaded));
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, loaded)| loaded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn zones_come_back_in_the_order_of_their_sources_whatever_thread_read_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let sources: Vec<Source> = (0..50u32)
            .map(|serial| {
                let path = folder.path().join(format!("z{serial}.zone"));
                let text =
                    format!("$TTL 60\n@ SOA ns hostmaster {serial} 1 1 1 1\n@ NS ns\nns A 192.0.2.53\n");
                fs::write(&path, text).expect("written");
                let name = format!("z{serial}").parse::<crate::config::ZoneName>().expect("a name");
                Source { origin: name.0.into(), path }
            })
            .collect();
        let n_done = AtomicU64::new(0);
        let loaded = load_all(&sources, HashSeed::fixed(), &Checks::default(), 4, &n_done);
        let serials = loaded.iter().map(|loaded| loaded.zone.as_ref().map(|zone| zone.serial()));
        assert!(serials.eq((0..50).map(Some)));
        assert_eq!(n_done.into_inner(), 50);
    }
}
