//! A packet fanout with rollover: one ring a worker, joined in one group, beside the workers' UDP sockets.
//!
//! The kernel spreads frames over the group as it would over sockets, but when a ring is full the frame rolls over to
//! one that has room (packet(7), `PACKET_FANOUT_FLAG_ROLLOVER`). [`Fanout::engage`] hooks the group into the
//! network stack and makes rings answer in place of sockets, [`Fanout::release`] gives the queries back.
//!
//! **invariant:** at any moment one engine answers for an (address, port). The UDP sockets stay bound, so that nobody is
//! told "port unreachable", and leave to the rings what those take. A switch doubles rather than loses where it is not
//! exact: a resolver throws a second answer away, while a lost query costs it a timeout of a second or more.
//!
//! **invariant:** everything that takes a right is done by [`Fanout::open`]. A packet socket costs nothing until it is
//! bound, and cannot be taken out of the stack again but by closing it: so there is a reserve of them, a set of one a
//! worker for each engagement. When it is used up, the last set stays hooked.
//!
//! One `ETH_P_ALL` socket a worker, bound to no interface, serves both families and interfaces that come later; the
//! filter says which frames are taken.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use libc::{c_int, sock_filter};
use socket2::{Domain, Socket, Type};

use crate::filter::{self, Taken};
use crate::handoff::Handoff;
use crate::links::Links;
use crate::reuseport::Listeners;
use crate::ring::{self, RingContext, RingEngine, RingSize};
use crate::steer::{self, Steer};
use crate::sys::{self, set_int};
use crate::udp::{UdpEngine, UdpSocketConfig, set_buffers};

/// The most members of a group: `PACKET_FANOUT_MAX`, net/packet/internal.h.
const MAX_MEMBERS: usize = 256;
/// How long a packet may be under way in the kernel between the tap and the socket: a softirq ends within two jiffies or
/// is put off (`MAX_SOFTIRQ_TIME`, kernel/softirq.c), and packets take microseconds.
const GRACE: Duration = Duration::from_millis(2);

/// How a fanout is made.
#[derive(Debug, Clone)]
pub struct FanoutConfig {
    /// Size of each ring. Its slots may be made larger; see [`Fanout::open`].
    pub size: RingSize,
    /// By the kernel's hash of the flow, or by the CPU that received the frame.
    pub steer: Steer,
    /// Whether frames roll over from a full ring to another.
    pub rollover: bool,
    /// Whether answers leave by the UDP sockets, so that routing and netfilter see them, rather than by the link.
    pub answer_by_socket: bool,
    /// Whether to try for the exact switch ([`Fanout::is_exact`]); without it, for comparison, the classic one.
    pub exact: bool,
    /// How often the fanout can be engaged before its taps stay in the stack for good.
    pub engagements: usize,
    /// Names of the interfaces whose frames may be taken; none means all that suit. Others are left to the sockets.
    pub interfaces: Vec<String>,
}

/// Why there is no fanout. Each says what is missing and how to give it.
#[derive(Debug, thiserror::Error)]
pub enum FanoutError {
    /// `EPERM`: no `CAP_NET_RAW`.
    #[error(
        "no right to open packet sockets (CAP_NET_RAW): start as root, which is given up once they are open, \
         or grant it (docker run --cap-add NET_RAW, AmbientCapabilities=CAP_NET_RAW)"
    )]
    NoRight,
    /// `EAFNOSUPPORT` or `ESOCKTNOSUPPORT`: a kernel without them.
    #[error("this kernel has no packet sockets (CONFIG_PACKET)")]
    NoKernelSupport,
    /// Nothing that is listened to is reached over Ethernet.
    #[error(
        "no Ethernet interface that is up carries an address that is listened to; loopback is left to the sockets"
    )]
    NothingToTake,
    /// The same of the interfaces that were chosen.
    #[error("none of the interfaces that were chosen ({}) is up, Ethernet-like, and carries an address", .0.join(", "))]
    NothingChosenToTake(Vec<String>),
    /// A group has 256 members at most.
    #[error("{0} workers are more than the {MAX_MEMBERS} that a packet fanout can have; set server.workers")]
    TooManyWorkers(usize),
    /// `ENOMEM`, `ENOBUFS`, `EMFILE` or `ENFILE`: a limit on memory or descriptors.
    #[error(
        "{call}: {source}; a ring takes 1 MiB of memory, 4 with the classic switch, and a packet socket a descriptor, \
         times workers: raise the limit (a container's memory, ulimit -n) or lower server.workers"
    )]
    Limit {
        /// The system call or option.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A call failed.
    #[error("{call}: {source}")]
    Call {
        /// The system call or option.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn failed(call: &'static str) -> impl FnOnce(io::Error) -> FanoutError {
    move |source| match source.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOBUFS | libc::EMFILE | libc::ENFILE) => {
            FanoutError::Limit { call, source }
        }
        _ => FanoutError::Call { call, source },
    }
}

