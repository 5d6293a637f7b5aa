//! What is on its way: a table whose index is the id of the query, so that an answer finds its question at once.
//!
//! A thread with several ports may have more on their way than there are ids, since the port tells them apart: the table
//! then has layers, each with a place for every id. A layer is used only when those before it are full, which in an open loop
//! is when the server answers too little of what it is asked.

use weir_wire::header::{Flags, HEADER_LEN, Rcode};

use crate::queries::Queries;

/// Ids that a message can have, and so the most queries on their way from one port or connection.
pub(crate) const MAX_IDS: usize = 1 << 16;
/// The most layers of a table: with a time-out of 5 s a thread goes on asking a dead server 200,000 queries a second, and the
/// table takes 16 MiB.
pub(crate) const MAX_LAYERS: usize = 16;

/// Octets of a question behind the last letter of its name: the root label, type and class.
const AFTER_LETTERS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The id was not used yet, or its query was not sent after all.
    Free,
    Waiting,
    Answered,
    /// Counted as lost.
    Expired,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    sent_ns: u64,
    query: u32,
    port: u16,
    state: State,
}

/// What an answer turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The answer to a query that was waiting for it.
    Answered { rcode: Rcode, truncated: bool, sent_ns: u64 },
    /// Another answer to a query that had its answer.
    Doubled,
    /// The answer to a query that was counted as lost.
    Late,
    /// Not an answer to anything that was asked from this port under this id.
    Wrong,
}

/// Where a query that is on its way is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    slot: u32,
    /// The id of the query.
    pub(crate) id: u16,
}

/// The queries of one thread or connection.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Layer after layer.
    slots: Box<[Slot]>,
    n_ids: usize,
    /// Slots of the layers that are in use: whole layers, at least one.
    n_in_use: usize,
    /// The slot to try next: ids are used in turn, so that one is used again as late as can be.
    next: usize,
    n_waiting: usize,
    /// Those of each port, as far as ports were used.
    n_waiting_by_port: Vec<usize>,
}

impl Flight {
    /// Room for `n_ids` queries on their way, held between 1 and [`MAX_IDS`].
    pub(crate) fn new(n_ids: usize) -> Flight {
        Flight::layered(n_ids, 1)
    }

    /// Room for `n_layers` times as many, by ports that differ; held between 1 and [`MAX_LAYERS`].
    pub(crate) fn layered(n_ids: usize, n_layers: usize) -> Flight {
        let n_ids = n_ids.clamp(1, MAX_IDS);
        let empty = Slot { sent_ns: 0, query: 0, port: 0, state: State::Free };
        let slots = vec![empty; n_ids * n_layers.clamp(1, MAX_LAYERS)].into_boxed_slice();
        Flight { slots, n_ids, n_in_use: n_ids, next: 0, n_waiting: 0, n_waiting_by_port: Vec::new() }
    }

    /// Queries that can be on their way at most.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Queries that wait for their answer.
    #[inline]
    pub(crate) fn n_waiting(&self) -> usize {
        self.n_waiting
    }

    /// Whether every id of a port is on its way.
    #[inline]
    pub(crate) fn is_full(&self, port: u16) -> bool {
        self.n_waiting_by_port.get(usize::from(port)).is_some_and(|n| *n >= self.n_ids)
    }

    /// Takes a place for `query`, which goes out by `port`; `None` when no id is left for it.
    #[inline]
    pub(crate) fn begin(&mut self, query: u32, port: u16) -> Option<Place> {
        if self.is_full(port) {
            return None;
        }
        loop {
            // Every slot in use is tried once.
            let n_tries = if self.n_waiting == self.n_in_use { 0 } else { self.n_in_use };
            for _ in 0..n_tries {
                let slot = self.next;
                self.next = if slot + 1 == self.n_in_use { 0 } else { slot + 1 };
                if self.slots[slot].state != State::Waiting && !self.is_taken(slot, port) {
                    return Some(self.take(slot, query, port));
                }
            }
            if self.n_in_use == self.slots.len() {
                return None;
            }
            self.next = self.n_in_use;
            self.n_in_use += self.n_ids;
        }
    }

