//! HUP: reads the configuration and changed zones again, beside what is served, and swaps.

use std::sync::Arc;

use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use crate::cli::ServeArgs;
use crate::config::Config;
use crate::counters::Counters;
use crate::library::{Library, Sources};
use crate::responder::SharedZones;

/// Rereads when told to.
pub(crate) struct Reloader {
    library: Library,
    args: ServeArgs,
    /// The configuration that runs.
    config: Config,
    zones: SharedZones,
    counters: Arc<Counters>,
}

impl Reloader {
    /// Rereads what `args` name into `library`, and shows the result in `zones`.
    pub(crate) fn new(
        library: Library,
        args: ServeArgs,
        config: Config,
        zones: SharedZones,
        counters: Arc<Counters>,
    ) -> Reloader {
        Reloader { library, args, config, zones, counters }
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
        let config_is_good = self.reread_config();
        let outcome = self.library.update();
        if outcome.changed {
            self.zones.store(Arc::new(self.library.zone_set()));
        }
        self.library.count(&self.counters.zones);
        let all_is_good = config_is_good && outcome.n_problems == 0;
        let zones = &self.counters.zones;
        if all_is_good { &zones.reloads } else { &zones.failed_reloads }.add(1);
        let with = if all_is_good { "" } else { ", with errors: what is bad keeps its old data" };
        info!("reloaded: {}{with}", outcome.summary);
    }

    /// Takes over the zones that the configuration names now; yields whether it could be read.
    fn reread_config(&mut self) -> bool {
        match Config::for_serve(&self.args) {
            Ok(new) => {
                for key in self.config.changed_until_restart(&new) {
                    warn!("{key} was changed: it takes effect when weir is started anew");
                }
                self.library.set_sources(Sources::of(&new));
                true
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    error!("{mistake}");
                }
                error!("the configuration is bad: the old one stays");
                false
            }
        }
    }
}
