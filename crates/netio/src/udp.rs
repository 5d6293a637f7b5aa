//! One UDP socket of one worker: fills a batch, sends a batch.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{c_int, c_uint};
use socket2::{Domain, Protocol, Socket, Type};

use crate::batch::Batch;
use crate::drops::SocketMonitor;
use crate::error::{Degraded, NetError, Transport};
use crate::sys;

/// The longest that sending one batch waits for room in the send buffer.
///
/// A millisecond is what a gigabit link needs for a megabyte of answers over eight: enough for the queue to move, and
/// short beside the receive buffer, which takes tens of milliseconds to fill.
pub const SEND_WAIT: Duration = Duration::from_millis(1);

/// What a UDP socket asks of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct UdpSocketConfig {
    /// Octets of the receive buffer to ask for; the kernel doubles the number for its own bookkeeping (socket(7)).
    pub receive_buffer_octets: usize,
    /// Octets of the send buffer to ask for.
    pub send_buffer_octets: usize,
    /// Whether answers of one length to one peer leave as one message that the kernel cuts apart (`UDP_SEGMENT`).
    pub join_answers: bool,
    /// How long a receive that finds nothing looks at the device's queue itself before it sleeps, in microseconds
    /// (`SO_BUSY_POLL`, socket(7)); 0 is not at all.
    pub busy_poll_us: u32,
}

impl Default for UdpSocketConfig {
    /// 4 MiB in: at about 830 octets a datagram in the kernel's count this holds some 10,000 queries, a tenth of a
    /// second of one worker's work. 1 MiB out: a batch of 64 answers of 4096 octets several times over.
    fn default() -> Self {
        Self {
            receive_buffer_octets: 4 << 20,
            send_buffer_octets: 1 << 20,
            join_answers: true,
            busy_poll_us: 0,
        }
    }
}

/// What became of the answers of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Handed to the kernel.
    pub sent: usize,
    /// Those of `sent` that left in one message with others.
    pub joined: usize,
    /// Thrown away because the kernel had no room (`EAGAIN`, `ENOBUFS`, `ENOMEM`).
    pub dropped: usize,
    /// Refused for this destination (`EPERM` from a firewall, `EINVAL`, `ENETUNREACH`, `EMSGSIZE` ...), or longer than
    /// the answer buffer.
    pub failed: usize,
}

/// Whether [`UdpEngine::receive`] may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Return at once, with nothing when the queue is empty.
    No,
    /// Sleep until a datagram comes, for as long as [`UdpEngine::set_receive_timeout`] says.
    ForOne,
}

/// A UDP socket bound to one address.
#[derive(Debug)]
pub struct UdpEngine {
    socket: Socket,
    address: SocketAddr,
    /// Whether queries come with the address that they were sent to, and answers need it: true on a wildcard address.
    wildcard: bool,
    joining: Joining,
    degraded: Vec<Degraded>,
    receive_buffer_octets: usize,
}

impl UdpEngine {
    /// Opens a socket of its own on `address`; port 0 lets the kernel choose.
    ///
    /// Fails when the address is taken: [`crate::reuseport::open`] makes groups.
    pub fn bind(address: SocketAddr, config: &UdpSocketConfig) -> Result<Self, NetError> {
        Self::bind_in(address, config, false)
    }

