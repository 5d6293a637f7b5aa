//! When packet rings answer in place of sockets: always (`ring`), never (`reuseport`), or while one worker is overloaded
//! and others have room (`auto`).
//!
//! One thread watches. It reads how full the sockets' queues are and what was dropped, and throws the switch of
//! [`weir_netio::fanout`]; rings reach and leave the workers through a [`Door`] each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{info, warn};
use weir_netio::drops::SocketMonitor;
use weir_netio::fanout::{Fanout, FanoutConfig, FanoutError};
use weir_netio::reuseport::Opened;
use weir_netio::ring::{RingEngine, RingSize};
use weir_netio::steer;

use crate::config::{AnswerWay, Config, IngressMode, Steer, Switch};
use crate::counters::{Counters, FanoutCounters};
use crate::listen;

/// Slots of a ring: 10 ms of a worker that answers 200,000 queries a second. A stalled worker holds that much back.
const RING_SLOTS: usize = 2048;
/// Octets of a slot: a question of the longest name with EDNS, cookie and signature has some 400; small slots stay in
/// the cache.
const SLOT_OCTETS: usize = 512;
/// The most of a worker's time that its ring holds, when that is known.
const RING_SECONDS_DIVISOR: u32 = 20;
/// Packet sockets to open in advance for engagements: each takes one a worker.
const RESERVE_SOCKETS: usize = 256;

/// How often queues are looked at: a default buffer takes 1.5 ms from empty to three quarters in the worst case, one of
/// 4 MiB some 60 ms. At 0.4 us a socket the look costs nothing.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often rollover is looked at while engaged.
const REVIEW_EVERY: Duration = Duration::from_millis(100);
/// How often interfaces and addresses are looked at.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// How long to wait after an engagement that failed.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// How long workers may take to give their rings back: a stalled one keeps its own until it goes on.
const RETURN_LIMIT: Duration = Duration::from_secs(10);

/// Where a worker is given a ring, and gives it back. One load tells it that nobody is there.
#[derive(Debug, Default)]
pub(crate) struct Door {
    knocking: AtomicBool,
    message: Mutex<Option<Message>>,
}

/// What lies at the door.
#[derive(Debug)]
pub(crate) enum Message {
    /// Receive from this one too.
    Offer(RingEngine),
    /// Empty your ring and give it back.
    Recall,
    /// Here it is; `None` when there was none.
    Returned(Option<RingEngine>),
}

impl Door {
    /// Whether something is there for the worker.
    #[inline]
    pub(crate) fn is_knocking(&self) -> bool {
        self.knocking.load(Ordering::Acquire)
    }

    /// What is there for the worker.
    pub(crate) fn open(&self) -> Option<Message> {
        self.knocking.store(false, Ordering::Release);
        self.message.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaves the ring for the watch.
    pub(crate) fn give_back(&self, ring: Option<RingEngine>) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(Message::Returned(ring));
    }

    /// Leaves something for the worker.
    pub(crate) fn knock(&self, message: Message) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
        self.knocking.store(true, Ordering::Release);
    }

    fn returned(&self) -> Option<Option<RingEngine>> {
        let mut message = self.message.lock().unwrap_or_else(PoisonError::into_inner);
        match message.take() {
            Some(Message::Returned(ring)) => Some(ring),
            other => {
                *message = other;
                None
            }
        }
    }
}

