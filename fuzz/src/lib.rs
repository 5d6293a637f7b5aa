//! What the fuzz targets do with their input: library functions, one line each in `fuzz_targets/`.

#![forbid(unsafe_code)]

pub mod frame;

use std::sync::{Arc, LazyLock};
use weir_authority::{
    Context, Policy, Received, Scratch, Transport, ZoneSet, ZoneSetBuilder, ZoneState, build, plan, receive,
};
use weir_cache::{Asked, Cache};
use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::canonical;
use weir_zone::load::{LoadOptions, load};
use weir_zone::text::Source;

/// Loads any octets as a zone; one that loads prints, and what it prints loads again to the same.
///
/// # Panics
/// When something is wrong with the loader: that is what fuzzing looks for.
pub fn zone_text(octets: &[u8]) {
    let Some(printed) = printed(octets) else { return };
    let again = self::printed(&printed).expect("what was printed loads");
    assert!(again == printed, "{}\n{}", printed.escape_ascii(), again.escape_ascii());
}

fn printed(octets: &[u8]) -> Option<Vec<u8>> {
    let origin = FoldedBuf::from_text("example.").ok()?;
    let mut options = LoadOptions::default();
    options.text.includes = false;
    options.text.max_generated = 0;
    let loaded = load(Source::Octets("input", octets), origin.folded(), HashSeed::fixed(), &options).ok()?;
    let mut out = Vec::new();
    canonical::print(&loaded.zone, &mut out).ok()?;
    Some(out)
}

/// Zones with every kind of answer in them: origin and text.
pub const ZONES: [(&str, &str); 2] = [
    ("corners.test", include_str!("../../zones/corpus/corners-signed.txt")),
    ("example.net", include_str!("../../zones/corpus/nsec3.txt")),
];

static ZONE_SET: LazyLock<ZoneSet> = LazyLock::new(|| {
    let mut set = ZoneSetBuilder::new(HashSeed::fixed());
    for (origin, text) in ZONES {
        let origin = FoldedBuf::from_text(origin).expect("a name");
        let source = Source::Octets("zone", text.as_bytes());
        let loaded = load(source, origin.folded(), HashSeed::fixed(), &LoadOptions::default());
        set.add(origin, ZoneState::Ready(Arc::new(loaded.expect("the zones load").zone)));
    }
    set.finish(1)
});

/// Asks any query several times, once in another guise, by way of a cache: each answer is the one that is built
/// without. The first octets choose settings and the guise; the rest is the packet.
///
/// # Panics
/// When an answer from the cache is another one: that is what fuzzing looks for.
pub fn cached_answers(octets: &[u8]) {
    let Some((&[id1, id0, size1, size0, flags, case1, case0, settings], packet)) =
        octets.split_first_chunk::<8>()
    else {
        return;
    };
    let policy = Policy {
        minimal_responses: settings & 1 == 0,
        follow_across_zones: settings & 2 != 0,
        nsid: (settings & 4 != 0).then(|| Box::from(&b"id"[..])),
        rotate: settings & 8 != 0,
        ..Policy::default()
    };
    let mut guise = packet.to_vec();
    if let Some([g1, g0, _, g_flags, ..]) = guise.get_mut(..12) {
        (*g1, *g0, *g_flags) = (id1, id0, *g_flags ^ flags & 0x30);
    }
    // RD is flipped as well; the name's letters change their case; a last record that is OPT gets another size.
    if let Some(octet) = guise.get_mut(2) {
        *octet ^= flags & 1;
    }
    let case = u16::from_be_bytes([case1, case0]);
    for (n, octet) in guise.iter_mut().skip(12).take_while(|octet| **octet != 0).enumerate() {
        if octet.is_ascii_alphabetic() && case >> (n % 16) & 1 == 1 {
            *octet ^= 0x20;
        }
    }
    let at_opt = guise.len().saturating_sub(11);
    if let Some([0, 0, 41, g1, g0, ..]) = guise.get_mut(at_opt..) {
        (*g1, *g0) = (size1, size0);
    }
    let mut cache = Cache::new(1 << 20);
    for packet in [packet, packet, packet, &guise, packet, &guise] {
        let cached = answer(packet, &policy, Some(&mut cache));
        let fresh = answer(packet, &policy, None);
        assert!(cached == fresh, "{}\n{cached:02x?}\n{fresh:02x?}", packet.escape_ascii());
    }
}

/// The answer as the server gives it, none for silence.
fn answer(packet: &[u8], policy: &Policy, cache: Option<&mut Cache>) -> Vec<u8> {
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    let context = Context { transport: Transport::Udp, policy, client, now: 0 };
    let mut scratch = Scratch::new(HashSeed::fixed());
    let mut out = vec![0; 4096];
    let answered = match receive(packet, &context, &mut scratch, &mut out) {
        Received::Silence => None,
        Received::Answered(answered) => Some(answered),
        Received::Query(query) => {
            let plan = plan(&query, &context, &scratch, &ZONE_SET);
            match cache {
                Some(cache) if plan.is_dear(&query) => {
                    let asked = Asked { query: &query, context: &context, generation: 1 };
                    cache.answer(&plan, &asked, &mut scratch, &mut out).map(|(answered, _)| answered)
                }
                _ => build(&plan, &query, &context, &mut scratch, &mut out),
            }
        }
    };
    out.truncate(answered.map_or(0, |answered| answered.len));
    out
}