    /// Opens a socket, as a member of a reuseport group or not.
    pub(crate) fn bind_in(
        address: SocketAddr,
        config: &UdpSocketConfig,
        reuse_port: bool,
    ) -> Result<Self, NetError> {
        let opening = |call| NetError::opening(call, address, Transport::Udp);
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.cloexec(), Some(Protocol::UDP))
            .map_err(opening("socket"))?;
        let wildcard = address.ip().is_unspecified();
        require_options(&socket, address, wildcard)?;
        if reuse_port {
            socket.set_reuse_port(true).map_err(NetError::call("setsockopt SO_REUSEPORT", address))?;
        }
        let mut degraded = Vec::new();
        set_buffers(&socket, config, &mut degraded);
        omit_path_mtu(&socket, address, &mut degraded);
        poll_busily(&socket, config.busy_poll_us, &mut degraded);
        socket.bind(&address.into()).map_err(opening("bind"))?;
        let bound = local_address(&socket, address)?;
        let receive_buffer_octets = socket.recv_buffer_size().unwrap_or(0);
        let joining = if config.join_answers { Joining::probe(socket.as_fd()) } else { Joining::Off };
        Ok(Self { socket, address: bound, wildcard, joining, degraded, receive_buffer_octets })
    }

    /// Lets later sockets join this one on its port; see [`crate::reuseport`] for why it comes after the bind.
    pub(crate) fn share_port(&self) -> Result<(), NetError> {
        self.socket.set_reuse_port(true).map_err(NetError::call("setsockopt SO_REUSEPORT", self.address))
    }

    /// The address that the socket is bound to, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The options that the kernel refused, or gave less of.
    pub fn degraded(&self) -> &[Degraded] {
        &self.degraded
    }

    /// Takes the list of [`UdpEngine::degraded`] out, for a group to report once.
    pub(crate) fn take_degraded(&mut self) -> Vec<Degraded> {
        std::mem::take(&mut self.degraded)
    }

    /// The receive buffer that the kernel gave, in its own count (twice what was asked for when all went well).
    pub fn receive_buffer_octets(&self) -> usize {
        self.receive_buffer_octets
    }

    /// A second handle to the same socket and queue: several workers on one socket, for comparison.
    pub fn try_clone(&self) -> Result<Self, NetError> {
        let socket = self.socket.try_clone().map_err(NetError::call("dup", self.address))?;
        Ok(Self { socket, degraded: Vec::new(), ..*self })
    }

    /// A handle that reads drops and queue fill of this socket from another thread.
    pub fn monitor(&self) -> io::Result<SocketMonitor> {
        SocketMonitor::new(self.as_fd())
    }

    /// Sets how long [`Wait::ForOne`] sleeps (`SO_RCVTIMEO`); `None` is for ever.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    /// Fills `batch` with what has arrived and yields how many queries it holds; 0 when nothing came in time.
    ///
    /// One `recvmmsg`: it takes what is queued and waits for no second datagram. A signal counts as "nothing came".
    ///
    /// # Errors
    /// What means that the socket is of no use any more (`EBADF`, `ENOTSOCK` ...). Errors that belong to one datagram or
    /// one peer, and a shortage of memory, are swallowed: the call yields 0.
    pub fn receive(&mut self, batch: &mut Batch, wait: Wait) -> io::Result<usize> {
        let flags = match wait {
            Wait::No => libc::MSG_DONTWAIT,
            Wait::ForOne => libc::MSG_WAITFORONE,
        };
        match receive_messages(self.socket.as_fd(), batch, flags, self.wildcard) {
            Ok(count) => Ok(count),
            Err(error) if is_fatal(&error) => Err(error),
            Err(_) => Ok(0),
        }
    }

    /// Sends the answers of `batch`, each to its query's peer, from the address that the query was sent to.
    ///
    /// Waits for room in the send buffer at most [`SEND_WAIT`] in all, then drops what is left.
    ///
    /// # Errors
    /// As for [`UdpEngine::receive`]; an answer that the kernel refuses is counted and the others are sent.
    pub fn send(&mut self, batch: &mut Batch) -> io::Result<SendReport> {
        let (n_messages, n_overlong) = batch.gather(self.joining.is_on());
        let mut report = SendReport { failed: n_overlong, ..SendReport::default() };
        self.send_gathered(batch, n_messages, &mut report)?;
        Ok(report)
    }

    /// Sends the answers that leave by this socket, which is number `listener`, though their queries came as frames.
    pub(crate) fn send_for(
        &mut self,
        batch: &mut Batch,
        listener: usize,
        report: &mut SendReport,
    ) -> io::Result<()> {
        let n_messages = batch.gather_for(listener, self.wildcard);
        self.send_gathered(batch, n_messages, report)
    }

    fn send_gathered(
        &mut self,
        batch: &mut Batch,
        n_messages: usize,
        report: &mut SendReport,
    ) -> io::Result<()> {
        let mut datagrams = Datagrams { socket: self.socket.as_fd(), batch };
        let mut sending = Sending { socket: self.socket.as_fd(), waited: false, report };
        let rest = sending.send(0..n_messages, &mut datagrams)?;
        if sending.report.joined > 0 {
            self.joining.went_well();
        }
        let Rest::Joined(from) = rest else { return Ok(()) };
        let n_of_refused = datagrams.n_answers(from);
        let n_messages = datagrams.batch.separate(from);
        let n_sent = sending.report.sent;
        sending.send(0..n_of_refused, &mut datagrams)?;
        // What is refused in any form is the destination's fault, and says nothing of the form.
        if sending.report.sent > n_sent {
            self.joining.was_refused();
        }
        sending.send(n_of_refused..n_messages, &mut datagrams).map(drop)
    }

    /// Whether the kernel refused joined answers; they leave one by one since then.
    pub fn refuses_joined(&self) -> bool {
        self.joining == Joining::Refused
    }
}

/// Whether answers of one length to one peer leave as one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    Off,
    /// So many were refused since the last that was not.
    On {
        n_refused: u32,
    },
    /// They should, but the kernel or the device does not take them: tried and remembered.
    Refused,
}

/// Joined messages that are refused one after the other before no more are made. One path of a small MTU, among others that
/// take them, is not reason enough; a device that takes none costs a call more for so many batches.
const REFUSALS: u32 = 16;

