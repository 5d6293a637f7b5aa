//! Ethernet frames: what lies in a query's frame, and the headers of its answer. Pure code on octets, no I/O.
//!
//! Only the plain form is understood: Ethernet, IPv4 without options and whole or IPv6 without extension headers, UDP.
//! What is odder than that never gets here: the filter of the ring ([`crate::filter`]) leaves it to the sockets.
//!
//! An answer is the query's frame turned round: hardware addresses, IP addresses and ports change places. It therefore
//! goes back the way that the query came, whatever the routing table says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Octets of an Ethernet header: destination, source, type (IEEE 802.3).
pub const ETHERNET_OCTETS: usize = 14;
/// Octets of an IPv4 header without options (RFC 791 section 3.1).
pub const IPV4_OCTETS: usize = 20;
/// Octets of an IPv6 header (RFC 8200 section 3).
pub const IPV6_OCTETS: usize = 40;
/// Octets of a UDP header (RFC 768).
pub const UDP_OCTETS: usize = 8;
/// Octets of all headers of a datagram over IPv6, which has the most.
pub const MAX_HEADER_OCTETS: usize = ETHERNET_OCTETS + IPV6_OCTETS + UDP_OCTETS;
/// Octets of `struct virtio_net_hdr`, which lies in front of a frame (`PACKET_VNET_HDR`).
pub const VIRTIO_OCTETS: usize = 10;

/// `ETH_P_IP`, include/uapi/linux/if_ether.h.
pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
/// `ETH_P_IPV6`.
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86DD;
/// The number of UDP (IANA protocol numbers).
pub(crate) const PROTOCOL_UDP: u8 = 17;
/// Hops that an answer may take: the default of Linux (`net.ipv4.ip_default_ttl`) and of RFC 1340.
const HOPS: u8 = 64;

/// What is known of a frame's UDP checksum before it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// The sender left it to hardware that the frame never passed (veth, loopback): it holds the sum of the
    /// pseudo-header alone, and nothing can have damaged the frame.
    Unfinished,
    /// Hardware has verified it.
    Verified,
    /// It has to be verified.
    Unknown,
}

/// Why a frame gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not a plain UDP datagram, or lengths that contradict each other.
    Malformed,
    /// A checksum is wrong, or missing where it must not be (IPv6).
    Checksum,
    /// A source that nobody may send from: port 0, broadcast, multicast, loopback, unspecified, or the destination itself.
    Source,
}

/// A UDP datagram in its frame.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'f> {
    /// Ethernet, IP and UDP header.
    headers: &'f [u8],
    is_ipv6: bool,
    /// What lies behind the UDP header, as long as that says.
    pub payload: &'f [u8],
}