/// What the kernel counted for the rings, since the fanout was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FanoutStats {
    /// Frames that rolled over from a full ring to another.
    pub rolled_over: u64,
    /// Of these, frames of a flow that takes up most of its ring.
    pub rolled_over_huge: u64,
    /// Frames for which no ring had room.
    pub rollover_failed: u64,
    /// Frames that were dropped because a ring was full.
    pub dropped: u64,
}

/// How the switch between sockets and rings is made.
#[derive(Debug)]
enum Switch {
    /// By filters put on and taken off one socket after the other.
    Classic {
        ring: Vec<sock_filter>,
        /// Of IPv4 sockets and of IPv6 sockets: short programs are quicker to put on.
        shadow_v4: Vec<sock_filter>,
        shadow_v6: Vec<sock_filter>,
    },
    /// By one word in memory.
    Handoff(Handoff),
}

/// A packet socket a worker.
type Set = Vec<Arc<OwnedFd>>;

/// The packet sockets of all workers, and the switch.
#[derive(Debug)]
pub struct Fanout {
    config: FanoutConfig,
    /// The UDP sockets: for each listener one a worker.
    sockets: Vec<Vec<OwnedFd>>,
    context: Arc<RingContext>,
    senders: Set,
    reserve: Vec<Set>,
    /// The set of the next engagement, with its rings.
    prepared: Option<(Set, Vec<RingEngine>)>,
    /// The set whose taps are in the stack.
    hooked: Option<Set>,
    engaged: bool,
    links: Links,
    taken: Taken,
    switch: Switch,
    /// Spreads flows over the rings as it does over the sockets: then the classic switch is thrown worker by worker.
    flows: Option<Vec<sock_filter>>,
    /// Counted by sets that are closed, and drops, which the kernel forgets when they are read.
    past: FanoutStats,
}

impl Fanout {
    /// Opens packet sockets for the workers of `listeners`, and makes the rings of the first engagement; nothing is
    /// in the network stack yet.
    ///
    /// Where programs cannot be loaded (no `CAP_BPF`), slots are four times as large: the exact switch leaves a frame of
    /// several joined queries that is too long for a slot to the sockets as a whole, the classic one cannot.
    ///
    /// # Errors
    /// What is missing: the caller says so once and goes on with sockets.
    pub fn open(listeners: &[Listeners], config: FanoutConfig) -> Result<Self, FanoutError> {
        let n_workers = listeners.iter().map(|group| group.udp.len()).min().unwrap_or(0);
        if n_workers > MAX_MEMBERS {
            return Err(FanoutError::TooManyWorkers(n_workers));
        }
        let sockets: Vec<_> = listeners.iter().map(|group| handles(&group.udp)).collect::<Result<_, _>>()?;
        let listeners: Vec<SocketAddr> = listeners.iter().map(|group| group.address).collect();
        let links = Links::read().map_err(failed("rtnetlink"))?.only(&config.interfaces);
        let mut config = config;
        // Asked first: where nothing but loopback is listened to, no right is missing. Else an interface or an address may come
        // later, when packet sockets cannot be opened any more.
        let mut taken = links.taken(&listeners, config.size.max_packet_octets());
        if taken.is_empty() && listeners.iter().all(|listener| listener.ip().is_loopback()) {
            return Err(nothing_to_take(&config.interfaces));
        }
        let senders = (0..n_workers).map(|_| sender()).collect::<Result<_, _>>()?;
        let handoff = config.exact.then(|| Handoff::load(&taken, &ports(&listeners))).and_then(Result::ok);
        let switch = match handoff {
            Some(handoff) => Switch::Handoff(handoff),
            None => {
                config.size.slot_octets = (config.size.slot_octets * 4).min(2048);
                taken.max_packet_octets = config.size.max_packet_octets();
                classic(&taken).map_err(failed("packet filter"))?
            }
        };
        let reserve = (0..config.engagements.max(1))
            .map(|_| (0..n_workers).map(|_| packet_socket()).collect())
            .collect::<Result<_, _>>()?;
        let mtu = AtomicUsize::new(if config.answer_by_socket { 0 } else { links.mtu() });
        let mut fanout = Self {
            config,
            sockets,
            context: Arc::new(RingContext { listeners, mtu, exit: AtomicU32::new(0) }),
            senders,
            reserve,
            prepared: None,
            hooked: None,
            engaged: false,
            links,
            taken,
            switch,
            flows: None,
            past: FanoutStats::default(),
        };
        fanout.bind_senders();
        fanout.spread_alike_if_possible();
        fanout.prepare().map_err(failed("packet ring"))?;
        Ok(fanout)
    }

