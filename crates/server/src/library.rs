//! The zones that are held: found on disk, loaded aside, replaced only by data that are good.
//!
//! invariant: a zone that was served once is served until its file is gone. New data that are bad leave the old ones
//! in place; a directory that cannot be read leaves everything in place.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};
use weir_authority::{ZoneSet, ZoneSetBuilder, ZoneState};
use weir_wire::name::{FoldedArc, HashSeed};
use weir_zone::{Zone, canonical, files};

mod access;
mod many;
mod read;
mod tell;

pub(crate) use self::access::{Closed, first_closed};
pub(crate) use self::many::{load_all, n_threads};
pub(crate) use self::read::{Loaded, load_from_stdin, load_with, options};

use self::many::load_each;
use self::read::Stamp;
use self::tell::{TOLD_ONE_BY_ONE, Telling};
use crate::config::{Checks, Config, ZoneEntry};
use crate::counters::ZoneCounters;
use crate::failure::Failure;
use crate::print::count;

/// Where zones come from.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    directory: Option<PathBuf>,
    entries: Vec<ZoneEntry>,
    checks: Checks,
}

/// A zone's name and its file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Name of the zone.
    pub(crate) origin: FoldedArc,
    /// Its master file, as it was named or found.
    pub(crate) path: PathBuf,
}

/// The zones that there are, in the order of their origins.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Each zone once.
    pub(crate) sources: Vec<Source>,
    /// What is wrong with names, doubles and folders.
    pub(crate) problems: Vec<String>,
    /// Files and folders that could not be looked into: what lies there may be there all the same.
    unread: Vec<PathBuf>,
}

impl Sources {
    /// The zone directory and the zones named one by one.
    pub(crate) fn of(config: &Config) -> Sources {
        Sources {
            directory: config.server.zones.clone(),
            entries: config.zone.clone(),
            checks: config.checks,
        }
    }

    /// What the zones are checked for.
    pub(crate) fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Every zone there is.
    ///
    /// # Errors
    /// The directory cannot be read, or there is no zone at all.
    pub(crate) fn find(&self) -> Result<Found, String> {
        let mut found = Found::default();
        let named = self.entries.iter();
        let mut listed: Vec<Source> =
            named.map(|entry| Source { origin: entry.name.0.into(), path: entry.file.clone() }).collect();
        if let Some(directory) = &self.directory {
            let in_directory =
                files::find_zones(directory).map_err(|error| cannot_read(directory, &error))?;
            listed.extend(
                in_directory.zones.into_iter().map(|file| Source { origin: file.origin, path: file.path }),
            );
            found.problems.extend(in_directory.problems.iter().map(ToString::to_string));
            found.unread = in_directory.problems.iter().map(|problem| problem.file.to_path_buf()).collect();
        }
        if listed.is_empty() {
            return Err(self.nothing_there(&found.problems));
        }
        // Stable: of several files for one zone, the one that was named first stays.
        listed.sort_by(|a, b| a.origin.folded().octets().cmp(b.origin.folded().octets()));
        listed.dedup_by(|source, first| {
            let is_second = source.origin == first.origin;
            if is_second {
                found.problems.push(format!(
                    "zone {} has two files: {} is served, {} is not",
                    source.origin,
                    first.path.display(),
                    source.path.display()
                ));
            }
            is_second
        });
        found.sources = listed;
        Ok(found)
    }

    fn nothing_there(&self, problems: &[String]) -> String {
        match (&self.directory, problems.first()) {
            (_, Some(problem)) => problem.clone(),
            (Some(directory), None) => format!(
                "no zone in {}: zone files are named after their zone, such as example.com.zone",
                directory.display()
            ),
            (None, None) => {
                "no zone: set server.zones to a directory of zone files, or add [[zone]]".to_owned()
            }
        }
    }
}

