//! What to ask of a zone: every owner and type, and names below, beside and between the owners.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::message::{Name, Query, Record};
use crate::random::Random;

/// Types that are asked for whether or not the zone has them: A NS CNAME SOA PTR HINFO MX TXT AAAA SRV DNAME DS NSEC
/// DNSKEY CAA, one that nobody has assigned, and the last one of those for private use.
const ALWAYS: [u16; 17] = [1, 2, 5, 6, 12, 13, 15, 16, 28, 33, 39, 43, 47, 48, 257, 4321, 65_534];

/// A zone as a set of records, for those who ask about it and judge the answers.
#[derive(Debug)]
pub struct Zone {
    /// The name of the zone.
    pub origin: Name,
    records: HashSet<Record>,
    /// Every name that exists, empty non-terminals included, with the types that it owns.
    nodes: BTreeMap<Name, BTreeSet<u16>>,
    /// The A and AAAA records of each name.
    addresses: BTreeMap<Name, Vec<Record>>,
    /// Where DNAMEs lead from and to.
    dnames: Vec<(Name, Name)>,
}

impl Zone {
    /// The zone made of the records of a transfer.
    pub fn new(origin: Name, records: Vec<Record>) -> Self {
        let mut nodes: BTreeMap<Name, BTreeSet<u16>> = BTreeMap::new();
        let mut dnames = Vec::new();
        let mut addresses: BTreeMap<Name, Vec<Record>> = BTreeMap::new();
        for record in &records {
            nodes.entry(record.owner.clone()).or_default().insert(record.rtype);
            let mut above = record.owner.clone();
            while above != origin {
                above = above.parent();
                nodes.entry(above.clone()).or_default();
            }
            if matches!(record.rtype, 1 | 28) {
                addresses.entry(record.owner.clone()).or_default().push(record.clone());
            }
            if record.rtype == 39 {
                dnames.push((record.owner.clone(), target(&record.rdata)));
            }
        }
        Zone { origin, records: records.into_iter().collect(), nodes, addresses, dnames }
    }

    /// True if the zone has this record, TTL and all, or a wildcard that makes it (RFC 4592, section 3.3.1).
    pub fn holds(&self, record: &Record) -> bool {
        let mut encloser = record.owner.clone();
        while !self.exists(&encloser) && encloser != self.origin {
            encloser = encloser.parent();
        }
        let is_made = encloser != record.owner;
        let source = if is_made { encloser.child(b"*") } else { encloser };
        self.records.contains(&Record { owner: source, ..record.clone() })
    }

    /// The addresses that the zone holds for a name, glue included.
    pub fn addresses(&self, name: &Name) -> impl Iterator<Item = &Record> {
        self.addresses.get(name).into_iter().flatten()
    }

    /// True if the name owns records of this type.
    pub fn has_type(&self, name: &Name, rtype: u16) -> bool {
        self.nodes.get(name).is_some_and(|types| types.contains(&rtype))
    }

    /// True if the name owns records of any type.
    pub fn owns_any(&self, name: &Name) -> bool {
        self.nodes.get(name).is_some_and(|types| !types.is_empty())
    }

    /// True if the name exists, if only because there are names below it.
    pub fn exists(&self, name: &Name) -> bool {
        self.nodes.contains_key(name)
    }

    /// The longest ancestor of a name that exists, or the name itself (RFC 4592, section 3.3.1).
    pub fn closest_encloser(&self, name: &Name) -> Name {
        let mut encloser = name.clone();
        while !self.exists(&encloser) && !encloser.0.is_empty() {
            encloser = encloser.parent();
        }
        encloser
    }

    /// True if there is a name right below `encloser` that sorts before the wildcard there.
    pub fn has_child_before_wildcard(&self, encloser: &Name) -> bool {
        self.nodes
            .keys()
            .any(|node| node.parent() == *encloser && node.0.first().is_some_and(|l| &l[..] < b"*"))
    }

    /// True if the name is below a DNAME whose target is below it as well.
    pub fn is_below_growing_dname(&self, name: &Name) -> bool {
        let mut dnames = self.dnames.iter();
        dnames.any(|(owner, target)| name.is_at_or_below(owner) && target.is_at_or_below(owner))
    }