/// Opens the fanout if the configuration wants one and the host gives it; says once what is missing.
///
/// Before rights are dropped: packet sockets need one.
pub(crate) fn open(config: &Config, opened: &Opened, n_workers: usize) -> Option<Fanout> {
    let wanted = match config.ingress.mode {
        IngressMode::Reuseport => return None,
        IngressMode::Auto if config.ingress.fanout == Switch::Off => return None,
        IngressMode::Auto if n_workers < 2 => {
            info!("no packet fanout in waiting: one worker has no other to roll over to");
            return None;
        }
        IngressMode::Auto => "no packet fanout in waiting",
        IngressMode::Ring => "no packet rings, sockets it is",
    };
    let limit = config.experiment.limit_worker_pps;
    let slots = limit.map_or(RING_SLOTS, |pps| (pps.get() / RING_SECONDS_DIVISOR) as usize);
    let fanout = Fanout::open(
        &opened.listeners,
        FanoutConfig {
            size: RingSize { slots: slots.clamp(8, RING_SLOTS), slot_octets: SLOT_OCTETS },
            steer: match config.ingress.steer {
                Steer::Hash => steer::Steer::Hash,
                Steer::Cpu => steer::Steer::Cpu,
            },
            rollover: config.experiment.rollover,
            exact: true,
            answer_by_socket: config.ingress.answers == AnswerWay::Socket,
            interfaces: config.ingress.interfaces.clone(),
            engagements: match config.ingress.mode {
                IngressMode::Ring => 1,
                _ => (RESERVE_SOCKETS / n_workers).clamp(2, 16),
            },
        },
    );
    match fanout {
        Ok(fanout) => {
            match (fanout.lacks(), missing(&fanout.missing_interfaces())) {
                (Some(error), _) => tell_of_lack(config, &format!("{wanted} for now"), &error),
                (None, Some(warning)) => warn!("{warning}"),
                (None, None) => {}
            }
            Some(fanout)
        }
        Err(error) => {
            tell_of_lack(config, wanted, &error);
            None
        }
    }
}

/// Says once what rings lack.
fn tell_of_lack(config: &Config, wanted: &str, error: &FanoutError) {
    // Who asked for rings has something to mend, unless there is nothing that they could take; and who chose interfaces has
    // in any case.
    let to_mend = match error {
        FanoutError::NothingToTake => false,
        FanoutError::NothingChosenToTake(_) => true,
        _ => config.ingress.mode == IngressMode::Ring,
    };
    if to_mend {
        warn!("{wanted}: {error}");
    } else {
        info!("{wanted}: {error}");
    }
}

/// What to say of interfaces that were chosen and cannot be used.
fn missing(interfaces: &[String]) -> Option<String> {
    (!interfaces.is_empty()).then(|| {
        format!(
            "ingress.interfaces names {}, which is not there, not up, not Ethernet-like, or has no address now; \
             rings take what comes in by it when that has changed",
            interfaces.join(", ")
        )
    })
}

/// What `weir checkconf` has to say of a configuration that uses rings: whether they would be to be had, and what they go
/// past. Of this process's rights and this host's network, which may not be those of the server.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let ingress = &config.ingress;
    let off = ingress.mode == IngressMode::Reuseport
        || (ingress.mode == IngressMode::Auto && ingress.fanout == Switch::Off);
    if off {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    // As the server does before it opens its sockets; what is refused shows in what follows.
    let _ = weir_netio::privilege::take_up_permitted();
    match would_have(config) {
        Ok(()) => {
            if let Ok(links) = weir_netio::links::Links::read() {
                warnings.extend(missing(&links.missing(&ingress.interfaces)));
            }
        }
        Err(error) => warnings.push(match ingress.mode {
            IngressMode::Ring => {
                format!("ingress.mode = \"ring\" would fall back to sockets if started like this: {error}")
            }
            _ => format!("there would be no packet fanout in waiting if started like this: {error}"),
        }),
    }
    // Without the right to look there is nothing to say.
    let rules = weir_netio::firewall::input_rules().unwrap_or_default();
    if !rules.is_empty() {
        warnings.push(format!(
            "this host filters what comes in ({}), and packet rings go past such rules; \
             set ingress.mode = \"reuseport\", or ingress.fanout = \"off\", if they matter for DNS over UDP",
            rules.join(", ")
        ));
    }
    warnings
}

