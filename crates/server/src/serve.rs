//! `weir serve`: the order in which things start, and in which they end.
//!
//! Signals are caught first, so that each one finds its order kept; then sockets are opened, then rights are dropped,
//! then threads are started (capabilities belong to threads), then zones are loaded. Meanwhile zones that are ready are
//! served, and others answer SERVFAIL with the extended error "not ready". Zones that only root can read are loaded
//! before rights are dropped, by threads that are gone when that happens.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};
use weir_netio::affinity;
use weir_netio::fanout::Fanout;
use weir_netio::privilege::{self, Outcome};
use weir_netio::reuseport::{self, Opened, WorkerSockets};
use weir_wire::name::HashSeed;

use crate::cli::ServeArgs;
use crate::config::{Config, User};
use crate::counters::{Counters, Readiness, WorkerCounters};
use crate::failure::Failure;
use crate::fanout::{self, Watch};
use crate::library::{self, Closed, Library, Unloaded};
use crate::print::count;
use crate::reload::Reloader;
use crate::responder::{ResponderConfig, Serving, SharedServing};
use crate::worker::{Stop, Worker};
use crate::{config, http, listen, log, tcp};

/// Files that are no TCP connections: sockets, zone files under way, metrics clients, what the runtime needs.
const FILES_BESIDE_CONNECTIONS: u64 = 256;
/// Fewest files with which a server starts: for two workers with an address they suffice.
const LEAST_FILES: u64 = 64;
/// Fewer TCP connections than this are worth a warning: a few clients that are slow take them all.
const FEW_CONNECTIONS: u64 = 100;
/// No file left for the system, and for the process: std has no kinds of error for them.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
/// How the limit on open files is raised.
const ALLOW_MORE_FILES: &str = "(`ulimit -n`, LimitNOFILE= of the unit, `--ulimit nofile=` of the container)";
/// Most TCP connections when nobody says: at some 10 KiB of kernel and server memory each about 200 MB.
const MAX_CONNECTIONS_BY_DEFAULT: u64 = 20_000;
/// How long TCP connections may take to get their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Answers queries until TERM or INT.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let config = Config::for_serve(args)?;
    log::start(&config.log);
    // A log file that has reached its limit costs lines, not the server.
    privilege::ignore_file_size_limit();
    end_on_panic();
    take_up_rights();
    // First of all: catching signals takes files, and tokio panics when it finds none for that.
    let n_files = open_files()?;
    let before_rights_drop = runtime_without_threads()?;
    let mut signals = Signals::catch(&before_rights_drop)?;
    let cpus = worker_cpus(&config)?;
    let opened = match args.shared_socket {
        true => listen::open_shared(&config, &cpus)?,
        false => listen::open_dns(&config, cpus.clone())?,
    };
    let fanout = if args.shared_socket { None } else { fanout::open(&config, &opened, cpus.len()) };
    let http = listen::open_http(&config)?;
    let seed = HashSeed::random();
    let mut unloaded = Unloaded::find(&config, seed)?;
    if is_closed_after_start(&config, config::file_for_serve(args).as_deref(), &unloaded) {
        match load_zones(&before_rights_drop, unloaded, &mut signals.end)? {
            Some(library) => unloaded = library.into(),
            None => {
                before_rights_drop.shutdown_background();
                return Ok(());
            }
        }
    }
    // Waits for every thread that it started.
    drop(before_rights_drop);
    drop_rights(config.server.user)?;
    log::write().map_err(|error| no_thread("the log", &error))?;
    info!(
        "weir {} with {}, ingress {}",
        env!("CARGO_PKG_VERSION"),
        count(cpus.len(), "worker"),
        config.ingress.mode.word()
    );

    let counters = Arc::new(counters(&cpus, &opened));
    // The workers, as many for TCP, and one for what takes long.
    try_threads(2 * cpus.len() + 1)?;
    let runtime = runtime(cpus.len())?;
    if let Some(listener) = http {
        serve_http(&runtime, listener, &config, Arc::clone(&counters))?;
    }
    unloaded.library().count(&counters.zones);
    let serving = Serving { zones: unloaded.library().zone_set(), policy: config.policy() };
    let serving: SharedServing = Arc::new(ArcSwap::from_pointee(serving));
    let limits = tcp_limits(&config, n_files);
    let shared = Shared { runtime, config, counters, serving, seed, limits };
    let mut running = shared.start(opened, fanout)?;
    let library = match shared.load(unloaded, &mut signals.end, &mut running.failed) {
        Ok(Some(library)) => library,
        other => {
            shared.stop(running);
            return other.map(drop);
        }
    };
    let reloader = shared.reloader(library, args);
    shared.counters.set_readiness(Readiness::Ready);
    info!("ready");
    let outcome = shared.run(&mut running.failed, signals, reloader);
    shared.stop(running);
    outcome
}

