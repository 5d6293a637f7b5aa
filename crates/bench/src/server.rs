//! Who is measured: Weir, its rivals with the settings of `benchmarks/rivals/`, and the floors.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::net::{self, Net};
use crate::process::Running;
use crate::shell;
use crate::workload::{Case, Input, Workload};

/// How long a server may take to its first answer: hickory-dns needs many seconds for 300,000 delegations.
const PATIENCE: Duration = Duration::from_secs(90);

/// One that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Weir,
    /// The same by packet rings.
    WeirRing,
    /// Weir with its cache switched off, which is compared by name.
    WeirUncached,
    Knot,
    Nsd,
    Bind,
    Pdns,
    KnotXdp,
    Hickory,
    /// recvmmsg and sendmmsg, nothing in between.
    Echo,
    /// The same with answers to one peer joined by UDP_SEGMENT.
    EchoJoined,
    /// Packet ring in, packet socket out.
    EchoRing,
    /// The same with small slots and a nap once the ring is empty: the cheapest way there is.
    EchoNap,
    /// The echo by two processes, on two CPUs.
    EchoPair,
    /// The echo with 50 us of work an answer: whoever cannot tell it from the others measures nothing.
    EchoSlow,
}

impl Server {
    /// Those of a full run.
    pub(crate) const USUAL: [Server; 11] = [
        Server::Weir,
        Server::WeirRing,
        Server::Knot,
        Server::Nsd,
        Server::Bind,
        Server::Pdns,
        Server::KnotXdp,
        Server::Hickory,
        Server::Echo,
        Server::EchoJoined,
        Server::EchoRing,
    ];

    /// Those of a quick run.
    pub(crate) const QUICK: [Server; 9] = [
        Server::Weir,
        Server::WeirRing,
        Server::Knot,
        Server::Nsd,
        Server::Bind,
        Server::Echo,
        Server::EchoJoined,
        Server::EchoRing,
        Server::EchoSlow,
    ];