impl<'f> Datagram<'f> {
    /// Takes a frame apart.
    ///
    /// # Errors
    /// The frame deserves no answer, and why.
    pub fn parse(frame: &'f [u8], checksum: Checksum) -> Result<Self, Refusal> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_OCTETS>().ok_or(Refusal::Malformed)?;
        let is_ipv6 = match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
            ETHERTYPE_IPV4 => false,
            ETHERTYPE_IPV6 => true,
            _ => return Err(Refusal::Malformed),
        };
        let (n_ip_octets, segment) = if is_ipv6 { ipv6_payload(packet) } else { ipv4_payload(packet) }?;
        let udp = segment.first_chunk::<UDP_OCTETS>().ok_or(Refusal::Malformed)?;
        let n_octets = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        let segment = segment.get(..n_octets).ok_or(Refusal::Malformed)?;
        let payload = segment.get(UDP_OCTETS..).ok_or(Refusal::Malformed)?;
        let headers = &frame[..ETHERNET_OCTETS + n_ip_octets + UDP_OCTETS];
        let datagram = Self { headers, is_ipv6, payload };
        datagram.check_source(ethernet)?;
        if checksum == Checksum::Unknown {
            datagram.verify(segment)?;
        }
        Ok(datagram)
    }

    /// Whether it came over IPv6.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// Source address and port. The zone of a link-local address is not known here.
    pub fn source(&self) -> SocketAddr {
        (self.address(self.source_octets()), self.port(0)).into()
    }

    /// Destination address and port.
    pub fn destination(&self) -> SocketAddr {
        (self.address(self.destination_octets()), self.port(2)).into()
    }

    /// The octets of the source address: 4 or 16.
    #[inline]
    pub(crate) fn source_octets(&self) -> &'f [u8] {
        let start = ETHERNET_OCTETS + if self.is_ipv6 { 8 } else { 12 };
        &self.headers[start..start + self.address_octets()]
    }

    /// The octets of the destination address: 4 or 16.
    #[inline]
    pub(crate) fn destination_octets(&self) -> &'f [u8] {
        let start = ETHERNET_OCTETS + if self.is_ipv6 { 24 } else { 16 };
        &self.headers[start..start + self.address_octets()]
    }

    /// The source port as it stands in the frame.
    #[inline]
    pub(crate) fn source_port_octets(&self) -> [u8; 2] {
        let start = self.headers.len() - UDP_OCTETS;
        [self.headers[start], self.headers[start + 1]]
    }

    fn address_octets(&self) -> usize {
        if self.is_ipv6 { 16 } else { 4 }
    }

    fn address(&self, octets: &[u8]) -> IpAddr {
        match (octets.first_chunk::<4>(), octets.first_chunk::<16>()) {
            (_, Some(v6)) => Ipv6Addr::from(*v6).into(),
            (Some(v4), None) => Ipv4Addr::from(*v4).into(),
            (None, None) => Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    fn port(&self, offset: usize) -> u16 {
        let start = self.headers.len() - UDP_OCTETS + offset;
        u16::from_be_bytes([self.headers[start], self.headers[start + 1]])
    }

    /// Sources that the kernel's own path refuses as martian (RFC 1812 section 5.3.7), and those that are no single host.
    fn check_source(&self, ethernet: &[u8; ETHERNET_OCTETS]) -> Result<(), Refusal> {
        let hardware = &ethernet[6..12];
        // The lowest bit of the first octet marks a group.
        let no_station = hardware[0] & 1 == 1 || hardware == [0; 6];
        let no_host = match self.address(self.source_octets()) {
            // 0/8, 127/8, and from 224 on: multicast, reserved, broadcast.
            IpAddr::V4(v4) => matches!(v4.octets()[0], 0 | 127 | 224..),
            IpAddr::V6(v6) => {
                v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.to_ipv4_mapped().is_some()
            }
        };
        let itself = self.source_octets() == self.destination_octets();
        if no_station || no_host || itself || self.source_port_octets() == [0, 0] {
            return Err(Refusal::Source);
        }
        Ok(())
    }

    /// Checks the UDP checksum of `segment`. Zero is "none" over IPv4 (RFC 768) and forbidden over IPv6 (RFC 8200
    /// section 8.1).
    fn verify(&self, segment: &[u8]) -> Result<(), Refusal> {
        if segment[6..8] == [0, 0] {
            return if self.is_ipv6 { Err(Refusal::Checksum) } else { Ok(()) };
        }
        let total = pseudo_header(self.source_octets(), self.destination_octets(), segment.len())
            + sum_words(segment);
        if fold(total) == 0xFFFF { Ok(()) } else { Err(Refusal::Checksum) }
    }

    /// The headers of an answer; [`ReplyHeaders::finish`] adds what depends on its octets.
    #[inline]
    pub fn reply(&self) -> ReplyHeaders {
        let mut octets = [0; MAX_HEADER_OCTETS];
        octets[..6].copy_from_slice(&self.headers[6..12]);
        octets[6..12].copy_from_slice(&self.headers[..6]);
        octets[12..14].copy_from_slice(&self.headers[12..14]);
        let n_octets = self.headers.len();
        let udp = n_octets - UDP_OCTETS;
        if self.is_ipv6 {
            octets[14] = 0x60;
            octets[20] = PROTOCOL_UDP;
            octets[21] = HOPS;
            octets[22..38].copy_from_slice(self.destination_octets());
            octets[38..54].copy_from_slice(self.source_octets());
        } else {
            octets[14] = 0x45;
            octets[22] = HOPS;
            octets[23] = PROTOCOL_UDP;
            octets[26..30].copy_from_slice(self.destination_octets());
            octets[30..34].copy_from_slice(self.source_octets());
        }
        octets[udp..udp + 2].copy_from_slice(&self.headers[udp + 2..udp + 4]);
        octets[udp + 2..udp + 4].copy_from_slice(&self.headers[udp..udp + 2]);
        ReplyHeaders { octets, n_octets }
    }
}

/// The segment in an IPv4 packet, and the length of the header before it.
fn ipv4_payload(packet: &[u8]) -> Result<(usize, &[u8]), Refusal> {
    let header = packet.first_chunk::<IPV4_OCTETS>().ok_or(Refusal::Malformed)?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // Version 4 and no options; neither "more fragments" nor an offset.
    let plain = header[0] == 0x45 && header[6] & 0x3F == 0 && header[7] == 0 && header[9] == PROTOCOL_UDP;
    let segment = packet.get(IPV4_OCTETS..total).filter(|_| plain).ok_or(Refusal::Malformed)?;
    if fold(sum_words(header)) != 0xFFFF {
        return Err(Refusal::Checksum);
    }
    Ok((IPV4_OCTETS, segment))
}

/// The segment in an IPv6 packet, and the length of the header before it.
fn ipv6_payload(packet: &[u8]) -> Result<(usize, &[u8]), Refusal> {
    let header = packet.first_chunk::<IPV6_OCTETS>().ok_or(Refusal::Malformed)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let plain = header[0] >> 4 == 6 && header[6] == PROTOCOL_UDP;
    let segment =
        packet.get(IPV6_OCTETS..IPV6_OCTETS + length).filter(|_| plain).ok_or(Refusal::Malformed)?;
    Ok((IPV6_OCTETS, segment))
}

/// Ethernet, IP and UDP header of an answer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ReplyHeaders {
    /// First: whoever has the address of the headers has that of their octets.
    octets: [u8; MAX_HEADER_OCTETS],
    /// invariant: 42 or 62.
    n_octets: usize,
}

