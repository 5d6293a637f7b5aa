//! Random zones that mix everything that name servers answer from: hosts, cuts with every kind of glue, aliases to
//! anywhere, wildcards and empty non-terminals, up to six labels deep.
//!
//! Left out is what has no defined answer: NS and DNAME records at wildcards (RFC 4592, sections 4.2 and 4.4), and
//! records below a DNAME, which some servers refuse to load (RFC 6672, section 2.4).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::message::Name;
use crate::random::Random;

/// How a zone denies what it does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// It is not signed.
    Unsigned,
    /// NSEC.
    Nsec,
    /// NSEC3, and whether unsigned delegations are left out of the chain (RFC 5155, section 6).
    Nsec3 {
        /// Opt-out.
        opt_out: bool,
    },
}

/// A zone to serve.
#[derive(Debug, Clone)]
pub struct Generated {
    /// Its name.
    pub origin: Name,
    /// Its master file, without signatures.
    pub text: String,
    /// How it is to be signed.
    pub denial: Denial,
}

/// Labels that names are made of: few, so that names meet. Some are there to be taken for something else.
const LABELS: [&[u8]; 12] =
    [b"a", b"b", b"c", b"d", b"ns", b"www", b"*", b"*a", b"a.b", b"\x00", b"\xff\x01", b"_s"];
/// Labels between an owner and the origin, at most.
const DEPTH: usize = 6;
/// TTLs; all records of an RRset have one.
const TTLS: [u32; 4] = [0, 60, 3600, 86_400];

/// What a name owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Host,
    Alias,
    Redirection,
    Cut,
}

/// Zone number `number` of those of `seed`; the same for the same two.
pub fn generate(seed: u64, number: usize) -> Generated {
    let mixed = u64::try_from(number).expect("a usize fits in 64 bits").wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut random = Random::new(seed ^ mixed);
    let parent = *random.pick(&["test", "a.test", "b.a.test"]);
    let origin = Name::from_text(&format!("z{number}.{parent}"));
    let denial = *random.pick(&[
        Denial::Unsigned,
        Denial::Unsigned,
        Denial::Nsec,
        Denial::Nsec,
        Denial::Nsec3 { opt_out: false },
        Denial::Nsec3 { opt_out: true },
    ]);
    let mut maker = Maker {
        origin: origin.clone(),
        random,
        roles: BTreeMap::new(),
        addressed: BTreeSet::new(),
        text: String::new(),
    };
    maker.choose_roles(denial);
    maker.write();
    Generated { origin, text: maker.text, denial }
}

struct Maker {
    origin: Name,
    random: Random,
    roles: BTreeMap<Name, Role>,
    /// The names that have their addresses: several cuts may name one server.
    addressed: BTreeSet<Name>,
    text: String,
}

impl Maker {
    fn choose_roles(&mut self, denial: Denial) {
        let n_names = 6 + self.random.below(24);
        for _ in 0..n_names {
            let owner = self.owner();
            let role = match self.random.below(16) {
                0..4 => Role::Alias,
                4..6 => Role::Redirection,
                6..9 => Role::Cut,
                _ => Role::Host,
            };
            let is_undefined = owner.is_wildcard() && matches!(role, Role::Redirection | Role::Cut);
            if !is_undefined && owner.fits() {
                self.roles.entry(owner).or_insert(role);
            }
        }
        // NSEC3 for a name that is too long to have a wildcard below it ends NSD 4.6.1 and dnssec-signzone.
        if !matches!(denial, Denial::Nsec3 { .. }) && self.random.one_in(8) {
            let longest = self.longest();
            self.roles.insert(longest, Role::Host);
        }
        // Nothing stands below a DNAME.
        let redirections: BTreeSet<Name> = self.with_role(Role::Redirection).collect();
        self.roles
            .retain(|name, _| !redirections.iter().any(|above| name != above && name.is_at_or_below(above)));
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = Name> + '_ {
        self.roles.iter().filter(move |(_, other)| **other == role).map(|(name, _)| name.clone())
    }

    /// A name some labels below one that is there already, which makes empty non-terminals of those between.
    fn owner(&mut self) -> Name {
        let known: Vec<Name> = self.roles.keys().cloned().collect();
        let mut name = match known.len() {
            0 => self.origin.clone(),
            n if self.random.one_in(2) => known[self.random.below(n)].clone(),
            _ => self.origin.clone(),
        };
        for _ in 0..=self.random.below(2) {
            if name.0.len() < self.origin.0.len() + DEPTH {
                name = name.child(self.label());
            }
        }
        if name == self.origin { name.child(b"a") } else { name }
    }

