//! A frame on the way that a worker goes with it: headers, query, answer, headers of the answer. What comes back is
//! judged by its octets alone.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use weir_authority::{
    Context, CookieKeys, Policy, Received, Scratch, Transport, ZoneSet, ZoneSetBuilder, ZoneState, build,
    plan, receive,
};
use weir_netio::frame::{Checksum, Datagram};
use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::load::{LoadOptions, load};
use weir_zone::text::Source;

const SEED: HashSeed = HashSeed::fixed();
const ETHERNET: usize = 14;
const UDP: usize = 8;
const ZONES: [(&str, &[u8]); 2] = [
    ("example.com", include_bytes!("../../zones/example.com.zone")),
    ("example.net", include_bytes!("../../zones/example.net.zone")),
];

/// Answers a frame, or does not; yields whether. The first octet of the input says what is known of the checksum.
///
/// # Panics
/// When there is an answer that must not be, or a wrong one: that is what fuzzing looks for.
pub fn frame(input: &[u8]) -> bool {
    let Some((known, asked)) = input.split_first() else { return false };
    let checksum = match known % 3 {
        0 => Checksum::Unknown,
        1 => Checksum::Unfinished,
        _ => Checksum::Verified,
    };
    let Some(reply) = reply(asked, checksum) else { return false };
    judge(asked, &reply);
    true
}

fn reply(frame: &[u8], checksum: Checksum) -> Option<Vec<u8>> {
    let datagram = Datagram::parse(frame, checksum).ok()?;
    let answer = answer(datagram.payload, datagram.source().ip())?;
    let mut headers = datagram.reply();
    headers.finish(answer.len(), 1);
    let mut frame = [headers.octets(), &answer].concat();
    finish_checksum(&headers.virtio(), &mut frame);
    Some(frame)
}

/// What a device does by the virtio header: sums up from where that says, the place of the checksum included.
fn finish_checksum(virtio: &[u8], frame: &mut [u8]) {
    let number = |at: usize| usize::from(u16::from_ne_bytes([virtio[at], virtio[at + 1]]));
    let (start, place) = (number(6), number(6) + number(8));
    let checksum = match checksum(&frame[start..]) {
        0 => 0xFFFF,
        other => other,
    };
    frame[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn answer(message: &[u8], client: IpAddr) -> Option<Vec<u8>> {
    let cookies = Some(CookieKeys { current: [1; 16], previous: None, required: false });
    let policy = Policy { cookies, ..Policy::default() };
    let context = Context { transport: Transport::Udp, policy: &policy, client, now: 1_800_000_000 };
    let (mut scratch, mut out) = (Scratch::new(SEED), vec![0; 4096]);
    let answered = match receive(message, &context, &mut scratch, &mut out) {
        Received::Silence => None,
        Received::Answered(answered) => Some(answered),
        Received::Query(query) => {
            let plan = plan(&query, &context, &scratch, zones());
            build(&plan, &query, &context, &mut scratch, &mut out)
        }
    };
    out.truncate(answered?.len);
    Some(out)
}

fn zones() -> &'static ZoneSet {
    static ZONES_READ: OnceLock<ZoneSet> = OnceLock::new();
    ZONES_READ.get_or_init(|| {
        let mut set = ZoneSetBuilder::new(SEED);
        for (name, text) in ZONES {
            let origin = FoldedBuf::from_text(name).expect("a name");
            let loaded = load(Source::Octets(name, text), origin.folded(), SEED, &LoadOptions::default());
            set.add(origin, ZoneState::Ready(Arc::new(loaded.expect("an example").zone)));
        }
        set.finish(1)
    })
}

/// Where things lie in a frame: the octets of the source and the destination address, and the UDP header.
struct Places {
    source: std::ops::Range<usize>,
    destination: std::ops::Range<usize>,
    udp: usize,
}

fn places(frame: &[u8]) -> Places {
    match frame[12..14] {
        [8, 0] => Places { source: 26..30, destination: 30..34, udp: ETHERNET + 20 },
        _ => Places { source: 22..38, destination: 38..54, udp: ETHERNET + 40 },
    }
}

fn judge(asked: &[u8], reply: &[u8]) {
    let Places { source, destination, udp } = places(asked);
    let from = &asked[source.clone()];
    assert!(asked[6] & 1 == 0, "a group of stations asked");
    match *from {
        [0 | 127 | 224.., ..] if from.len() == 4 => panic!("{from:?} is no host"),
        [0xFF, ..] if from.len() == 16 => panic!("{from:?} is a group"),
        _ => assert!(from.iter().any(|octet| *octet != 0), "nobody asked"),
    }
    assert_ne!(asked[udp..udp + 2], [0, 0], "port 0 asked");
    let (query, answer) = (&asked[udp + UDP..], &reply[udp + UDP..]);
    assert_eq!(query[2] & 0x80, 0, "an answer was answered");
    assert!(answer[2] & 0x80 != 0 && answer[..2] == query[..2], "it is no answer to the query");
    assert!((12..=1232).contains(&answer.len()), "{} octets", answer.len());

    assert_eq!((&reply[..6], &reply[6..12]), (&asked[6..12], &asked[..6]));
    assert_eq!(reply[12..14], asked[12..14]);
    assert_eq!((&reply[source.clone()], &reply[destination.clone()]), (&asked[destination], from));
    assert_eq!(
        (&reply[udp..udp + 2], &reply[udp + 2..udp + 4]),
        (&asked[udp + 2..udp + 4], &asked[udp..udp + 2])
    );
    let mut sealed = reply.to_vec();
    seal(&mut sealed);
    assert!(sealed == reply, "lengths or checksums are wrong:\n{reply:02x?}\n{sealed:02x?}");
}

/// Writes lengths and checksums into a frame of Ethernet, IP and UDP without options, as far as it has the room.
pub fn seal(frame: &mut [u8]) {
    if frame.len() < ETHERNET {
        return;
    }
    let Places { source, destination, udp } = places(frame);
    if frame.len() < udp + UDP {
        return;
    }
    let n_segment = u16::try_from(frame.len() - udp).expect("frames are short");
    if source.len() == 4 {
        frame[16..18].copy_from_slice(&(n_segment + 20).to_be_bytes());
        frame[24..26].fill(0);
        let checksum = checksum(&frame[ETHERNET..udp]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    } else {
        frame[18..20].copy_from_slice(&n_segment.to_be_bytes());
    }
    frame[udp + 4..udp + 6].copy_from_slice(&n_segment.to_be_bytes());
    frame[udp + 6..udp + 8].fill(0);
    let pseudo =
        [&frame[source], &frame[destination], &[0, 17], &n_segment.to_be_bytes(), &frame[udp..]].concat();
    let checksum = match checksum(&pseudo) {
        0 => 0xFFFF,
        other => other,
    };
    frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
}

/// RFC 1071 as it is written there: word by word, in network order.
fn checksum(octets: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in octets.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total & 0xFFFF) + (total >> 16);
    }
    !(total as u16)
}

