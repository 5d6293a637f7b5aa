//! The memory of a worker: a batch of queries and their answers, made once at thread start.
//!
//! The kernel fills the receive buffers, the caller writes each answer straight into its send buffer, and the kernel
//! reads from there. Message headers are built by [`Batch::new`]; a round sets again only what the kernel overwrote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, msghdr};

use crate::slots::{Line, Slots};
use crate::sys::socklen_of;

mod frames;
mod joining;

pub(crate) use frames::Identification;
use frames::{Link, NO_WAY};
use joining::Joining;

/// The most messages that one `recvmmsg` or `sendmmsg` takes: `UIO_MAXIOV`, include/uapi/linux/uio.h.
pub const MAX_CAPACITY: usize = 1024;

/// How large a batch is.
#[derive(Debug, Clone, Copy)]
pub struct BatchConfig {
    /// Queries that one system call takes at most; held between 1 and [`MAX_CAPACITY`].
    pub capacity: usize,
    /// Octets kept of a query. A longer datagram is cut here and marked as truncated.
    pub query_octets: usize,
    /// Octets that an answer may have.
    pub answer_octets: usize,
}

impl Default for BatchConfig {
    /// 64 queries: the send buffers in use then fit into the second-level cache, and system calls cost a
    /// sixty-fourth each. 4096 octets each way: the largest EDNS payload size in common use (RFC 6891 section 6.2.5).
    fn default() -> Self {
        Self { capacity: 64, query_octets: 4096, answer_octets: 4096 }
    }
}

/// The address that a query came from, as the kernel wrote it: `sockaddr_in` or `sockaddr_in6`.
///
/// Reading the port costs two loads; the conversion to [`SocketAddr`] is made when it is asked for.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub struct Peer([u8; size_of::<libc::sockaddr_in6>()]);

impl Peer {
    const NONE: Self = Self([0; size_of::<libc::sockaddr_in6>()]);

    /// The source port; 0 is forged or broken and cannot be answered.
    #[inline]
    pub fn port(&self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// The source address.
    #[inline]
    pub fn ip(&self) -> IpAddr {
        self.socket_addr().ip()
    }

    /// Whether the peer speaks IPv6.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        c_int::from(u16::from_ne_bytes([self.0[0], self.0[1]])) == libc::AF_INET6
    }

    /// Source address and port, with the flow label and the zone of a link-local address.
    pub fn socket_addr(&self) -> SocketAddr {
        if self.is_ipv6() {
            let ip = Ipv6Addr::from(self.part::<16>(8));
            let flow = u32::from_be_bytes(self.part::<4>(4));
            SocketAddrV6::new(ip, self.port(), flow, u32::from_ne_bytes(self.part::<4>(24))).into()
        } else {
            SocketAddrV4::new(Ipv4Addr::from(self.part::<4>(4)), self.port()).into()
        }
    }

    /// The `N` octets at `start`; offsets are those of `struct sockaddr_in6`, include/uapi/linux/in6.h.
    fn part<const N: usize>(&self, start: usize) -> [u8; N] {
        let mut part = [0; N];
        part.copy_from_slice(&self.0[start..start + N]);
        part
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket_addr().fmt(f)
    }
}

/// The control message of a query on a wildcard address: `IP_PKTINFO` or `IPV6_PKTINFO`.
///
/// Both directions have the same form, so the message that came with the query goes out with the answer, after the
/// interface is cleared.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; Control::OCTETS]);

impl Control {
    const HEADER: usize = align_control(size_of::<cmsghdr>());
    /// Room for the larger of the two: `CMSG_SPACE(sizeof(struct in6_pktinfo))`.
    const RECEIVED: usize = Self::HEADER + align_control(size_of::<libc::in6_pktinfo>());
    /// Room for the message that cuts joined answers apart besides: `CMSG_SPACE(sizeof(uint16_t))`.
    const OCTETS: usize = Self::RECEIVED + Self::HEADER + align_control(size_of::<u16>());
    const NONE: Self = Self([0; Self::OCTETS]);