    /// Binds the workers' senders to the first interface that rings take from, nearly always the only one. Answers that leave by
    /// another name it, and all do where that fails.
    fn bind_senders(&self) {
        let exit = &self.context.exit;
        if exit.swap(0, Ordering::Relaxed) != 0 {
            // Workers that read the old one have sent by then. One that is stopped for longer sends a batch by the new one.
            std::thread::sleep(GRACE);
        }
        if let Some(&interface) = self.taken.interfaces.first()
            && self.senders.iter().all(|sender| bind(sender.as_fd(), 0, interface).is_ok())
        {
            exit.store(interface, Ordering::Release);
        }
    }

    /// Where the switch is classic, has sockets and rings spread flows alike: no right is needed for it. A group that is in the
    /// stack keeps the way that it was made with.
    fn spread_alike_if_possible(&mut self) {
        let is_classic = matches!(self.switch, Switch::Classic { .. });
        if is_classic && self.config.steer == Steer::Hash && self.flows.is_none() && self.hooked.is_none() {
            self.flows = spread_alike(&self.sockets, self.senders.len());
        }
    }

    /// Whether the switch between sockets and rings is exact: nothing lost, nothing answered twice.
    pub fn is_exact(&self) -> bool {
        matches!(self.switch, Switch::Handoff(_))
    }

    /// Names of the interfaces whose frames are taken.
    pub fn interfaces(&self) -> String {
        self.links.names()
    }

    /// Names of the interfaces that were chosen and whose frames are not taken.
    pub fn missing_interfaces(&self) -> Vec<String> {
        self.links.missing(&self.config.interfaces)
    }

    /// What keeps rings from having anything to take now; that may change with a [`Fanout::refresh`].
    pub fn lacks(&self) -> Option<FanoutError> {
        self.taken.is_empty().then(|| nothing_to_take(&self.config.interfaces))
    }

    /// Whether rings answer.
    pub fn is_engaged(&self) -> bool {
        self.engaged
    }

    /// Hands the queries over to rings, and yields a ring for each worker, in order; an empty list when the workers have
    /// theirs from the last time.
    ///
    /// # Errors
    /// A call that failed; sockets answer as before then.
    pub fn engage(&mut self) -> Result<Vec<RingEngine>, FanoutError> {
        let mut rings = Vec::new();
        if self.hooked.is_none() {
            self.prepare().map_err(failed("packet ring"))?;
            let Some((set, made)) = self.prepared.take() else {
                return Err(failed("packet ring")(io::ErrorKind::OutOfMemory.into()));
            };
            // On failure the set is closed, which takes it out of the stack.
            self.hook(&set)?;
            (self.hooked, rings) = (Some(set), made);
        }
        match self.switch_to_rings() {
            Ok(()) => {
                self.engaged = true;
                Ok(rings)
            }
            Err(error) => {
                self.switch_to_sockets();
                self.close_hooked();
                Err(error)
            }
        }
    }

    /// Gives the queries back to the sockets. Frames that are in rings stay there and have to be answered.
    ///
    /// Yields whether the workers' rings should be taken back and handed to [`Fanout::retire`].
    pub fn release(&mut self) -> bool {
        self.switch_to_sockets();
        self.engaged = false;
        !self.reserve.is_empty()
    }

    /// Closes the group, together with the rings that were taken back, and makes the next. Takes some 25 ms a worker in
    /// the kernel, which waits for packets under way.
    pub fn retire(&mut self, rings: Vec<RingEngine>) -> io::Result<()> {
        self.close_hooked();
        drop(rings);
        self.prepare()
    }