/// Puts rights into force that the binary's file gives and does not put into force by itself.
fn take_up_rights() {
    match privilege::take_up_permitted() {
        Ok(true) => info!("takes up capabilities that it is permitted, until its sockets are open"),
        Ok(false) => {}
        Err(error) => warn!("capabilities that are permitted cannot be taken up: {error}"),
    }
}

/// A panic in any thread ends the process, in debug builds as in release builds: a server that lost a worker would go
/// on without a share of its queries, and whoever started it could not tell.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        log::panicked(panic);
        log::finish();
        std::process::abort();
    }));
}

/// The limit on open files, as high as it can be had.
fn open_files() -> Result<u64, Failure> {
    let n_files = privilege::raise_open_files().unwrap_or_else(|error| {
        warn!("the limit on open files cannot be raised: {error}");
        1024
    });
    if n_files < LEAST_FILES {
        return Err(Failure::new(format!(
            "{n_files} open files are too few for a server; allow {LEAST_FILES} at the least, and one for each TCP \
             connection {ALLOW_MORE_FILES}"
        )));
    }
    Ok(n_files)
}

/// Loads all zones; `None` when the server was told to end before that was done.
fn load_zones(
    runtime: &Runtime,
    unloaded: Unloaded,
    end: &mut EndSignals,
) -> Result<Option<Library>, Failure> {
    runtime.block_on(async {
        let loading = tokio::task::spawn_blocking(move || unloaded.load(library::n_threads(), &mut |_| {}));
        tokio::select! {
            loaded = loading => loaded_or_not(loaded),
            signal = end.next() => {
                info!("{signal}: stopped before zones were loaded");
                Ok(None)
            }
        }
    })
}

fn loaded_or_not(
    loaded: Result<Result<Library, Failure>, tokio::task::JoinError>,
) -> Result<Option<Library>, Failure> {
    match loaded {
        Ok(outcome) => outcome.map(Some),
        // Neither is the runtime ending, nor does a process survive a panic.
        Err(error) => Err(Failure::new(format!("zones cannot be loaded: {error}"))),
    }
}

/// The CPU of each worker.
fn worker_cpus(config: &Config) -> Result<Vec<usize>, Failure> {
    let allowed = affinity::allowed_cpus()
        .map_err(|error| Failure::new(format!("the CPUs of this process cannot be read: {error}")))?;
    let n_workers = config.server.workers.map_or_else(affinity::default_workers, usize::from);
    Ok(affinity::cpus_for_workers(&allowed, n_workers))
}

/// Whether there are zones whose files are closed to the user that root is about to become: they are read before. Says
/// so, and of the configuration `file` as well.
fn is_closed_after_start(config: &Config, file: Option<&Path>, unloaded: &Unloaded) -> bool {
    let User::Ids { uid, gid } = config.server.user else { return false };
    if !privilege::is_root() {
        return false;
    }
    if let Some(closed) = file.and_then(|file| library::first_closed(&[file], uid, gid, 1)) {
        tell_closed(uid, &closed);
    }
    let closed = unloaded.closed_to(uid, gid);
    closed.as_ref().inspect(|closed| tell_closed(uid, closed)).is_some()
}

fn tell_closed(uid: u32, Closed { path, by }: &Closed) {
    let reason = if path == by { String::new() } else { format!(", since {} is", by.display()) };
    let (path, by) = (path.display(), by.display());
    warn!(
        "{path} is closed to user {uid}{reason}: it is read as root now, and HUP will not be able to reread it; \
         open {by} (chmod -R a+rX), or choose another --user"
    );
}

