//! What needs root: dropping rights, and a kernel that refuses to send.
//!
//! Each case runs in a process of its own, this program again with the name of the case, wrapped in the command that
//! gives or takes the rights in question. A case that cannot run fails.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::privilege::{self, Outcome};
use weir_netio::udp::{SendReport, UdpEngine, UdpSocketConfig, Wait};
use weir_netio::{fanout, firewall};

const NOBODY: u32 = 65532;

/// A case: its name, which is a sentence; the command in front of it; what it does.
type Case = (&'static str, &'static [&'static str], fn());

const CASES: &[Case] = &[
    ("root_becomes_nobody_and_its_sockets_live_on", &[], root_becomes_nobody),
    ("root_without_cap_setuid_stays_root", &["setpriv", "--bounding-set=-setuid"], root_without_cap_setuid),
    (
        "root_of_a_namespace_without_the_user_stays_root",
        &["unshare", "--user", "--map-root-user"],
        unmapped_user,
    ),
    (
        "a_user_without_rights_loses_none",
        &["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups"],
        user_without_rights,
    ),
    (
        "a_user_with_capabilities_loses_them",
        &[
            "setpriv",
            "--reuid=65532",
            "--regid=65532",
            "--clear-groups",
            "--inh-caps=+net_raw,+net_bind_service",
            "--ambient-caps=+net_raw,+net_bind_service",
        ],
        user_with_capabilities,
    ),
    (
        "a_user_takes_up_what_its_file_permits_and_loses_it_with_the_rest",
        &[
            "sh",
            "-c",
            "setcap cap_net_raw,cap_chown=p \"$0\" && exec setpriv --reuid=65532 --regid=65532 --clear-groups \"$0\" \"$@\"",
        ],
        user_takes_up_permitted,
    ),
    ("rules_for_what_comes_in_are_found_and_others_are_not", &["unshare", "--net"], rules_are_found),
    ("a_full_send_queue_drops_answers_and_returns", &["unshare", "--net"], full_send_queue),
    ("an_unreachable_peer_does_not_stop_the_others", &["unshare", "--net"], unreachable_peer),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, name] = arguments.as_slice()
        && flag == "--case"
    {
        let (_, _, run) = CASES.iter().find(|(case, ..)| case == name).unwrap();
        run();
        return ExitCode::SUCCESS;
    }
    assert!(privilege::is_root(), "these tests need root");
    let failed = CASES.iter().filter(|case| !passes(case)).count();
    println!("{} cases, {failed} failed", CASES.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes((name, wrapper, _): &&Case) -> bool {
    let program = std::env::current_exe().unwrap();
    // A copy that every user can reach and run: the build folder may be closed to others.
    let copy = std::env::temp_dir().join(format!("weir-netio-privileged-{}-{name}", std::process::id()));
    fs::copy(program, &copy).unwrap();
    let mut words: Vec<&std::ffi::OsStr> = wrapper.iter().map(std::ffi::OsStr::new).collect();
    words.extend([copy.as_os_str(), "--case".as_ref(), (*name).as_ref()]);
    let passed = Command::new(words[0]).args(&words[1..]).status().unwrap().success();
    fs::remove_file(&copy).unwrap();
    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    passed
}

/// The value of a field of /proc/self/status.
fn status(field: &str) -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_powerless() {
    for field in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(field), "0000000000000000", "{field}");
    }
    assert_eq!(status("NoNewPrivs"), "1");
}

fn root_becomes_nobody() {
    let mut engine = engine();
    assert_eq!(privilege::drop_to(NOBODY, NOBODY).unwrap(), Outcome::Dropped);
    assert_powerless();
    assert_eq!(status("CapBnd"), "0000000000000000");
    assert_eq!(status("Uid"), "65532 65532 65532 65532");
    assert_eq!(status("Gid"), status("Uid"));
    assert_eq!(status("Groups"), "");
    assert!(!privilege::is_root());
    // What root may do and nobody may not: read the shadow file.
    assert!(fs::read("/etc/shadow").is_err());
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut batch = ask(&mut engine, &[client]);
    assert_eq!(engine.send(&mut batch).unwrap().sent, 1);
    // Once more is harmless.
    assert_eq!(privilege::drop_to(NOBODY, NOBODY).unwrap(), Outcome::NeverHad);
}

fn root_without_cap_setuid() {
    let outcome = privilege::drop_to(NOBODY, NOBODY).unwrap();
    assert_eq!(outcome, Outcome::Kept { reason: "CAP_SETUID is missing".to_owned() });
    assert!(privilege::is_root());
    assert_powerless();
}

fn unmapped_user() {
    let outcome = privilege::drop_to(NOBODY, NOBODY).unwrap();
    let reason = "user 65532 is not mapped in this user namespace".to_owned();
    assert_eq!(outcome, Outcome::Kept { reason });
}

fn user_without_rights() {
    assert_eq!(privilege::drop_to(NOBODY, NOBODY).unwrap(), Outcome::NeverHad);
    assert_powerless();
}

fn user_with_capabilities() {
    assert_ne!(status("CapEff"), "0000000000000000");
    assert_ne!(status("CapAmb"), "0000000000000000");
    assert_eq!(privilege::drop_to(NOBODY, NOBODY).unwrap(), Outcome::NeverHad);
    assert_powerless();
}

fn user_takes_up_permitted() {
    assert_eq!((status("CapEff"), status("CapPrm")), (capabilities(0), capabilities(1 << 13 | 1)));
    assert!(fanout::probe().is_err());
    assert!(privilege::take_up_permitted().unwrap());
    assert_eq!(status("CapEff"), capabilities(1 << 13), "CAP_CHOWN is of no use to sockets");
    fanout::probe().unwrap();
    assert!(!privilege::take_up_permitted().unwrap(), "all is in force");
    assert_eq!(privilege::drop_to(NOBODY, NOBODY).unwrap(), Outcome::NeverHad);
    assert_powerless();
    assert!(!privilege::take_up_permitted().unwrap(), "nothing is permitted any more");
}

/// Capabilities as /proc/self/status shows them.
fn capabilities(bits: u64) -> String {
    format!("{bits:016x}")
}

fn rules_are_found() {
    run("ip link set lo up");
    run("ip link add eth9 type veth peer name eth8");
    let rules = || firewall::input_rules().unwrap();
    assert_eq!(rules(), [""; 0]);
    // Tables and chains alone, what is forwarded or leaves, and translations of addresses filter nothing on the way in.
    run("iptables -t filter -L -n");
    run("iptables-legacy -t filter -L -n");
    run("iptables -A FORWARD -j DROP");
    run("iptables -A OUTPUT -p udp --sport 53 -j ACCEPT");
    run("iptables-legacy -A OUTPUT -p udp --sport 53 -j ACCEPT");
    run("iptables -t nat -A PREROUTING -p udp --dport 53 -j REDIRECT --to-ports 5353");
    run("nft add table inet t");
    run("nft add chain inet t in { type filter hook input priority 0 ; }");
    run("nft add chain inet t aside");
    run("nft add rule inet t aside udp dport 53 drop");
    assert_eq!(rules(), [""; 0]);
    for (rule, undo, found) in [
        ("iptables -A INPUT -p udp -j DROP", "iptables -F INPUT", "nft ip filter, chain INPUT"),
        ("ip6tables -A INPUT -p udp -j DROP", "ip6tables -F INPUT", "nft ip6 filter, chain INPUT"),
        (
            "iptables -t raw -A PREROUTING -p udp -j DROP",
            "iptables -t raw -F PREROUTING",
            "nft ip raw, chain PREROUTING",
        ),
        (
            "iptables-legacy -A INPUT -p udp -j DROP",
            "iptables-legacy -F INPUT",
            "iptables -t filter, chain INPUT",
        ),
        (
            "ip6tables-legacy -A INPUT -p udp -j DROP",
            "ip6tables-legacy -F INPUT",
            "ip6tables -t filter, chain INPUT",
        ),
        (
            "iptables-legacy -t raw -A PREROUTING -p udp -j DROP",
            "iptables-legacy -t raw -F PREROUTING",
            "iptables -t raw, chain PREROUTING",
        ),
        ("nft add rule inet t in jump aside", "nft flush chain inet t in", "nft inet t, chain in"),
    ] {
        run(rule);
        assert_eq!(rules(), [found], "{rule}");
        run(undo);
    }
    run("nft add table netdev d");
    run("nft add chain netdev d early { type filter hook ingress device eth9 priority 0 ; }");
    assert_eq!(rules(), [""; 0]);
    run("nft add rule netdev d early udp dport 53 drop");
    assert_eq!(rules(), ["nft netdev d, chain early"]);
}

fn engine() -> UdpEngine {
    let config = UdpSocketConfig { send_buffer_octets: 1, ..UdpSocketConfig::default() };
    UdpEngine::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap()
}

/// Sends one query from each client, and prepares an answer of 200 octets to each.
fn ask(engine: &mut UdpEngine, clients: &[UdpSocket]) -> Batch {
    for client in clients {
        client.send_to(b"q", engine.address()).unwrap();
    }
    let mut batch = Batch::new(BatchConfig::default());
    assert_eq!(engine.receive(&mut batch, Wait::No).unwrap(), clients.len());
    for i in 0..batch.len() {
        batch.answer(i, 200);
    }
    batch
}

fn run(command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success(), "{command}");
}