impl ReplyHeaders {
    /// No headers.
    pub(crate) const NONE: Self = Self { octets: [0; MAX_HEADER_OCTETS], n_octets: 0 };

    /// The headers.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.n_octets]
    }

    /// Octets that IP and UDP add to an answer: what counts against the link's MTU.
    #[inline]
    pub fn packet_overhead(&self) -> usize {
        self.n_octets.saturating_sub(ETHERNET_OCTETS)
    }

    /// Writes lengths for an answer of `n_answer` octets, at most 65,487, and checksums: that of UDP as far as the
    /// pseudo-header goes, for the device to finish, or the kernel where it cannot, or nobody where the packet stays on the
    /// host. `identification` tells IPv4 packets apart in case a router cuts them, and should be hard to guess (RFC 6864,
    /// RFC 7739).
    #[inline]
    pub fn finish(&mut self, n_answer: usize, identification: u16) {
        #[expect(clippy::cast_possible_truncation, reason = "an answer is at most 65,487 octets long")]
        let n_segment = (UDP_OCTETS + n_answer) as u16;
        let udp = self.n_octets.saturating_sub(UDP_OCTETS);
        let is_ipv6 = self.n_octets == MAX_HEADER_OCTETS;
        let octets = &mut self.octets;
        if is_ipv6 {
            octets[18..20].copy_from_slice(&n_segment.to_be_bytes());
        } else {
            let total = n_segment.saturating_add(20);
            octets[16..18].copy_from_slice(&total.to_be_bytes());
            octets[18..20].copy_from_slice(&identification.to_be_bytes());
            octets[24..26].fill(0);
            let checksum = !fold(sum_words(&octets[14..34]));
            octets[24..26].copy_from_slice(&checksum.to_ne_bytes());
        }
        octets[udp + 4..udp + 6].copy_from_slice(&n_segment.to_be_bytes());
        let addresses = if is_ipv6 { 22..54 } else { 26..34 };
        let so_far = fold(sum_words(&octets[addresses]) + length_and_protocol(usize::from(n_segment)));
        octets[udp + 6..udp + 8].copy_from_slice(&so_far.to_ne_bytes());
    }

    /// The `struct virtio_net_hdr` that goes in front of the frame and says where its checksum is to be finished
    /// (include/uapi/linux/virtio_net.h): flags, kind and lengths of segments, where the sum starts, and where from there it
    /// is stored.
    #[inline]
    pub fn virtio(&self) -> [u8; VIRTIO_OCTETS] {
        const NEEDS_CHECKSUM: u8 = 1;
        #[expect(clippy::cast_possible_truncation, reason = "34 or 54")]
        let [start_0, start_1] = (self.n_octets.saturating_sub(UDP_OCTETS) as u16).to_ne_bytes();
        let [offset_0, offset_1] = 6_u16.to_ne_bytes();
        [NEEDS_CHECKSUM, 0, 0, 0, 0, 0, start_0, start_1, offset_0, offset_1]
    }
}

