//! How many CPUs the process may use, and pinning a thread to one.
//!
//! Two things bound it: the affinity mask (taskset, cpusets) and the cgroup's quota of CPU time (containers). With
//! more workers than the quota has CPUs, all of them are stopped together when the quota is spent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys;

/// CPUs that a mask can grow to: the kernel's own limit is 8192 (CONFIG_NR_CPUS on x86-64).
const MAX_MASK_CPUS: usize = 1 << 16;

/// The CPUs that this process may run on, in ascending order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut n_cpus = 1024;
    loop {
        let mut mask = vec![0_u64; n_cpus / 64];
        // SAFETY: the kernel writes at most the given number of octets, which the vector has; its layout of the mask is an
        // array of machine words, and on little-endian and 64-bit machines that is an array of u64.
        let result =
            unsafe { libc::sched_getaffinity(0, size_of_val(mask.as_slice()), mask.as_mut_ptr().cast()) };
        match sys::check(result) {
            Ok(_) => return Ok(cpus_of(&mask)),
            // The machine has more CPUs than the mask.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && n_cpus < MAX_MASK_CPUS => n_cpus *= 2,
            Err(error) => return Err(error),
        }
    }
}

fn cpus_of(mask: &[u64]) -> Vec<usize> {
    (0..mask.len() * 64).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1).collect()
}

/// The CPUs' worth of time that the cgroup of this process grants (2.5 is two and a half); `None` without a limit.
///
/// The smallest of all groups above the process, version 2 (`cpu.max`) or version 1 (`cpu.cfs_quota_us`).
pub fn cpu_quota() -> Option<f64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    quota_of(&membership, Path::new("/sys/fs/cgroup"))
}

fn quota_of(membership: &str, root: &Path) -> Option<f64> {
    membership.lines().filter_map(|line| quota_of_line(line, root)).reduce(f64::min)
}

/// The quota by one line of /proc/self/cgroup, `id:controllers:path` (cgroups(7)).
fn quota_of_line(line: &str, root: &Path) -> Option<f64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next()?;
    let path = fields.next()?.trim_start_matches('/');
    if controllers.is_empty() {
        return smallest(root, path, |group| parse_cpu_max(&fs::read_to_string(group.join("cpu.max")).ok()?));
    }
    if !controllers.split(',').any(|controller| controller == "cpu") {
        return None;
    }
    // The mount is named by all its controllers, or by a link for one of them.
    let mount = [root.join(controllers), root.join("cpu")].into_iter().find(|mount| mount.is_dir())?;
    smallest(&mount, path, |group| {
        let quota = fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
        let period = fs::read_to_string(group.join("cpu.cfs_period_us")).ok()?;
        parse_cpu_max(&format!("{} {}", quota.trim(), period.trim()))
    })
}

/// The smallest quota from the group at `path` up to the mount. In a container the path may be of the host and not be
/// there: what is above it counts all the same.
fn smallest(mount: &Path, path: &str, quota: impl Fn(PathBuf) -> Option<f64>) -> Option<f64> {
    Path::new(path).ancestors().filter_map(|group| quota(mount.join(group))).reduce(f64::min)
}

/// Parses `QUOTA PERIOD` in microseconds; `max` and -1 are no limit.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace();
    let quota: f64 = fields.next()?.parse().ok()?;
    let period: f64 = fields.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// The number of workers to start when nobody says: one a CPU that the process may use, affinity and quota counted; at
/// least one.
pub fn default_workers() -> usize {
    let n_cpus = allowed_cpus().map_or(1, |cpus| cpus.len());
    workers_for(n_cpus, cpu_quota())
}

/// A part of a CPU is a worker too: it would be idle otherwise.
fn workers_for(n_cpus: usize, quota: Option<f64>) -> usize {
    let n_cpus = n_cpus.max(1);
    let fits = |n: &usize| quota.is_some_and(|quota| *n as f64 >= quota);
    (1..n_cpus).find(fits).unwrap_or(n_cpus)
}

/// The CPU of each of `n_workers` workers: `cpus` in turn, from the start again when there are more workers.
pub fn cpus_for_workers(cpus: &[usize], n_workers: usize) -> Vec<usize> {
    cpus.iter().copied().cycle().take(n_workers).collect()
}

/// Keeps the calling thread on `cpu`.
///
/// # Errors
/// `EINVAL` when the process may not use that CPU.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= MAX_MASK_CPUS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut mask = vec![0_u64; cpu / 64 + 1];
    mask[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: the kernel reads the given number of octets, which the vector has. 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(mask.as_slice()), mask.as_ptr().cast()) };
    sys::check(result).map(drop)
}

/// Sets how much later than asked for a nap of this thread may end (`PR_SET_TIMERSLACK`, prctl(2)); usually 50 us.
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    // Zero would mean the default.
    let slack_ns = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: the call takes integers only.
    sys::check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_can_be_made_punctual() {
        assert!(set_timer_slack(Duration::from_micros(1)).is_ok());
        assert!(set_timer_slack(Duration::ZERO).is_ok());
    }

    #[test]
    fn a_pinned_thread_runs_on_its_cpu_alone() {
        let cpus = allowed_cpus().unwrap();
        let last = *cpus.last().unwrap();
        let seen = std::thread::spawn(move || {
            pin_current_thread(last).unwrap();
            allowed_cpus().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert_eq!(allowed_cpus().unwrap(), cpus);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        assert_eq!(pin_current_thread(MAX_MASK_CPUS - 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(pin_current_thread(usize::MAX).is_err());
    }

    #[test]
    fn masks_list_their_cpus() {
        assert_eq!(cpus_of(&[0b101, 1 << 63]), [0, 2, 127]);
    }

    #[test]
    fn workers_are_bounded_by_cpus_and_by_the_quota_rounded_up() {
        assert_eq!(workers_for(8, None), 8);
        assert_eq!(workers_for(8, Some(2.5)), 3);
        assert_eq!(workers_for(8, Some(2.0)), 2);
        assert_eq!(workers_for(2, Some(64.0)), 2);
        assert_eq!(workers_for(8, Some(0.1)), 1);
        assert_eq!(workers_for(0, None), 1);
    }

    #[test]
    fn more_workers_than_cpus_start_again_at_the_first() {
        assert_eq!(cpus_for_workers(&[2, 5], 3), [2, 5, 2]);
    }

    #[test]
    fn quotas_are_read_from_the_group_and_those_above_it() {
        let root = std::env::temp_dir().join(format!("weir-netio-cgroup-{}", std::process::id()));
        let group = root.join("kube.slice/pod");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(root.join("kube.slice/cpu.max"), "150000 100000\n").unwrap();
        fs::create_dir_all(root.join("cpu,cpuacct/docker/x")).unwrap();
        fs::write(root.join("cpu,cpuacct/docker/x/cpu.cfs_quota_us"), "50000\n").unwrap();
        fs::write(root.join("cpu,cpuacct/docker/x/cpu.cfs_period_us"), "100000\n").unwrap();
        let second = quota_of("0::/kube.slice/pod\n", &root);
        let absent = quota_of("0::/kube.slice/not/there\n", &root);
        let first = quota_of("5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n", &root);
        let none = quota_of("5:memory:/docker/x\nnonsense\n", &root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!((second, absent, first, none), (Some(1.5), Some(1.5), Some(0.5), None));
    }

    #[test]
    fn unlimited_and_broken_quotas_are_no_limit() {
        for text in ["max 100000", "-1 100000", "", "5", "1 0", "x y"] {
            assert_eq!(parse_cpu_max(text), None, "{text:?}");
        }
    }
}