    /// Its name in commands and raw data.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Server::Weir => "weir",
            Server::WeirRing => "weir-ring",
            Server::WeirUncached => "weir-uncached",
            Server::Knot => "knot",
            Server::Nsd => "nsd",
            Server::Bind => "bind",
            Server::Pdns => "pdns",
            Server::KnotXdp => "knot-xdp",
            Server::Hickory => "hickory-dns",
            Server::Echo => "echo",
            Server::EchoJoined => "echo-joined",
            Server::EchoRing => "echo-ring",
            Server::EchoNap => "echo-nap",
            Server::EchoPair => "echo-pair",
            Server::EchoSlow => "echo-slow",
        }
    }

    /// Its name for readers.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Server::Weir => "Weir",
            Server::WeirRing => "Weir (ring)",
            Server::WeirUncached => "Weir (no cache)",
            Server::Knot => "Knot",
            Server::Nsd => "NSD",
            Server::Bind => "BIND",
            Server::Pdns => "PowerDNS",
            Server::KnotXdp => "Knot (XDP)",
            Server::Hickory => "hickory-dns",
            Server::Echo => "floor: echo",
            Server::EchoJoined => "floor: joined echo",
            Server::EchoRing => "floor: ring echo",
            Server::EchoNap => "floor: ring echo that naps",
            Server::EchoPair => "floor: two echoes",
            Server::EchoSlow => "echo slowed by 50 us",
        }
    }

    /// Whether it is Weir, in whatever way it receives.
    pub(crate) fn is_weir(self) -> bool {
        matches!(self, Server::Weir | Server::WeirRing)
    }

    /// Whether it is a floor: a program that answers without looking anything up.
    pub(crate) fn is_floor(self) -> bool {
        use Server::{Echo, EchoJoined, EchoNap, EchoPair, EchoRing, EchoSlow};
        matches!(self, Echo | EchoJoined | EchoRing | EchoNap | EchoPair | EchoSlow)
    }

    /// Why it does not take part in a case, if it does not.
    pub(crate) fn left_out(self, case: Case) -> Option<&'static str> {
        match self {
            floor if floor.is_floor() && !case.transport.is_udp() => Some("the floors know UDP only"),
            Server::KnotXdp if !case.transport.is_udp() => Some("over TCP it is Knot"),
            Server::WeirRing if !case.transport.is_udp() => Some("over TCP it is Weir"),
            Server::Hickory if case.workload.is_signed() => {
                Some("it signs zones itself and serves no signed file")
            }
            Server::Hickory if matches!(case.workload, Workload::Root | Workload::Large) => {
                Some("it takes no DS and no DNSKEY from a zone file")
            }
            // It looks through the whole zone for each name that is not there.
            Server::Hickory if matches!(case.workload, Workload::Nxdomain | Workload::Mixed) => {
                Some("an NXDOMAIN takes it milliseconds in a zone of this size, so that all queries time out")
            }
            _ => None,
        }
    }

    /// What it says about its version.
    pub(crate) fn version(self, tools: &Tools) -> String {
        let weir = tools.weir.to_string_lossy();
        let hickory = tools.hickory.to_string_lossy();
        match self {
            Server::Weir | Server::WeirRing | Server::WeirUncached => {
                let folder = tools.benchmarks.to_string_lossy();
                let commit = shell::version(&["git", "-C", &folder, "rev-parse", "--short=12", "HEAD"]);
                format!("{}, commit {commit}", shell::version(&[&weir, "--version"]))
            }
            Server::Knot | Server::KnotXdp => shell::version(&["knotd", "--version"]),
            Server::Nsd => shell::version(&["nsd", "-v"]),
            Server::Bind => shell::version(&["named", "-v"]),
            Server::Pdns => {
                // The line begins with the time of day.
                let line = shell::version(&["pdns_server", "--version"]);
                line.find("PowerDNS").map_or(line.clone(), |start| line[start..].to_owned())
            }
            Server::Hickory => shell::version(&[&hickory, "--version"]),
            _ => "benchmarks/floors/echo.c".to_owned(),
        }
    }

    /// Starts it in the server's namespace and waits for its first answer.
    ///
    /// # Errors
    /// It ended, or it did not answer in time; the error holds its log.
    pub(crate) fn start(self, place: &Place<'_>) -> anyhow::Result<Started> {
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("log");
        let mut command = self.command(place, folder.path())?;
        let (name, kind) = place.input.first_question()?;
        let asker = Asker::start(place.net, &place.tools.bench, &name, &kind)?;
        let start = Instant::now();
        let mut running = Running::start(&mut command, &log)?;
        let outcome = asker.wait(start, &mut running);
        let to_first_answer = outcome.with_context(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(12)..].join("\n");
            format!("{} does not answer; the end of what it wrote:\n{last}\n", self.title())
        })?;
        Ok(Started { running, at: start, to_first_answer, folder })
    }

    fn command(self, place: &Place<'_>, folder: &Path) -> anyhow::Result<Command> {
        let Place { net, tools, input, .. } = place;
        let port = net::PORT.to_string();
        let template = |name: &str| place.fill(name, folder);
        Ok(match self {
            Server::Weir | Server::WeirRing | Server::WeirUncached => {
                let mut command = net.server_on(place.cpus, &tools.weir.to_string_lossy());
                command.args([
                    "serve",
                    "--workers",
                    place.workers,
                    "--listen",
                    &format!("{}:{port}", net::SERVER),
                ]);
                command.args(["--metrics", "127.0.0.1:9153", "--zones"]).arg(input.zones());
                if self == Server::WeirRing {
                    command.args(["--ingress", "ring"]);
                }
                command.args(&place.weir_flags);
                if self == Server::WeirUncached {
                    command.args(["--cache-size", "0"]);
                }
                command
            }
            Server::Knot | Server::KnotXdp => {
                let mut command = net.server_on(place.cpus, "knotd");
                let file = if self == Server::Knot { "knot.conf" } else { "knot-xdp.conf" };
                command.arg("-c").arg(template(file)?);
                command
            }
            Server::Nsd => {
                let mut command = net.server_on(place.cpus, "nsd");
                command.arg("-d").arg("-c").arg(template("nsd.conf")?);
                command
            }
            Server::Bind => {
                let mut command = net.server("named");
                command.args(["-g", "-n", "1", "-c"]).arg(template("named.conf")?);
                command
            }
            Server::Pdns => {
                template("pdns-zones.conf")?;
                template("pdns.conf")?;
                let config_dir = format!("--config-dir={}", folder.display());
                // Its zone-file backend serves signatures of the file only when a database says that they are there.
                let database = folder.join("dnssec.db").to_string_lossy().into_owned();
                shell::run(&["pdnsutil", &config_dir, "create-bind-db", &database])?;
                if place.case.workload.is_nsec3() {
                    shell::run(&["pdnsutil", &config_dir, "set-nsec3", input.origin, "1 0 0 -"])?;
                }
                if place.case.workload.is_signed() {
                    shell::run(&["pdnsutil", &config_dir, "set-presigned", input.origin])?;
                }
                let mut command = net.server("pdns_server");
                command.arg(config_dir);
                command
            }
            Server::Hickory => {
                let mut command = net.server(&tools.hickory.to_string_lossy());
                command.args(["--quiet", "--workers", "1", "--config"]).arg(template("hickory.toml")?);
                command
            }
            floor => {
                let mut command = net.server_on(place.cpus, &tools.echo.to_string_lossy());
                let size = place.answer_octets.to_string();
                let (mode, more) = match floor {
                    Server::EchoJoined => ("joined", ""),
                    Server::EchoRing => ("ring", net::SERVER_DEVICE),
                    Server::EchoNap => ("nap", net::SERVER_DEVICE),
                    Server::EchoPair => ("pair", ""),
                    Server::EchoSlow => ("slow", "50"),
                    _ => ("plain", ""),
                };
                command.args([mode, net::SERVER, &port, &size, more]);
                command
            }
        })
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all =
            || Server::USUAL.into_iter().chain([Server::WeirUncached, Server::EchoNap, Server::EchoSlow]);
        all().find(|server| server.name() == text).ok_or_else(|| {
            format!(
                "no server `{text}`; there are: {}",
                all().map(Server::name).collect::<Vec<_>>().join(", ")
            )
        })
    }
}