/// The sum of the pseudo-header (RFC 768, RFC 8200 section 8.1).
fn pseudo_header(source: &[u8], destination: &[u8], n_octets: usize) -> u64 {
    sum_words(source) + sum_words(destination) + length_and_protocol(n_octets)
}

fn length_and_protocol(n_octets: usize) -> u64 {
    let length = u16::try_from(n_octets).unwrap_or(u16::MAX);
    u64::from(u16::from_ne_bytes(length.to_be_bytes())) + u64::from(u16::from_ne_bytes([0, PROTOCOL_UDP]))
}

/// The sum of 16-bit words in the machine's own order, an odd octet padded with zero (RFC 1071: the order of octets does
/// not matter as long as the result is stored in the same). Not folded yet.
#[inline]
fn sum_words(octets: &[u8]) -> u64 {
    let (quads, rest) = octets.as_chunks::<4>();
    // 2^32 quads would be needed to overflow.
    let mut total: u64 = quads.iter().map(|quad| u64::from(u32::from_ne_bytes(*quad))).sum();
    let (pairs, last) = rest.as_chunks::<2>();
    total += pairs.iter().map(|pair| u64::from(u16::from_ne_bytes(*pair))).sum::<u64>();
    if let [octet] = last {
        total += u64::from(u16::from_ne_bytes([*octet, 0]));
    }
    total
}

