//! What the operator asked for: `weir.toml`, then the environment, then flags, each overriding the one before.
//!
//! [`Config`] is at once the form of the file and the settings that the program runs by: every key has its default
//! here and nowhere else, and docs/configuration.md is held in step with it by a test.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use weir_zone::checks::Limits;

mod answers;
mod ingress;
mod read;
mod values;

pub(crate) use answers::{Answers, Cookies, Edns, ServerText};
pub(crate) use ingress::{AnswerWay, Experiment, Ingress, IngressMode, Stall, Steer, Switch};
pub(crate) use read::{Mistake, read};
pub(crate) use values::{
    DNS_PORT, ListenAddress, LogFormat, MAX_WORKERS, MetricsAddress, Octets, Span, User, Workers, ZoneName,
};

use crate::cli::ServeArgs;

/// The file that is read when neither a file nor a zone directory was named.
pub(crate) const DEFAULT_FILE: &str = "/etc/weir/weir.toml";
/// The shortest time that a TCP client is given: less is a typing error, or means that TCP is not wanted.
const LEAST_TIMEOUT: Duration = Duration::from_millis(1);
/// The directory that is served when there is no file either.
const DEFAULT_ZONES: &str = "zones";

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Addresses, workers and the user to become.
    pub(crate) server: Server,
    /// What answers hold.
    pub(crate) answers: Answers,
    /// The extension mechanism of DNS (RFC 6891).
    pub(crate) edns: Edns,
    /// DNS cookies (RFC 7873).
    pub(crate) cookies: Cookies,
    /// What keeps a zone from being served.
    pub(crate) checks: Checks,
    /// The answer cache.
    pub(crate) cache: Cache,
    /// The way of UDP queries to the workers.
    pub(crate) ingress: Ingress,
    /// DNS over TCP.
    pub(crate) tcp: Tcp,
    /// Log lines.
    pub(crate) log: Log,
    /// Zones named one by one, besides the zone directory.
    pub(crate) zone: Vec<ZoneEntry>,
    /// What experiments set.
    #[serde(skip)]
    pub(crate) experiment: Experiment,
}

/// Section `[server]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    /// Addresses to answer on; `None` is port 53 of every address that the host has.
    #[serde(deserialize_with = "addresses")]
    pub(crate) listen: Option<Vec<ListenAddress>>,
    /// Directory of zone files.
    pub(crate) zones: Option<PathBuf>,
    /// UDP workers; `None` is one a CPU that the process may use.
    #[serde(deserialize_with = "workers_or_auto")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Where metrics and health are served.
    pub(crate) metrics: MetricsAddress,
    /// Whom root becomes once the sockets are open.
    pub(crate) user: User,
    /// What `version.bind` and `version.server` are answered with.
    pub(crate) version: Option<ServerText>,
    /// What `hostname.bind` and `id.server` are answered with (RFC 4892).
    pub(crate) hostname: Option<ServerText>,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            listen: None,
            zones: None,
            workers: None,
            metrics: MetricsAddress(Some(([127, 0, 0, 1], 9153).into())),
            // The number that scratch and distroless images use for "nobody in particular".
            user: User::Ids { uid: 65532, gid: 65532 },
            version: None,
            hostname: None,
        }
    }
}

/// Section `[checks]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Checks {
    /// Most iterations of NSEC3 that a zone may have (RFC 9276 section 3.2): each costs a hash for each name that does
    /// not exist.
    #[serde(deserialize_with = "iterations")]
    pub(crate) max_nsec3_iterations: u16,
    /// Most records that one `$GENERATE` may make: a line of a few octets can ask for billions.
    #[serde(deserialize_with = "generated")]
    pub(crate) max_generated: u32,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { max_nsec3_iterations: Limits::default().max_iterations, max_generated: 1_000_000 }
    }
}

/// Section `[cache]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cache {
    /// Size of all shards together; zero switches the cache off.
    pub(crate) size: Octets,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { size: Octets(64 << 20) }
    }
}

/// Section `[tcp]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tcp {
    /// How long a connection may stay without a query.
    #[serde(deserialize_with = "timeout")]
    pub(crate) idle_timeout: Span,
    /// How long a client may take to accept an answer.
    #[serde(deserialize_with = "timeout")]
    pub(crate) write_timeout: Span,
    /// Most connections at once; `None` is derived from the limit on open files.
    #[serde(deserialize_with = "count_or_auto")]
    pub(crate) max_connections: Option<NonZeroUsize>,
}