impl Joining {
    /// On where the kernel knows `UDP_SEGMENT`. One that does not (before 4.18) would pass the request over and send all
    /// answers as one datagram.
    fn probe(socket: BorrowedFd<'_>) -> Joining {
        let known = sys::option_words::<1>(socket, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
        if known { Joining::On { n_refused: 0 } } else { Joining::Refused }
    }

    fn is_on(self) -> bool {
        matches!(self, Joining::On { .. })
    }

    fn went_well(&mut self) {
        if let Joining::On { n_refused } = self {
            *n_refused = 0;
        }
    }

    fn was_refused(&mut self) {
        if let Joining::On { n_refused } = self {
            *n_refused += 1;
            if *n_refused >= REFUSALS {
                *self = Joining::Refused;
            }
        }
    }
}

/// Messages that can be handed to the kernel, some of which hold several answers.
pub(crate) trait Outgoing {
    /// How many answers message `i` holds.
    fn n_answers(&self, i: usize) -> usize;
    /// Hands messages of `range` over; yields how many, at least one.
    fn send(&mut self, range: Range<usize>) -> io::Result<usize>;
}

/// The messages of a batch that go out by a UDP socket.
struct Datagrams<'a> {
    socket: BorrowedFd<'a>,
    batch: &'a mut Batch,
}

impl Outgoing for Datagrams<'_> {
    fn n_answers(&self, i: usize) -> usize {
        self.batch.n_answers(i)
    }

    fn send(&mut self, range: Range<usize>) -> io::Result<usize> {
        send_messages(self.socket, self.batch.outgoing(range))
    }
}

/// What [`Sending::send`] leaves undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    /// The messages from this one on: it holds several answers, and the kernel does not take such.
    Joined(usize),
}

/// The answers of one batch on their way out. Waits for room in the send buffer at most [`SEND_WAIT`] in all, then drops
/// what is left.
pub(crate) struct Sending<'r, 's> {
    pub(crate) socket: BorrowedFd<'s>,
    pub(crate) waited: bool,
    pub(crate) report: &'r mut SendReport,
}

impl Sending<'_, '_> {
    /// Sends a range of messages; bad ones are counted and passed over.
    pub(crate) fn send(&mut self, range: Range<usize>, messages: &mut impl Outgoing) -> io::Result<Rest> {
        let Sending { socket, waited, report } = self;
        let Range { start: mut next, end: n_messages } = range;
        while next < n_messages {
            let error = match messages.send(next..n_messages) {
                // No kernel does this; none shall make the worker go round for ever.
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n_sent) => {
                    for message in next..next + n_sent {
                        let n_answers = messages.n_answers(message);
                        report.sent += n_answers;
                        report.joined += if n_answers > 1 { n_answers } else { 0 };
                    }
                    next += n_sent;
                    continue;
                }
                Err(error) => error,
            };
            let n_answers = messages.n_answers(next);
            if n_answers > 1 && refuses_joined(&error) {
                return Ok(Rest::Joined(next));
            }
            match fault_of(&error) {
                SendFault::Interrupted => {}
                SendFault::QueueFull if !*waited => {
                    *waited = true;
                    sys::wait_writable(*socket, SEND_WAIT);
                }
                SendFault::QueueFull => {
                    report.dropped += (next..n_messages).map(|i| messages.n_answers(i)).sum::<usize>();
                    next = n_messages;
                }
                SendFault::Shortage => {
                    report.dropped += n_answers;
                    next += 1;
                }
                SendFault::Destination => {
                    report.failed += n_answers;
                    next += 1;
                }
                SendFault::Fatal => return Err(error),
            }
        }
        Ok(Rest::Nothing)
    }
}

impl AsFd for UdpEngine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets what a socket cannot do without: IPv6 alone on IPv6 sockets, and the local address on wildcard ones.
fn require_options(socket: &Socket, address: SocketAddr, wildcard: bool) -> Result<(), NetError> {
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(NetError::call("setsockopt IPV6_V6ONLY", address))?;
    }
    if !wildcard {
        return Ok(());
    }
    let (call, level, name) = if address.is_ipv6() {
        ("setsockopt IPV6_RECVPKTINFO", libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    } else {
        ("setsockopt IP_PKTINFO", libc::IPPROTO_IP, libc::IP_PKTINFO)
    };
    sys::set_int(socket.as_fd(), level, name, 1).map_err(NetError::call(call, address))
}