/// Whether the server would have the rings that it is meant to have, with this process's rights.
fn would_have(config: &Config) -> Result<(), FanoutError> {
    let (ingress, addresses) = (&config.ingress, listen::addresses(config));
    let n_workers = config.server.workers.map_or_else(weir_netio::affinity::default_workers, usize::from);
    // Who listens to loopback alone knows that no frame comes from a link; one worker has no other to roll over to.
    let on_loopback_alone =
        || ingress.interfaces.is_empty() && addresses.iter().all(|address| address.ip().is_loopback());
    let wants_none = ingress.mode == IngressMode::Auto && (n_workers < 2 || on_loopback_alone());
    if wants_none { Ok(()) } else { weir_netio::fanout::probe_for(&addresses, &ingress.interfaces) }
}

/// The thread that watches, and what it needs.
pub(crate) struct Watch {
    fanout: Fanout,
    /// For each listener one a worker.
    monitors: Vec<Vec<SocketMonitor>>,
    /// The kernel's drop counters when they were last read.
    drops_seen: Vec<Vec<u32>>,
    doors: Vec<Arc<Door>>,
    counters: Arc<Counters>,
    thresholds: Thresholds,
    /// Whether rings answer from start to end.
    always: bool,
    /// No engagement before.
    not_before: Instant,
}

/// When to switch.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    /// A queue fuller than this is overloaded.
    full: f64,
    /// A queue emptier than this has room.
    spare: f64,
    /// How long rings must do without rollover before sockets answer again.
    release_after: Duration,
}

impl Watch {
    /// Prepares to watch the sockets of `opened`.
    pub(crate) fn new(
        fanout: Fanout,
        config: &Config,
        opened: &Opened,
        counters: Arc<Counters>,
    ) -> std::io::Result<Watch> {
        let n_workers = counters.workers.len();
        let monitors: Vec<Vec<SocketMonitor>> = opened
            .listeners
            .iter()
            .map(|group| group.udp.iter().map(weir_netio::udp::UdpEngine::monitor).collect())
            .collect::<std::io::Result<_>>()?;
        counters.fanout.available.set(u64::from(fanout.lacks().is_none()));
        Ok(Watch {
            drops_seen: monitors.iter().map(|group| vec![0; group.len()]).collect(),
            monitors,
            fanout,
            doors: (0..n_workers).map(|_| Arc::default()).collect(),
            counters,
            thresholds: Thresholds {
                full: config.ingress.engage_fill,
                spare: config.ingress.engage_spare,
                release_after: config.ingress.release_after.0,
            },
            always: config.ingress.mode == IngressMode::Ring,
            not_before: Instant::now(),
        })
    }

    /// The door of each worker.
    pub(crate) fn doors(&self) -> &[Arc<Door>] {
        &self.doors
    }

    /// Starts the thread; with rings that answer always, they do from here on.
    pub(crate) fn start(mut self, stop: Arc<crate::worker::Stop>) -> std::io::Result<JoinHandle<()>> {
        if self.is_available() {
            self.begin();
        }
        std::thread::Builder::new().name("weir-watch".to_owned()).spawn(move || self.run(&stop))
    }

    /// Whether there is anything that rings could take.
    fn is_available(&self) -> bool {
        self.fanout.lacks().is_none()
    }

    /// Says what rings may take from now on, and has them take it when they are to answer always.
    fn begin(&mut self) {
        let (interfaces, switch) = (self.fanout.interfaces(), self.switch());
        if self.always {
            info!(
                "packet rings answer on {interfaces}, past the host's INPUT rules \
                 (ingress.mode = \"reuseport\" obeys them); switch: {switch}"
            );
            self.engage();
        } else {
            info!("packet fanout in waiting on {interfaces}; switch: {switch}");
        }
    }