    /// The address that the query was sent to, if the message is what it should be.
    fn local(&self, n_octets: usize) -> Option<IpAddr> {
        let data = self.0.get(Self::HEADER..n_octets)?;
        match self.kind() {
            // struct in_pktinfo { ifindex, spec_dst, addr }: spec_dst is the local address that answers.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                data.get(4..8)?.first_chunk::<4>().map(|ip| Ipv4Addr::from(*ip).into())
            }
            // struct in6_pktinfo { addr, ifindex }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                data.first_chunk::<16>().map(|ip| Ipv6Addr::from(*ip).into())
            }
            _ => None,
        }
    }

    /// Makes the message name the source of the answer and leave the way out to the routing table: the interface
    /// is cleared, except for a link-local address, which means nothing without one.
    fn turn_into_source(&mut self, local: IpAddr) {
        let ifindex = Self::HEADER + if local.is_ipv4() { 0 } else { 16 };
        let link_local = matches!(local, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if !link_local {
            self.0[ifindex..ifindex + 4].fill(0);
        }
    }

    fn kind(&self) -> (c_int, c_int) {
        let int = |start: usize| {
            let mut octets = [0; size_of::<c_int>()];
            octets.copy_from_slice(&self.0[start..start + size_of::<c_int>()]);
            c_int::from_ne_bytes(octets)
        };
        (int(std::mem::offset_of!(cmsghdr, cmsg_level)), int(std::mem::offset_of!(cmsghdr, cmsg_type)))
    }
}

/// `CMSG_ALIGN`: control messages start at multiples of a machine word.
pub(crate) const fn align_control(n_octets: usize) -> usize {
    n_octets.next_multiple_of(size_of::<usize>())
}

/// One query and the buffer for its answer.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The datagram, cut at [`BatchConfig::query_octets`].
    pub query: &'a [u8],
    /// Where it came from, and where the answer goes.
    pub peer: &'a Peer,
    /// Whether the datagram was longer than what is in `query`.
    pub truncated: bool,
    /// Where the answer is written; [`Batch::answer`] then says how long it is. Holds octets of earlier answers.
    pub answer: &'a mut [u8],
}

/// Queries that came in together, and their answers.
///
/// Good for any number of rounds: *receive*, for each query [`Batch::exchange`] and [`Batch::answer`], *send*.
/// One batch serves all engines of a worker.
pub struct Batch {
    config: BatchConfig,
    queries: Buffers,
    answers: Buffers,
    peers: Slots<Peer>,
    controls: Slots<Control>,
    /// One segment a message; the headers below point to these, and are touched by the kernel only during a call.
    query_segments: Slots<iovec>,
    answer_segments: Slots<iovec>,
    /// invariant: header `i` points to `peers[i]`, `controls[i]` and `query_segments[i]`, with lengths not above theirs.
    incoming: Box<[mmsghdr]>,
    /// invariant: a header below the count returned by `gather` points to a peer, a control message and answer
    /// segments of this batch, with lengths and a count not above theirs.
    outgoing: Box<[mmsghdr]>,
    /// Which answers leave together.
    joining: Joining,
    /// Octets of each answer; 0 is none.
    answer_lengths: Box<[usize]>,
    /// Octets of the control message that gives each answer its source, since the last `gather`.
    source_lengths: Box<[usize]>,
    /// Queries of this round.
    count: usize,
    /// Room for control messages that the headers offer now: all of it, or none when the engine wants none.
    control_octets: usize,
    /// Answers longer than their buffer, since the last `gather`.
    n_overlong: usize,
    /// For queries that came as frames: the headers of their answers, and the ways out.
    links: Slots<Link>,
    ways: Slots<libc::sockaddr_ll>,
    /// One segment a frame: the headers in front of an answer, and that.
    frame_segments: Slots<iovec>,
    /// invariant: header `i` points to segment `i`; below the count returned by `gather_frames` that lies in the buffer of an
    /// answer of this batch and the room in front of it, and the name points to a way of the batch or is none.
    outgoing_frames: Box<[mmsghdr]>,
}

// SAFETY: the raw pointers in the headers and segments point only into arrays that the batch owns and that do not move
// with it; nothing else holds them, so another thread may take over the whole.
unsafe impl Send for Batch {}