impl Default for Tcp {
    fn default() -> Tcp {
        Tcp {
            // "On the order of a few seconds" (RFC 7766 section 6.2.3).
            idle_timeout: Span(Duration::from_secs(10)),
            write_timeout: Span(Duration::from_secs(5)),
            max_connections: None,
        }
    }
}

/// Section `[log]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// Text for people or JSON for machines.
    pub(crate) format: LogFormat,
    /// The least severe level that is written.
    pub(crate) level: Level,
}

impl Default for Log {
    fn default() -> Log {
        Log { format: LogFormat::Text, level: Level::Info }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// What needs mending.
    Error,
    /// And what works, but not as asked.
    Warn,
    /// And what the server does as a whole.
    Info,
    /// And its inner steps.
    Debug,
}

/// One `[[zone]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZoneEntry {
    /// Origin of the zone.
    pub(crate) name: ZoneName,
    /// Its master file.
    pub(crate) file: PathBuf,
}

/// What a new configuration changed in a server that runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenOver {
    /// The keys and sections that are in force from now on.
    pub(crate) keys: Vec<&'static str>,
    /// Whether answers from the same zones change.
    pub(crate) shapes_answers: bool,
}

/// Reads a positive number, or the word `auto` as `None`.
fn count_or_auto<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroUsize>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Count(NonZeroUsize),
        Word(String),
    }
    match Form::deserialize(deserializer) {
        Ok(Form::Count(count)) => Ok(Some(count)),
        Ok(Form::Word(word)) if word == "auto" => Ok(None),
        _ => Err(de::Error::custom("write a number of at least 1, or \"auto\"")),
    }
}

/// Reads a number of workers as [`Workers`] does.
fn workers_or_auto<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroUsize>, D::Error> {
    let count = count_or_auto(deserializer)?;
    if count.is_some_and(|count| count.get() > MAX_WORKERS) {
        return Err(de::Error::custom(format!("write a number from 1 to {MAX_WORKERS}, or \"auto\"")));
    }
    Ok(count)
}

/// Reads a time that clients are given: with none at all, only those of the same host would ever be in time.
fn timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
    let span = Span::deserialize(deserializer)?;
    if span.0 < LEAST_TIMEOUT {
        return Err(de::Error::custom(format!("write a time of at least \"{}\"", Span(LEAST_TIMEOUT))));
    }
    Ok(span)
}

/// Reads a number of iterations, of which NSEC3 has 16 bits (RFC 5155 section 3.1.3).
fn iterations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    u16::deserialize(deserializer).map_err(|_| de::Error::custom("write a number from 0 to 65535"))
}

/// Reads a number of records; ranges have 31 bits.
fn generated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    u32::deserialize(deserializer).map_err(|_| de::Error::custom("write a number from 0 to 4294967295"))
}

/// Reads addresses, at least one: a server that nobody can ask is a mistake.
fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<ListenAddress>>, D::Error> {
    let addresses = Vec::<ListenAddress>::deserialize(deserializer)?;
    if addresses.is_empty() {
        return Err(de::Error::custom(
            "name at least one address, or leave `listen` out for all of the host's",
        ));
    }
    Ok(Some(addresses))
}

impl Config {
    /// The settings for `weir serve`: the file that was named or found, overridden by environment and flags.
    pub(crate) fn for_serve(args: &ServeArgs) -> Result<Config, Vec<Mistake>> {
        Config::read_for_serve(args, None)
    }

    /// As [`Config::for_serve`], in a server that runs with the configuration `self` and without the rights of its start.
    pub(crate) fn reread(&self, args: &ServeArgs) -> Result<Config, Vec<Mistake>> {
        Config::read_for_serve(args, Some(self))
    }

    fn read_for_serve(args: &ServeArgs, running: Option<&Config>) -> Result<Config, Vec<Mistake>> {
        let file = file_for_serve(args);
        let mut config = match &file {
            Some(path) => read::read_again(path, running)?,
            None => Config::default(),
        };
        config.apply(args);
        if config.server.zones.is_none() && file.is_none() {
            config.server.zones = Some(PathBuf::from(DEFAULT_ZONES));
        }
        Ok(config)
    }