    fn switch(&self) -> &'static str {
        if self.fanout.is_exact() { "exact" } else { "classic (no CAP_BPF, or a kernel before 5.5)" }
    }

    fn run(mut self, stop: &crate::worker::Stop) {
        let mut needed = Instant::now();
        let (mut review, mut refresh) = (Instant::now(), Instant::now());
        // When no listener was overloaded, for the last time.
        let mut all_well = Instant::now();
        while !stop.is_stopping() {
            std::thread::sleep(LOOK_EVERY);
            let now = Instant::now();
            if now >= refresh {
                refresh = now + REFRESH_EVERY;
                self.refresh();
            }
            if !self.fanout.is_engaged() {
                let overload = self.overload();
                if overload.is_none() {
                    all_well = now;
                }
                if let Some(reason) = overload.filter(|_| self.may_engage(now) && self.engage()) {
                    needed = Instant::now();
                    warn!(
                        "packet fanout engaged at most {:.1} ms after it was needed: {reason}; queries on {} go past \
                         the host's INPUT rules until it is released",
                        all_well.elapsed().as_secs_f64() * 1e3,
                        self.fanout.interfaces()
                    );
                }
            } else if now >= review {
                review = now + REVIEW_EVERY;
                if self.rolled_over() {
                    needed = now;
                }
                if !self.always && now.duration_since(needed) >= self.thresholds.release_after {
                    self.release();
                    all_well = Instant::now();
                }
            }
        }
        // What is on its way to rings would be lost with them; sockets are drained to their end.
        if self.fanout.is_engaged() {
            self.fanout.release();
        }
    }

    fn refresh(&mut self) {
        match self.fanout.refresh() {
            Ok(false) => {}
            Ok(true) => {
                self.fanout_counters().available.set(u64::from(self.is_available()));
                match self.fanout.lacks() {
                    Some(lack) => info!("interfaces or addresses changed; rings take nothing now: {lack}"),
                    None if self.always && !self.fanout.is_engaged() => self.begin(),
                    None => info!(
                        "interfaces or addresses changed; rings now take {}; switch: {}",
                        self.fanout.interfaces(),
                        self.switch()
                    ),
                }
            }
            Err(error) => {
                warn!("interfaces and addresses cannot be read: {error}; rings take what they took");
            }
        }
    }

    /// Reads every queue, counts what was dropped, and tells of a listener that is overloaded while another has room.
    fn overload(&mut self) -> Option<String> {
        let mut found = None;
        for (listener, monitors) in self.monitors.iter().enumerate() {
            let mut queues = Vec::with_capacity(monitors.len());
            for (worker, monitor) in monitors.iter().enumerate() {
                let Ok(memory) = monitor.read() else { continue };
                let seen = &mut self.drops_seen[listener][worker];
                let n_dropped = memory.drops.wrapping_sub(*seen);
                *seen = memory.drops;
                if let Some((_, counter)) = self.counters.workers[worker].kernel_drops.get(listener) {
                    counter.add(u64::from(n_dropped));
                }
                queues.push(Queue { worker, fill: memory.fill(), n_dropped });
            }
            found = found.or_else(|| {
                let address = self.counters.workers.first()?.kernel_drops.get(listener)?.0;
                judge(&queues, self.thresholds).map(|reason| format!("{address}: {reason}"))
            });
        }
        found
    }

    fn may_engage(&self, now: Instant) -> bool {
        now >= self.not_before && self.is_available()
    }

    /// Has rings answer; yields whether they do.
    fn engage(&mut self) -> bool {
        match self.fanout.engage() {
            Ok(rings) => {
                for (door, ring) in self.doors.iter().zip(rings) {
                    door.knock(Message::Offer(ring));
                }
                self.fanout_counters().engaged.set(1);
                self.fanout_counters().engagements.add(1);
                true
            }
            Err(error) => {
                self.not_before = Instant::now() + RETRY_AFTER;
                warn!("the packet fanout cannot be engaged: {error}; sockets go on");
                false
            }
        }
    }

    fn release(&mut self) {
        let to_retire = self.fanout.release();
        self.fanout_counters().engaged.set(0);
        info!(
            "packet fanout released: no rollover for {} s; sockets answer again",
            self.thresholds.release_after.as_secs_f32()
        );
        // The filter's own drops are none.
        for (monitors, seen) in self.monitors.iter().zip(&mut self.drops_seen) {
            for (monitor, seen) in monitors.iter().zip(seen) {
                *seen = monitor.read().map_or(*seen, |memory| memory.drops);
            }
        }
        if to_retire {
            self.retire();
        }
    }

    /// Takes the rings back and closes the group.
    fn retire(&mut self) {
        self.doors.iter().for_each(|door| door.knock(Message::Recall));
        let deadline = Instant::now() + RETURN_LIMIT;
        let mut rings = Vec::new();
        let mut waiting: Vec<&Arc<Door>> = self.doors.iter().collect();
        while !waiting.is_empty() && Instant::now() < deadline {
            waiting.retain(|door| match door.returned() {
                Some(ring) => {
                    rings.extend(ring);
                    false
                }
                None => true,
            });
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Err(error) = self.fanout.retire(rings) {
            warn!("the packet fanout cannot be prepared anew: {error}");
        }
    }

    /// Whether a ring was full since the last look.
    fn rolled_over(&mut self) -> bool {
        let stats = self.fanout.stats();
        let counters = self.fanout_counters();
        let before =
            counters.rolled_over.value() + counters.rollover_failed.value() + counters.dropped.value();
        counters.rolled_over.set(stats.rolled_over);
        counters.rolled_over_huge.set(stats.rolled_over_huge);
        counters.rollover_failed.set(stats.rollover_failed);
        counters.dropped.set(stats.dropped);
        stats.rolled_over + stats.rollover_failed + stats.dropped > before
    }

    fn fanout_counters(&self) -> &FanoutCounters {
        &self.counters.fanout
    }
}

