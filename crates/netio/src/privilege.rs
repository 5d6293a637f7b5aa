//! Giving up root and every capability once the sockets are open.
//!
//! Open sockets keep working after that; what no longer works is to open port 53 anew, packet sockets, and receive
//! buffers beyond the system's limit. So everything is opened first, then [`drop_to`], then threads are started. Before all
//! of it, [`take_up_permitted`] puts into force what the process may have and has not.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use libc::{c_int, c_ulong, gid_t, uid_t};

use crate::sys;

/// Why rights could not be dropped. The process must end then: it may have lost some and kept others.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Capabilities belong to threads: those that run already would keep theirs.
    #[error("rights must be dropped before the first thread is started, and {n_threads} are running")]
    Threads {
        /// Threads of the process, this one included.
        n_threads: usize,
    },
    /// A call failed that must not.
    #[error("{call}: {source}")]
    Call {
        /// The system call, with its option where it has one.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What became of the rights of the process. In every case no later exec can gain any (`PR_SET_NO_NEW_PRIVS`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Was root, is the given user now, with no supplementary group and no capability.
    Dropped,
    /// Was not root; capabilities that the process had are gone.
    NeverHad,
    /// Stays root, because the kernel grants no change of user: warn once, and serve.
    Kept {
        /// What is missing, for the log line.
        reason: String,
    },
}

/// Whether the process runs with root's user id.
pub fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Raises the limit of open files to the hard limit, and yields it: every TCP connection needs one.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes into a local that outlives the call.
    sys::check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads a local that outlives the call.
    sys::check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(limit.rlim_cur)
}

/// Puts capabilities into force that the process is permitted and has not in force, of those that opening sockets and
/// rings makes use of; yields whether there were any.
///
/// A file with capabilities but without the effective bit (`setcap cap_net_raw=p`) starts like that; with that bit it would
/// not start at all where a container takes them away.
///
/// # Errors
/// The kernel's refusal: the process goes on as it was.
pub fn take_up_permitted() -> Result<bool, PrivilegeError> {
    let mut data = capabilities()?;
    let mut any = false;
    for (word, wanted) in data.iter_mut().zip(SOCKET_CAPABILITIES) {
        let missing = word.permitted & wanted & !word.effective;
        word.effective |= missing;
        any |= missing != 0;
    }
    if any {
        set_capabilities(&data)?;
    }
    Ok(any)
}

