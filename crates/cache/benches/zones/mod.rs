//! Zones and questions for measurements: made here, so that nothing has to be signed or read first. Signatures are
//! of the size of ECDSA's and mean nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha1::{Digest, Sha1};
use weir_authority::{ZoneSet, ZoneSetBuilder, ZoneState};
use weir_wire::name::{FoldedBuf, HashSeed, Name, NameBuf};
use weir_wire::query;
use weir_wire::rtype::{Class, Rtype};
use weir_zone::ZoneBuilder;

/// The seed of the zones and of what is looked up in them.
pub(crate) const SEED: HashSeed = HashSeed::fixed();
/// Position of the OPT record's flags from the end of a query.
const FLAGS_FROM_END: usize = 4;

/// How a zone denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// It is not signed.
    Unsigned,
    /// By NSEC records.
    Nsec,
    /// By NSEC3 records without salt and iterations (RFC 9276).
    Nsec3,
}

/// A name from its text.
pub(crate) fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).expect("the names here are well formed")
}

fn rdata_name(text: &str) -> Vec<u8> {
    name(text).name().octets().to_vec()
}

/// A query with an EDNS record.
pub(crate) fn query(asked: &str, qtype: Rtype, dnssec_ok: bool) -> Vec<u8> {
    let mut packet = vec![0; 512];
    let len = query::write(&mut packet, 1, name(asked).name(), qtype, Some(1232)).expect("it fits");
    packet.truncate(len);
    if dnssec_ok {
        packet[len - FLAGS_FROM_END] |= 0x80;
    }
    packet
}

/// The set of one zone, `example`, with `n_hosts` names `h0`, `h1` and so on that have an address each; a hundredth
/// as many delegations `cut0`... with two servers and delegations `wide0`... with thirteen, aliases `alias0`... of
/// hosts, chains of eight aliases `chain0`..., and a wildcard `*.wild`.
pub(crate) fn zones(n_hosts: u32, denial: Denial) -> ZoneSet {
    let origin = FoldedBuf::from_text("example").expect("a name");
    let mut records = records(n_hosts);
    if denial != Denial::Unsigned {
        sign(&mut records, denial);
    }
    let mut builder = ZoneBuilder::new(origin.folded(), Class::IN, SEED);
    for (owner, rtype, rdata) in &records {
        builder.add(name(owner).name(), *rtype, 3600, rdata, 0).expect("owners lie in the zone");
    }
    let (zone, _) = builder.finish().expect("the zone is whole");
    let mut set = ZoneSetBuilder::new(SEED);
    set.add(origin, ZoneState::Ready(Arc::new(zone)));
    set.finish(1)
}

type Record = (String, Rtype, Vec<u8>);

fn records(n_hosts: u32) -> Vec<Record> {
    let mut records = Vec::new();
    let mut add = |owner: String, rtype, rdata: Vec<u8>| records.push((owner, rtype, rdata));
    let soa = [rdata_name("ns.example"), rdata_name("mail.example"), vec![0; 20]].concat();
    add("example".to_owned(), Rtype::SOA, soa);
    add("example".to_owned(), Rtype::NS, rdata_name("ns.example"));
    add("ns.example".to_owned(), Rtype::A, vec![192, 0, 2, 1]);
    add("wild.example".to_owned(), Rtype::A, vec![192, 0, 2, 3]);
    add("*.wild.example".to_owned(), Rtype::A, vec![192, 0, 2, 4]);
    for number in 0..n_hosts {
        add(format!("h{number}.example"), Rtype::A, number.to_be_bytes().to_vec());
    }
    for number in 0..n_hosts / 100 {
        for (cut, n_servers) in [(format!("cut{number}.example"), 2), (format!("wide{number}.example"), 13)] {
            for server in (1..=n_servers).map(|server| format!("ns{server}.{cut}")) {
                add(cut.clone(), Rtype::NS, rdata_name(&server));
                add(server.clone(), Rtype::A, vec![192, 0, 2, 2]);
                add(server, Rtype::AAAA, vec![2; 16]);
            }
        }
        let host = format!("h{number}.example");
        add(format!("alias{number}.example"), Rtype::CNAME, rdata_name(&host));
        for link in 0..8 {
            let owner = if link == 0 { format!("chain{number}.example") } else { link_of(number, link) };
            let target = if link == 7 { host.clone() } else { link_of(number, link + 1) };
            add(owner, Rtype::CNAME, rdata_name(&target));
        }
    }
    records
}