    fn label(&mut self) -> &'static [u8] {
        LABELS[self.random.below(LABELS.len())]
    }

    /// A name of 255 octets.
    fn longest(&self) -> Name {
        let mut name = self.origin.clone();
        while name.wire_len() < 255 {
            let room = 255 - name.wire_len();
            // A label takes an octet more than it has; one that would leave a single octet is made shorter.
            let length = if room == 65 { 62 } else { (room - 1).min(63) };
            name = name.child(&vec![b'l'; length]);
        }
        name
    }

    fn write(&mut self) {
        let (soa_ttl, minimum) = (*self.random.pick(&TTLS), *self.random.pick(&TTLS));
        let origin = self.origin.clone();
        let _ = writeln!(
            self.text,
            "{origin} {soa_ttl} IN SOA ns1.{origin} host.{origin} 1 7200 1800 86400 {minimum}"
        );
        self.record(&origin, 3600, "NS", "ns.elsewhere.invalid.");
        if self.random.one_in(2) {
            self.host(&origin, true);
        }
        if self.random.one_in(16) {
            // At the apex it leaves room for nothing else.
            self.record(&origin, 60, "DNAME", "www.elsewhere.invalid.");
            return;
        }
        self.record(&origin, 3600, "NS", &format!("ns1.{origin}"));
        self.record(&origin.child(b"ns1"), 3600, "A", "192.0.2.1");
        for (name, role) in self.roles.clone() {
            match role {
                Role::Host => self.host(&name, false),
                Role::Alias | Role::Redirection => {
                    let (ttl, target) = (*self.random.pick(&TTLS), self.target());
                    let rtype = if role == Role::Alias { "CNAME" } else { "DNAME" };
                    self.record(&name, ttl, rtype, &target.to_string());
                    if role == Role::Redirection && self.random.one_in(2) {
                        self.host(&name, true);
                    }
                }
                Role::Cut => self.cut(&name),
            }
        }
    }

    /// A cut with name servers inside of it, beside it, above it, outside, and some that have no address at all.
    fn cut(&mut self, name: &Name) {
        let ttl = *self.random.pick(&TTLS);
        let mut servers = BTreeSet::new();
        for _ in 0..=self.random.below(4) {
            let others: Vec<Name> = self.with_role(Role::Cut).collect();
            let server = match self.random.below(7) {
                0 => name.clone(),
                1 | 2 => name.child(self.label()),
                3 => name.child(b"deep").child(b"ns"),
                4 => others[self.random.below(others.len())].child(b"ns"),
                5 => self.origin.child(b"ns1"),
                _ => self.target(),
            };
            if server.fits() {
                servers.insert(server);
            }
        }
        for server in &servers {
            self.record(name, ttl, "NS", &server.to_string());
            let cut_above = self.with_role(Role::Cut).find(|cut| server.is_at_or_below(cut));
            let is_redirected = self.with_role(Role::Redirection).any(|dname| server.is_at_or_below(&dname));
            let is_glue = cut_above.is_some() && !self.roles.contains_key(server) && !is_redirected;
            let is_glue = is_glue || server == name;
            if is_glue && !self.random.one_in(4) {
                self.addresses(server);
            }
        }
        if self.random.one_in(2) {
            let digest = "ab".repeat(32);
            let octet = self.random.octet();
            self.record(name, ttl, "DS", &format!("{octet} 13 2 {digest}"));
        }
        if self.random.one_in(8) {
            // Occluded: neither glue nor answered.
            let below = name.child(b"hidden");
            let is_redirected = self.with_role(Role::Redirection).any(|dname| below.is_at_or_below(&dname));
            if below.fits() && !is_redirected {
                self.record(&below, 60, "TXT", "\"occluded\"");
            }
        }
    }

    fn addresses(&mut self, name: &Name) {
        if !self.addressed.insert(name.clone()) {
            return;
        }
        let ttl = *self.random.pick(&TTLS);
        for n in 0..=self.random.below(3) {
            let octet = self.random.octet();
            self.record(name, ttl, "A", &format!("198.51.{octet}.{n}"));
        }
        if self.random.one_in(2) {
            for n in 0..=self.random.below(3) {
                let octet = self.random.octet();
                self.record(name, ttl, "AAAA", &format!("2001:db8::{octet:x}:{n}"));
            }
        }
    }

    fn host(&mut self, name: &Name, is_beside_others: bool) {
        let n_types = 1 + self.random.below(4);
        let has_addresses = !is_beside_others && self.random.one_in(2);
        for kind in usize::from(!has_addresses)..12 {
            // Each type once, so that its records have one TTL.
            if kind == 0 || self.random.below(12) < n_types {
                self.rrset(name, kind);
            }
        }
        // A host owns something, or it would be none.
        self.record(name, 300, "TXT", "\"host\"");
    }

    fn rrset(&mut self, name: &Name, kind: usize) {
        let ttl = *self.random.pick(&TTLS);
        for n in 0..=self.random.below(3) {
            let target = self.target();
            let octet = self.random.octet();
            match kind {
                0 => return self.addresses(name),
                1 => self.record(name, ttl, "MX", &format!("{n} {target}")),
                2 => self.record(name, ttl, "AFSDB", &format!("{n} {target}")),
                3 => self.record(name, ttl, "SRV", &format!("{n} 1 {octet} {target}")),
                4 => return self.record(name, ttl, "PTR", &target.to_string()),
                5 => self.record(
                    name,
                    ttl,
                    "HINFO",
                    &format!("\"{}\" \"{octet}\"", "c".repeat(usize::from(octet))),
                ),
                6 => self.record(name, ttl, "CAA", &format!("{n} issue \"ca{octet}.example\"")),
                7 => self.record(name, ttl, "NAPTR", &format!("{n} 1 \"u\" \"E2U+sip\" \"\" {target}")),
                8 => {
                    self.record(name, ttl, "SPF", &format!("\"{}\"", "long ".repeat(usize::from(octet) / 6)));
                }
                9 => self.record(name, ttl, "TYPE65400", &format!("\\# 3 0000{octet:02x}")),
                // Some tools of the time do not know these types by their names.
                10 => self.service(name, ttl, "TYPE64", n, &target),
                _ => self.service(name, ttl, "TYPE65", n, &target),
            }
        }
    }

    fn service(&mut self, name: &Name, ttl: u32, rtype: &str, priority: usize, target: &Name) {
        let wire = target.to_wire();
        let mut data = format!("\\# {} {:04x}", 2 + wire.len(), priority + 1);
        for octet in wire {
            let _ = write!(data, "{octet:02x}");
        }
        self.record(name, ttl, rtype, &data);
    }

    /// A name for RDATA: one that is there, below one that is there, nowhere, or outside.
    fn target(&mut self) -> Name {
        let known: Vec<Name> = self.roles.keys().cloned().collect();
        let pick = |random: &mut Random| match known.len() {
            0 => Name::from_text("nowhere.invalid"),
            n => known[random.below(n)].clone(),
        };
        let name = match self.random.below(10) {
            0..5 => pick(&mut self.random),
            5..7 => pick(&mut self.random).child(self.label()),
            7 => self.origin.clone(),
            8 => self.origin.child(b"ns1"),
            _ => Name::from_text("www.elsewhere.invalid"),
        };
        if name.fits() { name } else { self.origin.clone() }
    }

    fn record(&mut self, owner: &Name, ttl: u32, rtype: &str, data: &str) {
        let _ = writeln!(self.text, "{owner} {ttl} IN {rtype} {data}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_zones_and_another_one_others() {
        assert_eq!(generate(1, 5).text, generate(1, 5).text);
        assert_ne!(generate(1, 5).text, generate(2, 5).text);
    }

    #[test]
    fn every_kind_of_record_and_signing_is_made() {
        let zones: Vec<Generated> = (0..200).map(|number| generate(7, number)).collect();
        for word in [" CNAME ", " DNAME ", " DS ", " NS ", " TYPE64 ", "*.", "\\000", "occluded"] {
            assert!(zones.iter().any(|zone| zone.text.contains(word)), "no zone has {word:?}");
        }
        for opt_out in [true, false] {
            assert!(zones.iter().any(|zone| zone.denial == Denial::Nsec3 { opt_out }));
        }
    }

    #[test]
    fn the_longest_name_has_255_octets() {
        for number in [1, 22, 333, 4444] {
            let origin = Name::from_text(&format!("z{number}.b.a.test"));
            let maker = Maker {
                origin,
                random: Random::new(1),
                roles: BTreeMap::new(),
                addressed: BTreeSet::new(),
                text: String::new(),
            };
            assert_eq!(maker.longest().wire_len(), 255);
            assert!(maker.longest().fits());
        }
    }
}
