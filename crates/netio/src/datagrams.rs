//! The memory of a client: datagrams that wait to be sent, and those that came in.
//!
//! A server answers the peer of each query, so its [`crate::batch::Batch`] keeps the two together. A client has one peer a
//! socket and sends without being asked: what goes out and what comes in are apart here. Both are made once and are
//! good for any number of rounds and sockets.

use std::time::Duration;

use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, timespec};

use crate::batch::{
    MAX_CAPACITY, NO_SEGMENT, align_control, control_length, empty_header, set_control_length,
};
use crate::slots::{Line, Slots};

/// Buffers of one size, each from the start of a cache line, and the segment that shows each to the kernel.
struct Shelf {
    lines: Slots<Line>,
    stride: usize,
    n_octets: usize,
    /// invariant: segment `i` starts at buffer `i`, with a length of at most `n_octets`.
    segments: Slots<iovec>,
}

impl Shelf {
    fn new(capacity: usize, n_octets: usize) -> Self {
        // An odd number of lines from one to the next spreads their first lines over all sets of the cache.
        let stride = n_octets.div_ceil(Line::OCTETS).max(1) | 1;
        let lines = Slots::new(capacity * stride, Line::ZERO);
        let mut segments = Slots::new(capacity, NO_SEGMENT);
        for (i, segment) in segments.as_mut_slice().iter_mut().enumerate() {
            *segment = iovec { iov_base: lines.address(i * stride).cast::<c_void>(), iov_len: n_octets };
        }
        Self { lines, stride, n_octets, segments }
    }

    /// Headers that point to one segment each and name no peer: the socket is connected.
    fn headers(&self, capacity: usize) -> Box<[mmsghdr]> {
        let mut headers: Box<[mmsghdr]> = (0..capacity).map(|_| empty_header()).collect();
        for (i, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = self.segments.address(i);
            header.msg_hdr.msg_iovlen = 1;
        }
        headers
    }
}

/// Datagrams that wait to be sent, in order.
pub struct Outbox {
    shelf: Shelf,
    /// invariant: header `i` points to segment `i` of the shelf.
    headers: Box<[mmsghdr]>,
    len: usize,
}

// SAFETY: the raw pointers in the headers and segments point only into arrays that the outbox owns and that do not move
// with it; nothing else holds them, so another thread may take over the whole.
unsafe impl Send for Outbox {}

impl Outbox {
    /// Makes room for `capacity` datagrams (held between 1 and [`MAX_CAPACITY`]) of at most `n_octets` octets.
    pub fn new(capacity: usize, n_octets: usize) -> Self {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        let shelf = Shelf::new(capacity, n_octets);
        let headers = shelf.headers(capacity);
        Self { shelf, headers, len: 0 }
    }

    /// Copies `datagram` behind those that wait and yields the copy, for what differs from one to the next.
    ///
    /// `None` when the outbox is full or the datagram is longer than the limit.
    #[inline]
    pub fn push(&mut self, datagram: &[u8]) -> Option<&mut [u8]> {
        let n_octets = datagram.len();
        if self.len == self.headers.len() || n_octets > self.shelf.n_octets {
            return None;
        }
        self.shelf.segments.as_mut_slice()[self.len].iov_len = n_octets;
        let copy = self.shelf.lines.octets_mut(self.len * self.shelf.stride, n_octets);
        copy.copy_from_slice(datagram);
        self.len += 1;
        Some(copy)
    }

