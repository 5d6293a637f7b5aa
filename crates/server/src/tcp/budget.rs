//! What connections may hold over for their clients, and who goes when that is too much in all.
//!
//! The first octets of a backlog are free, so that a query which arrives in pieces, and the answers to it, never depend
//! on what others hold: the cap on connections bounds them. What is above is taken from one budget. When that is short,
//! the connection with the largest backlog goes, not the one that happens to come last: whoever fills the budget loses
//! its own connections first.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::leave::{Leave, Reason};

/// Octets of each backlog that the budget does not count: nearly all queries, and the answers to a few.
pub(super) const FREE_OCTETS: usize = 4 << 10;

/// Octets above [`FREE_OCTETS`] that all backlogs together may have.
#[derive(Debug)]
pub(super) struct Budget {
    ledger: Mutex<Ledger>,
    next_id: AtomicU64,
}

/// invariant: `left` and the octets of all `holders` add up to the budget.
#[derive(Debug)]
struct Ledger {
    left: usize,
    /// Who holds something, the largest last.
    holders: BTreeSet<Holder>,
}

#[derive(Clone, Debug)]
struct Holder {
    octets: usize,
    id: u64,
    leave: Arc<Leave>,
}

/// What one connection has of the budget; it is given back when dropped.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    /// As it is in the ledger while `octets` is above zero, unless the connection had to make room.
    holder: Holder,
}

impl Budget {
    /// A budget of `octets`.
    pub(super) fn new(octets: usize) -> Arc<Budget> {
        let ledger = Ledger { left: octets, holders: BTreeSet::new() };
        Arc::new(Budget { ledger: Mutex::new(ledger), next_id: AtomicU64::new(0) })
    }

    /// An account without a balance, for a connection that goes when `leave` says so.
    pub(super) fn account(self: &Arc<Budget>, leave: Arc<Leave>) -> Account {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Account { budget: Arc::clone(self), holder: Holder { octets: 0, id, leave } }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Nothing panics while the lock is held, and the ledger would be whole if it did.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Octets that nobody holds.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.lock().left
    }
}

impl Account {
    /// Adjusts the account to a backlog of `held` octets; yields whether the connection may go on.
    pub(super) fn settle(&mut self, held: usize) -> bool {
        let wanted = held.saturating_sub(FREE_OCTETS);
        if wanted == self.holder.octets {
            return true;
        }
        let mut ledger = self.budget.lock();
        if !ledger.take_back(&self.holder) {
            // It had to make room for others, and is about to hear of it.
            self.holder.octets = 0;
            return false;
        }
        self.holder.octets = 0;
        while wanted > ledger.left {
            // Whoever is larger goes. Its octets count as free at once; they are as soon as its task has been woken.
            let Some(largest) = ledger.holders.last().filter(|largest| largest.octets >= wanted).cloned()
            else {
                return false;
            };
            ledger.take_back(&largest);
            largest.leave.ask(Reason::Memory);
        }
        self.holder.octets = wanted;
        ledger.hand_out(&self.holder);
        true
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.holder.octets > 0 {
            self.budget.lock().take_back(&self.holder);
        }
    }
}

impl Ledger {
    fn hand_out(&mut self, holder: &Holder) {
        if holder.octets > 0 {
            self.left -= holder.octets;
            self.holders.insert(holder.clone());
        }
    }

    /// Takes what `holder` has; yields false when that was done before.
    fn take_back(&mut self, holder: &Holder) -> bool {
        let is_there = holder.octets == 0 || self.holders.remove(holder);
        self.left += if is_there { holder.octets } else { 0 };
        is_there
    }
}

impl Holder {
    fn key(&self) -> (usize, u64) {
        (self.octets, self.id)
    }
}

impl PartialEq for Holder {
    fn eq(&self, other: &Holder) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Holder {}

impl PartialOrd for Holder {
    fn partial_cmp(&self, other: &Holder) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Holder {
    fn cmp(&self, other: &Holder) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(budget: &Arc<Budget>) -> (Account, Arc<Leave>) {
        let leave = Arc::new(Leave::default());
        (budget.account(Arc::clone(&leave)), leave)
    }

    #[test]
    fn the_first_octets_are_free_even_of_an_empty_budget() {
        let budget = Budget::new(0);
        let (mut account, leave) = account(&budget);
        assert!(account.settle(FREE_OCTETS));
        assert!(!account.settle(FREE_OCTETS + 1));
        assert_eq!(leave.reason(), None, "who asks for more is told by the answer");
    }

    #[test]
    fn when_the_budget_is_short_the_largest_backlog_goes() {
        let budget = Budget::new(100);
        let mut accounts = [account(&budget), account(&budget), account(&budget)];
        for ((account, _), octets) in accounts.iter_mut().zip([30, 60, 10]) {
            assert!(account.settle(FREE_OCTETS + octets));
        }
        let (mut newcomer, _) = account(&budget);
        assert!(newcomer.settle(FREE_OCTETS + 20));
        let reasons = accounts.each_ref().map(|(_, leave)| leave.reason());
        assert_eq!(reasons, [None, Some(Reason::Memory), None]);
        assert_eq!(budget.left(), 100 - 30 - 10 - 20);
        assert!(!accounts[1].0.settle(FREE_OCTETS + 1), "it was told to go");
        drop((accounts, newcomer));
        assert_eq!(budget.left(), 100, "each octet is given back once");
    }

    #[test]
    fn who_would_be_the_largest_goes_itself() {
        let budget = Budget::new(100);
        let ((mut modest, modest_leave), (mut greedy, _)) = (account(&budget), account(&budget));
        assert!(modest.settle(FREE_OCTETS + 40));
        assert!(greedy.settle(FREE_OCTETS + 30));
        assert!(!greedy.settle(FREE_OCTETS + 70));
        assert_eq!((modest_leave.reason(), budget.left()), (None, 60));
    }

    #[test]
    fn a_backlog_that_shrinks_gives_back() {
        let budget = Budget::new(100);
        let (mut account, _) = account(&budget);
        assert!(account.settle(FREE_OCTETS + 100));
        assert!(account.settle(FREE_OCTETS + 1));
        assert_eq!(budget.left(), 99);
        assert!(account.settle(0));
        assert_eq!(budget.left(), 100);
    }
}