    /// Looks at interfaces and addresses again and takes their frames from now on; yields whether anything changed.
    ///
    /// # Errors
    /// The kernel's refusal; what was taken before is still taken.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let links = Links::read()?.only(&self.config.interfaces);
        if links == self.links {
            return Ok(false);
        }
        let taken = links.taken(&self.context.listeners, self.taken.max_packet_octets);
        if !self.config.answer_by_socket {
            self.context.mtu.store(links.mtu(), Ordering::Relaxed);
        }
        self.links = links;
        if taken == self.taken {
            return Ok(false);
        }
        let another = match &self.switch {
            Switch::Handoff(handoff) if handoff.has_room_for(&taken) => None,
            _ => Some(self.another_switch(&taken)?),
        };
        if self.engaged {
            self.switch_to_sockets();
        }
        if let Some(switch) = another {
            self.switch = switch;
            self.spread_alike_if_possible();
            self.hooked.iter().flatten().try_for_each(|socket| self.fit(socket.as_fd()))?;
        } else if let Switch::Handoff(handoff) = &self.switch {
            handoff.update(&taken);
        }
        self.taken = taken;
        self.bind_senders();
        if self.engaged {
            self.switch_to_rings().map_err(io::Error::other)?;
        }
        Ok(true)
    }

    /// A switch for what the one there is has no room for. Programs cannot be loaded once rights are dropped: then the classic
    /// filters take over.
    fn another_switch(&self, taken: &Taken) -> io::Result<Switch> {
        match (self.is_exact(), Handoff::load(taken, &ports(&self.context.listeners))) {
            (true, Ok(handoff)) => Ok(Switch::Handoff(handoff)),
            _ => classic(taken),
        }
    }

    /// What the kernel counted so far.
    pub fn stats(&mut self) -> FanoutStats {
        let mut stats = self.past;
        for socket in self.hooked.iter().flatten() {
            self.past.dropped += ring::drops(socket.as_fd()).unwrap_or(0);
            let [all, huge, failed] = ring::rollovers(socket.as_fd()).unwrap_or_default();
            stats.rolled_over += all;
            stats.rolled_over_huge += huge;
            stats.rollover_failed += failed;
        }
        stats.dropped = self.past.dropped;
        stats
    }

    /// Makes the rings of the next engagement, if they are not there and the reserve has sockets.
    fn prepare(&mut self) -> io::Result<()> {
        if self.prepared.is_some() {
            return Ok(());
        }
        let Some(set) = self.reserve.pop() else { return Ok(()) };
        let rings = set.iter().zip(&self.senders).map(|(socket, sender)| {
            RingEngine::new(
                Arc::clone(socket),
                Arc::clone(sender),
                self.config.size,
                Arc::clone(&self.context),
            )
        });
        let rings = rings.collect::<io::Result<_>>()?;
        self.prepared = Some((set, rings));
        Ok(())
    }

    /// Puts a set's taps into the stack as one group that takes nothing yet.
    fn hook(&self, set: &Set) -> Result<(), FanoutError> {
        if let Switch::Handoff(handoff) = &self.switch {
            handoff.set(false);
        }
        let mut group = None;
        for socket in set {
            let socket = socket.as_fd();
            self.fit(socket).map_err(failed("packet filter"))?;
            bind_to_all(socket).map_err(failed("bind"))?;
            group = Some(self.join(socket, group).map_err(failed("PACKET_FANOUT"))?);
        }
        if let (Some(flows), Some(socket)) = (&self.flows, set.first()) {
            steer_fanout(socket.as_fd(), flows).map_err(failed("PACKET_FANOUT_DATA"))?;
        }
        Ok(())
    }

    /// Gives a packet socket the filter that takes nothing until the switch is thrown.
    fn fit(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        match &self.switch {
            Switch::Classic { .. } => filter::attach(socket, &filter::nothing()),
            Switch::Handoff(handoff) => handoff.attach_tap(socket),
        }
    }

    /// Makes a socket a member of `group`, or of a new one whose number the kernel chooses; yields the number.
    fn join(&self, socket: BorrowedFd<'_>, group: Option<u32>) -> io::Result<u32> {
        let mut kind = match self.config.steer {
            Steer::Hash if self.flows.is_some() => PACKET_FANOUT_CBPF,
            Steer::Hash => libc::PACKET_FANOUT_HASH,
            Steer::Cpu => libc::PACKET_FANOUT_CPU,
        } | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        if self.config.rollover {
            kind |= libc::PACKET_FANOUT_FLAG_ROLLOVER;
        }
        if group.is_none() {
            kind |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
        }
        let argument = (kind << 16 | group.unwrap_or(0)).cast_signed();
        set_int(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, argument)?;
        let (words, _) = sys::option_words::<1>(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok(words[0] & 0xFFFF)
    }

    fn switch_to_rings(&self) -> Result<(), FanoutError> {
        match &self.switch {
            Switch::Classic { ring, shadow_v4, shadow_v6 } => {
                // Rings first: for some microseconds a query may be answered by both.
                let rings = |workers: Range<usize>| {
                    let mut rings = self.hooked.iter().flatten().skip(workers.start).take(workers.len());
                    rings.try_for_each(|socket| filter::attach(socket.as_fd(), ring))
                };
                let sockets = |workers: Range<usize>| {
                    let mut groups = self.context.listeners.iter().zip(&self.sockets);
                    groups.try_for_each(|(address, sockets)| {
                        let shadow = if address.is_ipv4() { shadow_v4 } else { shadow_v6 };
                        let mut sockets = sockets.iter().skip(workers.start).take(workers.len());
                        sockets.try_for_each(|socket| filter::attach(socket.as_fd(), shadow))
                    })
                };
                self.in_turn(|workers| rings(workers.clone()).and_then(|()| sockets(workers)))
                    .map_err(failed("SO_ATTACH_FILTER"))
            }
            Switch::Handoff(handoff) => {
                // Every packet that meets the sockets' filter has met the tap before.
                std::thread::sleep(GRACE);
                self.each_socket(|socket| handoff.attach_obey(socket)).map_err(failed("SO_ATTACH_BPF"))?;
                handoff.set(true);
                Ok(())
            }
        }
    }

    /// Cannot fail in a way that anybody could do something about: what is left is what the kernel refuses, and then the
    /// rings go on.
    fn switch_to_sockets(&self) {
        match &self.switch {
            Switch::Classic { .. } => {
                let _ = self.in_turn(|workers| {
                    for sockets in &self.sockets {
                        for socket in sockets.iter().skip(workers.start).take(workers.len()) {
                            let _ = filter::detach(socket.as_fd());
                        }
                    }
                    for socket in self.hooked.iter().flatten().skip(workers.start).take(workers.len()) {
                        let _ = filter::attach(socket.as_fd(), &filter::nothing());
                    }
                    Ok(())
                });
                // What the taps have taken is in the rings before anybody empties them for the last time.
                std::thread::sleep(GRACE);
            }
            Switch::Handoff(handoff) => {
                handoff.set(false);
                std::thread::sleep(GRACE);
                let _ = self.each_socket(filter::detach);
            }
        }
    }

    /// Acts on one worker after the other where a flow has the same one by either way: then its queries meet a half-thrown
    /// switch for as long as two filters take. Else on all workers at once.
    fn in_turn(&self, mut act: impl FnMut(Range<usize>) -> io::Result<()>) -> io::Result<()> {
        let n_workers = self.senders.len();
        match self.flows {
            Some(_) => (0..n_workers).try_for_each(|worker| act(worker..worker + 1)),
            None => act(0..n_workers),
        }
    }

    fn each_socket(&self, mut act: impl FnMut(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        self.sockets.iter().flatten().try_for_each(|socket| act(socket.as_fd()))
    }

    fn close_hooked(&mut self) {
        self.past = self.stats();
        // A worker that is stalled may hold its ring for longer than this group lives: it shall take nothing any more.
        for socket in self.hooked.take().iter().flatten() {
            let _ = filter::attach(socket.as_fd(), &filter::nothing());
        }
    }
}

/// Whether this process may open packet sockets.
///
/// # Errors
/// What is missing.
pub fn probe() -> Result<(), FanoutError> {
    open_packet_socket().map(drop)
}

/// Whether this process could have packet rings for `listeners` on `interfaces` (none means all that suit) now.
///
/// # Errors
/// What is missing.
pub fn probe_for(listeners: &[SocketAddr], interfaces: &[String]) -> Result<(), FanoutError> {
    let links = Links::read().map_err(failed("rtnetlink"))?.only(interfaces);
    match links.taken(listeners, u16::MAX).is_empty() {
        true => Err(nothing_to_take(interfaces)),
        false => probe(),
    }
}

/// The ports of all listeners.
fn ports(listeners: &[SocketAddr]) -> Vec<u16> {
    listeners.iter().map(SocketAddr::port).collect()
}

fn nothing_to_take(chosen: &[String]) -> FanoutError {
    match chosen {
        [] => FanoutError::NothingToTake,
        chosen => FanoutError::NothingChosenToTake(chosen.to_vec()),
    }
}

/// Has every group of sockets spread flows by one program, and yields it, for the fanout to do the same; `None` where a group
/// does not take it (one worker has no group).
fn spread_alike(groups: &[Vec<OwnedFd>], n_workers: usize) -> Option<Vec<sock_filter>> {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Senders shall not know which of their ports meet one worker.
    let [s0, s1, s2, s3, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    let secret = u32::from_le_bytes([s0, s1, s2, s3]);
    let program = steer::flow_program(u32::try_from(n_workers).ok()?, secret);
    let mut first_of_each = groups.iter().map(|group| group.first());
    first_of_each
        .all(|socket| socket.is_some_and(|socket| steer::attach(socket.as_fd(), &program).is_ok()))
        .then_some(program)
}

/// `PACKET_FANOUT_CBPF` and `PACKET_FANOUT_DATA`, include/uapi/linux/if_packet.h.
const PACKET_FANOUT_CBPF: u32 = 6;
const PACKET_FANOUT_DATA: c_int = 22;

/// Has a fanout group spread frames by a program; any member will do.
fn steer_fanout(socket: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel only reads the program; the C type has no const.
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    sys::set_option(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, &filter)
}

fn classic(taken: &Taken) -> io::Result<Switch> {
    let without_v6 = Taken { ipv6: Vec::new(), ..taken.clone() };
    let without_v4 = Taken { ipv4: Vec::new(), ..taken.clone() };
    Ok(Switch::Classic {
        ring: taken.ring_program()?,
        shadow_v4: without_v6.shadow_program()?,
        shadow_v6: without_v4.shadow_program()?,
    })
}

fn handles(engines: &[UdpEngine]) -> Result<Vec<OwnedFd>, FanoutError> {
    engines.iter().map(|engine| engine.as_fd().try_clone_to_owned().map_err(failed("dup"))).collect()
}

/// A packet socket that is bound to no protocol: it is in nobody's way.
fn open_packet_socket() -> Result<Socket, FanoutError> {
    Socket::new(Domain::PACKET, Type::RAW.cloexec(), None).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => FanoutError::NoRight,
        Some(libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT) => FanoutError::NoKernelSupport,
        _ => failed("socket AF_PACKET")(error),
    })
}