/// Asks for the buffers, first beyond the system's limit (`CAP_NET_ADMIN`), then within it.
pub(crate) fn set_buffers(socket: &Socket, config: &UdpSocketConfig, degraded: &mut Vec<Degraded>) {
    let wanted = [
        (
            "SO_RCVBUF",
            libc::SO_RCVBUFFORCE,
            libc::SO_RCVBUF,
            config.receive_buffer_octets,
            "net.core.rmem_max",
        ),
        ("SO_SNDBUF", libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer_octets, "net.core.wmem_max"),
    ];
    for (option, beyond, within, n_octets, limit) in wanted {
        let value = c_int::try_from(n_octets).unwrap_or(c_int::MAX);
        if sys::set_int(socket.as_fd(), libc::SOL_SOCKET, beyond, value).is_ok() {
            continue;
        }
        if let Err(error) = sys::set_int(socket.as_fd(), libc::SOL_SOCKET, within, value) {
            degraded.push(Degraded { option, reason: error.to_string() });
            continue;
        }
        let given =
            sys::option_words::<1>(socket.as_fd(), libc::SOL_SOCKET, within).map_or(0, |(words, _)| words[0]);
        // The kernel reports twice what it took (socket(7)).
        if (given as usize) / 2 < n_octets {
            let reason = format!("asked for {n_octets} octets, {limit} allows {}", given / 2);
            degraded.push(Degraded { option, reason });
        }
    }
}

/// Keeps forged "fragmentation needed" messages from shrinking the path MTU (IP_PMTUDISC_OMIT, ip(7)): answers go out at
/// the interface's MTU and are fragmented where they must be.
fn omit_path_mtu(socket: &Socket, address: SocketAddr, degraded: &mut Vec<Degraded>) {
    let (option, level, name, value) = if address.is_ipv6() {
        ("IPV6_MTU_DISCOVER", libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_OMIT)
    } else {
        ("IP_MTU_DISCOVER", libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)
    };
    if let Err(error) = sys::set_int(socket.as_fd(), level, name, value) {
        degraded.push(Degraded { option, reason: error.to_string() });
    }
}

/// Has the kernel look at the device's queue while the socket waits. More than the system's `net.core.busy_read` needs
/// `CAP_NET_ADMIN`.
fn poll_busily(socket: &Socket, busy_poll_us: u32, degraded: &mut Vec<Degraded>) {
    if busy_poll_us == 0 {
        return;
    }
    let value = c_int::try_from(busy_poll_us).unwrap_or(c_int::MAX);
    if let Err(error) = sys::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, value) {
        degraded.push(Degraded { option: "SO_BUSY_POLL", reason: error.to_string() });
    }
}

fn local_address(socket: &Socket, asked: SocketAddr) -> Result<SocketAddr, NetError> {
    let address = socket.local_addr().map_err(NetError::call("getsockname", asked))?;
    Ok(address.as_socket().unwrap_or(asked))
}

fn receive_messages(fd: BorrowedFd<'_>, batch: &mut Batch, flags: c_int, control: bool) -> io::Result<usize> {
    let headers = batch.prepare(control);
    let length = message_count(headers);
    // SAFETY: every header points to a segment, an address and a control buffer that the batch owns, with lengths not
    // above theirs (invariant of `Batch::incoming`); the batch is borrowed mutably for the call, so that nobody reads
    // what the kernel writes. A null timeout is none.
    let result =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), length, flags, std::ptr::null_mut()) };
    let count = count_of(result)?;
    batch.filled(count);
    Ok(count)
}

/// Sends `headers`, which are a batch's own: `Batch::outgoing` or `Batch::outgoing_frames`.
pub(crate) fn send_messages(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let length = message_count(headers);
    // SAFETY: the headers were built by `gather` or its siblings and point to memory of the batch that they are borrowed
    // from, with lengths not above what it has (invariants of `Batch::outgoing` and `Batch::outgoing_frames`).
    let result = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), length, libc::MSG_DONTWAIT) };
    count_of(result)
}

/// The length of a header array for the kernel; batches are bounded by `batch::MAX_CAPACITY`.
pub(crate) fn message_count(headers: &[libc::mmsghdr]) -> c_uint {
    c_uint::try_from(headers.len()).unwrap_or(0)
}

pub(crate) fn count_of(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// What a failed send means for the rest of the batch.
pub(crate) enum SendFault {
    Interrupted,
    QueueFull,
    Shortage,
    Destination,
    Fatal,
}

pub(crate) fn fault_of(error: &io::Error) -> SendFault {
    match error.raw_os_error() {
        Some(libc::EINTR) => SendFault::Interrupted,
        Some(libc::EAGAIN) => SendFault::QueueFull,
        Some(libc::ENOBUFS | libc::ENOMEM) => SendFault::Shortage,
        _ if is_fatal(error) => SendFault::Fatal,
        _ => SendFault::Destination,
    }
}

/// Errors of `UDP_SEGMENT`: the kernel does not know it, the path's MTU is too small, or the device can neither compute
/// checksums nor have them computed (`udp_send_skb`, net/ipv4/udp.c).
fn refuses_joined(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE))
}

/// Errors that say something of the socket itself and would come again for ever.
pub(crate) fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::ENOSYS | libc::EOPNOTSUPP)
    )
}
