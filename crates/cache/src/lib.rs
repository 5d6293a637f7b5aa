//! The answer cache: one a worker, so that no two cores ever meet in it.
//!
//! Reading order: [`Cache::answer`] is the way of a query; `front` is a table of what was asked for lately, with a
//! place for each hash; `shard` is a moka cache behind it, for answers that lost their place and are dear enough for
//! its price.
//!
//! What is worth a look here at all is decided by the lookup (`Plan::is_dear`). What is kept is decided by what is
//! asked: the first time an answer is built and forgotten, and only a name that comes again before another one has
//! come to its place is kept. A flood of names that are asked for once passes by and leaves everything as it was.
//!
//! invariant: an answer from here equals the one that would be built, octet for octet. Entries carry the generation
//! of their zone set in their key, so that a reload needs no purge: old ones are asked for no longer, and give way.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod front;
mod shard;

use weir_authority::cached::{Key, Stored};
use weir_authority::{Answered, Context, Plan, Scratch};
use weir_wire::query::Query;

use front::{Front, Verdict};
use shard::Shard;

/// The front's part of a cache's octets, as a divisor. An answer there costs a quarter of one in the shard, but a front
/// that does not stay in the processor's second cache loses that lead.
const FRONT_DIVISOR: u64 = 4;

/// Answers of one worker.
pub struct Cache {
    front: Front,
    shard: Shard,
}

/// What a look-up needs to know of the query besides its plan.
#[derive(Clone, Copy)]
pub struct Asked<'a, 'p> {
    /// The query.
    pub query: &'a Query<'p>,
    /// How it came, and the settings that shape its answer.
    pub context: &'a Context<'a>,
    /// The generation of the zone set that it is answered from.
    pub generation: u64,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table in front.
    Front,
    /// The shard behind it.
    Shard,
    /// It was built.
    Built,
}

/// What a cache holds, and how much had to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Answers.
    pub n_entries: u64,
    /// Octets, what keeps them in place counted.
    pub n_octets: u64,
    /// Answers that gave way to others since the start.
    pub n_evicted: u64,
}

impl Cache {
    /// A cache of up to `max_octets`.
    pub fn new(max_octets: u64) -> Cache {
        let front_octets = max_octets / FRONT_DIVISOR;
        Cache { front: Front::new(front_octets), shard: Shard::new(max_octets - front_octets) }
    }

    /// Writes the answer that was planned into `out`, from the cache if it is there, and says where it came from.
    pub fn answer(
        &mut self,
        plan: &Plan<'_>,
        asked: &Asked<'_, '_>,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Option<(Answered, Origin)> {
        let Asked { query, context, generation } = *asked;
        let key = Key::new(query, scratch, generation);
        let hash = key.hash();
        // What is too long for this client is built anew, and truncated.
        if let Some(stored) = self.front.find(&key)
            && let Some(answered) = stored.replay(plan, query, context, scratch, out)
        {
            return Some((answered, Origin::Front));
        }
        let verdict = self.front.consider(hash, generation);
        if self.shard.may_hold(hash)
            && let Some(stored) = self.shard.find(&Key::new(query, scratch, generation))
            && let Some(answered) = stored.replay(plan, query, context, scratch, out)
        {
            if verdict == Verdict::Keep {
                self.keep(stored);
            }
            return Some((answered, Origin::Shard));
        }
        let answered = weir_authority::build(plan, query, context, scratch, out)?;
        if verdict != Verdict::Pass
            && let Some(stored) = Stored::of(&answered, query, scratch, generation, out)
        {
            match verdict {
                Verdict::Keep => self.keep(stored),
                _ => self.shard.offer(stored, generation),
            }
        }
        Some((answered, Origin::Built))
    }

    /// Gives an answer its place in front; what stood there goes to the shard if it is worth that.
    fn keep(&mut self, stored: Stored) {
        let generation = stored.generation();
        if let Some(displaced) = self.front.put(stored) {
            self.shard.offer(displaced, generation);
        }
    }

    /// What the cache holds. Does what the shard put off for later first, so that its counts are exact.
    pub fn usage(&self) -> Usage {
        let (front, shard) = (self.front.usage(), self.shard.usage());
        Usage {
            n_entries: front.n_entries + shard.n_entries,
            n_octets: front.n_octets + shard.n_octets,
            n_evicted: front.n_evicted + shard.n_evicted,
        }
    }
}
