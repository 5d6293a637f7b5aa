//! Whole servers with packet rings, in network namespaces of their own making: answers equal those of sockets, an
//! overloaded worker has the fanout engaged and released, a stalled one does not take its clients down.
//!
//! Each case is this program again in a new network namespace, which is the client's; the server gets another one at the
//! other end of a veth pair. Needs root, unshare, nsenter and ip.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use common::{Server, folder, until, weir, write_zone};
use weir_testkit::message::{Name, Query};

const SERVER: &str = "10.9.0.1:53";
const SERVER_V6: &str = "[fd09::1]:53";

type Case = (&'static str, fn(&Namespace));

const CASES: &[Case] = &[
    ("answers_from_rings_equal_those_from_sockets", answers_equal),
    ("an_overloaded_worker_has_the_fanout_engaged_and_then_released", engages_and_releases),
    ("a_stalled_worker_does_not_take_its_clients_down", stalled_worker),
    ("without_the_right_sockets_go_on", without_the_right),
    ("checkconf_says_beforehand_what_rings_would_lack", checkconf_beforehand),
    ("rings_take_an_interface_that_comes_after_rights_were_dropped", late_interface),
    ("rings_live_on_after_rights_are_dropped", rights_dropped),
    ("a_user_has_rings_by_what_the_binarys_file_permits", permitted_rights),
    ("rings_go_past_the_firewall_and_checkconf_says_so", past_the_firewall),
    ("queries_from_port_zero_are_counted_and_not_answered", port_zero),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, name] = arguments.as_slice()
        && flag == "--case"
    {
        let (_, run) = CASES.iter().find(|(case, _)| case == name).expect("there is such a case");
        run(&Namespace::new());
        return ExitCode::SUCCESS;
    }
    let wanted = arguments.get(1).filter(|word| !word.starts_with('-'));
    let mut failed = 0;
    for (name, _) in
        CASES.iter().filter(|(name, _)| wanted.is_none_or(|wanted| name.contains(wanted.as_str())))
    {
        let program = std::env::current_exe().unwrap();
        let status =
            Command::new("unshare").arg("--net").arg(program).args(["--case", name]).status().unwrap();
        println!("test {name} ... {}", if status.success() { "ok" } else { "FAILED" });
        failed += usize::from(!status.success());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The server's network namespace, held open by a process that sleeps in it.
struct Namespace(Child);

impl Namespace {
    fn new() -> Namespace {
        let sleeper =
            Command::new("unshare").args(["--net", "sleep", "600"]).stdin(Stdio::null()).spawn().unwrap();
        let namespace = Namespace(sleeper);
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let path = format!("/proc/{}/ns/net", namespace.0.id());
        until("the namespace", || std::fs::read_link(&path).is_ok_and(|other| other != own));
        run(&format!("ip link add client type veth peer name server netns {}", namespace.0.id()));
        run("ip addr add 10.9.0.2/24 dev client");
        run("ip addr add fd09::2/64 dev client nodad");
        run("ip link set client up");
        run("ip link set lo up");
        for command in [
            "ip addr add 10.9.0.1/24 dev server",
            "ip addr add fd09::1/64 dev server nodad",
            "ip link set server up",
            "ip link set lo up",
        ] {
            namespace.run(command);
        }
        namespace
    }

    fn run(&self, command: &str) {
        run(&format!("nsenter --net=/proc/{}/ns/net {command}", self.0.id()));
    }

    /// A `weir` that will be started there by way of `wrapper`, with a zone and the arguments of `more`.
    fn serve(&self, zones: &std::path::Path, wrapper: &[&str], more: &[&str]) -> Server {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).args(wrapper);
        command.arg(weir().get_program());
        command.arg("serve").arg("--zones").arg(zones).args(["--listen", SERVER, "--listen", SERVER_V6]);
        // The metrics are asked for from the client's side.
        command.args(["--metrics", "10.9.0.1:9153", "--log-format", "json"]).args(more);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
            command.env_remove(name);
        }
        Server::started(command, SERVER.parse().unwrap(), "10.9.0.1:9153".parse().unwrap())
    }

    /// What `weir checkconf` says there, by way of `wrapper`, of a configuration for two workers with `ingress` as the section
    /// of that name.
    fn checkconf(&self, zones: &std::path::Path, wrapper: &[&str], ingress: &str) -> String {
        let config = zones.join("weir.toml");
        std::fs::write(&config, format!("[server]\nzones = \".\"\nworkers = 2\n[ingress]\n{ingress}\n"))
            .unwrap();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).args(wrapper);
        command.arg(weir().get_program()).arg("checkconf").arg(config);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "warnings are no errors");
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