/// Programs and folders.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) weir: PathBuf,
    pub(crate) queryperf: PathBuf,
    pub(crate) hickory: PathBuf,
    /// Built from `benchmarks/floors/echo.c`.
    pub(crate) echo: PathBuf,
    /// This program.
    pub(crate) bench: PathBuf,
    /// `benchmarks/`.
    pub(crate) benchmarks: PathBuf,
}

/// Where and with what a server is started.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) net: &'a Net,
    pub(crate) tools: &'a Tools,
    pub(crate) input: &'a Input,
    pub(crate) case: Case,
    /// Octets of a floor's answers.
    pub(crate) answer_octets: u32,
    /// Where Weir, Knot, NSD and the floors run, and with how many workers Weir does; the others have one, and one CPU.
    pub(crate) cpus: &'a str,
    pub(crate) workers: &'a str,
    /// Further flags of `weir serve`.
    pub(crate) weir_flags: Vec<String>,
}

impl Place<'_> {
    /// A configuration of `benchmarks/rivals/` with its `@PLACES@` filled, in `folder`.
    fn fill(&self, name: &str, folder: &Path) -> anyhow::Result<PathBuf> {
        let source = self.tools.benchmarks.join("rivals").join(name);
        let text = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
        let text = text
            .replace("@FOLDER@", &folder.to_string_lossy())
            .replace("@ZONE@", &self.input.zone.to_string_lossy())
            .replace("@ORIGIN@", self.input.origin)
            .replace("@IP@", net::SERVER)
            .replace("@PORT@", &net::PORT.to_string())
            .replace("@DEVICE@", net::SERVER_DEVICE);
        let path = folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) running: Running,
    /// When it was started.
    pub(crate) at: Instant,
    /// From then to its first answer.
    pub(crate) to_first_answer: Duration,
    folder: tempfile::TempDir,
}

impl Started {
    /// What it has written so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// Asks from the client's namespace until an answer comes: `weir-bench first-answer`, on its way before the server is.
struct Asker {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Asker {
    fn start(net: &Net, bench: &Path, name: &str, kind: &str) -> anyhow::Result<Asker> {
        let mut command = net.client(&bench.to_string_lossy());
        command.args(["first-answer", &format!("{}:{}", net::SERVER, net::PORT), name, kind]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("it is piped")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let asker = Asker { child, lines };
        let line = asker.lines.recv_timeout(Duration::from_secs(10)).context("the asker does not start")?;
        if line != "asking" {
            bail!("the asker says `{line}`");
        }
        Ok(asker)
    }

    fn wait(self, start: Instant, server: &mut Running) -> anyhow::Result<Duration> {
        while start.elapsed() < PATIENCE {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(_) => return Ok(start.elapsed()),
                Err(mpsc::RecvTimeoutError::Timeout) if server.has_ended() => bail!("it ended"),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the asker ended"),
            }
        }
        bail!("no answer in {PATIENCE:?}")
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