/// Becomes the configured user when root, and gives up every capability.
fn drop_rights(user: User) -> Result<(), Failure> {
    let User::Ids { uid, gid } = user else {
        if privilege::is_root() {
            warn!("stays root, as asked by `keep`; a server that only answers needs no rights");
        }
        return Ok(());
    };
    match privilege::drop_to(uid, gid) {
        Ok(Outcome::Dropped) => info!("runs as user {uid} of group {gid} from here on"),
        Ok(Outcome::NeverHad) => {}
        Ok(Outcome::Kept { reason }) => warn!("stays root: {reason}"),
        Err(error) => {
            return Err(Failure::new(format!(
                "rights cannot be dropped: {error}; choose another user with --user, or `--user keep`"
            )));
        }
    }
    Ok(())
}

fn counters(cpus: &[usize], opened: &Opened) -> Counters {
    let addresses = || opened.listeners.iter().map(|listeners| listeners.address);
    let workers = cpus.iter().map(|&cpu| WorkerCounters::new(cpu, addresses())).collect();
    Counters::new(workers, cpus.len())
}

/// A runtime for the time before rights are dropped: it has no thread but those that load zones, for as long as that
/// takes.
fn runtime_without_threads() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(format!("signals cannot be received: {error}")))
}

/// The runtime of everything but UDP. Its threads are not pinned: the scheduler moves them to where there is time.
fn runtime(n_threads: usize) -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(n_threads)
        .thread_name("weir-tcp")
        .enable_all()
        .build()
        .map_err(|error| no_thread("TCP", &error))
}

fn serve_http(
    runtime: &Runtime,
    listener: std::net::TcpListener,
    config: &Config,
    counters: Arc<Counters>,
) -> Result<(), Failure> {
    let wrong = |error: io::Error| Failure::new(format!("metrics cannot be served: {error}"));
    let address = listener.local_addr().map_err(wrong)?;
    let _in_runtime = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener).map_err(wrong)?;
    runtime.spawn(http::serve(listener, counters, http::Limits::default()));
    log::metrics(config.log.format, address);
    Ok(())
}

fn tcp_limits(config: &Config, n_files: u64) -> tcp::Limits {
    let possible = n_files.saturating_sub(FILES_BESIDE_CONNECTIONS).max(1);
    let asked = config.tcp.max_connections.map(|n| n.get() as u64);
    let most = asked.unwrap_or(MAX_CONNECTIONS_BY_DEFAULT).min(possible);
    if let Some(asked) = asked.filter(|asked| *asked > most) {
        warn!("tcp.max_connections = {asked} is more than the limit on open files allows: {most} it is");
    } else if most == possible && possible < FEW_CONNECTIONS {
        warn!(
            "the limit of {n_files} open files leaves room for {} only; raise it {ALLOW_MORE_FILES}",
            count(usize::try_from(most).unwrap_or(usize::MAX), "TCP connection")
        );
    }
    tcp::Limits {
        idle_timeout: config.tcp.idle_timeout.0,
        write_timeout: config.tcp.write_timeout.0,
        max_connections: usize::try_from(most).unwrap_or(usize::MAX),
    }
}

/// What the parts of the server share.
struct Shared {
    runtime: Runtime,
    config: Config,
    counters: Arc<Counters>,
    serving: SharedServing,
    seed: HashSeed,
    limits: tcp::Limits,
}

/// What runs until the server is stopped.
struct Running {
    workers: Vec<JoinHandle<()>>,
    /// Watches the packet fanout, if there is one.
    watch: Option<JoinHandle<()>>,
    stop: Arc<Stop>,
    /// What a worker that had to give up says.
    failed: mpsc::UnboundedReceiver<String>,
    stopping: watch::Sender<bool>,
    /// Ends when the last connection has.
    connections: mpsc::Receiver<()>,
}

