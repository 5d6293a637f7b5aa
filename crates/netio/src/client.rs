//! The sockets of a client that asks in batches: connected UDP sockets, and TCP sockets for many short connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, epoll_event};
use socket2::{Domain, Protocol, Socket, Type};

use crate::datagrams::{Inbox, Outbox};
use crate::error::{Degraded, NetError, Transport};
use crate::sys;
use crate::udp::{
    SEND_WAIT, SendFault, UdpSocketConfig, Wait, count_of, fault_of, is_fatal, message_count, set_buffers,
};

/// A UDP socket with a port of its own that speaks to one server.
#[derive(Debug)]
pub struct ClientSocket {
    socket: Socket,
    local: SocketAddr,
    degraded: Vec<Degraded>,
    n_refused: u64,
}

impl ClientSocket {
    /// Opens a socket on a port that the kernel chooses, at `local` or at the address that the route to `server` has.
    pub fn connect(
        server: SocketAddr,
        local: Option<IpAddr>,
        config: &UdpSocketConfig,
    ) -> Result<Self, NetError> {
        let opening = |call, address| NetError::opening(call, address, Transport::Udp);
        let socket = Socket::new(Domain::for_address(server), Type::DGRAM.cloexec(), Some(Protocol::UDP))
            .map_err(opening("socket", server))?;
        let mut degraded = Vec::new();
        set_buffers(&socket, config, &mut degraded);
        if let Err(error) = sys::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1) {
            degraded.push(Degraded { option: "SO_TIMESTAMPNS", reason: error.to_string() });
        }
        if let Some(ip) = local {
            let local = SocketAddr::new(ip, 0);
            socket.bind(&local.into()).map_err(opening("bind", local))?;
        }
        socket.connect(&server.into()).map_err(opening("connect", server))?;
        let local = socket.local_addr().map_err(NetError::call("getsockname", server))?;
        let local = local.as_socket().unwrap_or(server);
        Ok(Self { socket, local, degraded, n_refused: 0 })
    }

    /// The address and port that the server sees, as long as nothing translates them on the way.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The options that the kernel refused, or gave less of.
    pub fn degraded(&self) -> &[Degraded] {
        &self.degraded
    }

    /// How often the server's host said that nobody listens on its port (`ECONNREFUSED`). One such message may stand
    /// for several datagrams.
    pub fn n_refused(&self) -> u64 {
        self.n_refused
    }

    /// Sets how long [`Wait::ForOne`] sleeps (`SO_RCVTIMEO`).
    ///
    /// # Errors
    /// A time of zero, which would be for ever.
    pub fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a receive timeout of zero"));
        }
        self.socket.set_read_timeout(Some(timeout))
    }

    /// Sends the datagrams `range` of `outbox` in order and yields how many the kernel took, counted from the front.
    ///
    /// Fewer than asked for means that the kernel had no room for longer than [`SEND_WAIT`], is short of memory, or
    /// refuses the next one; the caller decides whether to try again later.
    ///
    /// # Errors
    /// What means that the socket is of no use any more (`EBADF`, `ENOTSOCK` ...).
    pub fn send(&mut self, outbox: &mut Outbox, range: Range<usize>) -> io::Result<usize> {
        let (mut next, mut n_waits, mut n_refused) = (range.start, 0, 0);
        while next < range.end {
            match send_messages(self.socket.as_fd(), outbox, next..range.end) {
                Ok(0) => break,
                Ok(n_sent) => next += n_sent,
                Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => {
                    // What the host said about an earlier datagram; this one was not sent. Another message may arrive
                    // in the meantime, hence a bound.
                    self.n_refused += 1;
                    n_refused += 1;
                    if n_refused > range.len() {
                        break;
                    }
                }
                Err(error) => match fault_of(&error) {
                    SendFault::Interrupted => {}
                    SendFault::QueueFull if n_waits == 0 => {
                        n_waits = 1;
                        sys::wait_writable(self.socket.as_fd(), SEND_WAIT);
                    }
                    SendFault::QueueFull | SendFault::Shortage | SendFault::Destination => break,
                    SendFault::Fatal => return Err(error),
                },
            }
        }
        Ok(next - range.start)
    }

    /// Fills `inbox` with what has arrived and yields how many datagrams it holds; 0 when nothing came in time.
    ///
    /// # Errors
    /// As for [`ClientSocket::send`]; errors that belong to one datagram are swallowed, the call yields 0.
    pub fn receive(&mut self, inbox: &mut Inbox, wait: Wait) -> io::Result<usize> {
        let flags = match wait {
            Wait::No => libc::MSG_DONTWAIT,
            Wait::ForOne => libc::MSG_WAITFORONE,
        };
        match receive_messages(self.socket.as_fd(), inbox, flags) {
            Ok(count) => Ok(count),
            Err(error) if is_fatal(&error) => Err(error),
            Err(error) => {
                self.n_refused += u64::from(error.raw_os_error() == Some(libc::ECONNREFUSED));
                Ok(0)
            }
        }
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send_messages(fd: BorrowedFd<'_>, outbox: &mut Outbox, range: Range<usize>) -> io::Result<usize> {
    let headers = outbox.outgoing(range);
    let length = message_count(headers);
    // SAFETY: every header points to a segment of the outbox, which covers octets that the outbox owns (invariant of
    // `Outbox::headers`), and names neither peer nor control message; the outbox is borrowed for the call.
    let result = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), length, libc::MSG_DONTWAIT) };
    count_of(result)
}

