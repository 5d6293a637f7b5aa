//! NSEC3 hashes of names that a batch of queries will have to deny, made while its memory is on the way.

use weir_wire::name::{Folded, FoldedBuf, NameHash, QueryName};
use weir_zone::denial::{Nsec3Chain, Nsec3Hash};

/// Names with their hashes, in the order of the queries that they are for.
///
/// A hash is a function of the name alone here, since only those without salt and further iterations are kept
/// (RFC 9276 section 3.1): whoever asks for one gets the right one, whatever zones it was made for.
pub(crate) struct Hashes {
    made: Vec<Made>,
    /// How many of them were passed: queries are answered in the order in which they arrived.
    n_passed: usize,
}

struct Made {
    key: NameHash,
    name: FoldedBuf,
    hash: Nsec3Hash,
}

impl Hashes {
    /// None yet, with room for so many.
    pub(crate) fn with_capacity(n: usize) -> Hashes {
        Hashes { made: Vec::with_capacity(n), n_passed: 0 }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.made.clear();
        self.n_passed = 0;
    }

    /// The hash of a name by the parameters of `chain`, kept where there is room for it.
    pub(crate) fn make(&mut self, name: &QueryName, chain: &Nsec3Chain) -> Nsec3Hash {
        let hash = chain.hash(name.folded());
        if chain.hashes_names_alone() && self.made.len() < self.made.capacity() {
            self.made.push(Made { key: name.suffix_hash(0), name: name.folded().to_buf(), hash });
        }
        hash
    }

    /// The hash of `name`, whose hash for lookups is `key`, by the parameters of `chain`.
    pub(crate) fn of(&mut self, name: Folded<'_>, key: NameHash, chain: &Nsec3Chain) -> Nsec3Hash {
        let left = self.made.get(self.n_passed..).unwrap_or(&[]).iter();
        let is_it = |made: &Made| made.key == key && made.name.folded() == name;
        match left.enumerate().find(|(_, made)| is_it(made)) {
            Some((at, made)) if chain.hashes_names_alone() => {
                self.n_passed += at + 1;
                made.hash
            }
            _ => chain.hash(name),
        }
    }
}

#[cfg(test)]
impl Hashes {
    /// How many are kept.
    pub(crate) fn n_made(&self) -> usize {
        self.made.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::name::HashSeed;
    use weir_zone::Zone;
    use weir_zone::denial::Denial;
    use weir_zone::load::{LoadOptions, load};
    use weir_zone::text::Source;

    const SEED: HashSeed = HashSeed::fixed();

    fn zone(parameters: &str) -> Zone {
        let owner = "0".repeat(32);
        let text = format!(
            "@ SOA a b 1 2 3 4 5\n@ NS a.example.\n@ NSEC3PARAM 1 0 {parameters}\n\
             {owner} NSEC3 1 0 {parameters} {owner} A\n"
        );
        let origin = FoldedBuf::from_text("zone").unwrap();
        let source = Source::Octets("zone", text.as_bytes());
        load(source, origin.folded(), SEED, &LoadOptions::default()).unwrap().zone
    }

    fn chain(zone: &Zone) -> &Nsec3Chain {
        let Denial::Nsec3(chain) = zone.denial() else { panic!("a chain") };
        chain
    }

    #[test]
    fn a_hash_is_that_of_its_name_and_chain_whatever_was_made_before() {
        let zones = ["0 -", "3 -", "0 aabb"].map(zone);
        let named = |text: &str| {
            let mut name = QueryName::new(SEED);
            name.set(FoldedBuf::from_text(text).unwrap().folded().name(), SEED);
            name
        };
        for made_for in zones.iter().map(chain) {
            let mut hashes = Hashes::with_capacity(3);
            for text in ["a.zone", "b.zone", "c.zone", "d.zone", "e.zone", "f.zone"] {
                let _ = hashes.make(&named(text), made_for);
            }
            for text in ["b.zone", "other.zone", "a.zone", "c.zone", "f.zone"] {
                let name = named(text);
                let (folded, key) = (name.folded(), name.suffix_hash(0));
                for chain in zones.iter().map(chain) {
                    assert_eq!(hashes.of(folded, key, chain), chain.hash(folded), "{text}");
                }
            }
        }
    }
}
