//! A line on the terminal about work that takes longer than a second.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done within this time shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the line is drawn anew.
const INTERVAL: Duration = Duration::from_millis(100);

/// Shows how far something is until it is dropped; nothing when standard error is no terminal.
pub(super) struct Progress {
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// `n_done` of `n_total` `things` are done at any time.
    pub(super) fn start(n_total: u64, things: &str, n_done: &Arc<AtomicU64>) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress { shown: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let (n_done, things) = (Arc::clone(n_done), things.to_owned());
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(Some(n_total), ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} {msg}, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(things);
            loop {
                bar.set_position(n_done.load(Ordering::Relaxed));
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            bar.finish_and_clear();
        });
        Progress { shown: Some((stop, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.shown.take() {
            drop(stop);
            // The line has to be gone before anything else is written.
            let _ = thread.join();
        }
    }
}
