//! Batches of frames: queries copied out of a ring, answers that leave with their headers in front.

use std::ptr;

use libc::{iovec, mmsghdr, sockaddr_ll};

use super::{Batch, Control, Peer, cmsghdr, set_control_length, socklen_of};
use crate::frame::{
    Datagram, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MAX_HEADER_OCTETS, ReplyHeaders, VIRTIO_OCTETS,
};

/// Octets in front of an answer that its headers may take.
pub(super) const MAX_OCTETS_IN_FRONT: usize = VIRTIO_OCTETS + MAX_HEADER_OCTETS;

/// Where a query came from on the link, and the headers of its answer.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    headers: ReplyHeaders,
    /// The index of the socket that listens to the address asked.
    listener: usize,
    /// Whether the answer goes by that socket.
    by_socket: bool,
}

impl Link {
    pub(super) const NONE: Self = Self { headers: ReplyHeaders::NONE, listener: 0, by_socket: false };
}

/// No way.
pub(super) const NO_WAY: sockaddr_ll = sockaddr_ll {
    sll_family: 0,
    sll_protocol: 0,
    sll_ifindex: 0,
    sll_hatype: 0,
    sll_pkttype: 0,
    sll_halen: 0,
    sll_addr: [0; 8],
};

/// The way of an answer with `headers` out of a packet socket.
fn way(headers: &ReplyHeaders, is_ipv6: bool, interface: i32) -> sockaddr_ll {
    let protocol = if is_ipv6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
    let mut way = sockaddr_ll {
        sll_family: AF_PACKET,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface,
        sll_halen: 6,
        ..NO_WAY
    };
    way.sll_addr[..6].copy_from_slice(&headers.octets()[..6]);
    way
}

/// Address families are sixteen bits wide in socket addresses, and small.
#[expect(clippy::cast_possible_truncation, reason = "17")]
const AF_PACKET: u16 = libc::AF_PACKET as u16;
#[expect(clippy::cast_possible_truncation, reason = "2")]
const AF_INET: u16 = libc::AF_INET as u16;
#[expect(clippy::cast_possible_truncation, reason = "10")]
const AF_INET6: u16 = libc::AF_INET6 as u16;

/// Numbers for IPv4 packets, hard to guess from the outside (RFC 7739): xorshift64*, seeded with the process's own randomness.
#[derive(Debug)]
pub(crate) struct Identification(u64);

impl Identification {
    pub(crate) fn new() -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        // Zero would stay zero.
        Self(RandomState::new().build_hasher().finish() | 1)
    }

    fn next(&mut self) -> u16 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let [high, low, ..] = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D).to_be_bytes();
        u16::from_be_bytes([high, low])
    }
}

impl Batch {
    /// Forgets the last round and makes room for frames.
    pub(crate) fn begin_frames(&mut self) {
        self.prepare(true);
    }