    /// Overrides what flags or the environment say; clap has already given flags their precedence.
    fn apply(&mut self, args: &ServeArgs) {
        fn set<T: Clone>(to: &mut T, from: Option<&T>) {
            if let Some(value) = from {
                *to = value.clone();
            }
        }
        if !args.listen.is_empty() {
            self.server.listen = Some(args.listen.clone());
        }
        if args.zones.is_some() {
            self.server.zones.clone_from(&args.zones);
        }
        if let Some(Workers(workers)) = args.workers {
            self.server.workers = workers;
        }
        set(&mut self.server.metrics, args.metrics.as_ref());
        set(&mut self.server.user, args.user.as_ref());
        set(&mut self.ingress.mode, args.ingress.as_ref());
        set(&mut self.cache.size, args.cache_size.as_ref());
        self.experiment = Experiment {
            limit_worker_pps: args.limit_worker_pps,
            stall: args.stall_worker,
            rollover: args.rollover != Some(Switch::Off),
        };
        set(&mut self.log.format, args.log_format.as_ref());
        set(&mut self.log.level, args.log_level.as_ref());
    }

    /// Keys whose change in the file takes effect only after a restart.
    pub(crate) fn changed_until_restart(&self, new: &Config) -> Vec<&'static str> {
        let sections = [
            ("server.listen", self.server.listen != new.server.listen),
            ("server.workers", self.server.workers != new.server.workers),
            ("server.metrics", self.server.metrics != new.server.metrics),
            ("server.user", self.server.user != new.server.user),
            ("cache", self.cache != new.cache),
            ("ingress", self.ingress != new.ingress),
            ("tcp", self.tcp != new.tcp),
            ("log", self.log != new.log),
        ];
        sections.into_iter().filter_map(|(key, changed)| changed.then_some(key)).collect()
    }

    /// Takes over from `new` what needs no restart: where zones come from, what they are checked for, and what shapes
    /// answers.
    pub(crate) fn take_over(&mut self, new: &Config) -> TakenOver {
        fn take<T: Clone + PartialEq>(key: &'static str, to: &mut T, from: &T) -> Option<&'static str> {
            let changed = to != from;
            to.clone_from(from);
            changed.then_some(key)
        }
        let of_zones = [
            take("server.zones", &mut self.server.zones, &new.server.zones),
            take("zone", &mut self.zone, &new.zone),
            take("checks", &mut self.checks, &new.checks),
        ];
        let of_answers = [
            take("server.version", &mut self.server.version, &new.server.version),
            take("server.hostname", &mut self.server.hostname, &new.server.hostname),
            take("answers", &mut self.answers, &new.answers),
            take("edns", &mut self.edns, &new.edns),
            take("cookies", &mut self.cookies, &new.cookies),
        ];
        let shapes_answers = of_answers.iter().any(Option::is_some);
        TakenOver { keys: of_zones.into_iter().chain(of_answers).flatten().collect(), shapes_answers }
    }

    /// Makes paths of the file relative to the folder that the file is in.
    fn resolve_paths(&mut self, folder: &Path) {
        // An absolute path replaces the folder; collecting components takes out what `.` adds nothing to.
        let resolve = |path: &Path| folder.join(path).components().collect();
        self.server.zones = self.server.zones.as_deref().map(resolve);
        self.cookies.secrets_file = self.cookies.secrets_file.as_deref().map(resolve);
        for entry in &mut self.zone {
            entry.file = resolve(&entry.file);
        }
    }
}

/// The file that `weir serve` reads: the one that was named or found.
pub(crate) fn file_for_serve(args: &ServeArgs) -> Option<PathBuf> {
    args.config.clone().or_else(|| default_file(args.zones.as_deref()))
}

