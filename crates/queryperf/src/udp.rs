//! The load over UDP: one thread with ports of its own.
//!
//! A thread works in turns: send what is due, take what has arrived, rest. It does not wait for answers one by one:
//! the kernel stamps their arrival, so that a nap of some tens of microseconds costs no precision, and both directions
//! go in batches. Nothing is allocated once a thread has started.

use std::time::{Duration, Instant};

use anyhow::Context;
use weir_netio::affinity;
use weir_netio::client::{ClientSocket, Watch};
use weir_netio::datagrams::{Inbox, Outbox};
use weir_netio::udp::{UdpSocketConfig, Wait};

use crate::clock;
use crate::flight::{Flight, MAX_IDS, Place};
use crate::load::{Load, Share, Supply};
use crate::queries::MAX_QUERY_OCTETS;
use crate::tally::{Progress, Tally};

/// Datagrams of one system call.
const BATCH: usize = 64;
/// Octets of an answer that are looked at: header and question.
const LOOK_AT_OCTETS: usize = MAX_QUERY_OCTETS;
/// Batches received in one turn before queries are sent again.
const BATCHES_A_TURN: usize = 4;
/// The shortest time between two bursts: at low rates queries leave one by one.
const SHORTEST_TURN: Duration = Duration::from_millis(1);
/// The longest rest, so that the end of the load and a word to stop are noticed.
const LONGEST_REST: Duration = Duration::from_millis(10);
/// A nap while answers are on their way.
const NAP: Duration = Duration::from_micros(30);
/// Naps without an answer before the thread sleeps until one comes.
const MOST_NAPS: u32 = 16;
/// With fewer queries on their way than this, a nap would leave the server without work.
const ENOUGH_FOR_A_NAP: usize = 32;
/// How long further answers to answered queries are waited for at the end.
const GRACE: Duration = Duration::from_millis(50);
/// How often queries without an answer are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);

/// One thread's part of a load over UDP.
pub(crate) struct Lane {
    share: Share,
    sockets: Vec<ClientSocket>,
    /// None with a single socket, which is asked directly.
    watch: Option<Watch>,
    outbox: Outbox,
    inbox: Inbox,
    /// The places of what is in the outbox.
    places: [Place; BATCH],
    flight: Flight,
    tally: Tally,
    port: usize,
    left_in_row: usize,
    n_vain_naps: u32,
    next_expiry: Instant,
}

impl Lane {
    /// Opens the ports of a share.
    pub(crate) fn open(share: Share) -> anyhow::Result<Lane> {
        let sockets = (share.first_port..share.first_port + share.n_ports)
            .map(|port| open_socket(&share.load, port))
            .collect::<anyhow::Result<Vec<ClientSocket>>>()?;
        let watch = if sockets.len() > 1 { Some(Watch::new(&sockets)?) } else { None };
        for socket in &sockets {
            socket.set_receive_timeout(LONGEST_REST)?;
        }
        let in_a_row = share.load.in_a_row;
        Ok(Lane {
            sockets,
            watch,
            outbox: Outbox::new(BATCH, MAX_QUERY_OCTETS),
            inbox: Inbox::new(BATCH, LOOK_AT_OCTETS),
            places: [Place::default(); BATCH],
            flight: table(&share),
            tally: Tally::new(),
            port: 0,
            left_in_row: in_a_row,
            n_vain_naps: 0,
            next_expiry: Instant::now(),
            share,
        })
    }

    /// Sends and receives until the supply is over, then waits for what is on its way.
    pub(crate) fn run(mut self, start: Instant, progress: &Progress) -> anyhow::Result<Tally> {
        self.supply().begin(start);
        // Refused by old kernels only; naps are then a little longer.
        let _ = affinity::set_timer_slack(Duration::from_micros(1));
        while let Some(allowed) = self.supply().allowance(Instant::now()) {
            let n = allowed.min(self.room());
            let n_sent = self.send(n.min(BATCH))?;
            let n_received = self.receive(Duration::ZERO)?;
            progress.show(&self.tally);
            self.expire();
            self.rest(n > n_sent, n_received)?;
        }
        let end = Instant::now();
        self.tally.sending_ns = clock::in_ns(end - start);
        self.tally.unsent = self.supply().n_left_out(end);
        self.drain(end, progress)?;
        Ok(self.tally)
    }