fn cannot_read(directory: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            "name the directory of your zone files with --zones or server.zones".to_owned()
        }
        io::ErrorKind::PermissionDenied => format!(
            "make {} readable for the user that weir runs as (server.user; 65532 when started as root)",
            access::barrier(directory).display()
        ),
        io::ErrorKind::NotADirectory => "it has to be a directory of zone files".to_owned(),
        _ => "it cannot be searched for zone files".to_owned(),
    };
    format!("{}: {error}; {advice}", directory.display())
}

/// A zone that is held.
#[derive(Debug)]
struct Held {
    origin: FoldedArc,
    path: PathBuf,
    /// `None` when it was never good.
    zone: Option<Arc<Zone>>,
    /// Whether it was never tried.
    is_loading: bool,
    /// The files of the last attempt; none when it failed, so that the next reload tries again.
    stamps: Vec<Stamp>,
}

impl Held {
    fn unloaded(source: &Source) -> Held {
        Held {
            origin: source.origin.clone(),
            path: source.path.clone(),
            zone: None,
            is_loading: true,
            stamps: Vec::new(),
        }
    }

    fn is_current(&self, source: &Source) -> bool {
        self.path == source.path && !self.stamps.is_empty() && self.stamps.iter().all(Stamp::is_current)
    }
}

/// What an update came to.
#[derive(Debug, Default)]
pub(crate) struct Update {
    /// Whether the zone set has to be replaced.
    pub(crate) changed: bool,
    /// Things that are wrong; each has been logged.
    pub(crate) n_problems: usize,
    /// What was done, for one line of the log.
    pub(crate) summary: String,
}

/// All zones that are held.
#[derive(Debug)]
pub(crate) struct Library {
    seed: HashSeed,
    sources: Sources,
    /// By origin in wire form.
    held: BTreeMap<Box<[u8]>, Held>,
    generation: u64,
}

impl Library {
    /// Takes over other sources; the next update goes by them.
    pub(crate) fn set_sources(&mut self, sources: Sources) {
        if sources.checks != self.sources.checks {
            // What was good may be bad now, and the reverse: all files are read again.
            self.held.values_mut().for_each(|held| held.stamps.clear());
        }
        self.sources = sources;
    }

    /// Looks for new, changed and removed files, and loads what is new.
    pub(crate) fn update(&mut self) -> Update {
        let Found { sources, problems, unread } = match self.sources.find() {
            Ok(found) => found,
            Err(problem) => {
                error!("{problem}; the zones that are served stay");
                return Update { n_problems: 1, summary: "nothing changed".to_owned(), ..Update::default() };
            }
        };
        let mut telling = Telling::default();
        telling.problems(&problems);
        let n_removed = self.remove_all_but(&sources, &unread, &mut telling);
        let n_before = self.held.len();
        let n_zones = sources.len();
        let (n_loaded, n_bad) = self.load_changed(sources, n_threads(), &mut telling);
        telling.finish();
        let n_new = self.held.len() - n_before;
        let changed = n_loaded + n_removed + n_new > 0;
        self.generation += u64::from(changed);
        Update {
            changed,
            n_problems: n_bad + problems.len(),
            summary: format!(
                "{} loaded, {} unchanged, {n_removed} removed, {n_bad} bad",
                count(n_loaded, "zone"),
                n_zones - n_loaded - n_bad
            ),
        }
    }

    fn remove_all_but(&mut self, sources: &[Source], unread: &[PathBuf], telling: &mut Telling) -> usize {
        let kept: HashSet<&[u8]> = sources.iter().map(|source| source.origin.folded().octets()).collect();
        let n_before = self.held.len();
        self.held.retain(|origin, held| {
            let may_be_there = unread.iter().any(|place| held.path.starts_with(place));
            let stays = kept.contains(&**origin) || may_be_there;
            if !stays && telling.removed.next() {
                info!("zone {} is served no longer: its file is gone", held.origin);
            }
            stays
        });
        n_before - self.held.len()
    }

