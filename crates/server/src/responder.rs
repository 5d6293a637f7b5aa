//! A message's way to its answer, the same for UDP and TCP: read it, look it up, take the answer from the cache or
//! write it, count it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use weir_authority::{Answered, Context, Policy, Received, Scratch, Transport, ZoneSet};
use weir_cache::{Asked, Cache, Origin};
use weir_wire::name::HashSeed;
use weir_wire::query::Query;

use crate::config::Config;
use crate::counters::AnswerCounters;

/// What is answered from, and by which settings.
#[derive(Debug)]
pub(crate) struct Serving {
    /// The zones.
    pub(crate) zones: ZoneSet,
    /// What the operator decided. Another policy comes with another generation of the zones, by which the cache goes.
    pub(crate) policy: Policy,
}

/// What is served at the moment: taken without a lock, replaced as a whole.
pub(crate) type SharedServing = Arc<ArcSwap<Serving>>;

/// Where a message came from and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The client's address.
    pub(crate) client: IpAddr,
    /// Seconds since 1970.
    pub(crate) now: u32,
}

/// Seconds since 1970, modulo 2^32 as cookies count them (RFC 9018 section 4.3).
pub(crate) fn seconds_now() -> u32 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "cookies count modulo 2^32")]
    let seconds = since_1970.as_secs() as u32;
    seconds
}

/// What a thread needs to know to make its [`Responder`].
#[derive(Clone, Debug)]
pub(crate) struct ResponderConfig {
    transport: Transport,
    seed: HashSeed,
    cache_octets: u64,
}

impl ResponderConfig {
    /// For one of `n_workers` UDP workers, with its share of the cache.
    pub(crate) fn udp(config: &Config, seed: HashSeed, n_workers: usize) -> ResponderConfig {
        let cache_octets = config.cache.size.0 / (n_workers.max(1) as u64);
        ResponderConfig { transport: Transport::Udp, seed, cache_octets }
    }

    /// For a thread that answers over TCP. It has no cache: beside the system calls of a connection, what a cached
    /// answer saves is nothing.
    pub(crate) fn tcp(seed: HashSeed) -> ResponderConfig {
        ResponderConfig { transport: Transport::Tcp, seed, cache_octets: 0 }
    }
}

/// Answers messages for one thread, in memory that is made once.
pub(crate) struct Responder {
    transport: Transport,
    scratch: Scratch,
    cache: Option<Cache>,
}

impl Responder {
    /// Makes the memory.
    pub(crate) fn new(config: &ResponderConfig) -> Responder {
        Responder {
            transport: config.transport,
            scratch: Scratch::new(config.seed),
            cache: (config.cache_octets > 0).then(|| Cache::new(config.cache_octets)),
        }
    }

    /// Has the processor load what `messages`, which are about to be answered, will be answered from.
    #[inline]
    pub(crate) fn prefetch<'m>(
        &mut self,
        messages: impl ExactSizeIterator<Item = &'m [u8]>,
        serving: &Serving,
    ) {
        weir_authority::prefetch(messages, &mut self.scratch, &serving.zones);
    }

    /// Writes the answer to `message` into `out`; yields its octets, 0 when there is none to give.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        message: &[u8],
        arrival: Arrival,
        serving: &Serving,
        out: &mut [u8],
        counters: &AnswerCounters,
    ) -> usize {
        counters.queries.add(1);
        let Serving { zones, policy } = serving;
        let Responder { transport, scratch, cache } = self;
        let context = Context { transport: *transport, policy, client: arrival.client, now: arrival.now };
        let answered = match weir_authority::receive(message, &context, scratch, out) {
            Received::Silence => {
                counters.silenced.add(1);
                return 0;
            }
            Received::Answered(answered) => Some(answered),
            Received::Query(query) => {
                look_up(&query, &context, scratch, cache.as_mut(), zones, out, counters)
            }
        };
        match answered {
            Some(answered) => {
                counters.answered(answered.rcode);
                answered.len
            }
            None => {
                counters.no_room.add(1);
                0
            }
        }
    }

    /// Counts what the cache holds now.
    pub(crate) fn note_cache_size(&self, counters: &AnswerCounters) {
        if let Some(cache) = &self.cache {
            let usage = cache.usage();
            counters.cache_entries.set(usage.n_entries);
            counters.cache_octets.set(usage.n_octets);
            counters.cache_evictions.set(usage.n_evicted);
        }
    }
}

/// Answers from the zones. Whether the cache is asked at all is decided by the lookup, before it is touched: a plain
/// answer is written in less time than it is found there.
#[inline]
fn look_up(
    query: &Query<'_>,
    context: &Context<'_>,
    scratch: &mut Scratch,
    cache: Option<&mut Cache>,
    zones: &ZoneSet,
    out: &mut [u8],
    counters: &AnswerCounters,
) -> Option<Answered> {
    let plan = weir_authority::plan(query, context, scratch, zones);
    match cache {
        Some(cache) if plan.is_dear(query) => {
            let asked = Asked { query, context, generation: zones.generation() };
            let (answered, origin) = cache.answer(&plan, &asked, scratch, out)?;
            match origin {
                Origin::Front | Origin::Shard => counters.cache_hits.add(1),
                Origin::Built => counters.cache_misses.add(1),
            }
            Some(answered)
        }
        _ => weir_authority::build(&plan, query, context, scratch, out),
    }
}
