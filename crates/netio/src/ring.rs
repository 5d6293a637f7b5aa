//! A packet ring of one worker: frames that the kernel lays into shared memory (packet(7), `TPACKET_V2`).
//!
//! The ring is a row of slots. The kernel fills the next one and sets its status; the worker copies the query out, clears
//! the status, and goes on. Version 2 rather than 3: it hands a frame over at once, while version 3 keeps it back until
//! its block is full or a millisecond is over. What version 3 saves by that, a short nap of the worker saves as well
//! ([`crate::ingress`]).

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::{c_int, tpacket_req, tpacket2_hdr};

use crate::batch::{Batch, Identification};
use crate::frame::{Checksum, Datagram, Refusal, VIRTIO_OCTETS};
use crate::sys::{self, Mapping, set_int, set_option};
use crate::udp::{Outgoing, SendReport, Sending, send_messages};

/// Octets of a slot before the IP header: `tpacket2_hdr`, `sockaddr_ll`, the virtio header, and the Ethernet header, as
/// `tpacket_rcv` in net/packet/af_packet.c lays them out; some to spare.
const SLOT_OVERHEAD: usize = 96;
/// Where the socket address lies in a slot: `TPACKET_ALIGN(sizeof(struct tpacket2_hdr))`.
const ADDRESS_AT: usize = size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

/// Status bits, include/uapi/linux/if_packet.h.
const STATUS_USER: u32 = 1;
const STATUS_CSUM_UNFINISHED: u32 = 1 << 3;
const STATUS_CSUM_VALID: u32 = 1 << 7;

/// How large a ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSize {
    /// Slots; rounded up to whole pages.
    pub slots: usize,
    /// Octets of a slot: a power of two from 256 to a page.
    pub slot_octets: usize,
}

impl RingSize {
    /// The longest IP packet that a slot holds.
    pub fn max_packet_octets(self) -> u16 {
        u16::try_from(self.slot_octets.saturating_sub(SLOT_OVERHEAD)).unwrap_or(u16::MAX)
    }
}

/// What the kernel tells of a frame, and the frame.
#[derive(Debug, Clone, Copy)]
struct Frame<'r> {
    octets: &'r [u8],
    /// Cut at the end of the slot.
    cut: bool,
    checksum: Checksum,
    interface: c_int,
    /// Octets of each datagram but the last, when the kernel joined several of one flow (`UDP_SEGMENT`, `UDP_GRO`).
    joined: Option<usize>,
}

/// The slots, and where the next frame will be.
///
/// Knows nothing of sockets: tests play the kernel on memory of their own.
#[derive(Debug)]
struct Walk {
    /// invariant: `n_slots * slot_octets` octets that stay valid while the walk lives, aligned to 16, shared with the kernel:
    /// a slot belongs to us from the moment its status has `STATUS_USER` until we clear it.
    start: NonNull<u8>,
    slot_octets: usize,
    n_slots: usize,
    next: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and the walk is the only one that reads it.
unsafe impl Send for Walk {}

impl Walk {
    fn slot(&self) -> *mut u8 {
        // SAFETY: the next slot lies in the memory (invariant; `next` is below `n_slots`).
        unsafe { self.start.as_ptr().add(self.next * self.slot_octets) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the first four octets of a slot are its status, aligned, valid while self lives, and the kernel accesses
        // them as one word.
        unsafe { AtomicU32::from_ptr(self.slot().cast::<u32>()) }
    }

    /// The next frame, if it is there; it stays until [`Walk::free`].
    #[inline]
    fn frame(&self) -> Option<Frame<'_>> {
        // Acquire: what the kernel wrote before the status is seen after it.
        let status = self.status().load(Ordering::Acquire);
        if status & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot lies in the memory, and is ours as a whole until its status is cleared, for which `free` needs
        // the exclusive borrow that ends this slice.
        let slot = unsafe { std::slice::from_raw_parts(self.slot().cast_const(), self.slot_octets) };
        Some(read_slot(slot, status).unwrap_or(Frame {
            octets: &[],
            cut: true,
            checksum: Checksum::Unknown,
            interface: 0,
            joined: None,
        }))
    }