    /// Loads the sources that are new or changed; yields how many were loaded and how many are bad.
    fn load_changed(
        &mut self,
        sources: Vec<Source>,
        n_threads: usize,
        telling: &mut Telling,
    ) -> (usize, usize) {
        let is_current = |source: &Source| {
            let held = self.held.get(source.origin.folded().octets());
            held.is_some_and(|held| held.is_current(source))
        };
        let changed: Vec<Source> = sources.into_iter().filter(|source| !is_current(source)).collect();
        let tell_each = changed.len() <= TOLD_ONE_BY_ONE;
        let (mut n_loaded, mut n_bad) = (0, 0);
        let checks = self.sources.checks;
        let all_loaded = load_all(&changed, self.seed, &checks, n_threads, &AtomicU64::new(0));
        for (source, loaded) in changed.iter().zip(all_loaded) {
            if self.take(source, loaded, tell_each, telling) {
                n_loaded += 1;
            } else {
                n_bad += 1;
            }
        }
        (n_loaded, n_bad)
    }

    /// Takes over what was loaded; yields whether it is good.
    fn take(&mut self, source: &Source, loaded: Loaded, tell: bool, telling: &mut Telling) -> bool {
        let tell_outcome = telling.findings(source, &loaded.findings);
        let key = source.origin.folded().octets();
        if !self.held.contains_key(key) {
            self.held.insert(key.into(), Held::unloaded(source));
        }
        let Some(held) = self.held.get_mut(key) else { return false };
        held.is_loading = false;
        let origin = &held.origin;
        let Some(zone) = loaded.zone else {
            held.stamps = Vec::new();
            match &held.zone {
                _ if !tell_outcome => {}
                Some(old) => {
                    error!("zone {origin}: the new data are bad; serial {} is still served", old.serial());
                }
                None => error!("zone {origin} answers SERVFAIL until its file is mended"),
            }
            return false;
        };
        if tell {
            info!("zone {origin}: serial {}, {}", zone.serial(), count(zone.n_records(), "record"));
        } else {
            debug!("zone {origin}: serial {}, {}", zone.serial(), count(zone.n_records(), "record"));
        }
        if let Some(old) = &held.zone
            && old.serial() == zone.serial()
            && telling.same_serial.next_if(|| !canonical::has_same_records(old, &zone))
        {
            warn!(
                "zone {origin}: the records changed and serial {} did not; raise it, or secondaries keep the old ones",
                zone.serial()
            );
        }
        held.zone = Some(zone);
        held.path.clone_from(&source.path);
        held.stamps = loaded.stamps;
        true
    }

    /// Makes the next zone set another one for caches, though its zones be the same.
    pub(crate) fn start_generation(&mut self) {
        self.generation += 1;
    }

    /// The zones as they are held now.
    pub(crate) fn zone_set(&self) -> ZoneSet {
        let mut set = ZoneSetBuilder::new(self.seed);
        for held in self.held.values() {
            let state = match &held.zone {
                Some(zone) => ZoneState::Ready(Arc::clone(zone)),
                None if held.is_loading => ZoneState::Loading,
                None => ZoneState::Broken,
            };
            set.add(held.origin.clone(), state);
        }
        set.finish(self.generation)
    }

    /// Counts what is held.
    pub(crate) fn count(&self, counters: &ZoneCounters) {
        let n_ready = self.held.values().filter(|held| held.zone.is_some()).count();
        let n_loading = self.held.values().filter(|held| held.is_loading).count();
        counters.ready.set(n_ready as u64);
        counters.broken.set((self.held.len() - n_ready - n_loading) as u64);
        counters.loading.set(n_loading as u64);
        counters.generation.set(self.generation);
    }
}

/// The zones of a configuration, not loaded yet.
#[derive(Debug)]
pub(crate) struct Unloaded {
    library: Library,
    sources: Vec<Source>,
}

/// A library that is loaded has nothing left to load.
impl From<Library> for Unloaded {
    fn from(library: Library) -> Unloaded {
        Unloaded { library, sources: Vec::new() }
    }
}