    /// The highest delegation point at or above a name, the apex not counted.
    pub fn cut_above(&self, name: &Name) -> Option<Name> {
        let mut cut = None;
        let mut at = name.clone();
        while at.is_at_or_below(&self.origin) && at != self.origin {
            if self.has_type(&at, 2) {
                cut = Some(at.clone());
            }
            at = at.parent();
        }
        cut
    }

    fn types(&self) -> BTreeSet<u16> {
        self.nodes.values().flatten().copied().chain(ALWAYS).collect()
    }
}

/// How much is asked of a zone.
#[derive(Debug, Clone, Copy)]
pub enum Depth {
    /// Every type for every name; for small zones.
    Exhaustive,
    /// What each name owns and so many types more, drawn anew for each name; and of the names that do not exist one in
    /// four. For large zones.
    Sampled(usize),
}

/// The questions for a zone, the same ones for the same seed.
pub fn questions(zone: &Zone, depth: Depth, seed: u64) -> Vec<Query> {
    let mut random = Random::new(seed);
    let types: Vec<u16> = zone.types().into_iter().collect();
    let mut queries = Vec::new();
    for name in names(zone, &mut random) {
        let own = zone.nodes.get(&name);
        if own.is_none() && matches!(depth, Depth::Sampled(_)) && !random.one_in(4) {
            continue;
        }
        let chosen = match depth {
            Depth::Exhaustive => types.clone(),
            Depth::Sampled(n) => {
                // What the name owns is always asked for, as it is what answers are made of.
                let drawn: BTreeSet<u16> = (0..n).map(|_| *random.pick(&types)).collect();
                drawn
                    .into_iter()
                    .chain(own.into_iter().flatten().copied())
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect()
            }
        };
        queries.extend(chosen.into_iter().map(|rtype| spelled(zone, name.clone(), rtype, &mut random)));
        // Every existing name is asked for with each buffer size, as that is where answers are long.
        if own.is_some_and(|types| !types.is_empty()) {
            for edns in [None, Some(512), Some(1232), Some(4096)] {
                queries.push(Query { edns, ..Query::new(name.clone(), *random.pick(&types)) });
            }
        }
    }
    queries
}

/// A question in a case and with a buffer size that chance decides; of a signed zone half of them with DO.
fn spelled(zone: &Zone, name: Name, rtype: u16, random: &mut Random) -> Query {
    let edns = *random.pick(&[None, Some(512), Some(1232), Some(1232), Some(4096)]);
    let case = if random.one_in(2) { 0 } else { random.next_u64() };
    let is_signed = zone.has_type(&zone.origin, 48);
    Query { name, rtype, edns, dnssec_ok: is_signed && edns.is_some() && random.one_in(2), case }
}

fn names(zone: &Zone, random: &mut Random) -> BTreeSet<Name> {
    let mut names: BTreeSet<Name> = outside(&zone.origin).into_iter().collect();
    for node in zone.nodes.keys() {
        names.insert(node.clone());
        names.insert(node.child(b"below"));
        names.insert(node.child(&label(random)).child(&label(random)));
        names.insert(node.child(b"*"));
        if *node != zone.origin {
            names.extend(beside(node, random));
        }
        if node.is_wildcard() {
            names.extend(expansions(&node.parent(), random));
        }
    }
    for (owner, target) in &zone.dnames {
        names.extend(renamed(zone, owner, target));
    }
    names.retain(Name::fits);
    names
}

/// Names with the same parent that sort right before and after a node, and ones that only look like it.
fn beside(node: &Name, random: &mut Random) -> Vec<Name> {
    let (parent, first) = (node.parent(), &node.0[0]);
    let mut labels = vec![[first, &b"0"[..]].concat(), [&b"-"[..], first].concat(), label(random)];
    let mut before = first.clone();
    if let Some(last) = before.last_mut() {
        *last = last.wrapping_sub(1).to_ascii_lowercase();
    }
    labels.push(before.clone());
    before.push(b'~');
    labels.push(before);
    if first.len() > 1 {
        labels.push(first[..first.len() - 1].to_vec());
    }
    // A dot inside a label is not a boundary.
    labels.push([first, &b".x"[..]].concat());
    labels.iter().map(|l| parent.child(l)).collect()
}

