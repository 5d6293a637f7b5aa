//! Which answers of a batch leave together.
//!
//! A client that sends many queries from one port (a forwarder, a load generator) has many answers in one batch. Those of
//! one length are handed to the kernel as one message, which goes down the stack once and is cut into datagrams where it
//! leaves (`UDP_SEGMENT`, Documentation/networking/segmentation-offloads.rst). What arrives is the same datagrams.

use std::ops::Range;

use super::{
    Batch, Control, Peer, align_control, cmsghdr, iovec, mmsghdr, msghdr, set_control_length, socklen_of,
};

/// The longest answer that is joined with others: a segment that does not fit the path's MTU is refused, and this is the
/// payload that fits the smallest MTU of IPv6 (1280 less 40 and 8); few paths of IPv4 have less.
const LONGEST_SEGMENT: usize = 1232;
/// The most answers in one message: `UDP_MAX_SEGMENTS` of older kernels, include/linux/udp.h; later ones allow 128.
const MOST_SEGMENTS: u16 = 64;
/// The most octets in one message: what an IPv4 packet carries (65,535 less 20 and 8).
const MOST_OCTETS: usize = 65_507;
/// Places of the table of peers: four times as many as a batch usually has queries, so that few share one.
const N_PLACES: usize = 256;
/// No message, no answer.
const NONE: u16 = u16::MAX;

/// One message to be: answers to one peer from one address, of one length but for the last, which may be shorter.
#[derive(Clone, Copy)]
struct Message {
    first: u16,
    last: u16,
    n_answers: u16,
    /// Whether another answer may follow.
    open: bool,
    segment_octets: usize,
    n_octets: usize,
}

/// The plan of a round's messages.
pub(super) struct Joining {
    messages: Box<[Message]>,
    n_messages: usize,
    /// The longest answer that is joined with others this time.
    longest_segment: usize,
    /// The latest message to a peer, by the peer's hash.
    latest: [u16; N_PLACES],
    /// The answer that follows each in its message.
    next: Box<[u16]>,
    /// The answers in the order of their segments.
    order: Box<[u16]>,
    n_answers: usize,
}

impl Joining {
    pub(super) fn new(capacity: usize) -> Self {
        let none = Message { first: 0, last: 0, n_answers: 0, open: false, segment_octets: 0, n_octets: 0 };
        Self {
            messages: vec![none; capacity].into_boxed_slice(),
            n_messages: 0,
            longest_segment: 0,
            latest: [NONE; N_PLACES],
            next: vec![NONE; capacity].into_boxed_slice(),
            order: vec![0; capacity].into_boxed_slice(),
            n_answers: 0,
        }
    }

    fn begin(&mut self, join: bool) {
        (self.n_messages, self.n_answers) = (0, 0);
        self.longest_segment = if join { LONGEST_SEGMENT } else { 0 };
        self.latest.fill(NONE);
    }

    /// Puts answer `i` of `n_octets` behind those of message `to`, when it fits there.
    fn follow(&mut self, to: u16, i: u16, n_octets: usize) -> bool {
        let message = &mut self.messages[usize::from(to)];
        let fits = message.open
            && n_octets <= message.segment_octets
            && message.n_answers < MOST_SEGMENTS
            && message.n_octets + n_octets <= MOST_OCTETS;
        if !fits {
            return false;
        }
        self.next[usize::from(message.last)] = i;
        message.last = i;
        message.n_answers += 1;
        message.n_octets += n_octets;
        message.open = n_octets == message.segment_octets;
        true
    }

    /// Begins a message with answer `i` of `n_octets`, and yields its number.
    fn start(&mut self, i: u16, n_octets: usize) -> u16 {
        let number = self.n_messages;
        self.messages[number] = Message {
            first: i,
            last: i,
            n_answers: 1,
            open: n_octets <= self.longest_segment,
            segment_octets: n_octets,
            n_octets,
        };
        self.n_messages += 1;
        number_of(number)
    }
}

/// Batches are bounded by `MAX_CAPACITY`, far below.
fn number_of(i: usize) -> u16 {
    u16::try_from(i).unwrap_or(NONE)
}

impl Peer {
    /// Its place in a table: by the port, which tells clients of one address apart and is random for the others.
    fn place(&self) -> usize {
        // The odd number is 2^16 divided by the golden ratio; the upper octet of the product is the most mixed.
        usize::from(self.port().wrapping_mul(0x9E37).to_be_bytes()[0])
    }
}

impl Control {
    /// Appends the message that has the kernel cut what is sent into segments, to `n_octets` that are there; yields the
    /// length of all.
    fn append_segment(&mut self, n_octets: usize, segment_octets: usize) -> usize {
        let start = align_control(n_octets);
        let data = start + Self::HEADER;
        // CMSG_LEN(2): struct cmsghdr, then the size of a segment.
        let length = Self::HEADER + size_of::<u16>();
        let octets = &mut self.0[start..];
        octets[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
        let (level, kind) =
            (std::mem::offset_of!(cmsghdr, cmsg_level), std::mem::offset_of!(cmsghdr, cmsg_type));
        octets[level..level + 4].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
        octets[kind..kind + 4].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
        self.0[data..data + 2].copy_from_slice(&number_of(segment_octets).to_ne_bytes());
        data + align_control(size_of::<u16>())
    }
}

impl Batch {
    /// Builds the messages that hold the answers, several in one if `join`, and yields how many there are, and how many
    /// answers were too long for their buffer.
    pub(crate) fn gather(&mut self, join: bool) -> (usize, usize) {
        let n_messages = self.gather_chosen(join, true, |_, _| true);
        (n_messages, std::mem::take(&mut self.n_overlong))
    }

