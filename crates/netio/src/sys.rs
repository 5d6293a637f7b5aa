//! Thin wrappers of calls that neither std nor socket2 offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use libc::{c_int, c_void, epoll_event, socklen_t};

/// Turns the C convention (-1 and `errno`) into a result.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The size of `T` as the kernel wants it.
pub(crate) const fn socklen_of<T>() -> socklen_t {
    assert!(size_of::<T>() < 4096);
    #[expect(clippy::cast_possible_truncation, reason = "asserted above to be small")]
    {
        size_of::<T>() as socklen_t
    }
}

/// Sets an option whose value is one `int`.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_option(fd, level, name, &value)
}

/// Sets an option whose value is a C structure or an integer. `T` must be laid out as the option wants it.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads size_of::<T>() octets from a
    // reference that is valid for the call.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast::<c_void>(), socklen_of::<T>())
    };
    check(result).map(drop)
}

/// Reads an option that is an array of 32-bit words, and how many words the kernel filled.
pub(crate) fn option_words<const N: usize>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
) -> io::Result<([u32; N], usize)> {
    let mut words = [0_u32; N];
    let mut length = socklen_of::<[u32; N]>();
    // SAFETY: the kernel writes at most `length` octets into `words`, which has that many, and any bit pattern is a
    // valid u32; both pointers are to locals that outlive the call.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, words.as_mut_ptr().cast::<c_void>(), &raw mut length)
    };
    check(result)?;
    Ok((words, length as usize / size_of::<u32>()))
}

/// Reads an option in whose octets the kernel finds what is asked for.
pub(crate) fn ask_option<const N: usize>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    octets: &mut [u8; N],
) -> io::Result<()> {
    let mut length = socklen_of::<[u8; N]>();
    // SAFETY: the kernel reads and writes at most `length` octets of an array that has that many and outlives the call.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, octets.as_mut_ptr().cast::<c_void>(), &raw mut length)
    };
    check(result).map(drop)
}

/// Waits until `fd` can take more output, at most `limit`. Whatever the outcome, the caller tries again.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, limit: std::time::Duration) {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let limit_ms = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one pollfd is given and one is announced; it outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, limit_ms) };
}

/// Has `epoll` report when `source` can be read, under `mark`.
pub(crate) fn watch(epoll: &OwnedFd, source: &impl AsFd, mark: u64) -> io::Result<()> {
    let mut event = epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: mark };
    let fd = source.as_fd().as_raw_fd();
    // SAFETY: both descriptors are open while they are borrowed; the event outlives the call.
    let result = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    check(result).map(drop)
}

/// Sleeps until one of the watched can be read or `limit_ms` is over, and yields how many `events` were written. A signal
/// ends it too, with none.
pub(crate) fn wait_events(epoll: &OwnedFd, events: &mut [epoll_event], limit_ms: c_int) -> io::Result<usize> {
    let length = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    // SAFETY: the kernel writes at most `length` events into the slice, which has that many; any bit pattern is a valid
    // epoll_event.
    let result = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), length, limit_ms) };
    match check(result) {
        Ok(n_events) => Ok(usize::try_from(n_events).unwrap_or(0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Memory that is shared with the kernel through a descriptor.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// invariant: `n_octets` octets that stay mapped until `drop`, aligned to a page.
    start: NonNull<u8>,
    n_octets: usize,
}

// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `n_octets` of what the descriptor stands for.
    pub(crate) fn new(fd: BorrowedFd<'_>, n_octets: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice takes nothing from anybody; its octets stay mapped until
        // `drop`.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                n_octets,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, n_octets })
    }

    /// The first octet.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, made by `new` with this length; who reads it lives no longer.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.n_octets) };
    }
}