impl Shared {
    /// Starts the workers and TCP, and says where queries are answered.
    fn start(&self, opened: Opened, fanout: Option<Fanout>) -> Result<Running, Failure> {
        let addresses: Vec<_> = opened.listeners.iter().map(|listeners| listeners.address).collect();
        let watch = fanout
            .map(|fanout| Watch::new(fanout, &self.config, &opened, Arc::clone(&self.counters)))
            .transpose()
            .map_err(|error| Failure::new(format!("sockets cannot be watched: {error}")))?;
        let (mut udp, mut tcp) = (Vec::new(), Vec::new());
        for WorkerSockets { udp: sockets, tcp: listeners } in reuseport::by_worker(opened.listeners) {
            udp.push(sockets);
            tcp.extend(listeners);
        }
        let stop =
            Stop::new().map_err(|error| Failure::new(format!("workers cannot be started: {error}")))?;
        let stop = Arc::new(stop);
        let doors = watch.as_ref().map(|watch| watch.doors().to_vec());
        let (failed_sender, failed) = mpsc::unbounded_channel();
        let n_shards = udp.len();
        let workers = udp.into_iter().enumerate().map(|(number, sockets)| Worker {
            number,
            sockets,
            responder: ResponderConfig::udp(&self.config, self.seed, n_shards),
            serving: Arc::clone(&self.serving),
            counters: Arc::clone(&self.counters),
            stop: Arc::clone(&stop),
            door: doors.as_ref().and_then(|doors| doors.get(number)).map(Arc::clone),
            experiment: self.config.experiment.clone(),
        });
        let workers =
            workers.map(|worker| start_worker(worker, failed_sender.clone())).collect::<Result<_, _>>()?;
        let watch = watch
            .map(|watch| watch.start(Arc::clone(&stop)))
            .transpose()
            .map_err(|error| Failure::new(format!("the watch cannot be started: {error}")))?;
        let (stopping, connections) = self.open_tcp(tcp)?;
        for address in addresses {
            log::listening(self.config.log.format, address);
        }
        Ok(Running { workers, watch, stop, failed, stopping, connections })
    }

    fn open_tcp(
        &self,
        listeners: Vec<std::net::TcpListener>,
    ) -> Result<(watch::Sender<bool>, mpsc::Receiver<()>), Failure> {
        let responder = ResponderConfig::tcp(self.seed);
        let service =
            tcp::Service::new(self.limits, responder, Arc::clone(&self.serving), Arc::clone(&self.counters));
        let (stopping, is_stopping) = watch::channel(false);
        let (alive, connections) = mpsc::channel(1);
        let _in_runtime = self.runtime.enter();
        for listener in listeners {
            if let Err(error) = tcp::memory::bound(&listener, self.limits.write_timeout) {
                warn!("clients that take no answers hold memory of the kernel without bounds: {error}");
            }
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(|error| Failure::new(format!("TCP connections cannot be accepted: {error}")))?;
            self.runtime.spawn(Arc::clone(&service).accept(listener, is_stopping.clone(), alive.clone()));
        }
        Ok((stopping, connections))
    }

    /// Loads the zones while those that are ready are answered from; `None` when the server was told to end before
    /// that was done.
    fn load(
        &self,
        unloaded: Unloaded,
        end: &mut EndSignals,
        failed: &mut mpsc::UnboundedReceiver<String>,
    ) -> Result<Option<Library>, Failure> {
        let (serving, counters) = (Arc::clone(&self.serving), Arc::clone(&self.counters));
        let policy = self.config.policy();
        let mut publish = move |library: &Library| {
            serving.store(Arc::new(Serving { zones: library.zone_set(), policy: policy.clone() }));
            library.count(&counters.zones);
        };
        self.runtime.block_on(async {
            let loading = tokio::task::spawn_blocking(move || {
                let library = unloaded.load(library::n_threads(), &mut publish)?;
                publish(&library);
                Ok(library)
            });
            tokio::select! {
                loaded = loading => loaded_or_not(loaded),
                signal = end.next() => {
                    info!("{signal}: stopped before zones were loaded");
                    Ok(None)
                }
                Some(reason) = failed.recv() => Err(Failure::new(reason)),
            }
        })
    }

    fn reloader(&self, library: Library, args: &ServeArgs) -> Reloader {
        let (config, serving) = (self.config.clone(), Arc::clone(&self.serving));
        Reloader::new(library, args.clone(), config, serving, Arc::clone(&self.counters))
    }

    /// Waits for a signal to end, and rereads on HUP until then.
    fn run(
        &self,
        failed: &mut mpsc::UnboundedReceiver<String>,
        mut signals: Signals,
        reloader: Reloader,
    ) -> Result<(), Failure> {
        self.runtime.block_on(async {
            tokio::spawn(reloader.reload_on(signals.hang_up));
            tokio::spawn(signals.unused.tell());
            tokio::select! {
                signal = signals.end.next() => {
                    info!("{signal}: answering what is in flight");
                    Ok(())
                }
                Some(reason) = failed.recv() => Err(Failure::new(reason)),
            }
        })
    }