impl Batch {
    /// Makes the memory of a batch: about `capacity * (query_octets + answer_octets)`, touched as it is used.
    pub fn new(config: BatchConfig) -> Self {
        let capacity = config.capacity.clamp(1, MAX_CAPACITY);
        let config = BatchConfig { capacity, ..config };
        let mut batch = Self {
            config,
            // Queries take one or two lines, answers more: see `Buffers::new` for the spread.
            queries: Buffers::new(capacity, 0, config.query_octets, 3),
            answers: Buffers::new(capacity, frames::MAX_OCTETS_IN_FRONT, config.answer_octets, 7),
            peers: Slots::new(capacity, Peer::NONE),
            controls: Slots::new(capacity, Control::NONE),
            query_segments: Slots::new(capacity, NO_SEGMENT),
            answer_segments: Slots::new(capacity, NO_SEGMENT),
            incoming: (0..capacity).map(|_| empty_header()).collect(),
            outgoing: (0..capacity).map(|_| empty_header()).collect(),
            joining: Joining::new(capacity),
            answer_lengths: vec![0; capacity].into_boxed_slice(),
            source_lengths: vec![0; capacity].into_boxed_slice(),
            count: 0,
            control_octets: 0,
            n_overlong: 0,
            links: Slots::new(capacity, Link::NONE),
            ways: Slots::new(capacity, NO_WAY),
            frame_segments: Slots::new(capacity, NO_SEGMENT),
            outgoing_frames: (0..capacity).map(|_| empty_header()).collect(),
        };
        batch.build_headers();
        batch
    }

    fn build_headers(&mut self) {
        for i in 0..self.config.capacity {
            self.query_segments.as_mut_slice()[i] = iovec {
                iov_base: self.queries.address(i).cast::<c_void>(),
                iov_len: self.config.query_octets,
            };
            let incoming = &mut self.incoming[i].msg_hdr;
            incoming.msg_iov = self.query_segments.address(i);
            incoming.msg_iovlen = 1;
            incoming.msg_name = self.peers.address(i).cast::<c_void>();
            incoming.msg_namelen = socklen_of::<Peer>();
            incoming.msg_control = self.controls.address(i).cast::<c_void>();
            let frame = &mut self.outgoing_frames[i].msg_hdr;
            frame.msg_iov = self.frame_segments.address(i);
            frame.msg_iovlen = 1;
        }
    }

    /// The most queries of a round.
    pub fn capacity(&self) -> usize {
        self.config.capacity
    }

    /// Queries of this round.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether this round has no query.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The octets of query `i`, cut at [`BatchConfig::query_octets`].
    ///
    /// # Panics
    /// When `i` is not below [`Batch::len`]; so do the methods below.
    #[inline]
    pub fn query(&self, i: usize) -> &[u8] {
        self.queries.octets(i, self.query_length(i))
    }

    /// Where query `i` came from.
    #[inline]
    pub fn peer(&self, i: usize) -> &Peer {
        self.assert_received(i);
        &self.peers.as_slice()[i]
    }

    /// The address that query `i` was sent to; `None` on a socket bound to one address, which has no other.
    pub fn local(&self, i: usize) -> Option<IpAddr> {
        self.assert_received(i);
        self.controls.as_slice()[i].local(self.control_length(i))
    }

    /// Whether query `i` was longer than its buffer.
    #[inline]
    pub fn truncated(&self, i: usize) -> bool {
        self.assert_received(i);
        self.incoming[i].msg_hdr.msg_flags & libc::MSG_TRUNC != 0
    }