/// Names that a wildcard below `encloser` makes, and some that only look like it.
fn expansions(encloser: &Name, random: &mut Random) -> Vec<Name> {
    let one = encloser.child(&label(random));
    let two = one.child(&label(random));
    let below_the_asterisk = encloser.child(b"*").child(&label(random));
    let asterisk_twice = encloser.child(b"*").child(b"*");
    let long = one.child(&[b'l'; 63]);
    vec![
        one,
        two,
        below_the_asterisk,
        asterisk_twice,
        long,
        encloser.child(b"**"),
        encloser.child(b"\x00\xff\x80"),
    ]
}

/// Names below a DNAME: for everything below its target, and some that grow too long by it (RFC 6672, section 2.2).
fn renamed(zone: &Zone, owner: &Name, target: &Name) -> Vec<Name> {
    let below = zone.nodes.keys().filter(|n| n.is_at_or_below(target) && *n != target);
    let moved = below.map(|n| Name([&n.0[..n.0.len() - target.0.len()], &owner.0[..]].concat()));
    let mut names: Vec<Name> = moved.collect();
    let mut long = owner.clone();
    while long.child(&[b'd'; 63]).fits() {
        long = long.child(&[b'd'; 63]);
    }
    // 62 octets more reach the limit for the shortest of targets; every fifth length is enough to cross each one's.
    for filler in (2..=62).step_by(5) {
        names.push(long.child(&vec![b'e'; filler]));
    }
    names
}

/// Names that the zone does not hold: above it, beside it, and elsewhere.
fn outside(origin: &Name) -> Vec<Name> {
    let parent = origin.parent();
    let mut names =
        vec![origin.clone(), parent.clone(), Name::default(), Name::from_text("elsewhere.invalid")];
    if let Some(first) = origin.0.first() {
        names.push(parent.child(&[first, &b"x"[..]].concat()));
        names.push(parent.child(&[&b"x"[..], first].concat()));
    }
    names
}

/// A label of 3 to 10 letters.
fn label(random: &mut Random) -> Vec<u8> {
    let length = 3 + random.below(8);
    (0..length).map(|_| b'a' + random.octet() % 26).collect()
}

/// The name that RDATA in plain form consists of.
pub fn target(rdata: &[u8]) -> Name {
    let mut labels = Vec::new();
    let mut rest = rdata;
    while let [length @ 1..=63, after @ ..] = rest {
        let (label, more) = after.split_at(usize::from(*length));
        labels.push(label.to_vec());
        rest = more;
    }
    Name(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(owner: &str, rtype: u16) -> Record {
        Record { owner: Name::from_text(owner), rtype, class: 1, ttl: 1, rdata: vec![0] }
    }

    #[test]
    fn empty_non_terminals_are_asked_for_as_well() {
        let zone = Zone::new(Name::from_text("test"), vec![record("test", 6), record("a.b.test", 1)]);
        assert!(zone.exists(&Name::from_text("b.test")));
        let asked = questions(&zone, Depth::Sampled(1), 1);
        assert!(asked.iter().any(|q| q.name == Name::from_text("b.test")));
    }

    #[test]
    fn the_same_seed_asks_the_same() {
        let zone = Zone::new(Name::from_text("test"), vec![record("test", 6), record("*.test", 1)]);
        assert_eq!(questions(&zone, Depth::Exhaustive, 7), questions(&zone, Depth::Exhaustive, 7));
        assert_ne!(questions(&zone, Depth::Exhaustive, 7), questions(&zone, Depth::Exhaustive, 8));
    }

    #[test]
    fn the_cut_above_is_the_highest() {
        let records = vec![record("t", 6), record("t", 2), record("a.t", 2), record("b.a.t", 2)];
        let zone = Zone::new(Name::from_text("t"), records);
        assert_eq!(zone.cut_above(&Name::from_text("x.b.a.t")), Some(Name::from_text("a.t")));
        assert_eq!(zone.cut_above(&Name::from_text("t")), None);
    }
}