impl Unloaded {
    /// Finds the zones of the configuration.
    ///
    /// # Errors
    /// No directory, or no zone.
    pub(crate) fn find(config: &Config, seed: HashSeed) -> Result<Unloaded, Failure> {
        let sources = Sources::of(config);
        let found = sources.find().map_err(Failure::new)?;
        let mut telling = Telling::default();
        telling.problems(&found.problems);
        telling.finish();
        let held = found
            .sources
            .iter()
            .map(|source| (source.origin.folded().octets().into(), Held::unloaded(source)))
            .collect();
        let library = Library { seed, sources, held, generation: 0 };
        Ok(Unloaded { library, sources: found.sources })
    }

    /// The zones as they are held now.
    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// A directory, zone file or included file that user `uid` of group `gid` could not read, if there is one.
    pub(crate) fn closed_to(&self, uid: u32, gid: u32) -> Option<Closed> {
        let directory = self.library.sources.directory.iter();
        let files = self.sources.iter().map(|source| &source.path);
        let paths: Vec<&Path> = directory.chain(files).map(PathBuf::as_path).collect();
        first_closed(&paths, uid, gid, n_threads())
    }

    /// Loads the zones on `n_threads` threads; shows the library to `publish` now and then, when more zones are ready.
    ///
    /// # Errors
    /// No zone is without errors.
    pub(crate) fn load(
        self,
        n_threads: usize,
        publish: &mut dyn FnMut(&Library),
    ) -> Result<Library, Failure> {
        let Unloaded { mut library, sources } = self;
        if sources.is_empty() {
            return Ok(library);
        }
        let mut telling = Telling::default();
        let tell_each = sources.len() <= TOLD_ONE_BY_ONE;
        let n_zones = sources.len();
        let mut pace = Pace::start(n_zones);
        let checks = library.sources.checks;
        load_each(&sources, library.seed, &checks, n_threads, &AtomicU64::new(0), |loaded| {
            for (number, loaded) in loaded {
                if let Some(source) = sources.get(number) {
                    library.take(source, loaded, tell_each, &mut telling);
                    pace.n_new += 1;
                }
            }
            if pace.is_due() {
                let start = Instant::now();
                library.generation += 1;
                publish(&library);
                pace.published(start);
            }
        });
        telling.finish();
        library.generation += 1;
        let n_broken = library.held.values().filter(|held| held.zone.is_none()).count();
        if n_broken == n_zones {
            return Err(Failure::new(format!(
                "none of {} can be served; mend what is listed above",
                count(n_zones, "zone")
            )));
        }
        info!("{} loaded, {n_broken} broken", count(n_zones - n_broken, "zone"));
        Ok(library)
    }
}

/// How often zones are shown that are ready before all are.
struct Pace {
    n_zones: usize,
    n_done: usize,
    n_new: usize,
    due: Instant,
    told: Instant,
}

impl Pace {
    /// Zones that are ready wait at least this long for others, since the table of all zones is made anew.
    const AT_LEAST: Duration = Duration::from_millis(200);
    /// How often the log says how far loading is.
    const TELL_EVERY: Duration = Duration::from_secs(5);

    fn start(n_zones: usize) -> Pace {
        let now = Instant::now();
        Pace { n_zones, n_done: 0, n_new: 0, due: now + Pace::AT_LEAST, told: now }
    }

    fn is_due(&self) -> bool {
        self.n_new > 0 && Instant::now() >= self.due
    }

