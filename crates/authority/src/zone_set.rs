//! All zones that a server answers for, found by the longest suffix of a name.

use std::sync::Arc;
use weir_wire::name::{Folded, FoldedArc, HashSeed, NameHash, QueryName};
use weir_zone::Zone;
use weir_zone::index::HashIndex;

/// What the second-level cache of a processor holds of zones beside all else: half a megabyte is common there.
const CACHED_OCTETS: usize = 256 << 10;

/// What a zone of the set is good for.
#[derive(Clone, Debug)]
pub enum ZoneState {
    /// It answers.
    Ready(Arc<Zone>),
    /// It is being loaded: SERVFAIL.
    Loading,
    /// Its data are unusable: SERVFAIL.
    Broken,
}

#[derive(Debug)]
struct Entry {
    origin: FoldedArc,
    state: ZoneState,
}

impl Entry {
    /// The zone's name; that of a zone that is ready stands in it, where the lookup goes on.
    #[inline]
    fn origin(&self) -> Folded<'_> {
        match &self.state {
            ZoneState::Ready(zone) => zone.origin(),
            ZoneState::Loading | ZoneState::Broken => self.origin.folded(),
        }
    }
}

/// An immutable set of zones; a change of any zone makes a new set with the next generation.
#[derive(Debug)]
pub struct ZoneSet {
    seed: HashSeed,
    generation: u64,
    entries: Vec<Entry>,
    index: HashIndex,
    /// Most labels of an origin.
    max_depth: usize,
    /// Octets of all zones that answer.
    octets: usize,
}

/// A zone of the set and how much of the name stands in front of its origin.
#[derive(Clone, Copy, Debug)]
pub struct Found<'s> {
    /// The zone.
    pub state: &'s ZoneState,
    /// Labels of the name in front of the zone's origin.
    pub origin_skip: usize,
}

impl ZoneSet {
    /// A set of no zones.
    pub fn empty(seed: HashSeed) -> ZoneSet {
        ZoneSetBuilder::new(seed).finish(0)
    }

    /// The seed that its zones and its readers' scratch are made with.
    pub fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Tells this set from the ones before and after it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The zones by origin, in the order they were added.
    pub fn zones(&self) -> impl ExactSizeIterator<Item = (&FoldedArc, &ZoneState)> {
        self.entries.iter().map(|entry| (&entry.origin, &entry.state))
    }

    /// The zone with the longest origin that `name` is at or below, of those with at least `first_skip` labels of
    /// the name in front (RFC 1034 section 4.3.2 step 2).
    #[inline]
    pub fn find(&self, name: &QueryName, first_skip: usize) -> Option<Found<'_>> {
        let first_skip = first_skip.max(name.n_labels().saturating_sub(self.max_depth));
        (first_skip..name.n_labels() + 1).find_map(|skip| self.find_origin(name, skip))
    }

    #[inline]
    fn find_origin(&self, name: &QueryName, skip: usize) -> Option<Found<'_>> {
        let suffix = name.suffix(skip);
        let number = self.index.find(name.suffix_hash(skip), |number| {
            self.entry(number).is_some_and(|entry| entry.origin() == suffix)
        })?;
        Some(Found { state: &self.entry(number)?.state, origin_skip: skip })
    }

    /// Most labels of an origin.
    pub(crate) fn max_depth(&self) -> usize {
        self.max_depth
    }

    /// Whether the zones are too large for a processor's caches.
    pub(crate) fn is_large(&self) -> bool {
        self.octets > CACHED_OCTETS
    }

    /// The number of a zone whose origin has one of these hashes, very probably; 0 for none. Loads the slots alone.
    #[inline]
    pub(crate) fn probable_entry(&self, origins: &[NameHash]) -> u32 {
        origins.iter().find_map(|&origin| self.index.find(origin, |_| true)).unwrap_or(0)
    }

    /// The zone of an entry, if it answers.
    #[inline]
    pub(crate) fn zone_of(&self, number: u32) -> Option<&Zone> {
        match &self.entry(number)?.state {
            ZoneState::Ready(zone) => Some(zone),
            ZoneState::Loading | ZoneState::Broken => None,
        }
    }

    /// Entries are numbered from 1: 0 marks an empty slot of the index.
    fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }
}

/// Collects the zones of a set.
#[derive(Debug)]
pub struct ZoneSetBuilder {
    seed: HashSeed,
    entries: Vec<Entry>,
}

impl ZoneSetBuilder {
    /// A set of zones that were built with this seed.
    pub fn new(seed: HashSeed) -> ZoneSetBuilder {
        ZoneSetBuilder { seed, entries: Vec::new() }
    }

    /// Adds a zone by its name; the caller adds each once (of two, the first would answer).
    pub fn add(&mut self, origin: impl Into<FoldedArc>, state: ZoneState) {
        self.entries.push(Entry { origin: origin.into(), state });
    }

    /// The set, with the number that tells it from others.
    pub fn finish(self, generation: u64) -> ZoneSet {
        let mut index = HashIndex::with_capacity(self.entries.len());
        let mut max_depth = 0;
        for (number, entry) in (1..).zip(&self.entries) {
            let origin = entry.origin.folded();
            index.insert(self.seed.hash(origin), number);
            max_depth = max_depth.max(origin.name().n_labels());
        }
        let octets = self.entries.iter().map(|entry| match &entry.state {
            ZoneState::Ready(zone) => zone.octets(),
            ZoneState::Loading | ZoneState::Broken => 0,
        });
        let octets = octets.sum();
        ZoneSet { seed: self.seed, generation, entries: self.entries, index, max_depth, octets }
    }
}
