//! How a connection is asked to end: to make room for others, or because the server stops.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// Why a connection has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It was idle longest when the cap on connections was reached.
    Cap,
    /// It held most when the memory for slow clients was used up.
    Memory,
    /// The server stops.
    Stopping,
}

/// Asked by anyone, heard by the connection's task alone.
#[derive(Debug, Default)]
pub(super) struct Leave {
    reason: OnceLock<Reason>,
    asked: Notify,
}

impl Leave {
    /// Asks the connection to leave; the first reason is the one that counts.
    pub(super) fn ask(&self, reason: Reason) {
        // A second reason changes nothing.
        let _ = self.reason.set(reason);
        self.asked.notify_one();
    }

    /// Why the connection has to leave, if it has to.
    pub(super) fn reason(&self) -> Option<Reason> {
        self.reason.get().copied()
    }

    /// Resolves when the connection has to leave.
    pub(super) async fn asked(&self) -> Reason {
        loop {
            if let Some(reason) = self.reason() {
                return reason;
            }
            // A notice that comes before this point is kept for it.
            self.asked.notified().await;
        }
    }
}