/// Frames of queries over IPv4 and IPv6, for a fuzzer to start from.
pub fn corpus() -> Vec<Vec<u8>> {
    let names: [&[u8]; 6] = [
        b"\x07example\x03com\0",
        b"\x03www\x07example\x03com\0",
        b"\x07nothing\x07example\x03net\0",
        b"\x01x\x09customers\x07example\x03net\0",
        b"\x01x\x06secure\x07example\x03net\0",
        b"\0",
    ];
    let opts: [&[u8]; 4] = [
        b"",
        b"\0\0\x29\x04\xd0\0\0\0\0\0\0",
        b"\0\0\x29\x10\0\0\0\x80\0\0\0",
        b"\0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08cookie-8",
    ];
    let mut frames = Vec::new();
    for (n, name) in names.iter().enumerate() {
        for (opt, rtype) in opts.iter().zip([1, 6, 15, 255]) {
            let n_opts = u8::from(!opt.is_empty());
            let head = [0x12, n as u8, 1, 0, 0, 1, 0, 0, 0, 0, 0, n_opts];
            let message = [&head[..], name, &[0, rtype, 0, 1], opt].concat();
            frames.extend([ipv4(&message), ipv6(&message)]);
        }
    }
    frames
}

const STATIONS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
const PORTS: [u8; 8] = [0x10, 0x92, 0, 53, 0, 0, 0, 0];

fn ipv4(message: &[u8]) -> Vec<u8> {
    let ip = [0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 53];
    let mut frame = [&STATIONS[..], &[8, 0], &ip, &PORTS, message].concat();
    seal(&mut frame);
    frame
}

fn ipv6(message: &[u8]) -> Vec<u8> {
    let address = |last| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let ip = [&[0x60, 0, 0, 0, 0, 0, 17, 64][..], &address(1), &address(53)].concat();
    let mut frame = [&STATIONS[..], &[0x86, 0xDD], &ip, &PORTS, message].concat();
    seal(&mut frame);
    frame
}
