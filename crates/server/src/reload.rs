//! HUP: reads the configuration and changed zones again, beside what is served, and swaps both at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use crate::cli::ServeArgs;
use crate::config::{Config, TakenOver};
use crate::counters::Counters;
use crate::library::{Library, Sources};
use crate::responder::{Serving, SharedServing};

/// How long a reload waits for workers to let go of the zones that it replaced: they hold them for a batch, which is
/// over in milliseconds. What is held for longer is looked at again by the next reload.
const LETTING_GO: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Rereads when told to.
pub(crate) struct Reloader {
    library: Library,
    args: ServeArgs,
    /// The configuration that runs.
    config: Config,
    serving: SharedServing,
    retired: Retired,
    counters: Arc<Counters>,
}

/// Zones that were replaced, until nobody answers from them any more.
///
/// Whoever drops the last reference frees them, which takes long for large zones: it must be no worker, in the middle
/// of a batch.
#[derive(Default)]
struct Retired(Vec<Arc<Serving>>);

impl Retired {
    /// Frees what nobody else holds; yields whether that is all of it.
    fn free(&mut self) -> bool {
        // No one can come by a new reference: what is held here alone stays so.
        self.0 = std::mem::take(&mut self.0)
            .into_iter()
            .filter_map(|serving| Arc::try_unwrap(serving).err())
            .collect();
        self.0.is_empty()
    }

    /// Frees what others let go of before `deadline`.
    fn free_until(&mut self, deadline: Instant) {
        while !self.free() && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Reloader {
    /// Rereads what `args` name into `library`, and shows the result in `serving`.
    pub(crate) fn new(
        library: Library,
        args: ServeArgs,
        config: Config,
        serving: SharedServing,
        counters: Arc<Counters>,
    ) -> Reloader {
        Reloader { library, args, config, serving, retired: Retired::default(), counters }
    }

    /// Reloads on each signal; signals that come during a reload count as one.
    pub(crate) async fn reload_on(mut self, mut hang_up: Signal) {
        while hang_up.recv().await.is_some() {
            info!("HUP: rereading the configuration and changed zones");
            // Loading is work for a processor: on a thread of its own it keeps no connection waiting.
            let reloaded = tokio::task::spawn_blocking(move || {
                self.reload();
                self
            });
            match reloaded.await {
                Ok(reloader) => self = reloader,
                // The runtime ends, or the reload panicked, which the panic's message has told.
                Err(_) => return,
            }
        }
    }

    fn reload(&mut self) {
        let (config_is_good, answers_change) = match self.reread_config() {
            Some(answers_change) => (true, answers_change),
            None => (false, false),
        };
        if answers_change {
            // With the zones there are: reading those that changed may take minutes, and secrets are exchanged in haste.
            self.library.start_generation();
            self.publish();
        }
        let outcome = self.library.update();
        if outcome.changed {
            self.publish();
        }
        self.library.count(&self.counters.zones);
        let all_is_good = config_is_good && outcome.n_problems == 0;
        let zones = &self.counters.zones;
        if all_is_good { &zones.reloads } else { &zones.failed_reloads }.add(1);
        let with = if all_is_good { "" } else { ", with errors: what is bad keeps its old data" };
        info!("reloaded: {}{with}", outcome.summary);
        self.retired.free_until(Instant::now() + LETTING_GO);
    }

    /// Has everybody answer from the library's zones by the configuration's settings.
    fn publish(&mut self) {
        let serving = Serving { zones: self.library.zone_set(), policy: self.config.policy() };
        self.retired.0.push(self.serving.swap(Arc::new(serving)));
    }

    /// Takes over what the configuration says now, as far as that needs no restart; yields whether it changes answers, or
    /// `None` when it could not be read.
    fn reread_config(&mut self) -> Option<bool> {
        match self.config.reread(&self.args) {
            Ok(new) => {
                for key in self.config.changed_until_restart(&new) {
                    warn!("{key} was changed: it takes effect when weir is started anew");
                }
                let TakenOver { keys, shapes_answers } = self.config.take_over(&new);
                if !keys.is_empty() {
                    info!("changed and in force from now on: {}", keys.join(", "));
                }
                self.library.set_sources(Sources::of(&self.config));
                Some(shapes_answers)
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    error!("{mistake}");
                }
                error!("the configuration is bad: the old one stays");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arc_swap::ArcSwap;
    use weir_authority::{Policy, ZoneSet};
    use weir_wire::name::HashSeed;

    #[test]
    fn zones_that_were_replaced_are_freed_by_the_reload_and_not_by_who_answers_from_them() {
        let empty =
            || Arc::new(Serving { zones: ZoneSet::empty(HashSeed::fixed()), policy: Policy::default() });
        let served = ArcSwap::new(empty());
        let mut retired = Retired::default();
        let answering = served.load();
        retired.0.push(served.swap(empty()));
        let old = Arc::downgrade(&retired.0[0]);
        assert!(!retired.free(), "it is still answered from");
        drop(answering);
        assert!(old.upgrade().is_some(), "who answered has not freed it");
        retired.free_until(Instant::now() + LETTING_GO);
        assert!(old.upgrade().is_none() && retired.0.is_empty());
    }
}