    /// Answers what is in flight, within bounds, and ends all threads.
    fn stop(self, running: Running) {
        let Running { workers, watch, stop, stopping, mut connections, failed: _ } = running;
        self.counters.set_readiness(Readiness::Stopping);
        stop.stop();
        // Nobody listens when every accept loop and connection has ended already.
        let _ = stopping.send(true);
        for worker in workers.into_iter().chain(watch) {
            // It cannot have panicked: the process would have ended.
            let _ = worker.join();
        }
        self.runtime.block_on(async {
            // Resolves with `None` once the last holder of a sender is gone.
            let _ = tokio::time::timeout(LAST_ANSWERS, connections.recv()).await;
        });
        // A reload under way would only delay the end.
        self.runtime.shutdown_background();
        info!("stopped");
    }
}

/// The signals that the server obeys. Caught before anything else: one that comes earlier than its time waits.
/// They are heard in every runtime, not only in the one that they were caught in.
struct Signals {
    end: EndSignals,
    hang_up: Signal,
    unused: UnusedSignals,
}

/// The signals that ask for the end.
struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

/// Signals that others reread or rotate logs by. Uncaught they would end the process, which no slip of a script should.
struct UnusedSignals {
    user_1: Signal,
    user_2: Signal,
}

/// Lines about them.
static UNUSED_SIGNALS: log::Seldom = log::Seldom::new();

impl Signals {
    fn catch(runtime: &Runtime) -> Result<Signals, Failure> {
        let _in_runtime = runtime.enter();
        let catch =
            |kind| signal(kind).map_err(|error| Failure::new(format!("signals cannot be received: {error}")));
        let (terminate, interrupt) = (catch(SignalKind::terminate())?, catch(SignalKind::interrupt())?);
        let (user_1, user_2) = (catch(SignalKind::user_defined1())?, catch(SignalKind::user_defined2())?);
        Ok(Signals {
            end: EndSignals { terminate, interrupt },
            hang_up: catch(SignalKind::hangup())?,
            unused: UnusedSignals { user_1, user_2 },
        })
    }
}

impl EndSignals {
    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "TERM",
            _ = self.interrupt.recv() => "INT",
        }
    }
}

impl UnusedSignals {
    /// Says of each that it does nothing, at most once a minute.
    async fn tell(mut self) {
        loop {
            let name = tokio::select! {
                Some(()) = self.user_1.recv() => "USR1",
                Some(()) = self.user_2.recv() => "USR2",
                else => return,
            };
            if UNUSED_SIGNALS.is_due() {
                warn!(
                    "{name} does nothing here: HUP rereads the configuration and changed zones, TERM ends the server"
                );
            }
        }
    }
}

/// Whether `n_threads` more threads can run at once. Asked before the runtime is started, which panics if not.
fn try_threads(n_threads: usize) -> Result<(), Failure> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let closed = gate.lock();
        let tried: io::Result<Vec<_>> = (0..n_threads)
            .map(|_| std::thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())))
            .collect();
        drop(closed);
        tried.map(drop).map_err(|error| no_thread(&format!("all of {n_threads} tasks"), &error))
    })
}

fn no_thread(whose: &str, error: &io::Error) -> Failure {
    Failure::new(format!(
        "there is no thread for {whose}: {error}; allow more (`ulimit -u`, pids limit of the container, \
         TasksMax= of the unit), or start fewer with --workers"
    ))
}

fn start_worker(worker: Worker, failed: mpsc::UnboundedSender<String>) -> Result<JoinHandle<()>, Failure> {
    let number = worker.number;
    std::thread::Builder::new()
        .name(format!("weir-udp-{number}"))
        .spawn(move || {
            if let Err(error) = worker.run() {
                let help = match error.raw_os_error() {
                    Some(ENFILE | EMFILE) => {
                        format!("allow more files {ALLOW_MORE_FILES}, or start fewer workers (--workers)")
                    }
                    _ => "start weir anew".to_owned(),
                };
                // Nobody listens when the server is ending anyway.
                let _ = failed.send(format!("worker {number} cannot go on: {error}; {help}"));
            }
        })
        .map_err(|error| no_thread(&format!("worker {number}"), &error))
}
