//! The two clocks: the system's, which the kernel stamps arrivals with, and the time that a thread has worked.

use std::fs;
use std::time::{Duration, SystemTime};

/// Nanoseconds since the epoch.
#[inline]
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, in_ns)
}

/// A duration in nanoseconds; 2^64 of them are 584 years.
#[inline]
pub(crate) fn in_ns(duration: Duration) -> u64 {
    duration.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(duration.subsec_nanos()))
}

/// Nanoseconds of CPU time that this thread has taken so far, user and system; `None` where the kernel does not tell
/// (first field of /proc/thread-self/schedstat, Documentation/scheduler/sched-stats.rst).
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_thread_grows_with_its_work() {
        let before = thread_cpu_ns().unwrap();
        while thread_cpu_ns().unwrap() == before {}
        assert!(thread_cpu_ns().unwrap() > before);
    }
}