    /// Gives the next slot back to the kernel and goes on to the one behind it.
    #[inline]
    fn free(&mut self) {
        // Release: the kernel writes only after our reads.
        self.status().store(0, Ordering::Release);
        self.next = if self.next + 1 == self.n_slots { 0 } else { self.next + 1 };
    }
}

/// Reads `tpacket2_hdr`, the interface in `sockaddr_ll` and the virtio header; `None` when they contradict the slot's size.
fn read_slot(slot: &[u8], status: u32) -> Option<Frame<'_>> {
    let length = u32_at(slot, std::mem::offset_of!(tpacket2_hdr, tp_len))? as usize;
    let kept = u32_at(slot, std::mem::offset_of!(tpacket2_hdr, tp_snaplen))? as usize;
    let start = usize::from(u16_at(slot, std::mem::offset_of!(tpacket2_hdr, tp_mac))?);
    let vnet = slot.get(start.checked_sub(VIRTIO_OCTETS)?..start)?;
    let checksum = if status & STATUS_CSUM_UNFINISHED != 0 {
        Checksum::Unfinished
    } else if status & STATUS_CSUM_VALID != 0 {
        Checksum::Verified
    } else {
        Checksum::Unknown
    };
    // struct virtio_net_hdr { flags, gso_type, hdr_len: u16, gso_size: u16, .. }, in the machine's order of octets.
    let joined = (vnet[1] != 0).then(|| usize::from(u16::from_ne_bytes([vnet[4], vnet[5]])));
    Some(Frame {
        octets: slot.get(start..start.checked_add(kept)?)?,
        cut: kept < length,
        checksum: if joined.is_some() { Checksum::Unfinished } else { checksum },
        interface: u32_at(slot, ADDRESS_AT + std::mem::offset_of!(libc::sockaddr_ll, sll_ifindex))?
            .cast_signed(),
        joined,
    })
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

/// Frames that a ring took and that get no answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Not a whole plain UDP datagram.
    pub malformed: u64,
    /// Wrong checksum.
    pub checksum: u64,
    /// A source that nobody may send from.
    pub source: u64,
}

/// What the rings of a server share.
#[derive(Debug)]
pub(crate) struct RingContext {
    /// The addresses of the worker's sockets, in their order.
    pub(crate) listeners: Vec<SocketAddr>,
    /// Octets of the longest packet that every interface sends; 0 sends every answer by a socket.
    pub(crate) mtu: AtomicUsize,
    /// The interface that the senders are bound to: the kernel need not be told for each answer. 0: none.
    pub(crate) exit: AtomicU32,
}

/// The ring of one worker, and the packet socket that its answers leave by.
#[derive(Debug)]
pub struct RingEngine {
    walk: Walk,
    /// Unmapped last: fields are dropped in order.
    _mapping: Mapping,
    socket: Arc<OwnedFd>,
    sender: Arc<OwnedFd>,
    context: Arc<RingContext>,
    /// Octets of a joined frame's payload that have been handed over.
    n_handed: usize,
    numbers: Identification,
    refused: Refused,
}

impl RingEngine {
    /// Gives `socket`, a packet socket that has not been bound yet, a ring.
    pub(crate) fn new(
        socket: Arc<OwnedFd>,
        sender: Arc<OwnedFd>,
        size: RingSize,
        context: Arc<RingContext>,
    ) -> io::Result<Self> {
        let fd = socket.as_fd();
        set_int(fd, libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as c_int)?;
        set_int(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        let request = request(size)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let n_slots = request.tp_frame_nr as usize;
        let mapping = Mapping::new(fd, n_slots * size.slot_octets)?;
        let walk = Walk { start: mapping.start(), slot_octets: size.slot_octets, n_slots, next: 0 };
        Ok(Self {
            walk,
            _mapping: mapping,
            socket,
            sender,
            context,
            n_handed: 0,
            numbers: Identification::new(),
            refused: Refused::default(),
        })
    }

    /// Fills `batch` with what lies in the ring and yields how many queries it holds. Makes no system call.
    #[inline]
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        batch.begin_frames();
        while batch.has_room() {
            let Some(frame) = self.walk.frame() else { break };
            match hand_over(&frame, self.n_handed, &self.context.listeners, batch) {
                Ok(Handed::Part(n_octets)) => {
                    self.n_handed = n_octets;
                    break;
                }
                Ok(Handed::Whole) => {}
                Err(Refusal::Malformed) => self.refused.malformed += 1,
                Err(Refusal::Checksum) => self.refused.checksum += 1,
                Err(Refusal::Source) => self.refused.source += 1,
            }
            self.n_handed = 0;
            self.walk.free();
        }
        batch.len()
    }