/// /etc/weir/weir.toml, when it is there and no zone directory was named.
pub(crate) fn default_file(zones: Option<&Path>) -> Option<PathBuf> {
    let path = Path::new(DEFAULT_FILE);
    (zones.is_none() && path.exists()).then(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const MANUAL: &str = include_str!("../../../docs/configuration.md");

    /// The keys that serde takes in `text`'s last table, as its refusal of an unknown one lists them.
    fn keys_of(table: &str) -> BTreeSet<String> {
        let text = format!("{table}\nno_such_key_at_all = 1\n");
        let mistakes = read::parse(Path::new("weir.toml"), &text).expect_err("the key is unknown");
        let message = &mistakes.first().expect("there is a mistake").message;
        let (_, known) = message.split_once("known here: ").expect("the known keys are listed");
        known.split(", ").map(str::to_owned).collect()
    }

    fn keys_of_the_manual() -> BTreeSet<String> {
        let rows = MANUAL.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect()
    }

    #[test]
    fn the_manual_lists_exactly_the_keys_there_are() {
        let mut keys = BTreeSet::new();
        for section in keys_of("") {
            let table = if section == "zone" { "[[zone]]".to_owned() } else { format!("[{section}]") };
            keys.extend(keys_of(&table).into_iter().map(|key| format!("{section}.{key}")));
        }
        assert_eq!(keys, keys_of_the_manual());
    }

    #[test]
    fn the_manual_names_the_defaults_there_are() {
        let default = Config::default();
        let Some(metrics) = default.server.metrics.0 else { panic!("metrics are on by default") };
        for (key, value) in [
            ("server.metrics", format!("\"{metrics}\"")),
            ("edns.udp_payload_v4", default.edns.udp_payload_v4.to_string()),
            ("edns.udp_payload_v6", default.edns.udp_payload_v6.to_string()),
            ("answers.minimal", default.answers.minimal.to_string()),
            ("answers.rotate", default.answers.rotate.to_string()),
            ("answers.follow_across_zones", default.answers.follow_across_zones.to_string()),
            ("cookies.enabled", default.cookies.enabled.to_string()),
            ("cookies.required", default.cookies.required.to_string()),
            ("checks.max_nsec3_iterations", default.checks.max_nsec3_iterations.to_string()),
            ("checks.max_generated", default.checks.max_generated.to_string()),
            ("cache.size", format!("\"{}\"", default.cache.size)),
            ("ingress.receive_buffer", format!("\"{}\"", default.ingress.receive_buffer)),
            ("ingress.join_answers", default.ingress.join_answers.to_string()),
            ("ingress.busy_poll", format!("\"{}\"", default.ingress.busy_poll)),
            ("ingress.mode", format!("\"{}\"", default.ingress.mode.word())),
            ("ingress.engage_fill", default.ingress.engage_fill.to_string()),
            ("ingress.engage_spare", default.ingress.engage_spare.to_string()),
            ("ingress.release_after", format!("\"{}\"", default.ingress.release_after)),
            ("tcp.idle_timeout", format!("\"{}\"", default.tcp.idle_timeout)),
            ("tcp.write_timeout", format!("\"{}\"", default.tcp.write_timeout)),
        ] {
            let row = format!("| `{key}` | `{value}` |");
            assert!(MANUAL.contains(&row), "the manual has no `{row}`");
        }
    }

    #[test]
    fn flags_go_before_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, "[server]\nworkers = 3\nmetrics = \"off\"\n[cache]\nsize = \"1 MiB\"\n")
            .expect("written");
        let args = ServeArgs {
            config: Some(file),
            workers: Some(Workers(NonZeroUsize::new(2))),
            cache_size: Some(Octets(0)),
            ..ServeArgs::default()
        };
        let config = Config::for_serve(&args).expect("the file is right");
        assert_eq!(config.server.workers, NonZeroUsize::new(2));
        assert_eq!(config.cache.size, Octets(0));
        assert_eq!(config.server.metrics, MetricsAddress(None));
        assert_eq!(
            config.server.zones, None,
            "a file that names no directory serves its [[zone]] tables alone"
        );
    }

    #[test]
    fn a_change_that_waits_for_a_restart_is_named() {
        let old = Config::default();
        let mut new = old.clone();
        new.server.zones = Some(PathBuf::from("elsewhere"));
        assert!(old.changed_until_restart(&new).is_empty(), "zones are taken over at once");
        new.log.level = Level::Debug;
        new.server.workers = NonZeroUsize::new(7);
        assert_eq!(old.changed_until_restart(&new), ["server.workers", "log"]);
    }

    #[test]
    fn what_shapes_answers_is_taken_over_and_what_needs_a_restart_is_not() {
        let (mut running, mut new) = (Config::default(), Config::default());
        new.server.zones = Some(PathBuf::from("elsewhere"));
        new.checks.max_nsec3_iterations = 0;
        let of_zones = TakenOver { keys: vec!["server.zones", "checks"], shapes_answers: false };
        assert_eq!(running.take_over(&new), of_zones, "answers of the same zones are the same");
        assert_eq!(running, new);
        new.cookies.required = true;
        new.answers.rotate = true;
        new.tcp.idle_timeout = Span(Duration::from_secs(1));
        let of_answers = TakenOver { keys: vec!["answers", "cookies"], shapes_answers: true };
        assert_eq!(running.take_over(&new), of_answers);
        assert_eq!(running.take_over(&new), TakenOver::default(), "once");
        assert_eq!(running.changed_until_restart(&new), ["tcp"]);
        assert_eq!(
            running.policy().tcp_keepalive,
            100,
            "connections are kept for as long as they were at the start"
        );
    }
}