/// The queue of one worker's socket.
#[derive(Clone, Copy, Debug)]
struct Queue {
    worker: usize,
    fill: f64,
    n_dropped: u32,
}

/// Why the fanout is to be engaged, if it is: a worker drops or is about to, and another has room.
fn judge(queues: &[Queue], thresholds: Thresholds) -> Option<String> {
    let full = queues.iter().find(|queue| queue.n_dropped > 0 || queue.fill > thresholds.full)?;
    let spare = queues
        .iter()
        .find(|queue| queue.worker != full.worker && queue.n_dropped == 0 && queue.fill < thresholds.spare)?;
    let state = match full.n_dropped {
        0 => format!("queue is {:.0} % full", full.fill * 100.0),
        n_dropped => format!("queue dropped {n_dropped}"),
    };
    Some(format!(
        "worker {}'s {state} while worker {}'s is {:.0} % full",
        full.worker,
        spare.worker,
        spare.fill * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Thresholds = Thresholds { full: 0.75, spare: 0.5, release_after: Duration::from_secs(5) };

    fn queues(states: &[(f64, u32)]) -> Vec<Queue> {
        let queue = |(worker, &(fill, n_dropped))| Queue { worker, fill, n_dropped };
        states.iter().enumerate().map(queue).collect()
    }

    #[test]
    fn one_full_queue_beside_one_with_room_is_a_reason() {
        for states in [&[(0.8, 0), (0.1, 0)][..], &[(0.1, 0), (0.2, 3)], &[(1.0, 9), (0.9, 0), (0.49, 0)]] {
            assert!(judge(&queues(states), USUAL).is_some(), "{states:?}");
        }
    }

    #[test]
    fn load_that_no_other_could_take_is_none() {
        for states in
            [&[(0.8, 0), (0.6, 0)][..], &[(1.0, 5), (0.0, 5)], &[(0.74, 0), (0.0, 0)], &[(1.0, 5)], &[]]
        {
            assert!(judge(&queues(states), USUAL).is_none(), "{states:?}");
        }
    }

    #[test]
    fn the_reason_names_both_workers() {
        let reason = judge(&queues(&[(0.01, 0), (0.83, 0)]), USUAL).unwrap();
        assert_eq!(reason, "worker 1's queue is 83 % full while worker 0's is 1 % full");
    }
}