    fn take(&mut self, slot: usize, query: u32, port: u16) -> Place {
        self.slots[slot] = Slot { sent_ns: u64::MAX, query, port, state: State::Waiting };
        self.n_waiting += 1;
        let n_ports = self.n_waiting_by_port.len().max(usize::from(port) + 1);
        self.n_waiting_by_port.resize(n_ports, 0);
        self.n_waiting_by_port[usize::from(port)] += 1;
        // There are 2^20 slots at most, and 2^16 ids.
        let id = u16::try_from(slot % self.n_ids).unwrap_or(u16::MAX);
        Place { slot: u32::try_from(slot).unwrap_or(u32::MAX), id }
    }

    /// Whether a query of the same id waits for its answer to the same port, in another layer than that of `slot`.
    #[inline]
    fn is_taken(&self, slot: usize, port: u16) -> bool {
        self.n_in_use > self.n_ids
            && self.layers(slot % self.n_ids).any(|other| {
                let other = &self.slots[other];
                other.state == State::Waiting && other.port == port
            })
    }

    /// The slots of an id, in the layers that are in use.
    fn layers(&self, id: usize) -> impl Iterator<Item = usize> + use<> {
        (id..self.n_in_use).step_by(self.n_ids)
    }

    /// The slot that a message of this id by this port is about: that of the query that waits, else of the one sent last.
    #[inline]
    fn slot_of(&self, id: usize, port: u16) -> Option<usize> {
        if id >= self.n_ids {
            return None;
        }
        if self.n_in_use == self.n_ids {
            return Some(id);
        }
        let candidates =
            self.layers(id).filter(|&i| self.slots[i].port == port && self.slots[i].state != State::Free);
        candidates.max_by_key(|&i| (self.slots[i].state == State::Waiting, self.slots[i].sent_ns))
    }

    /// Says when the query at this place left.
    #[inline]
    pub(crate) fn sent(&mut self, place: Place, sent_ns: u64) {
        self.slots[place.slot as usize].sent_ns = sent_ns;
    }

    /// Takes back a place whose query was not sent after all.
    pub(crate) fn cancel(&mut self, place: Place) {
        let slot = &mut self.slots[place.slot as usize];
        let (was, port) = (std::mem::replace(&mut slot.state, State::Free), slot.port);
        if was == State::Waiting {
            self.no_longer_waits(port);
        }
    }

    /// Judges a message that came in by `port`, and takes its query off the waiting ones when it is the answer.
    #[inline]
    pub(crate) fn judge(&mut self, message: &[u8], port: u16, queries: &Queries) -> Verdict {
        let Some((header, body)) = message.split_first_chunk::<HEADER_LEN>() else { return Verdict::Wrong };
        let [id_high, id_low, flags_high, flags_low, ..] = *header;
        let flags = Flags(u16::from_be_bytes([flags_high, flags_low]));
        let id = usize::from(u16::from_be_bytes([id_high, id_low]));
        let Some(place) = self.slot_of(id, port) else { return Verdict::Wrong };
        let slot = &mut self.slots[place];
        let rcode = Rcode(flags.0 & 0x0f);
        if slot.state == State::Free
            || slot.port != port
            || !flags.is_response()
            || !answers(queries.question(slot.query), header, body, rcode)
        {
            return Verdict::Wrong;
        }
        match std::mem::replace(&mut slot.state, State::Answered) {
            State::Waiting => {
                let sent_ns = slot.sent_ns;
                self.no_longer_waits(port);
                Verdict::Answered { rcode, truncated: flags.0 & Flags::TC != 0, sent_ns }
            }
            State::Expired => Verdict::Late,
            State::Answered | State::Free => Verdict::Doubled,
        }
    }

    #[inline]
    fn no_longer_waits(&mut self, port: u16) {
        self.n_waiting -= 1;
        self.n_waiting_by_port[usize::from(port)] -= 1;
    }

    /// Gives up on queries that were sent before `limit_ns` and yields how many there were.
    pub(crate) fn expire(&mut self, limit_ns: u64) -> u64 {
        self.give_up(|slot| slot.sent_ns < limit_ns)
    }

    /// Gives up on all queries and yields how many there were.
    pub(crate) fn abandon(&mut self) -> u64 {
        self.give_up(|_| true)
    }