/// A socket on 127.0.0.1 for each of `n_clients` clients.
fn clients(n_clients: usize) -> Vec<UdpSocket> {
    (0..n_clients).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect()
}

fn full_send_queue() {
    run("ip link set lo up");
    let mut engine = engine();
    let mut batch = ask(&mut engine, &clients(64));
    // A kilobyte a second: what is sent now stays in the queue and counts against the send buffer.
    run("tc qdisc add dev lo root tbf rate 8kbit burst 1600 limit 1mb");
    let started = Instant::now();
    let report = engine.send(&mut batch).unwrap();
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    assert!(report.sent > 0 && report.dropped > 0, "{report:?}");
    assert_eq!((report.sent + report.dropped, report.failed), (64, 0));
}

fn unreachable_peer() {
    run("ip link set lo up");
    let mut engine = engine();
    let barred: SocketAddr = "127.0.0.9:0".parse().unwrap();
    let mut all = clients(1);
    all.extend([UdpSocket::bind(barred).unwrap(), UdpSocket::bind(barred).unwrap()]);
    all.extend(clients(2));
    let mut batch = ask(&mut engine, &all);
    run("ip route replace prohibit 127.0.0.9 table local");
    assert_eq!(engine.send(&mut batch).unwrap(), SendReport { sent: 3, failed: 2, ..SendReport::default() });
    for client in [&all[0], &all[3], &all[4]] {
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(client.recv(&mut [0; 512]).unwrap(), 200);
    }
}