    /// Sends the answers of `batch` by the packet socket, and yields how many are left for the UDP sockets because they
    /// are longer than the link carries.
    ///
    /// # Errors
    /// The packet socket is of no use any more.
    pub(crate) fn send(&mut self, batch: &mut Batch, report: &mut SendReport) -> io::Result<usize> {
        let RingContext { mtu, exit, .. } = &*self.context;
        let (mtu, bound_to) = (mtu.load(Ordering::Relaxed), exit.load(Ordering::Acquire));
        let (n_frames, n_by_socket, n_overlong) = batch.gather_frames(mtu, bound_to, &mut self.numbers);
        report.failed += n_overlong;
        let failed_before = report.failed;
        let sender = self.sender.as_fd();
        Sending { socket: sender, waited: false, report }.send(0..n_frames, &mut Frames { sender, batch })?;
        if report.failed > failed_before {
            // The interface may be gone, and another one there by the same number.
            exit.store(0, Ordering::Relaxed);
        }
        Ok(n_by_socket)
    }

    /// Frames that got no answer since the last call.
    pub fn take_refused(&mut self) -> Refused {
        std::mem::take(&mut self.refused)
    }
}

/// The frames of a batch, an answer each.
struct Frames<'a> {
    sender: BorrowedFd<'a>,
    batch: &'a mut Batch,
}

impl Outgoing for Frames<'_> {
    fn n_answers(&self, _: usize) -> usize {
        1
    }

    fn send(&mut self, range: Range<usize>) -> io::Result<usize> {
        send_messages(self.sender, self.batch.outgoing_frames(range))
    }
}

impl AsFd for RingEngine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How much of a frame went into the batch.
enum Handed {
    Whole,
    /// The batch is full; so many octets of the payload have been handed over.
    Part(usize),
}

/// Copies the queries of a frame into the batch, from octet `n_handed` of the payload on.
#[inline]
fn hand_over(
    frame: &Frame<'_>,
    n_handed: usize,
    listeners: &[SocketAddr],
    batch: &mut Batch,
) -> Result<Handed, Refusal> {
    if let Some(segment) = frame.joined {
        return hand_over_joined(frame, segment, n_handed, listeners, batch);
    }
    if frame.cut {
        return Err(Refusal::Malformed);
    }
    let datagram = Datagram::parse(frame.octets, frame.checksum)?;
    batch.push(&datagram, datagram.payload, frame.interface, listener_of(&datagram, listeners));
    Ok(Handed::Whole)
}

/// Several datagrams of one flow that were joined on their way: each is a query.
#[cold]
fn hand_over_joined(
    frame: &Frame<'_>,
    segment: usize,
    n_handed: usize,
    listeners: &[SocketAddr],
    batch: &mut Batch,
) -> Result<Handed, Refusal> {
    let datagram = Datagram::parse(frame.octets, frame.checksum)?;
    let listener = listener_of(&datagram, listeners);
    let mut at = n_handed;
    for query in datagram.payload.get(n_handed..).unwrap_or(&[]).chunks(segment.max(1)) {
        if !batch.has_room() {
            return Ok(Handed::Part(at));
        }
        batch.push(&datagram, query, frame.interface, listener);
        at += query.len();
    }
    Ok(Handed::Whole)
}

/// The socket that listens to the address asked: bound to it, or to the wildcard of its family.
#[inline]
fn listener_of(datagram: &Datagram<'_>, listeners: &[SocketAddr]) -> usize {
    if listeners.len() <= 1 {
        return 0;
    }
    let asked = datagram.destination();
    let exact = listeners.iter().position(|listener| *listener == asked);
    let wild = |listener: &SocketAddr| {
        listener.ip().is_unspecified()
            && listener.is_ipv4() == asked.is_ipv4()
            && listener.port() == asked.port()
    };
    exact.or_else(|| listeners.iter().position(wild)).unwrap_or(0)
}

/// The kernel's form of a ring's size: blocks of one page, which are always to be had.
fn request(size: RingSize) -> io::Result<tpacket_req> {
    // SAFETY: the call takes a number only.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    if !size.slot_octets.is_power_of_two() || !(256..=page).contains(&size.slot_octets) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let slots_a_page = page / size.slot_octets;
    let n_pages = size.slots.div_ceil(slots_a_page).max(1);
    let number = |n: usize| u32::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
    Ok(tpacket_req {
        tp_block_size: number(page)?,
        tp_block_nr: number(n_pages)?,
        tp_frame_size: number(size.slot_octets)?,
        tp_frame_nr: number(n_pages * slots_a_page)?,
    })
}