    /// Query `i` and the buffer for its answer.
    #[inline]
    pub fn exchange(&mut self, i: usize) -> Exchange<'_> {
        let (n_octets, truncated) = (self.query_length(i), self.truncated(i));
        Exchange {
            query: self.queries.octets(i, n_octets),
            peer: &self.peers.as_slice()[i],
            truncated,
            answer: self.answers.octets_mut(i, self.config.answer_octets),
        }
    }

    /// Says that the first `n_octets` of the answer buffer of query `i` are its answer; 0 takes the answer back.
    ///
    /// A length beyond the buffer is a caller's fault: nothing is sent, and the next
    /// [`SendReport`](crate::udp::SendReport) counts it as failed.
    #[inline]
    pub fn answer(&mut self, i: usize, n_octets: usize) {
        self.assert_received(i);
        let fits = n_octets <= self.config.answer_octets;
        self.n_overlong += usize::from(!fits);
        self.answer_lengths[i] = if fits { n_octets } else { 0 };
    }

    /// Forgets the last round and yields the headers for the next, with or without room for control messages.
    pub(crate) fn prepare(&mut self, want_control: bool) -> &mut [mmsghdr] {
        let control_octets = if want_control { Control::RECEIVED } else { 0 };
        // All headers when the engine is of another kind than the last, else those that the kernel wrote to.
        let touched = if control_octets == self.control_octets { self.count } else { self.config.capacity };
        for header in &mut self.incoming[..touched] {
            header.msg_hdr.msg_namelen = socklen_of::<Peer>();
            set_control_length(&mut header.msg_hdr, control_octets);
        }
        self.answer_lengths[..self.count].fill(0);
        self.control_octets = control_octets;
        self.count = 0;
        &mut self.incoming
    }

    /// Takes note that the kernel filled the first `count` headers.
    pub(crate) fn filled(&mut self, count: usize) {
        self.count = count.min(self.config.capacity);
    }

    /// Prepares the control message that gives answer `i` its source address; yields its octets, 0 without one.
    fn source(&mut self, i: usize) -> usize {
        if self.control_octets == 0 {
            return 0;
        }
        let n_octets = self.control_length(i);
        let control = &mut self.controls.as_mut_slice()[i];
        let Some(local) = control.local(n_octets) else { return 0 };
        control.turn_into_source(local);
        n_octets
    }

    fn query_length(&self, i: usize) -> usize {
        self.assert_received(i);
        (self.incoming[i].msg_len as usize).min(self.config.query_octets)
    }

    fn control_length(&self, i: usize) -> usize {
        control_length(&self.incoming[i].msg_hdr).min(self.control_octets)
    }

    #[inline]
    fn assert_received(&self, i: usize) {
        assert!(i < self.count, "the batch holds {} queries, asked for number {i}", self.count);
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("config", &self.config)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Buffers of one size, each starting at a cache line, with room in front of each.
struct Buffers {
    lines: Slots<Line>,
    /// Lines from one buffer to the next.
    stride: usize,
    /// Lines in front of each buffer.
    n_in_front: usize,
}

impl Buffers {
    /// Makes `count` buffers of `n_octets` octets, with room for `octets_in_front`.
    ///
    /// The distance between two is `spread` lines beyond a multiple of a page: at exactly 4096 octets the first lines
    /// of all buffers, which are the ones in use, would compete for one set of the first-level cache (64 sets of
    /// 64 octets). `spread` is odd, so that all sets are used.
    fn new(count: usize, octets_in_front: usize, n_octets: usize, spread: usize) -> Self {
        let lines_a_page = 4096 / Line::OCTETS;
        let n_in_front = octets_in_front.div_ceil(Line::OCTETS);
        let n_lines = n_in_front + n_octets.div_ceil(Line::OCTETS);
        let stride = n_lines.next_multiple_of(lines_a_page) + spread;
        Self { lines: Slots::new(count * stride, Line::ZERO), stride, n_in_front }
    }

    fn first_line(&self, i: usize) -> usize {
        i * self.stride + self.n_in_front
    }

    fn address(&self, i: usize) -> *mut u8 {
        self.lines.address(self.first_line(i)).cast::<u8>()
    }

    #[inline]
    fn octets(&self, i: usize, n_octets: usize) -> &[u8] {
        self.lines.octets(self.first_line(i), n_octets)
    }

    #[inline]
    fn octets_mut(&mut self, i: usize, n_octets: usize) -> &mut [u8] {
        self.lines.octets_mut(self.first_line(i), n_octets)
    }

    /// The last `n_octets` in front of a buffer.
    #[inline]
    fn in_front_mut(&mut self, i: usize, n_octets: usize) -> &mut [u8] {
        let room = self.n_in_front * Line::OCTETS;
        &mut self.lines.octets_mut(i * self.stride, room)[room - n_octets..]
    }
}

pub(crate) const NO_SEGMENT: iovec = iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// A header without anything. Written field by field would not do: musl's `msghdr` has private padding.
pub(crate) fn empty_header() -> mmsghdr {
    // SAFETY: mmsghdr is a C structure of integers and pointers; all zeros is the empty one.
    unsafe { std::mem::zeroed() }
}

/// `msg_controllen` is a `size_t` in glibc and a `socklen_t` in musl.
#[allow(
    clippy::cast_possible_truncation,
    clippy::allow_attributes,
    reason = "at most Control::OCTETS; which cast it is depends on the C library"
)]
pub(crate) fn set_control_length(header: &mut msghdr, n_octets: usize) {
    header.msg_controllen = n_octets as _;
}

#[allow(clippy::unnecessary_cast, clippy::allow_attributes, reason = "size_t in glibc, socklen_t in musl")]
pub(crate) fn control_length(header: &msghdr) -> usize {
    header.msg_controllen as usize
}
