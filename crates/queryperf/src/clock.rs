//! The two clocks: the system's, which the kernel stamps arrivals with, and the time that this process has worked.

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

/// CPU time of this process so far, user and system, in steps of 10 ms (proc_pid_stat(5): fields 14 and 15, in ticks of
/// which every Linux reports 100 a second).
pub(crate) fn cpu_time() -> Option<Duration> {
    ticks_of(&fs::read_to_string("/proc/self/stat").ok()?).map(|ticks| Duration::from_millis(ticks * 10))
}

fn ticks_of(stat: &str) -> Option<u64> {
    // The name of the program, in parentheses, may hold blanks and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_name() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20 0";
        assert_eq!(ticks_of(stat), Some(42));
        assert_eq!(ticks_of("7 (a) R 1"), None);
        assert!(cpu_time().is_some());
    }
}
