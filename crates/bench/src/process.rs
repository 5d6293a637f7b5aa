//! What a process costs: its CPU time and memory, and those of its children, as the kernel counts them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Clock ticks a second of /proc/PID/stat: USER_HZ, 100 on every Linux that Rust runs on (proc_pid_stat(5)).
const TICKS_A_SECOND: u64 = 100;

/// A server under test. Dropping it ends it, its children with it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts `command` with both outputs in the file `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Running> {
        let file = fs::File::create(log).with_context(|| log.display().to_string())?;
        let errors = file.try_clone()?;
        let told = format!("{command:?}");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        Ok(Running { child: child.with_context(|| format!("cannot start {told}"))? })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// CPU time that it and its descendants have taken so far: user and system, all threads. To ten milliseconds.
    ///
    /// What the kernel does for other sockets while this process runs (softirq) is in it, and what it does for this
    /// one's while others run is not: over a veth pair each side pays for the stack above its own sends.
    pub(crate) fn cpu_time(&self) -> Duration {
        Duration::from_millis(ticks(self.pid()) * 1000 / TICKS_A_SECOND)
    }

    /// Memory in KiB, with pages that processes share counted once (PSS).
    pub(crate) fn memory_kib(&self) -> u64 {
        memory_kib(self.pid())
    }

    fn terminate(&mut self) {
        let _ = Command::new("kill").arg(self.pid().to_string()).status();
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for pid in descendants(self.pid()) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.terminate();
        }
    }
}

/// CPU time of children of this program that have ended and were waited for. To ten milliseconds.
pub(crate) fn cpu_time_of_the_ended() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Duration::from_millis(ticks_from(&stat, 13).unwrap_or(0) * 1000 / TICKS_A_SECOND)
}

/// The user and system time of a process tree, in ticks.
fn ticks(pid: u32) -> u64 {
    let own = fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| ticks_in(&stat));
    own.unwrap_or(0) + children(pid).into_iter().map(ticks).sum::<u64>()
}

/// Fields 14 and 15 of proc_pid_stat(5).
fn ticks_in(stat: &str) -> Option<u64> {
    ticks_from(stat, 11)
}

/// The sum of two fields of proc_pid_stat(5): `n_before` stand before them behind the program's name, which may hold spaces.
fn ticks_from(stat: &str, n_before: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace().skip(n_before);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn memory_kib(pid: u32) -> u64 {
    let own = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("Pss:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    own.unwrap_or(0) + children(pid).into_iter().map(memory_kib).sum::<u64>()
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let listed: Vec<String> = threads.filter_map(Result::ok).filter_map(of_thread).collect();
    listed.iter().flat_map(|text| text.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

fn descendants(pid: u32) -> Vec<u32> {
    let below = children(pid);
    let further: Vec<u32> = below.iter().flat_map(|&pid| descendants(pid)).collect();
    [below, further].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 1 1 0 -1 4194560 1 2 3 4 250 130 9 9 20 0 1 0 5 6 7";
        assert_eq!(ticks_in(stat), Some(380));
        assert_eq!(ticks_from(stat, 13), Some(18));
        assert_eq!(ticks_in("7 (a) S 1"), None);
    }

    #[test]
    fn this_test_takes_memory() {
        assert!(memory_kib(std::process::id()) > 100);
    }
}