/// Adds the carries until 16 bits are left.
#[inline]
fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xFFFF) + (total >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the loop ended")]
    let folded = total as u16;
    folded
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The frame of a datagram from `source` to `destination`, with right checksums.
    pub(crate) fn frame(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
        let (source, destination): (SocketAddr, SocketAddr) =
            (source.parse().unwrap(), destination.parse().unwrap());
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let n_segment = u16::try_from(payload.len() + 8).unwrap();
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend([8, 0, 0x45, 0]);
                frame.extend((n_segment + 20).to_be_bytes());
                frame.extend([0x12, 0x34, 0x40, 0, 64, 17, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
                let checksum = naive_checksum(&frame[14..]);
                frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
                frame.extend(n_segment.to_be_bytes());
                frame.extend([17, 64]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => panic!("mixed families"),
        }
        let udp = frame.len();
        frame.extend(source.port().to_be_bytes());
        frame.extend(destination.port().to_be_bytes());
        frame.extend(n_segment.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        let checksum = udp_checksum(&frame);
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// RFC 1071 as it is written there: word by word, in network order.
    fn naive_checksum(octets: &[u8]) -> u16 {
        let mut total = 0_u32;
        for pair in octets.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xFFFF) + (total >> 16);
        }
        !u16::try_from(total).unwrap()
    }

    /// The UDP checksum of a frame whose checksum field is zero.
    fn udp_checksum(frame: &[u8]) -> u16 {
        let (addresses, udp) = if frame[12] == 8 { (26..34, 34) } else { (22..54, 54) };
        let mut pseudo = frame[addresses].to_vec();
        pseudo.extend(u32::try_from(frame.len() - udp).unwrap().to_be_bytes());
        pseudo.extend([0, 0, 0, 17]);
        pseudo.extend(&frame[udp..]);
        match naive_checksum(&pseudo) {
            0 => 0xFFFF,
            other => other,
        }
    }

    const V4: (&str, &str) = ("192.0.2.1:4242", "192.0.2.53:53");
    const V6: (&str, &str) = ("[2001:db8::1]:4242", "[2001:db8::53]:53");

    fn parse(frame: &[u8]) -> Result<Datagram<'_>, Refusal> {
        Datagram::parse(frame, Checksum::Unknown)
    }

    fn answered(query: &[u8], answer: &[u8]) -> Vec<u8> {
        let mut headers = parse(query).unwrap().reply();
        headers.finish(answer.len(), 7);
        let mut frame = [headers.octets(), answer].concat();
        finish_as_a_device_does(&headers.virtio(), &mut frame);
        frame
    }

    /// Sums up from where the virtio header says, what stands in the place of the checksum included (virtio 1.3 section
    /// 5.1.6.2).
    fn finish_as_a_device_does(virtio: &[u8; VIRTIO_OCTETS], frame: &mut [u8]) {
        let [1, 0, .., start_0, start_1, offset_0, offset_1] = *virtio else { panic!("{virtio:?}") };
        let start = usize::from(u16::from_ne_bytes([start_0, start_1]));
        let place = start + usize::from(u16::from_ne_bytes([offset_0, offset_1]));
        let checksum = match naive_checksum(&frame[start..]) {
            0 => 0xFFFF,
            other => other,
        };
        frame[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    #[test]
    fn a_datagram_is_found_in_its_frame() {
        for (source, destination) in [V4, V6] {
            let mut frame = frame(source, destination, b"question");
            // Short frames are padded on the wire.
            frame.extend([0; 9]);
            let datagram = parse(&frame).unwrap();
            assert_eq!(datagram.payload, b"question");
            assert_eq!(datagram.source(), source.parse().unwrap());
            assert_eq!(datagram.destination(), destination.parse().unwrap());
        }
    }

    #[test]
    fn an_answer_is_the_frame_turned_round_with_right_checksums() {
        for (source, destination) in [V4, V6] {
            for answer in [&b"a"[..], b"an answer", &[0xFF; 1232]] {
                let reply = answered(&frame(source, destination, b"q"), answer);
                assert_eq!(reply[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                let back = parse(&reply).unwrap();
                assert_eq!(back.payload, answer);
                assert_eq!(back.source(), destination.parse().unwrap());
                assert_eq!(back.destination(), source.parse().unwrap());
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_a_wrong_checksum_unless_the_checksum_is_unfinished() {
        for (source, destination) in [V4, V6] {
            let mut frame = frame(source, destination, b"question");
            *frame.last_mut().unwrap() ^= 1;
            assert_eq!(parse(&frame).unwrap_err(), Refusal::Checksum);
            assert!(Datagram::parse(&frame, Checksum::Unfinished).is_ok());
            assert!(Datagram::parse(&frame, Checksum::Verified).is_ok());
        }
    }

    #[test]
    fn no_checksum_is_right_over_ipv4_and_wrong_over_ipv6() {
        let mut v4 = frame(V4.0, V4.1, b"q");
        v4[40..42].fill(0);
        assert!(parse(&v4).is_ok());
        let mut v6 = frame(V6.0, V6.1, b"q");
        v6[60..62].fill(0);
        assert_eq!(parse(&v6).unwrap_err(), Refusal::Checksum);
    }

    #[test]
    fn a_damaged_ipv4_header_is_refused_whatever_is_known_of_the_udp_checksum() {
        let mut frame = frame(V4.0, V4.1, b"q");
        frame[22] = 63;
        assert_eq!(Datagram::parse(&frame, Checksum::Unfinished).unwrap_err(), Refusal::Checksum);
    }

    #[test]
    fn sources_that_are_no_single_host_get_no_answer() {
        for source in
            ["0.0.0.0:1", "127.0.0.1:1", "224.0.0.1:1", "255.255.255.255:1", "192.0.2.1:0", "192.0.2.53:53"]
        {
            assert_eq!(parse(&frame(source, V4.1, b"q")).unwrap_err(), Refusal::Source, "{source}");
        }
        for source in ["[::]:1", "[::1]:1", "[ff02::1]:1", "[::ffff:192.0.2.1]:1", "[2001:db8::1]:0"] {
            assert_eq!(parse(&frame(source, V6.1, b"q")).unwrap_err(), Refusal::Source, "{source}");
        }
        let mut group = frame(V4.0, V4.1, b"q");
        group[6] |= 1;
        assert_eq!(parse(&group).unwrap_err(), Refusal::Source);
    }

    #[test]
    fn fragments_options_extension_headers_and_other_protocols_are_not_understood() {
        for (offset, value) in [(14, 0x46), (14, 0x65), (20, 0x20), (21, 1), (23, 6), (12, 0x81)] {
            let mut frame = frame(V4.0, V4.1, b"question");
            frame[offset] = value;
            assert_eq!(parse(&frame).unwrap_err(), Refusal::Malformed, "{offset}");
        }
        for (offset, value) in [(14, 0x40), (20, 0), (20, 44)] {
            let mut frame = frame(V6.0, V6.1, b"question");
            frame[offset] = value;
            assert_eq!(parse(&frame).unwrap_err(), Refusal::Malformed, "{offset}");
        }
    }

    #[test]
    fn frames_cut_anywhere_are_malformed() {
        for (source, destination) in [V4, V6] {
            let frame = frame(source, destination, b"question");
            for n_octets in 0..frame.len() {
                assert_eq!(parse(&frame[..n_octets]).unwrap_err(), Refusal::Malformed);
            }
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_refused_or_turned_round_whole(
            v6: bool,
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            damage in proptest::collection::vec((0_usize..120, any::<u8>()), 0..4),
            checksum in prop_oneof![Just(Checksum::Unknown), Just(Checksum::Unfinished)],
            cut in 0_usize..8,
        ) {
            let (source, destination) = if v6 { V6 } else { V4 };
            let mut frame = frame(source, destination, &payload);
            for (place, octet) in damage {
                let place = place % frame.len();
                frame[place] = octet;
            }
            frame.truncate(frame.len() - cut.min(frame.len()));
            if let Ok(datagram) = Datagram::parse(&frame, checksum) {
                let (from, to) = (datagram.source(), datagram.destination());
                prop_assert!(from.port() != 0 && !from.ip().is_multicast() && !from.ip().is_unspecified());
                let mut headers = datagram.reply();
                headers.finish(payload.len(), 1);
                let reply = [headers.octets(), &payload].concat();
                let (_, udp) = reply.split_at(headers.octets().len() - UDP_OCTETS);
                prop_assert_eq!(u16::from_be_bytes([udp[2], udp[3]]), from.port());
                prop_assert_eq!(u16::from_be_bytes([udp[0], udp[1]]), to.port());
            }
        }

        #[test]
        fn the_sum_equals_that_of_the_rfc(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!((!fold(sum_words(&octets))).to_ne_bytes(), naive_checksum(&octets).to_be_bytes());
        }
    }
}