    fn supply(&mut self) -> &mut Supply {
        &mut self.share.supply
    }

    /// How many queries may be on their way.
    fn window(&self) -> usize {
        self.share.window.unwrap_or(usize::MAX).min(self.flight.capacity())
    }

    /// How many queries may join those on their way.
    fn room(&self) -> usize {
        self.window().saturating_sub(self.flight.n_waiting())
    }

    /// The port whose turn it is, as its queries are noted.
    fn port_number(&self) -> u16 {
        u16::try_from(self.port).unwrap_or(u16::MAX)
    }

    /// Sends `n` queries, some in a row from each port, and yields how many the kernel took.
    fn send(&mut self, n: usize) -> anyhow::Result<usize> {
        let (mut n_sent, mut n_full_ports) = (0, 0);
        let mut before_ns = if n > 0 { clock::now_ns() } else { 0 };
        while n_sent < n {
            let run = (n - n_sent).min(self.left_in_row);
            let n_taken = self.send_run(run, &mut before_ns)?;
            n_sent += n_taken;
            // A port without ids leaves its turn to the next; when all are so, or the kernel takes no more, that is all.
            let is_full = n_taken < run && self.flight.is_full(self.port_number());
            n_full_ports = if is_full { n_full_ports + 1 } else { 0 };
            if n_taken < run && (!is_full || n_full_ports >= self.sockets.len()) {
                break;
            }
            self.left_in_row -= n_taken;
            if self.left_in_row == 0 || is_full {
                self.left_in_row = self.share.load.in_a_row;
                self.port = if self.port + 1 == self.sockets.len() { 0 } else { self.port + 1 };
            }
        }
        self.tally.sent += n_sent as u64;
        Ok(n_sent)
    }

    /// Sends `n` queries, at most [`BATCH`], from one port. `before_ns` is the time now, and after it the time then.
    fn send_run(&mut self, n: usize, before_ns: &mut u64) -> anyhow::Result<usize> {
        self.outbox.clear();
        let port = self.port_number();
        for kept in &mut self.places[..n] {
            let query = self.share.supply.take();
            let Some(place) = self.flight.begin(query, port) else {
                self.share.supply.give_back(1);
                break;
            };
            *kept = place;
            if let Some(packet) = self.outbox.push(self.share.load.queries.packet(query)) {
                packet[..2].copy_from_slice(&place.id.to_be_bytes());
            }
        }
        let n = self.outbox.len();
        let n_taken = self.sockets[self.port].send(&mut self.outbox, 0..n).context("cannot send")?;
        let after_ns = clock::now_ns();
        // The kernel sends one after the other, so the time of the call is shared out evenly.
        let each_ns = after_ns.saturating_sub(*before_ns) / (n.max(1) as u64);
        for (number, &place) in (0_u64..).zip(&self.places[..n_taken]) {
            self.flight.sent(place, *before_ns + number * each_ns);
        }
        for &place in &self.places[n_taken..n] {
            self.flight.cancel(place);
        }
        self.share.supply.give_back(n - n_taken);
        *before_ns = after_ns;
        Ok(n_taken)
    }

    /// Takes what has arrived, or waits for the first of it for up to `limit`; yields how many datagrams there were.
    fn receive(&mut self, limit: Duration) -> anyhow::Result<usize> {
        let Some(watch) = &mut self.watch else { return self.receive_alone(limit) };
        let n_ready = watch.wait(limit)?;
        let mut n_received = 0;
        for i in 0..n_ready {
            let Some(port) = self.watch.as_ref().map(|watch| watch.ready(i)) else { break };
            n_received += self.receive_by(port, Wait::No)?;
        }
        Ok(n_received)
    }

    fn receive_alone(&mut self, limit: Duration) -> anyhow::Result<usize> {
        let mut wait = if limit.is_zero() { Wait::No } else { Wait::ForOne };
        let mut n_received = 0;
        for _ in 0..BATCHES_A_TURN {
            let n = self.receive_by(0, wait)?;
            n_received += n;
            if n < BATCH {
                break;
            }
            wait = Wait::No;
        }
        Ok(n_received)
    }