fn zones() -> tempfile::TempDir {
    let zones = folder();
    let many: String = (0..60).map(|n| format!("many TXT \"{n:040}\"\n")).collect();
    let text = format!(
        "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\nns AAAA 2001:db8::53\n\
         @ MX 10 mail\nmail A 192.0.2.25\nsub NS ns.sub\nns.sub A 192.0.2.99\n*.wild TXT \"any\"\nalias CNAME mail\n{many}"
    );
    write_zone(zones.path(), "example.test", &text);
    zones
}

/// A socket of one flow.
fn client(server: &str) -> UdpSocket {
    let server: SocketAddr = server.parse().unwrap();
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn query(name: &str, rtype: u16) -> Query {
    Query::new(Name::from_text(name), rtype)
}

/// The octets of the answers to every question, over both families.
fn ask_everything() -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let names = ["", "ns.", "mail.", "sub.", "x.sub.", "a.wild.", "alias.", "nothing.", "many."];
    for server in [SERVER, SERVER_V6] {
        let socket = client(server);
        for (id, (name, rtype)) in
            (1..).zip(names.iter().flat_map(|name| [1, 2, 6, 15, 16, 28, 255].map(|rtype| (name, rtype))))
        {
            let query = query(&format!("{name}example.test."), rtype);
            socket.send(&query.to_wire(id)).unwrap();
            let mut octets = [0; 4096];
            let n_octets = socket.recv(&mut octets).unwrap();
            answers.push(octets[..n_octets].to_vec());
        }
    }
    answers
}

fn answers_equal(namespace: &Namespace) {
    let zones = zones();
    let mut both = Vec::new();
    for mode in ["reuseport", "ring"] {
        let server = namespace.serve(zones.path(), &[], &["--ingress", mode, "--workers", "2"]);
        let answers = ask_everything();
        let by_ring = if mode == "ring" { answers.len() as u64 } else { 0 };
        server.wait_for_sample("weir_fanout_queries_total", by_ring);
        both.push(answers);
        server.stop();
    }
    assert_eq!(both[0], both[1]);
}

/// Sends `n_queries` of one flow, `rate` a second, and counts the answers that come.
fn storm(rate: u32, n_queries: u32) -> u32 {
    let socket = client(SERVER);
    let message = query("ns.example.test.", 1).to_wire(7);
    let receiver = {
        let socket = socket.try_clone().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
        std::thread::spawn(move || {
            let mut n_answers = 0;
            while socket.recv(&mut [0; 512]).is_ok() {
                n_answers += 1;
            }
            n_answers
        })
    };
    let started = Instant::now();
    for n in 0..n_queries {
        let due = started + Duration::from_secs(1) * n / rate;
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        socket.send(&message).unwrap();
    }
    receiver.join().unwrap()
}

fn engages_and_releases(namespace: &Namespace) {
    let zones = zones();
    let config = zones.path().join("weir.toml");
    std::fs::write(&config, "[ingress]\nreceive_buffer = \"64 KiB\"\nrelease_after = \"1s\"\n").unwrap();
    let limits = [
        "--workers",
        "4",
        "--limit-worker-pps",
        "2000",
        "--config",
        config.to_str().unwrap(),
        "--log-level",
        "info",
    ];
    let server = namespace.serve(zones.path(), &[], &limits);
    server.wait_for_sample("weir_fanout_available", 1);
    assert_eq!(server.sample("weir_fanout_engaged"), 0);
    for round in 1..=2 {
        // One flow of 6,000 a second: three times what its worker can do, and less than all four can.
        let n_answers = storm(6000, 12_000);
        assert_eq!(server.sample("weir_fanout_engagements_total"), round);
        assert!(server.sample("weir_fanout_rollover_total{kind=\"all\"}") > 0);
        // One worker alone has time for 5,400. On a quiet machine all but some 300 are answered: what the queue of 64 KiB
        // does not hold until the fanout is engaged.
        assert!(n_answers > 7000, "{n_answers} of 12,000");
        server.wait_for_sample("weir_fanout_engaged", 0);
        // Sockets answer again, and the taps are out of the stack.
        let by_ring = server.sample("weir_fanout_queries_total");
        assert_eq!(ask_everything().len(), 126);
        assert_eq!(server.sample("weir_fanout_queries_total"), by_ring);
    }
    let log = server.stop();
    assert_eq!(log.matches("packet fanout engaged").count(), 2, "{log}");
    assert_eq!(log.matches("packet fanout released").count(), 2, "{log}");
    let delays =
        log.split("engaged at most ").skip(1).filter_map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    // The better of two: a machine that has other work may run the watch late once.
    assert!(delays.fold(f64::MAX, f64::min) < 50.0, "{log}");
}

