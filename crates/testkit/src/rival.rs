//! Knot, NSD and BIND, each with one zone on a loopback port, set up so that their answers can be compared.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
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
        let mut log = String::new();
        // Three times, as another process may take the port between the choice and its use.
        for _ in 0..3 {
            let rival = Self::start(kind, origin, file);
            let deadline = Instant::now() + process::PATIENCE / 3;
            if client::answers_for(rival.address, &Name::from_text(origin), deadline) {
                return rival;
            }
            log = rival.process.log();
        }
        panic!("{} does not answer for {origin}; it wrote:\n{log}", kind.name());
    }

    fn start(kind: Kind, origin: &str, file: &Path) -> Self {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let zone = folder.path().join("zone.txt");
        fs::copy(file, &zone).unwrap_or_else(|e| panic!("cannot copy {}: {e}", file.display()));
        let address = process::free_port();
        let config = folder.path().join("config");
        let setup = Setup { origin, zone: &zone, address, folder: folder.path() };
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
    origin: &'a str,
    zone: &'a Path,
    address: SocketAddr,
    folder: &'a Path,
}

impl Setup<'_> {
    fn knot(&self) -> String {
        let (origin, zone, folder) = (self.origin, self.zone.display(), self.folder.display());
        let (ip, port) = (self.address.ip(), self.address.port());
        format!(
            "server:\n    rundir: {folder}\n    listen: {ip}@{port}\n    udp-workers: 1\n    tcp-workers: 1\n    \
             background-workers: 1\nlog:\n  - target: stderr\n    any: warning\ndatabase:\n    storage: {folder}\n\
             acl:\n  - id: all\n    address: 127.0.0.0/8\n    action: transfer\n\
             zone:\n  - domain: \"{origin}\"\n    file: {zone}\n    zonefile-sync: -1\n    zonefile-load: whole\n    \
             journal-content: none\n    acl: all\n"
        )
    }

    fn nsd(&self) -> String {
        let (origin, zone, folder) = (self.origin, self.zone.display(), self.folder.display());
        let (ip, port) = (self.address.ip(), self.address.port());
        format!(
            "server:\n  ip-address: {ip}@{port}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  \
             zonesdir: {folder}\n  pidfile: \"\"\n  database: \"\"\n  xfrdfile: {folder}/xfrd\n  \
             zonelistfile: {folder}/list\n  cookie-secret-file: \"\"\n  rrl-ratelimit: 0\n  minimal-responses: yes\n  \
             refuse-any: no\nremote-control:\n  control-enable: no\n\
             zone:\n  name: \"{origin}\"\n  zonefile: {zone}\n  provide-xfr: 127.0.0.0/8 NOKEY\n"
        )
    }

    fn bind(&self) -> String {
        let (origin, zone, folder) = (self.origin, self.zone.display(), self.folder.display());
        let port = self.address.port();
        format!(
            "options {{\n  directory \"{folder}\";\n  pid-file none;\n  session-keyfile none;\n  \
             listen-on port {port} {{ 127.0.0.1; }};\n  listen-on-v6 {{ none; }};\n  recursion no;\n  \
             minimal-responses yes;\n  minimal-any no;\n  empty-zones-enable no;\n  dnssec-validation no;\n  notify no;\n  \
             check-names primary ignore;\n  allow-query {{ any; }};\n  allow-transfer {{ any; }};\n  \
             answer-cookie no;\n  zero-no-soa-ttl no;\n}};\ncontrols {{ }};\nlogging {{ category default {{ default_stderr; }}; }};\n\
             zone \"{origin}\" {{ type primary; file \"{zone}\"; check-integrity no; }};\n"
        )
    }
}
