//! Child processes that cannot outlive a test, with what they write kept.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to start or to stop on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Tries until it holds.
///
/// # Panics
/// When it does not within [`PATIENCE`].
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Arc<Output>,
}

#[derive(Debug, Default)]
struct Output {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    text: Vec<String>,
    /// How many of the child's two outputs have ended.
    ended: u8,
}

impl Process {
    /// Starts a command, with standard input closed and both outputs kept.
    ///
    /// # Panics
    /// When it cannot be started; the message names the program.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("cannot start {:?}: {e}", command.get_program()));
        let output = Arc::new(Output::default());
        collect(child.stdout.take().expect("it is piped"), Arc::clone(&output));
        collect(child.stderr.take().expect("it is piped"), Arc::clone(&output));
        Process { name: name.to_owned(), child, output }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that the child has written so far, both outputs, in the order in which it was read.
    pub fn log(&self) -> String {
        self.output.lines.lock().unwrap_or_else(PoisonError::into_inner).text.join("\n")
    }

    /// The first line, past the first `skip`, for which `wanted` holds, with its number; waits for it.
    ///
    /// # Panics
    /// When the child ends, or [`PATIENCE`] does, before there is one; the message holds the log.
    pub fn wait_for_line(&self, skip: usize, wanted: impl Fn(&str) -> bool) -> (usize, String) {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.output.lines.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((n, line)) = lines.text.iter().enumerate().skip(skip).find(|(_, line)| wanted(line)) {
                return (n, line.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if lines.ended == 2 || left.is_zero() {
                panic!(
                    "{} did not write what was waited for; it wrote:\n{}",
                    self.name,
                    lines.text.join("\n")
                );
            }
            lines = self.output.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Number of lines written so far: where [`Process::wait_for_line`] begins to look for what comes next.
    pub fn n_lines(&self) -> usize {
        self.output.lines.lock().unwrap_or_else(PoisonError::into_inner).text.len()
    }

    /// Sends a signal by its name without SIG, as `kill` knows it.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]).status();
        assert!(status.expect("there is a shell").success(), "{} (pid {pid}) is gone", self.name);
    }

    /// True while the child has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits for the end, and gives the exit status and the whole log.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    pub fn wait(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                self.wait_for_end_of_output(deadline);
                return (status, self.log());
            }
            assert!(Instant::now() < deadline, "{} does not end; it wrote:\n{}", self.name, self.log());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends TERM and waits for the end.
    pub fn terminate(self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait()
    }

    fn wait_for_end_of_output(&self, deadline: Instant) {
        let mut lines = self.output.lines.lock().unwrap_or_else(PoisonError::into_inner);
        while lines.ended < 2 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            lines = self.output.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // TERM first: NSD's and BIND's helpers go with their parent only if it ends in order.
            let _ = Command::new("kill").arg(self.pid().to_string()).status();
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(Duration::from_millis(2));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Lets this process open at least `n_files` files: the usual soft limit is 1,024.
///
/// # Panics
/// When the hard limit is below, or there is no prlimit (util-linux).
pub fn raise_own_file_limit(n_files: usize) {
    let pid = std::process::id().to_string();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux tells limits");
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    if soft.and_then(|soft| soft.parse().ok()).is_some_and(|soft: usize| soft >= n_files) {
        return;
    }
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={n_files}:")]).status();
    let raised = status.expect("prlimit (util-linux) is installed").success();
    assert!(raised, "the hard limit is below {n_files} files");
}

/// A loopback port that nothing holds, neither for UDP nor for TCP. Another process may take it before it is used:
/// whoever uses it tries again then.
pub fn free_port() -> SocketAddr {
    for _ in 0..1000 {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let address = tcp.local_addr().expect("it is bound");
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no loopback port is free for both UDP and TCP");
}

fn collect(stream: impl Read + Send + 'static, output: Arc<Output>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            output.lines.lock().unwrap_or_else(PoisonError::into_inner).text.push(line);
            output.changed.notify_all();
        }
        output.lines.lock().unwrap_or_else(PoisonError::into_inner).ended += 1;
        output.changed.notify_all();
    });
}