fn receive_messages(fd: BorrowedFd<'_>, inbox: &mut Inbox, flags: c_int) -> io::Result<usize> {
    let headers = inbox.prepare();
    let length = message_count(headers);
    // Datagrams tell their whole length, however little of them is kept.
    let flags = flags | libc::MSG_TRUNC;
    // SAFETY: every header points to a segment and a control buffer that the inbox owns, with lengths not above theirs
    // (invariant of `Inbox::headers`), and asks for no peer; the inbox is borrowed mutably for the call, so that nobody
    // reads what the kernel writes. A null timeout is none.
    let result =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), length, flags, std::ptr::null_mut()) };
    let count = count_of(result)?;
    inbox.filled(count);
    Ok(count)
}

/// Which sockets of a client have something to read (epoll(7)).
#[derive(Debug)]
pub struct Watch {
    epoll: OwnedFd,
    events: Vec<epoll_event>,
    n_ready: usize,
}

impl Watch {
    /// Watches `sockets`, which are named by their index from then on.
    pub fn new(sockets: &[ClientSocket]) -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = sys::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was opened just now and nobody else knows it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        for (mark, socket) in (0_u64..).zip(sockets) {
            sys::watch(&epoll, socket, mark)?;
        }
        Ok(Self { epoll, events: vec![epoll_event { events: 0, u64: 0 }; sockets.len().max(1)], n_ready: 0 })
    }

    /// Waits until a socket can be read, at most `limit` in whole milliseconds, and yields how many can be.
    pub fn wait(&mut self, limit: Duration) -> io::Result<usize> {
        let limit_ms = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
        self.n_ready = sys::wait_events(&self.epoll, &mut self.events, limit_ms)?;
        Ok(self.n_ready)
    }

    /// The index of socket `i` among those that can be read.
    ///
    /// # Panics
    /// When `i` is not below what [`Watch::wait`] yielded.
    pub fn ready(&self, i: usize) -> usize {
        assert!(i < self.n_ready, "{} sockets are ready, asked for number {i}", self.n_ready);
        usize::try_from(self.events[i].u64).unwrap_or(usize::MAX)
    }
}

/// Opens a TCP socket that is not connected yet and does not block, for a connection to `server` from `local`.
///
/// The port is chosen when the socket connects (`IP_BIND_ADDRESS_NO_PORT`, ip(7)), so that connections of one local
/// address to different servers may share it. Small messages go out at once (`TCP_NODELAY`).
pub fn tcp_socket(server: SocketAddr, local: Option<IpAddr>) -> Result<OwnedFd, NetError> {
    let opening = |call, address| NetError::opening(call, address, Transport::Tcp);
    let socket =
        Socket::new(Domain::for_address(server), Type::STREAM.cloexec().nonblocking(), Some(Protocol::TCP))
            .map_err(opening("socket", server))?;
    socket.set_tcp_nodelay(true).map_err(NetError::call("setsockopt TCP_NODELAY", server))?;
    if let Some(ip) = local {
        let local = SocketAddr::new(ip, 0);
        // Without it the kernel chooses the port now, which only costs ports.
        let _ = sys::set_int(socket.as_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        socket.bind(&local.into()).map_err(opening("bind", local))?;
    }
    Ok(socket.into())
}