    /// Forgets all datagrams.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Datagrams that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most datagrams that can wait.
    pub fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// The headers of the datagrams in `range`, cut to those that wait.
    pub(crate) fn outgoing(&mut self, range: std::ops::Range<usize>) -> &mut [mmsghdr] {
        let end = range.end.min(self.len);
        &mut self.headers[range.start.min(end)..end]
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// The control message of a received datagram: the time at which the kernel took it from the device.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Stamp([u8; Stamp::OCTETS]);

impl Stamp {
    const HEADER: usize = align_control(size_of::<cmsghdr>());
    /// `CMSG_SPACE(sizeof(struct timespec))`
    const OCTETS: usize = Self::HEADER + align_control(size_of::<timespec>());
    const NONE: Self = Self([0; Self::OCTETS]);

    /// The time since the epoch, if the message is what it should be.
    fn time(&self, n_octets: usize) -> Option<Duration> {
        let octets = self.0.get(..n_octets)?;
        // SCM_TIMESTAMPNS has the number of its option (socket(7), include/uapi/asm-generic/socket.h).
        let kind = (
            int_at(octets, std::mem::offset_of!(cmsghdr, cmsg_level))?,
            int_at(octets, std::mem::offset_of!(cmsghdr, cmsg_type))?,
        );
        if kind != (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) {
            return None;
        }
        let (seconds, rest) = octets.get(Self::HEADER..)?.split_first_chunk::<8>()?;
        let (nanoseconds, _) = rest.split_first_chunk::<8>()?;
        let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
        let nanoseconds = u32::try_from(i64::from_ne_bytes(*nanoseconds)).ok()?;
        Some(Duration::new(seconds, nanoseconds))
    }
}

fn int_at(octets: &[u8], start: usize) -> Option<c_int> {
    octets.get(start..)?.first_chunk().map(|word| c_int::from_ne_bytes(*word))
}

/// A datagram that came in.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Its octets, cut at the inbox's limit.
    pub octets: &'a [u8],
    /// How many octets it had on the way.
    pub n_octets: usize,
    /// When the kernel took it from the device, by the system's clock since the epoch: waiting in the socket's queue is
    /// not in it, so a client may look at its sockets now and then and still measure to the microsecond.
    pub arrived: Option<Duration>,
}

/// Datagrams that came in together.
pub struct Inbox {
    shelf: Shelf,
    stamps: Slots<Stamp>,
    /// invariant: header `i` points to segment `i` of the shelf and to `stamps[i]`.
    headers: Box<[mmsghdr]>,
    len: usize,
}

// SAFETY: as for `Outbox`.
unsafe impl Send for Inbox {}

impl Inbox {
    /// Makes room for `capacity` datagrams (held between 1 and [`MAX_CAPACITY`]), of which `n_octets` octets are kept.
    pub fn new(capacity: usize, n_octets: usize) -> Self {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        let shelf = Shelf::new(capacity, n_octets);
        let stamps = Slots::new(capacity, Stamp::NONE);
        let mut headers = shelf.headers(capacity);
        for (i, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_control = stamps.address(i).cast::<c_void>();
            set_control_length(&mut header.msg_hdr, Stamp::OCTETS);
        }
        Self { shelf, stamps, headers, len: 0 }
    }

    /// Datagrams of the last round.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the last round brought nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most datagrams of a round.
    pub fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// Datagram `i` of the last round.
    ///
    /// # Panics
    /// When `i` is not below [`Inbox::len`].
    #[inline]
    pub fn datagram(&self, i: usize) -> Received<'_> {
        assert!(i < self.len, "the inbox holds {} datagrams, asked for number {i}", self.len);
        let header = &self.headers[i];
        // The whole length: the socket receives with MSG_TRUNC.
        let n_octets = header.msg_len as usize;
        let n_control = control_length(&header.msg_hdr).min(Stamp::OCTETS);
        Received {
            octets: self.shelf.lines.octets(i * self.shelf.stride, n_octets.min(self.shelf.n_octets)),
            n_octets,
            arrived: self.stamps.as_slice()[i].time(n_control),
        }
    }

    /// Forgets the last round and yields the headers for the next.
    pub(crate) fn prepare(&mut self) -> &mut [mmsghdr] {
        // Only those that the kernel wrote to; everything else in a header stays as it is.
        for header in &mut self.headers[..self.len] {
            set_control_length(&mut header.msg_hdr, Stamp::OCTETS);
        }
        self.len = 0;
        &mut self.headers
    }

    /// Takes note that the kernel filled the first `len` headers.
    pub(crate) fn filled(&mut self, len: usize) {
        self.len = len.min(self.headers.len());
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_takes_what_fits_and_no_more() {
        let mut outbox = Outbox::new(2, 70);
        assert!(outbox.push(&[1; 71]).is_none());
        outbox.push(&[1; 70]).unwrap()[0] = 9;
        assert_eq!(outbox.push(b"two"), Some(&mut b"two"[..].to_vec()[..]));
        assert!(outbox.push(b"three").is_none());
        assert_eq!(outbox.outgoing(0..9).len(), 2);
        assert_eq!(outbox.outgoing(1..2).len(), 1);
        outbox.clear();
        assert!(outbox.is_empty() && outbox.outgoing(0..2).is_empty());
    }

    #[test]
    fn a_control_message_of_another_kind_is_no_time() {
        assert_eq!(Stamp::NONE.time(Stamp::OCTETS), None);
        assert_eq!(Stamp::NONE.time(0), None);
    }
}