fn stalled_worker(namespace: &Namespace) {
    let zones = zones();
    let server = namespace.serve(
        zones.path(),
        &[],
        &["--ingress", "ring", "--workers", "2", "--limit-worker-pps", "4000", "--stall-worker", "0:300:2s"],
    );
    // Eight flows, one after the other: both workers have some.
    let sockets: Vec<UdpSocket> = (0..8).map(|_| client(SERVER)).collect();
    let message = query("ns.example.test.", 1).to_wire(7);
    let (mut sent, mut answered) = (0_u32, 0_u32);
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(2500) {
        for socket in &sockets {
            socket.send(&message).unwrap();
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(4));
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
            while socket.recv(&mut [0; 512]).is_ok() {
                answered += 1;
            }
        }
    }
    let log = server.stop();
    assert!(log.contains("stops for 2s"), "{log}");
    // Held back are the 200 slots of the stalled ring, and what it took before it stopped.
    assert!(sent - answered < 300, "{answered} of {sent} were answered");
}

fn without_the_right(namespace: &Namespace) {
    let zones = zones();
    let server = namespace.serve(
        zones.path(),
        &["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"],
        &["--ingress", "ring", "--workers", "2"],
    );
    assert_eq!(server.sample("weir_fanout_available"), 0);
    assert_eq!(ask_everything().len(), 126);
    let log = server.stop();
    assert_eq!(log.matches("no right to open packet sockets").count(), 1, "{log}");
}

fn late_interface(namespace: &Namespace) {
    let zones = zones();
    let config = zones.path().join("weir.toml");
    std::fs::write(&config, "[ingress]\ninterfaces = [\"later\"]\n").unwrap();
    let config = config.to_str().unwrap();
    let server =
        namespace.serve(zones.path(), &[], &["--ingress", "ring", "--workers", "2", "--config", config]);
    assert_eq!(server.sample("weir_fanout_available"), 0);
    assert_eq!(ask_everything().len(), 126);
    assert_eq!(server.sample("weir_fanout_queries_total"), 0);
    for command in [
        "ip link set server down",
        "ip link set server name later",
        "ip link set later up",
        "ip addr add fd09::1/64 dev later nodad",
    ] {
        namespace.run(command);
    }
    server.wait_for_sample("weir_fanout_engaged", 1);
    assert_eq!(server.sample("weir_fanout_available"), 1);
    let n_answers = ask_everything().len() as u64;
    server.wait_for_sample("weir_fanout_queries_total", n_answers);
    let log = server.stop();
    assert!(log.contains("no packet rings, sockets it is for now: none of the interfaces"), "{log}");
    assert!(log.contains("packet rings answer on later"), "{log}");
}

fn rights_dropped(namespace: &Namespace) {
    let zones = zones();
    // What a default container has: no CAP_BPF, no CAP_NET_ADMIN; and user 65532 in the end.
    let server = namespace.serve(
        zones.path(),
        &["setpriv", "--bounding-set=-bpf,-sys_admin,-net_admin,-perfmon"],
        &["--ingress", "ring", "--workers", "2"],
    );
    let n_answers = ask_everything().len() as u64;
    server.wait_for_sample("weir_fanout_queries_total", n_answers);
    let log = server.stop();
    assert!(log.contains("runs as user 65532") && log.contains("switch: classic"), "{log}");
}

