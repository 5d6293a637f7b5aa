//! Two network namespaces joined by a veth pair: the server in one, the client in the other, nothing else on the wire.

use std::fs;
use std::process::Command;

use anyhow::Context;

use crate::shell::run;

/// The server's address and port; 198.18.0.0/15 is set aside for benchmarks (RFC 2544).
pub(crate) const SERVER: &str = "198.18.0.1";
/// DNS.
pub(crate) const PORT: u16 = 53;
/// The server's end of the pair.
pub(crate) const SERVER_DEVICE: &str = "weirbench0";
/// The client's end of the pair.
pub(crate) const CLIENT_DEVICE: &str = "weirbench1";
/// The CPU that the server runs on.
pub(crate) const SERVER_CPU: &str = "0";
/// The CPU that the client runs on.
pub(crate) const CLIENT_CPU: &str = "1";
/// Client addresses: with one, a connection a query would run out of ports.
const N_CLIENTS: usize = 16;
const PREFIX: &str = "weirbench";

/// The pair; dropping it takes both namespaces away.
#[derive(Debug)]
pub(crate) struct Net {
    server: String,
    client: String,
}

impl Net {
    /// Makes the namespaces and the pair. Needs root.
    pub(crate) fn new() -> anyhow::Result<Net> {
        remove_leftovers();
        let pid = std::process::id();
        let net = Net { server: format!("{PREFIX}{pid}s"), client: format!("{PREFIX}{pid}c") };
        net.build().context("the namespaces cannot be made (are you root?)")?;
        Ok(net)
    }

    fn build(&self) -> anyhow::Result<()> {
        let (server, client) = (&self.server[..], &self.client[..]);
        run(&["ip", "netns", "add", server])?;
        run(&["ip", "netns", "add", client])?;
        run(&[
            "ip",
            "link",
            "add",
            SERVER_DEVICE,
            "netns",
            server,
            "type",
            "veth",
            "peer",
            "name",
            CLIENT_DEVICE,
            "netns",
            client,
        ])?;
        run(&["ip", "-n", server, "address", "add", &format!("{SERVER}/24"), "dev", SERVER_DEVICE])?;
        for address in client_addresses() {
            run(&["ip", "-n", client, "address", "add", &format!("{address}/24"), "dev", CLIENT_DEVICE])?;
        }
        for (namespace, device) in [(server, SERVER_DEVICE), (client, CLIENT_DEVICE)] {
            run(&["ip", "-n", namespace, "link", "set", "lo", "up"])?;
            run(&["ip", "-n", namespace, "link", "set", device, "up"])?;
        }
        for setting in ["net.ipv4.tcp_tw_reuse=1", "net.ipv4.ip_local_port_range=1024 65535"] {
            run(&["ip", "netns", "exec", client, "sysctl", "-qw", setting])?;
        }
        Ok(())
    }

    /// A command in the server's namespace, on the server's CPU. Its process id is the program's own.
    pub(crate) fn server(&self, program: &str) -> Command {
        self.on(&self.server, SERVER_CPU, program)
    }

    /// A command in the client's namespace, on the client's CPU.
    pub(crate) fn client(&self, program: &str) -> Command {
        self.on(&self.client, CLIENT_CPU, program)
    }

    /// As [`Net::server`], on the CPUs of a list such as `0-1`.
    pub(crate) fn server_on(&self, cpus: &str, program: &str) -> Command {
        self.on(&self.server, cpus, program)
    }

    /// As [`Net::client`], on the CPUs of a list such as `0-1`.
    pub(crate) fn client_on(&self, cpus: &str, program: &str) -> Command {
        self.on(&self.client, cpus, program)
    }

    fn on(&self, namespace: &str, cpus: &str, program: &str) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", cpus, "ip", "netns", "exec", namespace, program]);
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client] {
            // Whatever is left of them goes with the next run.
            let _ = run(&["ip", "netns", "del", namespace]);
        }
    }
}

/// The addresses that the client asks from.
pub(crate) fn client_addresses() -> Vec<String> {
    (0..N_CLIENTS).map(|i| format!("198.18.0.{}", 10 + i)).collect()
}

/// Takes away the namespaces of runs that were killed: those named after a process that is gone.
fn remove_leftovers() {
    let Ok(listed) = run(&["ip", "netns", "list"]) else { return };
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let pid = name.strip_prefix(PREFIX).map(|rest| rest.trim_end_matches(['s', 'c']));
        let Some(pid) = pid.filter(|pid| pid.parse::<u32>().is_ok()) else { continue };
        if fs::metadata(format!("/proc/{pid}")).is_err() {
            let _ = run(&["ip", "netns", "del", name]);
        }
    }
}

/// System-wide settings that are given back when dropped: default buffers that hold a few thousand queries, so that no
/// server loses queries only because it does not ask for a buffer of its own.
#[derive(Debug)]
pub(crate) struct Buffers(Vec<(String, String)>);

impl Buffers {
    /// Raises the default socket buffers to 4 MiB.
    pub(crate) fn raise() -> anyhow::Result<Buffers> {
        let mut before = Buffers(Vec::new());
        for name in ["rmem_default", "wmem_default"] {
            let path = format!("/proc/sys/net/core/{name}");
            let old = fs::read_to_string(&path).with_context(|| path.clone())?;
            fs::write(&path, "4194304").with_context(|| path.clone())?;
            before.0.push((path, old));
        }
        Ok(before)
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        for (path, old) in &self.0 {
            let _ = fs::write(path, old);
        }
    }
}