    fn give_up(&mut self, on: impl Fn(&Slot) -> bool) -> u64 {
        if self.n_waiting == 0 {
            return 0;
        }
        let mut n_lost = 0;
        for slot in &mut self.slots[..self.n_in_use] {
            if slot.state == State::Waiting && on(slot) {
                slot.state = State::Expired;
                self.n_waiting_by_port[usize::from(slot.port)] -= 1;
                n_lost += 1;
            }
        }
        self.n_waiting -= n_lost;
        n_lost as u64
    }
}

/// Whether a message repeats `question`. One that reports a format error or an unknown operation may leave the question
/// out, since the server may not have understood it.
#[inline]
fn answers(question: &[u8], header: &[u8; HEADER_LEN], body: &[u8], rcode: Rcode) -> bool {
    match header[4..6] {
        [0, 1] => body.get(..question.len()).is_some_and(|repeated| same_question(repeated, question)),
        [0, 0] => matches!(rcode, Rcode::FORMERR | Rcode::NOTIMP),
        _ => false,
    }
}

/// Octet for octet, which is how servers repeat it; else with the case of letters left aside (RFC 4343 section 3).
#[inline]
fn same_question(repeated: &[u8], question: &[u8]) -> bool {
    if repeated == question {
        return true;
    }
    let letters = question.len().saturating_sub(AFTER_LETTERS);
    repeated[letters..] == question[letters..]
        && repeated[..letters].eq_ignore_ascii_case(&question[..letters])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::Shape;

    fn queries() -> Queries {
        Queries::read(&b"a.example A\nb.example A\n"[..], Shape::default()).unwrap()
    }

    fn answer(queries: &Queries, query: u32, place: Place) -> Vec<u8> {
        answer_under(queries, query, place.id)
    }

    fn answer_under(queries: &Queries, query: u32, id: u16) -> Vec<u8> {
        let mut message = queries.packet(query).to_vec();
        message[..2].copy_from_slice(&id.to_be_bytes());
        message[2] |= 0x80;
        message[3] = 3;
        message
    }

    fn answered(sent_ns: u64) -> Verdict {
        Verdict::Answered { rcode: Rcode::NXDOMAIN, truncated: false, sent_ns }
    }

    #[test]
    fn a_port_whose_ids_all_wait_is_full_and_keeps_no_other_port_from_asking() {
        let mut flight = Flight::layered(4, 2);
        let places: Vec<_> = (0..4).map(|_| flight.begin(0, 0).unwrap()).collect();
        assert!(flight.is_full(0) && flight.begin(0, 0).is_none());
        assert!(!flight.is_full(1) && flight.begin(0, 1).is_some());
        flight.cancel(places[2]);
        assert!(flight.begin(0, 0).is_some() && flight.is_full(0));
        assert_eq!(flight.abandon(), 5);
        assert!(!flight.is_full(0));
    }

    #[test]
    fn an_answer_counts_once_then_it_is_doubled() {
        let (queries, mut flight) = (queries(), Flight::new(MAX_IDS));
        let id = flight.begin(1, 0).unwrap();
        flight.sent(id, 77);
        let message = answer(&queries, 1, id);
        assert_eq!(flight.judge(&message, 0, &queries), answered(77));
        assert_eq!(flight.judge(&message, 0, &queries), Verdict::Doubled);
        assert_eq!(flight.n_waiting(), 0);
    }

    #[test]
    fn what_does_not_fit_the_query_is_wrong_and_the_query_goes_on_waiting() {
        let (queries, mut flight) = (queries(), Flight::new(16));
        let id = flight.begin(0, 3).unwrap();
        let right = answer(&queries, 0, id);
        let mut a_query = right.clone();
        a_query[2] &= 0x7f;
        let mut no_question = right.clone();
        no_question[5] = 0;
        let mut another_type = right.clone();
        *another_type.last_chunk_mut::<4>().unwrap() = [0, 28, 0, 1];
        let wrong: [&[u8]; 7] = [
            &right[..11],
            &right[..20],
            &answer(&queries, 1, id),
            &answer_under(&queries, 0, 15),
            &a_query,
            &no_question,
            &another_type,
        ];
        for message in wrong {
            assert_eq!(flight.judge(message, 3, &queries), Verdict::Wrong, "{message:02x?}");
        }
        assert_eq!(flight.judge(&right, 2, &queries), Verdict::Wrong, "another port");
        assert_eq!(
            flight.judge(&answer_under(&queries, 0, 999), 3, &queries),
            Verdict::Wrong,
            "beyond the table"
        );
        assert_eq!(flight.n_waiting(), 1);
        assert!(matches!(flight.judge(&right, 3, &queries), Verdict::Answered { .. }));
    }

    #[test]
    fn the_case_of_letters_and_a_missing_question_of_a_format_error_are_let_pass() {
        let (queries, mut flight) = (queries(), Flight::new(16));
        let first = flight.begin(0, 0).unwrap();
        let mut upper = answer(&queries, 0, first);
        upper[13] = b'A';
        assert!(matches!(flight.judge(&upper, 0, &queries), Verdict::Answered { .. }));
        let second = flight.begin(0, 0).unwrap();
        let header = [&second.id.to_be_bytes()[..], &[0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(matches!(
            flight.judge(&header, 0, &queries),
            Verdict::Answered { rcode: Rcode::FORMERR, .. }
        ));
    }

    #[test]
    fn a_query_that_waited_too_long_is_lost_once_and_its_answer_late() {
        let (queries, mut flight) = (queries(), Flight::new(16));
        let (old, new) = (flight.begin(0, 0).unwrap(), flight.begin(1, 0).unwrap());
        flight.sent(old, 10);
        flight.sent(new, 20);
        assert_eq!((flight.expire(15), flight.expire(15), flight.n_waiting()), (1, 0, 1));
        assert_eq!(flight.judge(&answer(&queries, 0, old), 0, &queries), Verdict::Late);
        assert_eq!(flight.judge(&answer(&queries, 1, new), 0, &queries), answered(20));
    }

    #[test]
    fn ids_are_used_in_turn_and_those_on_their_way_are_passed_over() {
        let (queries, mut flight) = (queries(), Flight::new(3));
        let places = [(); 4].map(|()| flight.begin(0, 0));
        assert_eq!(places.map(|place| place.map(|place| place.id)), [Some(0), Some(1), Some(2), None]);
        flight.judge(&answer_under(&queries, 0, 1), 0, &queries);
        flight.cancel(places[2].unwrap());
        let ids = [(); 3].map(|()| flight.begin(0, 0).map(|place| place.id));
        assert_eq!(ids, [Some(1), Some(2), None]);
        assert_eq!(flight.abandon(), 3);
    }

    #[test]
    fn ports_have_ids_of_their_own_once_one_of_each_is_on_its_way() {
        let (queries, mut flight) = (queries(), Flight::layered(4, 3));
        // Two ports, two queries in a row from each: an id would meet the same port in every layer.
        let ports = [0, 0, 1, 1, 0, 0, 1, 1];
        let places = ports.map(|port| flight.begin(0, port).unwrap());
        places.iter().for_each(|place| flight.sent(*place, 7));
        let mut pairs: Vec<_> = ports.iter().zip(places).map(|(port, place)| (*port, place.id)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!((pairs.len(), flight.n_waiting()), (8, 8), "{places:?}");
        assert_eq!(flight.begin(0, 0), None, "four ids wait on port 0");
        for (port, place) in ports.into_iter().zip(places) {
            let message = answer(&queries, 0, place);
            assert_eq!(flight.judge(&message, 2, &queries), Verdict::Wrong, "another port");
            assert_eq!(flight.judge(&message, port, &queries), answered(7));
            assert_eq!(flight.judge(&message, port, &queries), Verdict::Doubled);
        }
        assert_eq!(flight.n_waiting(), 0);
    }

    #[test]
    fn what_waits_in_any_layer_is_given_up_and_its_place_used_again() {
        let mut flight = Flight::layered(2, 2);
        for round in 0..3 {
            let places = [0, 1, 1, 0].map(|port| flight.begin(0, port));
            assert!(places.iter().all(Option::is_some), "{round}: {places:?}");
            assert_eq!((flight.begin(0, 0), flight.abandon()), (None, 4));
        }
    }
}