fn link_of(number: u32, link: u32) -> String {
    format!("link{link}-{number}.example")
}

/// Adds signatures and the records that deny. Names of the zone have one label in front of the origin; what has more
/// lies below a cut or is the wildcard.
fn sign(records: &mut Vec<Record>, denial: Denial) {
    let mut types: BTreeMap<String, Vec<Rtype>> = BTreeMap::new();
    let glue = |owner: &str| owner.split('.').count() > 2 && !owner.starts_with('*');
    for (owner, rtype, _) in records.iter().filter(|(owner, ..)| !glue(owner)) {
        let types = types.entry(owner.clone()).or_default();
        if !types.contains(rtype) {
            types.push(*rtype);
        }
    }
    if denial == Denial::Nsec3 {
        let parameters = vec![1, 0, 0, 0, 0];
        records.push(("example".to_owned(), Rtype::NSEC3PARAM, parameters));
        types.entry("example".to_owned()).or_default().push(Rtype::NSEC3PARAM);
    }
    for (owner, types) in &types {
        let is_cut = owner != "example" && types.contains(&Rtype::NS);
        for &rtype in types.iter().filter(|_| !is_cut) {
            records.push((owner.clone(), Rtype::RRSIG, signature(owner, rtype)));
        }
    }
    let owners: Vec<String> = types.into_keys().collect();
    for (owner, rtype, rdata) in if denial == Denial::Nsec { nsec(owners) } else { nsec3(&owners) } {
        records.push((owner.clone(), Rtype::RRSIG, signature(&owner, rtype)));
        records.push((owner, rtype, rdata));
    }
}

/// RRSIG RDATA of the size that algorithm 13 has (RFC 4034 section 3.1).
fn signature(owner: &str, covered: Rtype) -> Vec<u8> {
    let labels = owner.split('.').filter(|label| *label != "*").count();
    let fixed = [&covered.0.to_be_bytes()[..], &[13, u8::try_from(labels).expect("few")], &[0; 14]].concat();
    [fixed, rdata_name("example"), vec![7; 64]].concat()
}

/// A bitmap of A, RRSIG and NSEC or NSEC3; nobody reads it.
const BITMAP: [u8; 9] = [0, 7, 0x40, 0, 0, 0, 0, 3, 0x20];

fn nsec(mut owners: Vec<String>) -> Vec<Record> {
    // Canonical order (RFC 4034 section 6.1): by labels from the right.
    owners.sort_by_cached_key(|owner| owner.split('.').rev().map(str::to_owned).collect::<Vec<_>>());
    let next = owners.iter().skip(1).chain(owners.first());
    let rdata = next.map(|next| [&rdata_name(next)[..], &BITMAP].concat());
    owners.iter().cloned().zip(rdata).map(|(owner, rdata)| (owner, Rtype::NSEC, rdata)).collect()
}

fn nsec3(owners: &[String]) -> Vec<Record> {
    let mut hashes: Vec<[u8; 20]> =
        owners.iter().map(|owner| Sha1::digest(rdata_name(owner)).into()).collect();
    hashes.sort_unstable();
    let next = hashes.iter().skip(1).chain(hashes.first());
    let rdata = next.map(|next| [&[1, 0, 0, 0, 0, 20][..], next, &BITMAP].concat());
    let owner = |hash: &[u8; 20]| format!("{}.example", base32hex(hash));
    hashes.iter().map(owner).zip(rdata).map(|(owner, rdata)| (owner, Rtype::NSEC3, rdata)).collect()
}

/// RFC 4648 section 7, without padding: hashes need none.
fn base32hex(octets: &[u8]) -> String {
    let digit = |value: u64| char::from(b"0123456789abcdefghijklmnopqrstuv"[(value & 31) as usize]);
    let word = |chunk: &[u8]| chunk.iter().fold(0u64, |word, octet| word << 8 | u64::from(*octet));
    octets.chunks(5).flat_map(|chunk| (0..8).rev().map(move |n| digit(word(chunk) >> (5 * n)))).collect()
}