    /// The next time is the later the longer this one took: publishing never takes more than a tenth of the time.
    fn published(&mut self, start: Instant) {
        let now = Instant::now();
        self.due = now + Pace::AT_LEAST.max((now - start) * 10);
        self.n_done += self.n_new;
        self.n_new = 0;
        if now - self.told >= Pace::TELL_EVERY {
            self.told = now;
            info!("{} of {} loaded, and served", self.n_done, count(self.n_zones, "zone"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    const SEED: HashSeed = HashSeed::fixed();

    fn zone(serial: u32) -> String {
        format!("$TTL 60\n@ SOA ns hostmaster {serial} 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\n")
    }

    fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("created");
        fs::write(&path, text).expect("written");
        path
    }

    fn open(folder: &TempDir, entries: Vec<ZoneEntry>) -> Library {
        let mut config = Config { zone: entries, ..Config::default() };
        config.server.zones = Some(folder.path().to_path_buf());
        let unloaded = Unloaded::find(&config, SEED).expect("there are zones");
        unloaded.load(2, &mut |_| {}).expect("something can be served")
    }

    /// The serials that are served; `None` is a zone that answers SERVFAIL.
    fn serials(library: &Library) -> Vec<(String, Option<u32>)> {
        let set = library.zone_set();
        let serial = |state: &ZoneState| match state {
            ZoneState::Ready(zone) => Some(zone.serial()),
            ZoneState::Broken | ZoneState::Loading => None,
        };
        set.zones().map(|(origin, state)| (origin.to_string(), serial(state))).collect()
    }

    #[test]
    fn an_update_without_a_change_keeps_the_generation() {
        let folder = TempDir::new().expect("a folder");
        write(&folder, "a.zone", &zone(1));
        let mut library = open(&folder, Vec::new());
        // Read again until it is old enough to tell that nothing was written while it was read.
        let deadline = Instant::now() + Duration::from_secs(30);
        while library.update().changed {
            assert!(Instant::now() < deadline, "a file that does not change is unchanged at last");
        }
        let generation = library.zone_set().generation();
        let update = library.update();
        assert!(!update.changed && update.n_problems == 0, "{update:?}");
        assert_eq!(library.zone_set().generation(), generation);
        write(&folder, "b.zone", &zone(2));
        assert!(library.update().changed);
        assert_eq!(library.zone_set().generation(), generation + 1);
        assert_eq!(serials(&library), [("a.".to_owned(), Some(1)), ("b.".to_owned(), Some(2))]);
    }

    #[test]
    fn a_change_of_an_included_file_is_a_change_of_the_zone() {
        let folder = TempDir::new().expect("a folder");
        write(&folder, "a.zone", "$INCLUDE a.soa\n@ NS ns\nns A 192.0.2.53\n");
        write(&folder, "a.soa", "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n");
        let mut library = open(&folder, Vec::new());
        assert_eq!(serials(&library), [("a.".to_owned(), Some(1))]);
        write(&folder, "a.soa", "$TTL 60\n@ SOA ns hostmaster 2 3600 600 86400 60\n");
        library.update();
        assert_eq!(serials(&library), [("a.".to_owned(), Some(2))]);
    }

    #[test]
    fn a_new_zone_that_is_bad_answers_servfail_until_it_is_good() {
        let folder = TempDir::new().expect("a folder");
        write(&folder, "a.zone", &zone(1));
        let mut library = open(&folder, Vec::new());
        write(&folder, "b.zone", "nonsense\n");
        let update = library.update();
        assert!(update.changed && update.n_problems == 1, "{update:?}");
        assert_eq!(serials(&library)[1], ("b.".to_owned(), None));
        write(&folder, "b.zone", &zone(5));
        library.update();
        assert_eq!(serials(&library)[1], ("b.".to_owned(), Some(5)));
    }

    #[test]
    fn a_zone_named_in_the_configuration_goes_before_a_file_of_the_directory() {
        let folder = TempDir::new().expect("a folder");
        write(&folder, "a.zone", &zone(1));
        let file = write(&folder, "elsewhere.txt", &zone(2));
        let mut library = open(&folder, vec![ZoneEntry { name: "A".parse().expect("a name"), file }]);
        assert_eq!(serials(&library), [("a.".to_owned(), Some(2))]);
        assert_eq!(library.update().n_problems, 1, "the two files are reported");
    }

    #[test]
    fn a_directory_without_zones_any_more_leaves_everything_in_place() {
        let folder = TempDir::new().expect("a folder");
        let path = write(&folder, "a.zone", &zone(1));
        let mut library = open(&folder, Vec::new());
        fs::remove_file(path).expect("removed");
        let update = library.update();
        assert!(!update.changed && update.n_problems == 1, "{update:?}");
        assert_eq!(serials(&library), [("a.".to_owned(), Some(1))]);
    }
}