fn packet_socket() -> Result<Arc<OwnedFd>, FanoutError> {
    open_packet_socket().map(|socket| Arc::new(socket.into()))
}

/// The socket that answers leave by: past the queueing discipline, straight to the device.
fn sender() -> Result<Arc<OwnedFd>, FanoutError> {
    let socket = open_packet_socket()?;
    set_int(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).map_err(failed("PACKET_VNET_HDR"))?;
    // Both are for speed; without them answers leave all the same.
    let _ = set_int(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
    set_buffers(&socket, &UdpSocketConfig::default(), &mut Vec::new());
    Ok(Arc::new(socket.into()))
}

/// Binds a packet socket to every protocol on every interface: its tap runs before all others.
fn bind_to_all(socket: BorrowedFd<'_>) -> io::Result<()> {
    bind(socket, u16::try_from(libc::ETH_P_ALL).unwrap_or(0), 0)
}

/// Binds a packet socket to a protocol (0: it receives nothing) and an interface (0: all).
fn bind(socket: BorrowedFd<'_>, protocol: u16, interface: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: a C structure of integers; all zeros is "no interface, no address".
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::sa_family_t::try_from(libc::AF_PACKET).unwrap_or(0);
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    // SAFETY: the kernel reads a local of the announced size that outlives the call.
    let result: c_int = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            sys::socklen_of::<libc::sockaddr_ll>(),
        )
    };
    sys::check(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_met_is_told_with_what_to_raise() {
        let error = |number| failed("PACKET_RX_RING")(io::Error::from_raw_os_error(number)).to_string();
        assert!(error(libc::ENOMEM).contains("1 MiB of memory"), "{}", error(libc::ENOMEM));
        assert!(error(libc::EMFILE).contains("ulimit -n"));
        assert!(!error(libc::EINVAL).contains("raise"));
    }
}
