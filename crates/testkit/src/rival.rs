//! Knot, NSD and BIND on loopback ports, set up so that their answers can be compared.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;

use crate::client;
use crate::message::Name;
use crate::process::{self, Process};

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Knot DNS (Debian package `knot`).
    Knot,
    /// NSD (Debian package `nsd`).
    Nsd,
    /// BIND's named (Debian package `bind9`).
    Bind,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Knot, Kind::Nsd, Kind::Bind];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Knot => "Knot",
            Kind::Nsd => "NSD",
            Kind::Bind => "BIND",
        }
    }
}

/// A rival that answers. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Rival {
    /// Which server it is.
    pub kind: Kind,
    /// Where it answers, over UDP and TCP.
    pub address: SocketAddr,
    /// The process.
    pub process: Process,
    _folder: TempDir,
}

impl Rival {
    /// Starts a rival that serves `file` as the zone `origin`, and waits until it answers.
    ///
    /// # Panics
    /// When it is not installed, or does not answer in time; the message holds its log.
    pub fn serve(kind: Kind, origin: &str, file: &Path) -> Self {
        Self::serve_all(kind, &[(Name::from_text(origin), file.to_path_buf())])
    }

    /// Starts a rival that serves these files as zones of these names, and waits until it answers for all of them.
    ///
    /// # Panics
    /// As [`Rival::serve`].
    pub fn serve_all(kind: Kind, zones: &[(Name, PathBuf)]) -> Self {
        let mut log = String::new();
        // Three times, as another process may take the port between the choice and its use.
        for _ in 0..3 {
            let rival = Self::start(kind, zones);
            let deadline = Instant::now() + process::PATIENCE;
            let silent =
                zones.iter().find(|(origin, _)| !client::answers_for(rival.address, origin, deadline));
            let Some((origin, _)) = silent else { return rival };
            log = format!("no answer for {origin}\n{}", rival.process.log());
        }
        panic!("{} does not answer; it wrote:\n{log}", kind.name());
    }

    fn start(kind: Kind, zones: &[(Name, PathBuf)]) -> Self {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let copies = (0..).zip(zones).map(|(n, (origin, file))| {
            let zone = folder.path().join(format!("zone{n}.txt"));
            fs::copy(file, &zone).unwrap_or_else(|e| panic!("cannot copy {}: {e}", file.display()));
            (origin.to_string(), zone)
        });
        let zones: Vec<(String, PathBuf)> = copies.collect();
        let address = process::free_port();
        let config = folder.path().join("config");
        let setup = Setup { zones: &zones, address, folder: folder.path() };
        let (text, mut command) = match kind {
            Kind::Knot => (setup.knot(), Command::new("/usr/sbin/knotd")),
            Kind::Nsd => (setup.nsd(), Command::new("/usr/sbin/nsd")),
            Kind::Bind => (setup.bind(), Command::new("/usr/sbin/named")),
        };
        fs::write(&config, text).expect("the folder can be written to");
        match kind {
            Kind::Knot => command.arg("-c").arg(&config),
            Kind::Nsd => command.arg("-d").arg("-c").arg(&config),
            Kind::Bind => command.args(["-g", "-n", "1", "-c"]).arg(&config),
        };
        let process = Process::start(kind.name(), &mut command);
        Rival { kind, address, process, _folder: folder }
    }
}

/// What the configurations are made of.
struct Setup<'a> {
    zones: &'a [(String, PathBuf)],
    address: SocketAddr,
    folder: &'a Path,
}

impl Setup<'_> {
    /// A piece of configuration for each zone, given its name and its file.
    fn each_zone(&self, text: impl Fn(&str, std::path::Display<'_>) -> String) -> String {
        self.zones.iter().map(|(origin, file)| text(origin, file.display())).collect()
    }

    fn knot(&self) -> String {
        let folder = self.folder.display();
        let (ip, port) = (self.address.ip(), self.address.port());
        let zones = self.each_zone(|origin, file| {
            format!(
                "  - domain: \"{origin}\"\n    file: {file}\n    zonefile-sync: -1\n    zonefile-load: whole\n    \
                 journal-content: none\n    acl: all\n"
            )
        });
        format!(
            "server:\n    rundir: {folder}\n    listen: {ip}@{port}\n    udp-workers: 1\n    tcp-workers: 1\n    \
             background-workers: 1\nlog:\n  - target: stderr\n    any: warning\ndatabase:\n    storage: {folder}\n\
             acl:\n  - id: all\n    address: 127.0.0.0/8\n    action: transfer\n\
             zone:\n{zones}"
        )
    }

    fn nsd(&self) -> String {
        let folder = self.folder.display();
        let (ip, port) = (self.address.ip(), self.address.port());
        let zones = self.each_zone(|origin, file| {
            format!("zone:\n  name: \"{origin}\"\n  zonefile: {file}\n  provide-xfr: 127.0.0.0/8 NOKEY\n")
        });
        format!(
            "server:\n  ip-address: {ip}@{port}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  \
             zonesdir: {folder}\n  pidfile: \"\"\n  database: \"\"\n  xfrdfile: {folder}/xfrd\n  \
             zonelistfile: {folder}/list\n  cookie-secret-file: \"\"\n  rrl-ratelimit: 0\n  minimal-responses: yes\n  \
             refuse-any: no\nremote-control:\n  control-enable: no\n{zones}"
        )
    }

    fn bind(&self) -> String {
        let (folder, port) = (self.folder.display(), self.address.port());
        let zones = self.each_zone(|origin, file| {
            format!("zone \"{origin}\" {{ type primary; file \"{file}\"; check-integrity no; }};\n")
        });
        format!(
            "options {{\n  directory \"{folder}\";\n  pid-file none;\n  session-keyfile none;\n  \
             listen-on port {port} {{ 127.0.0.1; }};\n  listen-on-v6 {{ none; }};\n  recursion no;\n  \
             minimal-responses yes;\n  minimal-any no;\n  empty-zones-enable no;\n  dnssec-validation no;\n  notify no;\n  \
             check-names primary ignore;\n  allow-query {{ any; }};\n  allow-transfer {{ any; }};\n  \
             answer-cookie no;\n  zero-no-soa-ttl no;\n}};\ncontrols {{ }};\nlogging {{ category default {{ default_stderr; }}; }};\n{zones}"
        )
    }
}