    /// Whether another query fits.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.count < self.config.capacity
    }

    /// Copies a query out of its frame: `payload` is the datagram's, or a part of it when several were joined.
    /// `interface` is where it came in, `listener` the index of the socket that listens to the address asked.
    ///
    /// # Panics
    /// Without room.
    #[inline]
    pub(crate) fn push(&mut self, datagram: &Datagram<'_>, payload: &[u8], interface: i32, listener: usize) {
        let i = self.count;
        self.count += 1;
        let n_kept = payload.len().min(self.config.query_octets);
        self.queries.octets_mut(i, n_kept).copy_from_slice(&payload[..n_kept]);
        let (peer, n_peer) = Peer::of(datagram, interface);
        self.peers.as_mut_slice()[i] = peer;
        let (control, n_control) = Control::of(datagram, interface);
        self.controls.as_mut_slice()[i] = control;
        let headers = datagram.reply();
        self.ways.as_mut_slice()[i] = way(&headers, datagram.is_ipv6(), interface);
        self.links.as_mut_slice()[i] = Link { headers, listener, by_socket: false };
        let incoming = &mut self.incoming[i];
        incoming.msg_len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        incoming.msg_hdr.msg_flags = if n_kept < payload.len() { libc::MSG_TRUNC } else { 0 };
        incoming.msg_hdr.msg_namelen = n_peer;
        set_control_length(&mut incoming.msg_hdr, n_control);
    }

    /// Writes the headers of the answers that fit into packets of `mtu` octets in front of them, and yields how many there
    /// are, how many have to go by a socket, and how many were too long for their buffer. `bound_to`: the interface that the
    /// frames leave by unless they name another.
    pub(crate) fn gather_frames(
        &mut self,
        mtu: usize,
        bound_to: u32,
        numbers: &mut Identification,
    ) -> (usize, usize, usize) {
        let (mut n_frames, mut n_by_socket) = (0, 0);
        for i in 0..self.count {
            let n_octets = self.answer_lengths[i];
            if n_octets == 0 {
                continue;
            }
            let link = &mut self.links.as_mut_slice()[i];
            link.by_socket = link.headers.packet_overhead() + n_octets > mtu;
            if link.by_socket {
                n_by_socket += 1;
                continue;
            }
            link.headers.finish(n_octets, numbers.next());
            let headers = link.headers.octets();
            let n_in_front = VIRTIO_OCTETS + headers.len();
            let (virtio, in_front) = self.answers.in_front_mut(i, n_in_front).split_at_mut(VIRTIO_OCTETS);
            virtio.copy_from_slice(&link.headers.virtio());
            in_front.copy_from_slice(headers);
            self.frame_segments.as_mut_slice()[n_frames] = iovec {
                iov_base: self.answers.address(i).wrapping_sub(n_in_front).cast(),
                iov_len: n_in_front + n_octets,
            };
            let header = &mut self.outgoing_frames[n_frames].msg_hdr;
            if self.ways.as_slice()[i].sll_ifindex.cast_unsigned() == bound_to {
                (header.msg_name, header.msg_namelen) = (ptr::null_mut(), 0);
            } else {
                header.msg_name = self.ways.address(i).cast();
                header.msg_namelen = socklen_of::<sockaddr_ll>();
            }
            n_frames += 1;
        }
        (n_frames, n_by_socket, std::mem::take(&mut self.n_overlong))
    }

    /// The headers of the frames that `gather_frames` built.
    pub(crate) fn outgoing_frames(&mut self, range: std::ops::Range<usize>) -> &mut [mmsghdr] {
        &mut self.outgoing_frames[range]
    }

    /// Builds the messages of the answers that go by socket `listener`, a datagram each, and yields how many there are.
    /// `wildcard`: the socket has to be told the source address.
    pub(crate) fn gather_for(&mut self, listener: usize, wildcard: bool) -> usize {
        self.gather_chosen(false, wildcard, |batch, i| {
            let link = &batch.links.as_slice()[i];
            link.by_socket && link.listener == listener
        })
    }
}

impl Peer {
    /// The sender of a datagram as `sockaddr_in` or `sockaddr_in6`, and its length.
    fn of(datagram: &Datagram<'_>, interface: i32) -> (Self, libc::socklen_t) {
        let mut octets = [0; size_of::<libc::sockaddr_in6>()];
        octets[2..4].copy_from_slice(&datagram.source_port_octets());
        let source = datagram.source_octets();
        if datagram.is_ipv6() {
            octets[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
            octets[8..24].copy_from_slice(source);
            // fe80::/10 means nothing without its interface.
            if source[0] == 0xFE && source[1] & 0xC0 == 0x80 {
                octets[24..28].copy_from_slice(&interface.to_ne_bytes());
            }
            (Self(octets), socklen_of::<libc::sockaddr_in6>())
        } else {
            octets[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            octets[4..8].copy_from_slice(source);
            (Self(octets), socklen_of::<libc::sockaddr_in>())
        }
    }
}

impl Control {
    /// The control message that a wildcard socket would have given with a datagram, and its octets.
    fn of(datagram: &Datagram<'_>, interface: i32) -> (Self, usize) {
        let mut control = Self::NONE;
        let (level, kind, n_data) = if datagram.is_ipv6() {
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, size_of::<libc::in6_pktinfo>())
        } else {
            (libc::IPPROTO_IP, libc::IP_PKTINFO, size_of::<libc::in_pktinfo>())
        };
        let octets = &mut control.0;
        octets[..size_of::<usize>()].copy_from_slice(&(Self::HEADER + n_data).to_ne_bytes());
        let (at_level, at_kind) =
            (std::mem::offset_of!(cmsghdr, cmsg_level), std::mem::offset_of!(cmsghdr, cmsg_type));
        octets[at_level..at_level + 4].copy_from_slice(&level.to_ne_bytes());
        octets[at_kind..at_kind + 4].copy_from_slice(&kind.to_ne_bytes());
        let data = &mut octets[Self::HEADER..];
        let destination = datagram.destination_octets();
        if datagram.is_ipv6() {
            data[..16].copy_from_slice(destination);
            data[16..20].copy_from_slice(&interface.to_ne_bytes());
        } else {
            data[..4].copy_from_slice(&interface.to_ne_bytes());
            data[4..8].copy_from_slice(destination);
            data[8..12].copy_from_slice(destination);
        }
        (control, Self::HEADER + super::align_control(n_data))
    }
}
