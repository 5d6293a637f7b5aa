//! What the kernel threw away because a socket's queue was full, and how full the queue is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;

/// Words of `SO_MEMINFO`, include/uapi/linux/sock_diag.h: `SK_MEMINFO_RMEM_ALLOC` and the like.
const RMEM_ALLOC: usize = 0;
const RCVBUF: usize = 1;
const DROPS: usize = 8;
const VARS: usize = 9;

/// The receive side of a socket at one moment, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketMemory {
    /// Octets queued, with the kernel's bookkeeping (about 830 for a small datagram). Lags by up to a quarter of the
    /// limit while a reader drains the queue.
    pub queued_octets: u32,
    /// Octets from which datagrams are dropped: `SO_RCVBUF` as the kernel doubled it.
    pub limit_octets: u32,
    /// Datagrams dropped since the socket was opened. Wraps at 2^32. Datagrams that a socket filter refused count too.
    pub drops: u32,
}

impl SocketMemory {
    /// Reads the figures of `socket`: one `getsockopt` of about 0.4 us.
    pub fn read(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let (words, filled) = sys::option_words::<VARS>(socket, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        if filled <= DROPS {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "SO_MEMINFO has no drop counter (Linux 4.13)",
            ));
        }
        Ok(Self { queued_octets: words[RMEM_ALLOC], limit_octets: words[RCVBUF], drops: words[DROPS] })
    }

    /// How full the queue is, 0.0 to about 1.0.
    pub fn fill(&self) -> f64 {
        if self.limit_octets == 0 {
            0.0
        } else {
            f64::from(self.queued_octets) / f64::from(self.limit_octets)
        }
    }
}

/// A handle to a socket that can only look: for metrics, while the worker owns the socket itself.
///
/// It keeps the socket open: drop it together with the worker, or the port stays taken.
#[derive(Debug)]
pub struct SocketMonitor(OwnedFd);

impl SocketMonitor {
    /// Makes a handle to `socket`.
    pub fn new(socket: BorrowedFd<'_>) -> io::Result<Self> {
        socket.try_clone_to_owned().map(Self)
    }

    /// Reads the figures of the socket.
    pub fn read(&self) -> io::Result<SocketMemory> {
        SocketMemory::read(self.0.as_fd())
    }
}