/// Has writes beyond the limit on the size of files fail (`EFBIG`), instead of ending the process (`SIGXFSZ`).
pub fn ignore_file_size_limit() {
    // SAFETY: no handler is installed: the signal is ignored, which concerns nothing but its delivery.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Becomes user `uid` of group `gid` if root, and gives every capability up.
///
/// Must be called while the process has one thread. Afterwards the process is not dumpable (no core file, and
/// /proc/self belongs to root), as after every change of user.
///
/// # Errors
/// More than one thread, or a call that failed half-way; do not go on then.
pub fn drop_to(uid: uid_t, gid: gid_t) -> Result<Outcome, PrivilegeError> {
    require_one_thread()?;
    // To setresuid(2) this means that nothing is to be changed: root would stay, and nobody would know.
    if uid == uid_t::MAX || gid == gid_t::MAX {
        let source = io::Error::from_raw_os_error(libc::EINVAL);
        return Err(PrivilegeError::Call { call: "no user and no group has the number 4294967295", source });
    }
    if !is_root() {
        clear_ambient();
        clear_capabilities()?;
        forbid_new_privileges()?;
        return Ok(Outcome::NeverHad);
    }
    let obstacle = obstacle(uid, gid)?;
    clear_bounding_set();
    if let Some(reason) = obstacle {
        // The user stays; what root may do by capability goes all the same.
        clear_ambient();
        clear_capabilities()?;
        forbid_new_privileges()?;
        return Ok(Outcome::Kept { reason });
    }
    clear_ambient();
    change_user(uid, gid)?;
    clear_capabilities()?;
    forbid_new_privileges()?;
    confirm_user(uid, gid)?;
    Ok(Outcome::Dropped)
}

/// Yields what `look` does with the access to files that user `uid` of group `gid` has, with no other group; `None`
/// when this thread may not take that on.
///
/// Concerns this thread alone, and the capabilities that open files to root with it (setfsuid(2)).
pub fn with_access_of<R>(uid: uid_t, gid: gid_t, look: impl FnOnce() -> R) -> Option<R> {
    let groups = thread_groups().ok()?;
    set_thread_groups(&[]).ok()?;
    let (user, group) = (set_file_user(uid), set_file_group(gid));
    // Neither says whether it succeeded: an id that is no user's changes nothing and yields the one that is in force.
    let is_taken_on = set_file_user(uid_t::MAX) == uid && set_file_group(gid_t::MAX) == gid;
    let seen = is_taken_on.then(look);
    set_file_user(user);
    set_file_group(group);
    set_thread_groups(&groups).ok()?;
    seen
}

/// Sets who asks for files from now on; yields who did before.
fn set_file_user(uid: uid_t) -> uid_t {
    // SAFETY: takes a number only.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

fn set_file_group(gid: gid_t) -> gid_t {
    // SAFETY: takes a number only.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

fn thread_groups() -> io::Result<Vec<gid_t>> {
    // SAFETY: with no room announced the kernel only counts.
    let n_groups = sys::check(unsafe { libc::getgroups(0, std::ptr::null_mut()) })?;
    let mut groups = vec![0; usize::try_from(n_groups).unwrap_or(0)];
    // SAFETY: the vector has room for as many as are announced.
    let n_groups = sys::check(unsafe { libc::getgroups(n_groups, groups.as_mut_ptr()) })?;
    groups.truncate(usize::try_from(n_groups).unwrap_or(0));
    Ok(groups)
}

/// By the system call, which concerns the calling thread alone; the C library's function changes all threads.
fn set_thread_groups(groups: &[gid_t]) -> io::Result<()> {
    // SAFETY: the kernel reads as many groups as are announced, from a slice that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How long a thread that was joined may still be listed: joining waits for `mm_release` (kernel/fork.c), and the kernel
/// takes the thread off its lists a little later.
const THREAD_LEAVES_WITHIN: Duration = Duration::from_secs(1);

fn require_one_thread() -> Result<(), PrivilegeError> {
    let deadline = Instant::now() + THREAD_LEAVES_WITHIN;
    loop {
        let tasks = fs::read_dir("/proc/self/task").map_err(failed("opendir /proc/self/task"))?;
        let n_threads = tasks.count();
        if n_threads == 1 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(PrivilegeError::Threads { n_threads });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What keeps root from becoming `uid` and `gid`: a capability that the container took away, or ids that its user
/// namespace does not know. Asked before the first step, so that root is either left as a whole or kept as a whole.
fn obstacle(uid: uid_t, gid: gid_t) -> Result<Option<String>, PrivilegeError> {
    let effective = effective_capabilities()?;
    for (bit, name) in [(CAP_SETUID, "CAP_SETUID"), (CAP_SETGID, "CAP_SETGID")] {
        if effective >> bit & 1 == 0 {
            return Ok(Some(format!("{name} is missing")));
        }
    }
    for (map, id, what) in [("/proc/self/uid_map", uid, "user"), ("/proc/self/gid_map", gid, "group")] {
        let known = fs::read_to_string(map).map_or(true, |text| maps(&text, id));
        if !known {
            return Ok(Some(format!("{what} {id} is not mapped in this user namespace")));
        }
    }
    let setgroups = fs::read_to_string("/proc/self/setgroups").unwrap_or_default();
    if setgroups.trim() == "deny" {
        return Ok(Some("this user namespace denies setgroups".to_owned()));
    }
    Ok(None)
}

/// Whether a map of a user namespace (`inside outside length` a line, user_namespaces(7)) has `id`.
fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(length))) = (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        (inside..inside.saturating_add(length)).contains(&u64::from(id))
    })
}

fn change_user(uid: uid_t, gid: gid_t) -> Result<(), PrivilegeError> {
    // SAFETY: no group is announced, so none is read.
    sys::check(unsafe { libc::setgroups(0, std::ptr::null()) }).map_err(failed("setgroups"))?;
    // SAFETY: takes numbers only.
    sys::check(unsafe { libc::setresgid(gid, gid, gid) }).map_err(failed("setresgid"))?;
    // SAFETY: takes numbers only.
    sys::check(unsafe { libc::setresuid(uid, uid, uid) }).map_err(failed("setresuid"))?;
    Ok(())
}

/// Reads back what the process is now: a server that believes to have dropped root and has not is worse than none.
fn confirm_user(uid: uid_t, gid: gid_t) -> Result<(), PrivilegeError> {
    let (mut user, mut group) = ([0; 3], [0; 3]);
    let [real, effective, saved] = &mut user;
    // SAFETY: the kernel writes into three locals that outlive the call.
    sys::check(unsafe { libc::getresuid(real, effective, saved) }).map_err(failed("getresuid"))?;
    let [real, effective, saved] = &mut group;
    // SAFETY: as above.
    sys::check(unsafe { libc::getresgid(real, effective, saved) }).map_err(failed("getresgid"))?;
    if user == [uid; 3] && group == [gid; 3] && effective_capabilities()? == 0 {
        return Ok(());
    }
    let source = io::Error::other(format!("user ids are {user:?}, group ids {group:?}"));
    Err(PrivilegeError::Call { call: "confirming the change of user", source })
}

/// Takes every capability out of the bounding set. Without `CAP_SETPCAP` that is refused; `PR_SET_NO_NEW_PRIVS` then
/// bars the same way.
fn clear_bounding_set() {
    for capability in 0..=LAST_CAPABILITY {
        if prctl(libc::PR_CAPBSET_DROP, capability, 0).is_err() {
            break;
        }
    }
}

/// Kernels before 4.3 have no ambient set; then there is nothing to clear.
fn clear_ambient() {
    let _ = prctl(libc::PR_CAP_AMBIENT, unsigned(libc::PR_CAP_AMBIENT_CLEAR_ALL), 0);
}

fn forbid_new_privileges() -> Result<(), PrivilegeError> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map_err(failed("prctl PR_SET_NO_NEW_PRIVS"))
}

/// `prctl` with up to two arguments; the others must be zero for most options.
fn prctl(option: c_int, second: c_ulong, third: c_ulong) -> io::Result<()> {
    let zero: c_ulong = 0;
    // SAFETY: the options used here take numbers only.
    sys::check(unsafe { libc::prctl(option, second, third, zero, zero) }).map(drop)
}

fn unsigned(value: c_int) -> c_ulong {
    c_ulong::from(value.unsigned_abs())
}

/// `struct __user_cap_header_struct`, include/uapi/linux/capability.h.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

/// `struct __user_cap_data_struct`; version 3 has two, low word first.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION_3: u32 = 0x2008_0522;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
/// `CAP_NET_BIND_SERVICE` (10), `CAP_NET_ADMIN` (12) and `CAP_NET_RAW` (13) in the low word, `CAP_BPF` (39) in the high one.
const SOCKET_CAPABILITIES: [u32; 2] = [1 << 10 | 1 << 12 | 1 << 13, 1 << (39 - 32)];
/// Version 3 has room for 64; the kernel refuses numbers beyond its own last one, which ends the loop.
const LAST_CAPABILITY: c_ulong = 63;

fn clear_capabilities() -> Result<(), PrivilegeError> {
    set_capabilities(&[CapabilityData::default(); 2])
}

fn set_capabilities(data: &[CapabilityData; 2]) -> Result<(), PrivilegeError> {
    let header = CapabilityHeader { version: VERSION_3, pid: 0 };
    // SAFETY: the kernel reads one header and, by version 3, two data structures; both outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(failed("capset")(io::Error::last_os_error())) }
}

fn effective_capabilities() -> Result<u64, PrivilegeError> {
    let [low, high] = capabilities()?;
    Ok(u64::from(high.effective) << 32 | u64::from(low.effective))
}

fn capabilities() -> Result<[CapabilityData; 2], PrivilegeError> {
    let mut header = CapabilityHeader { version: VERSION_3, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: the kernel reads and may write one header, and writes two data structures by version 3; both are locals
    // that outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if result != 0 {
        return Err(failed("capget")(io::Error::last_os_error()));
    }
    Ok(data)
}

fn failed(call: &'static str) -> impl FnOnce(io::Error) -> PrivilegeError {
    move |source| PrivilegeError::Call { call, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_not_dropped_beside_other_threads() {
        // The test harness runs this test in a thread of its own.
        assert!(matches!(drop_to(65532, 65532), Err(PrivilegeError::Threads { n_threads: 2.. })));
    }

    #[test]
    fn the_limit_of_open_files_is_the_hard_one_afterwards() {
        let raised = raise_open_files().unwrap();
        assert_eq!(raise_open_files().unwrap(), raised);
        assert!(raised > 0);
    }

    #[test]
    fn what_only_root_may_read_is_closed_while_looking_as_another_user_and_open_afterwards() {
        let readable = || fs::read("/proc/1/environ").is_ok();
        let before = readable();
        let groups = thread_groups().unwrap();
        match with_access_of(65532, 65532, || fs::File::open("/etc/shadow").is_ok()) {
            Some(is_open) => assert!(!is_open),
            None => assert!(!is_root() || set_thread_groups(&groups).is_err()),
        }
        assert_eq!((readable(), thread_groups().unwrap()), (before, groups));
    }

    #[test]
    fn user_namespace_maps_are_ranges() {
        assert!(maps("         0          0 4294967295\n", 65532));
        assert!(maps("0 100000 1\n65532 165532 1\n", 65532));
        assert!(!maps("0 100000 65532\n", 65532));
        assert!(!maps("", 0));
        assert!(!maps("broken", 0));
    }
}
