//! Wakes a worker that sleeps in [`crate::ingress::Ingress::receive`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys;

/// A counter in the kernel that can be waited for (eventfd(2)).
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Makes one that has not been notified.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = sys::check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor was opened just now and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A second handle to the same counter.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Wakes everybody who waits, now and until [`EventFd::clear`].
    ///
    /// # Errors
    /// None in practice: a counter that is full (2^64 - 2 notifications) has been notified all the same.
    pub fn notify(&self) -> io::Result<()> {
        let one = 1_u64;
        // SAFETY: the kernel reads eight octets from a local that outlives the call.
        let result = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
        ignore_would_block(result)
    }

    /// Takes all notifications back, and yields whether there were any.
    pub fn clear(&self) -> io::Result<bool> {
        let mut count = 0_u64;
        // SAFETY: the kernel writes eight octets into a local that outlives the call.
        let result = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        ignore_would_block(result)?;
        Ok(count > 0)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether `fd` takes a few octets at once: a pipe that does takes `PIPE_BUF` of them (pipe(7)). Files always do.
pub fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut wanted = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: the kernel reads and writes one structure, a local that outlives the call, which does not wait.
    let n_ready = unsafe { libc::poll(&raw mut wanted, 1, 0) };
    // An error or a reader that is gone is found out by writing.
    n_ready == 1
}

fn ignore_would_block(result: libc::ssize_t) -> io::Result<()> {
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_is_not_writable() {
        use std::io::Write;
        let (_reader, mut writer) = io::pipe().unwrap();
        let mut n_written = 0;
        while is_writable(writer.as_fd()) {
            n_written += writer.write(&[0; 4096]).unwrap();
            assert!(n_written < 64 << 20, "a pipe holds no more than that");
        }
        assert!(n_written > 0);
    }

    #[test]
    fn a_notification_is_seen_once_through_any_handle() {
        let event = EventFd::new().unwrap();
        let other = event.try_clone().unwrap();
        assert!(!event.clear().unwrap());
        other.notify().unwrap();
        other.notify().unwrap();
        assert!(event.clear().unwrap());
        assert!(!other.clear().unwrap());
    }
}