fn permitted_rights(namespace: &Namespace) {
    let (zones, place) = (zones(), folder());
    let script = format!(
        "cp \"$0\" {0} && setcap cap_net_raw,cap_net_bind_service=p {0} && \
         exec setpriv --reuid=65532 --regid=65532 --clear-groups {0} \"$@\"",
        place.path().join("weir").display()
    );
    let server =
        namespace.serve(zones.path(), &["sh", "-c", &script], &["--ingress", "ring", "--workers", "2"]);
    let n_answers = ask_everything().len() as u64;
    server.wait_for_sample("weir_fanout_queries_total", n_answers);
    let log = server.stop();
    assert!(log.contains("takes up capabilities that it is permitted"), "{log}");
}

fn checkconf_beforehand(namespace: &Namespace) {
    let zones = zones();
    let without = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"];
    let alone = ["unshare", "--net"];
    for (mode, says) in [
        ("mode = \"auto\"", "there would be no packet fanout in waiting"),
        ("mode = \"ring\"", "would fall back to sockets"),
    ] {
        assert_eq!(namespace.checkconf(zones.path(), &[], mode), "", "{mode}");
        for (wrapper, lacks) in [
            (&without[..], "no right to open packet sockets (CAP_NET_RAW)"),
            (&alone, "no Ethernet interface"),
        ] {
            let said = namespace.checkconf(zones.path(), wrapper, mode);
            assert!(
                said.contains(says) && said.contains(lacks) && said.lines().count() == 1,
                "{mode}: {said}"
            );
        }
    }
    for mode in ["mode = \"reuseport\"", "fanout = \"off\""] {
        assert_eq!(namespace.checkconf(zones.path(), &without, mode), "", "{mode}");
    }
}

fn past_the_firewall(namespace: &Namespace) {
    let zones = zones();
    let warning = |mode: &str| {
        let said = namespace.checkconf(zones.path(), &[], &format!("mode = \"{mode}\""));
        said.lines().find(|line| line.contains("this host filters what comes in")).map(str::to_owned)
    };
    assert_eq!(warning("auto"), None);
    namespace.run("iptables -A INPUT -p udp --dport 53 -j DROP");
    assert!(warning("auto").is_some_and(|said| said.contains("(nft ip filter, chain INPUT)")));
    assert_eq!(warning("reuseport"), None);
    for (mode, is_answered) in [("ring", true), ("reuseport", false)] {
        let server = namespace.serve(zones.path(), &[], &["--ingress", mode, "--workers", "1"]);
        let socket = client(SERVER);
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket.send(&query("ns.example.test.", 1).to_wire(7)).unwrap();
        assert_eq!(socket.recv(&mut [0; 512]).is_ok(), is_answered, "{mode}");
        server.stop();
    }
}

fn port_zero(namespace: &Namespace) {
    use socket2::{Domain, Protocol, Socket, Type};
    use std::io::Read;
    let zones = zones();
    let message = query("ns.example.test.", 1).to_wire(7);
    let server_port = SERVER.parse::<SocketAddr>().unwrap().port();
    let length = u16::try_from(8 + message.len()).unwrap();
    // Without a checksum (RFC 768).
    let head = [0, server_port, length, 0].map(u16::to_be_bytes).concat();
    let datagram = [head, message].concat();
    for (mode, counted_as) in [
        ("reuseport", "weir_dropped_total{reason=\"source_port_zero\"}"),
        ("ring", "weir_fanout_refused_total{reason=\"source\"}"),
    ] {
        let server = namespace.serve(zones.path(), &[], &["--ingress", mode, "--workers", "1"]);
        // A raw socket hears every answer of UDP that comes to this host.
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.send_to(&datagram, &SERVER.parse::<SocketAddr>().unwrap().into()).unwrap();
        server.wait_for_sample(counted_as, 1);
        // Whatever was answered before is heard before the answer to a good query.
        let good = client(SERVER);
        good.send(&query("ns.example.test.", 1).to_wire(8)).unwrap();
        assert!(good.recv(&mut [0; 512]).is_ok());
        let mut heard = [0; 512];
        (&socket).read_exact(&mut heard[..28]).unwrap();
        // Behind 20 octets of IPv4, without options: where it goes.
        let port = u16::from_be_bytes([heard[22], heard[23]]);
        assert_eq!(port, good.local_addr().unwrap().port(), "{mode}: something else was answered");
        server.stop();
    }
}