    /// The same for the answers that `choose` takes; they name their source if `with_source` and if it is known.
    pub(super) fn gather_chosen(
        &mut self,
        join: bool,
        with_source: bool,
        choose: impl Fn(&Self, usize) -> bool,
    ) -> usize {
        self.joining.begin(join);
        for i in 0..self.count {
            if self.answer_lengths[i] > 0 && choose(self, i) {
                self.source_lengths[i] = if with_source { self.source(i) } else { 0 };
                self.assign(i);
            }
        }
        for message in 0..self.joining.n_messages {
            self.build(message);
        }
        self.joining.n_messages
    }

    /// Finds the message of answer `i`.
    fn assign(&mut self, i: usize) {
        let n_octets = self.answer_lengths[i];
        let place = self.peers.as_slice()[i].place();
        let latest = self.joining.latest[place];
        if latest != NONE {
            let first = usize::from(self.joining.messages[usize::from(latest)].first);
            if self.is_same_way(first, i) && self.joining.follow(latest, number_of(i), n_octets) {
                return;
            }
        }
        self.joining.latest[place] = self.joining.start(number_of(i), n_octets);
    }

    /// Whether answers `i` and `j` go to the same peer from the same address.
    fn is_same_way(&self, i: usize, j: usize) -> bool {
        let name = |i: usize| {
            let n_octets = self.incoming[i].msg_hdr.msg_namelen.min(socklen_of::<Peer>()) as usize;
            &self.peers.as_slice()[i].0[..n_octets]
        };
        let source = |i: usize| &self.controls.as_slice()[i].0[..self.source_lengths[i]];
        name(i) == name(j) && source(i) == source(j)
    }

    /// Builds the segments and the header of a message.
    fn build(&mut self, message: usize) {
        let Message { first, n_answers, segment_octets, .. } = self.joining.messages[message];
        let segments = self.joining.n_answers..self.joining.n_answers + usize::from(n_answers);
        self.joining.n_answers = segments.end;
        let mut answer = first;
        for segment in segments.clone() {
            let i = usize::from(answer);
            self.answer_segments.as_mut_slice()[segment] =
                iovec { iov_base: self.answers.address(i).cast(), iov_len: self.answer_lengths[i] };
            self.joining.order[segment] = answer;
            answer = self.joining.next[i];
        }
        let first = usize::from(first);
        let mut n_control = self.source_lengths[first];
        if n_answers > 1 {
            n_control = self.controls.as_mut_slice()[first].append_segment(n_control, segment_octets);
        }
        self.fill_header(message, first, n_control, segments);
    }

    /// Has the header of a message name the peer of answer `i` and its control message of `n_control` octets, and point to
    /// `segments`.
    fn fill_header(&mut self, message: usize, i: usize, n_control: usize, segments: Range<usize>) {
        let header = &mut self.outgoing[message].msg_hdr;
        header.msg_name = self.peers.address(i).cast();
        header.msg_namelen = self.incoming[i].msg_hdr.msg_namelen.min(socklen_of::<Peer>());
        header.msg_control = self.controls.address(i).cast();
        set_control_length(header, n_control);
        header.msg_iov = self.answer_segments.address(segments.start);
        set_segment_count(header, segments.len());
    }

    /// The headers of the messages that `gather` or `separate` built.
    pub(crate) fn outgoing(&mut self, range: Range<usize>) -> &mut [mmsghdr] {
        &mut self.outgoing[range]
    }

    /// Builds the answers of message `from` and all after it anew, a datagram each; yields how many there are now.
    ///
    /// For a kernel, or a way out, that refuses joined ones.
    pub(crate) fn separate(&mut self, from: usize) -> usize {
        let n_before: usize = (0..from).map(|message| self.n_answers(message)).sum();
        for segment in n_before..self.joining.n_answers {
            let i = usize::from(self.joining.order[segment]);
            self.fill_header(segment - n_before, i, self.source_lengths[i], segment..segment + 1);
        }
        self.joining.n_answers - n_before
    }

    /// How many answers message `message` holds.
    pub(crate) fn n_answers(&self, message: usize) -> usize {
        segment_count(&self.outgoing[message].msg_hdr)
    }
}

/// `msg_iovlen` is a `size_t` in glibc and an `int` in musl.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::allow_attributes,
    reason = "at most MOST_SEGMENTS; which cast it is depends on the C library"
)]
fn set_segment_count(header: &mut msghdr, n_segments: usize) {
    header.msg_iovlen = n_segments as _;
}

#[allow(
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    clippy::allow_attributes,
    reason = "size_t in glibc, int in musl"
)]
fn segment_count(header: &msghdr) -> usize {
    header.msg_iovlen as usize
}