    /// Takes one batch from a port and judges it.
    fn receive_by(&mut self, port: usize, wait: Wait) -> anyhow::Result<usize> {
        let n = self.sockets[port].receive(&mut self.inbox, wait).context("cannot receive")?;
        let port = u16::try_from(port).unwrap_or(u16::MAX);
        for i in 0..n {
            let datagram = self.inbox.datagram(i);
            let arrived_ns = datagram.arrived.map_or_else(clock::now_ns, clock::in_ns);
            let verdict = self.flight.judge(datagram.octets, port, &self.share.load.queries);
            self.tally.count(verdict, datagram.n_octets, arrived_ns);
        }
        Ok(n)
    }

    /// Waits until there is something to do. `held_up`: the kernel had no room for a query that was due.
    fn rest(&mut self, held_up: bool, n_received: usize) -> anyhow::Result<()> {
        self.n_vain_naps = if n_received > 0 { 0 } else { self.n_vain_naps.saturating_add(1) };
        if self.room() == 0 || self.share.supply.rate().is_none() {
            return self.rest_for_answers(held_up, n_received);
        }
        let turn = self.turn();
        let until_due = self.share.supply.until_due(turn, Instant::now()).unwrap_or_default();
        if !until_due.is_zero() {
            std::thread::sleep(until_due.min(LONGEST_REST));
        }
        Ok(())
    }

    /// Queries that leave together: the burst, or at low rates what a millisecond brings.
    fn turn(&self) -> usize {
        let rate = self.share.supply.rate().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        let in_shortest = (rate * SHORTEST_TURN.as_secs_f64()) as usize;
        in_shortest.clamp(1, self.share.load.burst)
    }

    /// When answers set the pace: goes on at once while they come in numbers, else naps until some have gathered, and
    /// sleeps when they stay away or are few.
    fn rest_for_answers(&mut self, held_up: bool, n_received: usize) -> anyhow::Result<()> {
        let n_waiting = self.flight.n_waiting();
        let plenty = self.window().div_ceil(4).min(BATCH / 2);
        if n_received >= plenty || (self.room() >= plenty && !held_up) {
            return Ok(());
        }
        if n_waiting >= ENOUGH_FOR_A_NAP && self.n_vain_naps < MOST_NAPS {
            std::thread::sleep(NAP);
            return Ok(());
        }
        self.receive(LONGEST_REST).map(drop)
    }

    /// Gives up on queries that wait for too long, now and then.
    fn expire(&mut self) {
        let now = Instant::now();
        if now < self.next_expiry {
            return;
        }
        self.next_expiry = now + EXPIRY_INTERVAL;
        let limit_ns = clock::now_ns().saturating_sub(clock::in_ns(self.share.load.timeout));
        self.tally.lost += self.flight.expire(limit_ns);
    }

    /// Waits for what is on its way, then a little for answers that come twice.
    fn drain(&mut self, end: Instant, progress: &Progress) -> anyhow::Result<()> {
        let patience = end + self.share.load.timeout;
        while self.flight.n_waiting() > 0 && Instant::now() < patience {
            self.receive(LONGEST_REST)?;
            progress.show(&self.tally);
        }
        let grace = Instant::now() + GRACE;
        while Instant::now() < grace {
            self.receive(LONGEST_REST)?;
        }
        self.tally.lost += self.flight.abandon();
        self.tally.refused = self.sockets.iter().map(ClientSocket::n_refused).sum();
        progress.show(&self.tally);
        Ok(())
    }
}

/// Room for what may be on its way: a port has so many ids, and in an open loop nothing else is to be the limit.
fn table(share: &Share) -> Flight {
    let n_wanted = share.window.unwrap_or(usize::MAX).div_ceil(MAX_IDS);
    Flight::layered(MAX_IDS, n_wanted.min(share.n_ports))
}

fn open_socket(load: &Load, port: usize) -> anyhow::Result<ClientSocket> {
    let buffers = UdpSocketConfig {
        receive_buffer_octets: load.buffer_octets,
        send_buffer_octets: load.buffer_octets,
        ..UdpSocketConfig::default()
    };
    ClientSocket::connect(load.server, load.local(port), &buffers)
        .with_context(|| format!("cannot open port {} of {}", port + 1, load.n_ports))
}