/// Frames that a packet socket was given and could not keep, since the last call (`PACKET_STATISTICS` starts anew).
pub(crate) fn drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let (words, _) = sys::option_words::<2>(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(u64::from(words[1]))
}

/// How often frames of this socket rolled over to another: all, those of huge flows, and those that no socket had room
/// for (`PACKET_ROLLOVER_STATS`). An error outside of a group with rollover.
pub(crate) fn rollovers(socket: BorrowedFd<'_>) -> io::Result<[u64; 3]> {
    let (words, _) = sys::option_words::<6>(socket, libc::SOL_PACKET, libc::PACKET_ROLLOVER_STATS)?;
    let number = |i: usize| {
        let [a, b, c, d] = words[i].to_ne_bytes();
        let [e, f, g, h] = words[i + 1].to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    Ok([number(0), number(2), number(4)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchConfig;
    use crate::frame::tests::frame;

    const SLOT: usize = 512;
    const MAC_AT: usize = 76;

    /// Memory on which a test plays the kernel.
    struct Kernel {
        memory: Vec<u128>,
        next: usize,
        n_slots: usize,
    }

    impl Kernel {
        fn new(n_slots: usize) -> Self {
            Self { memory: vec![0; n_slots * SLOT / 16], next: 0, n_slots }
        }

        fn walk(&mut self) -> Walk {
            let start = NonNull::new(self.memory.as_mut_ptr().cast::<u8>()).unwrap();
            Walk { start, slot_octets: SLOT, n_slots: self.n_slots, next: 0 }
        }

        fn write(&mut self, at: usize, octets: &[u8]) {
            assert!(at + octets.len() <= SLOT);
            for (place, octet) in (self.next * SLOT + at..).zip(octets) {
                let mut word = self.memory[place / 16].to_ne_bytes();
                word[place % 16] = *octet;
                self.memory[place / 16] = u128::from_ne_bytes(word);
            }
        }

        fn is_free(&self) -> bool {
            self.memory[self.next * SLOT / 16].to_ne_bytes()[..4] == [0; 4]
        }

        /// Lays a frame into the next slot if that is free.
        fn deliver(&mut self, frame: &[u8], status: u32, segment: u16) -> bool {
            if !self.is_free() {
                return false;
            }
            let kept = frame.len().min(SLOT - MAC_AT);
            self.write(4, &u32::try_from(frame.len()).unwrap().to_ne_bytes());
            self.write(8, &u32::try_from(kept).unwrap().to_ne_bytes());
            self.write(12, &u16::try_from(MAC_AT).unwrap().to_ne_bytes());
            self.write(ADDRESS_AT + 4, &7_i32.to_ne_bytes());
            self.write(MAC_AT - VIRTIO_OCTETS, &[0, if segment > 0 { 5 } else { 0 }, 0, 0]);
            self.write(MAC_AT - VIRTIO_OCTETS + 4, &segment.to_ne_bytes());
            self.write(MAC_AT, &frame[..kept]);
            self.write(0, &(status | STATUS_USER).to_ne_bytes());
            self.next = (self.next + 1) % self.n_slots;
            true
        }
    }

    fn query(payload: &[u8]) -> Vec<u8> {
        frame("192.0.2.1:4242", "192.0.2.53:53", payload)
    }

    fn batch(capacity: usize) -> Batch {
        Batch::new(BatchConfig { capacity, ..BatchConfig::default() })
    }

    /// What `RingEngine::receive` does, without the socket.
    fn receive(walk: &mut Walk, batch: &mut Batch, n_handed: &mut usize) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        batch.begin_frames();
        while batch.has_room() {
            let Some(frame) = walk.frame() else { break };
            match hand_over(&frame, *n_handed, &[], batch) {
                Ok(Handed::Part(n_octets)) => {
                    *n_handed = n_octets;
                    return refusals;
                }
                Ok(Handed::Whole) => {}
                Err(refusal) => refusals.push(refusal),
            }
            *n_handed = 0;
            walk.free();
        }
        refusals
    }

    fn queries(batch: &Batch) -> Vec<Vec<u8>> {
        (0..batch.len()).map(|i| batch.query(i).to_vec()).collect()
    }

    #[test]
    fn frames_are_taken_in_order_round_and_round_and_their_slots_freed() {
        let mut kernel = Kernel::new(4);
        let (mut walk, mut batch) = (kernel.walk(), batch(3));
        let mut expected = 0_u8;
        let mut sent = 0_u8;
        for round in 0..20 {
            for _ in 0..=round % 4 {
                sent += u8::from(kernel.deliver(&query(&[sent; 20]), 0, 0));
            }
            assert!(receive(&mut walk, &mut batch, &mut 0).is_empty());
            for octets in queries(&batch) {
                assert_eq!(octets, [expected; 20]);
                expected += 1;
            }
        }
        assert!(sent > 20 && sent - expected < 4, "{sent} {expected}");
        assert_eq!(batch.peer(0).socket_addr(), "192.0.2.1:4242".parse().unwrap());
        assert_eq!(batch.local(0), Some("192.0.2.53".parse().unwrap()));
    }

    #[test]
    fn an_empty_ring_yields_nothing() {
        let mut kernel = Kernel::new(2);
        let (mut walk, mut batch) = (kernel.walk(), batch(3));
        assert!(receive(&mut walk, &mut batch, &mut 0).is_empty());
        assert!(batch.is_empty());
    }

    #[test]
    fn a_full_ring_takes_frames_again_once_it_was_read() {
        let mut kernel = Kernel::new(2);
        let (mut walk, mut batch) = (kernel.walk(), batch(8));
        assert!(kernel.deliver(&query(b"1"), 0, 0) && kernel.deliver(&query(b"2"), 0, 0));
        assert!(!kernel.deliver(&query(b"3"), 0, 0));
        receive(&mut walk, &mut batch, &mut 0);
        assert_eq!(queries(&batch), [b"1", b"2"]);
        assert!(kernel.deliver(&query(b"3"), 0, 0));
        receive(&mut walk, &mut batch, &mut 0);
        assert_eq!(queries(&batch), [b"3"]);
    }

    #[test]
    fn joined_queries_are_told_apart_even_across_batches() {
        let mut kernel = Kernel::new(2);
        let (mut walk, mut batch) = (kernel.walk(), batch(2));
        kernel.deliver(&query(b"aaabbbcccdd"), STATUS_CSUM_UNFINISHED, 3);
        kernel.deliver(&query(b"next"), 0, 0);
        let mut n_handed = 0;
        let mut all = Vec::new();
        for _ in 0..3 {
            assert!(receive(&mut walk, &mut batch, &mut n_handed).is_empty());
            all.extend(queries(&batch));
        }
        assert_eq!(all, [&b"aaa"[..], b"bbb", b"ccc", b"dd", b"next"]);
    }

    #[test]
    fn frames_with_wrong_checksums_are_refused_only_when_they_are_complete() {
        let mut kernel = Kernel::new(4);
        let (mut walk, mut batch) = (kernel.walk(), batch(8));
        let mut broken = query(b"question");
        broken[41] ^= 1;
        kernel.deliver(&broken, 0, 0);
        kernel.deliver(&broken, STATUS_CSUM_UNFINISHED, 0);
        kernel.deliver(&broken, STATUS_CSUM_VALID, 0);
        assert_eq!(receive(&mut walk, &mut batch, &mut 0), [Refusal::Checksum]);
        assert_eq!(batch.len(), 2);
    }

    #[test]
    fn cut_frames_and_slots_of_nonsense_are_refused_and_passed_over() {
        let mut kernel = Kernel::new(4);
        let (mut walk, mut batch) = (kernel.walk(), batch(8));
        kernel.deliver(&query(&[1; 600]), 0, 0);
        // A slot whose offsets point outside of it.
        kernel.write(8, &u32::MAX.to_ne_bytes());
        kernel.write(12, &u16::MAX.to_ne_bytes());
        kernel.write(0, &STATUS_USER.to_ne_bytes());
        kernel.next += 1;
        kernel.deliver(&query(b"fine"), 0, 0);
        assert_eq!(receive(&mut walk, &mut batch, &mut 0), [Refusal::Malformed, Refusal::Malformed]);
        assert_eq!(queries(&batch), [b"fine"]);
    }

    #[test]
    fn rings_are_whole_pages_of_slots() {
        let size = |slots, slot_octets| request(RingSize { slots, slot_octets });
        let request = size(9, 512).unwrap();
        assert_eq!(request.tp_frame_nr * request.tp_frame_size, request.tp_block_nr * request.tp_block_size);
        assert!(request.tp_frame_nr >= 9);
        for slot_octets in [0, 128, 500, 1 << 20] {
            assert!(size(9, slot_octets).is_err(), "{slot_octets}");
        }
    }
}
