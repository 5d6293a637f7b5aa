//! The whole server on loopback: it answers, rereads, stops, and says what is wrong.

mod common;

use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use common::{A, SOA, Server, TXT, folder, until, weir, write_zone, zone};
use weir_testkit::client::ask_udp;
use weir_testkit::message::{Answer, Name, Query};
use weir_testkit::process::{PATIENCE, Process};
use weir_testkit::weir::refusal;

const NOERROR: u16 = 0;
const FORMERR: u16 = 1;
const SERVFAIL: u16 = 2;
const NXDOMAIN: u16 = 3;
const REFUSED: u16 = 5;

/// The address in the only record of an answer.
fn address(answer: &Answer) -> [u8; 4] {
    assert_eq!((answer.rcode(), answer.answer.len()), (NOERROR, 1), "{answer:?}");
    answer.answer[0].rdata.as_slice().try_into().unwrap()
}

#[test]
fn a_folder_of_zones_is_served_over_udp_and_tcp() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    write_zone(zones.path(), "example.net", &zone(1, "192.0.2.2"));
    let server = Server::serve(zones.path(), &[]);
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 1]);
    assert_eq!(address(&server.ask_tcp("host.example.net", A)), [192, 0, 2, 2]);
    assert!(server.ask("host.example.com", A).is_authoritative());
    assert_eq!(server.ask("nowhere.example.com", A).rcode(), NXDOMAIN);
    assert_eq!(server.ask("example.org", SOA).rcode(), REFUSED);
    server.stop();
}

#[test]
fn a_wildcard_address_answers_from_the_address_that_was_asked() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(zones.path(), &["--listen", "0.0.0.0:0"]);
    let (_, line) = server.process.wait_for_line(0, |line| line.contains("\"address\":\"0.0.0.0:"));
    let port: String =
        line.split("0.0.0.0:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    // A connected socket takes answers from the address that it asked, and from no other.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(format!("127.0.0.2:{port}")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(&Query::new(Name::from_text("host.example.com"), A).to_wire(5)).unwrap();
    let mut buffer = [0; 512];
    let n_octets = socket.recv(&mut buffer).unwrap();
    assert_eq!(address(&Answer::from_wire(&buffer[..n_octets]).unwrap()), [192, 0, 2, 1]);
    server.stop();
}

#[test]
fn an_ipv6_address_is_served_or_refused_with_a_reason() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    match UdpSocket::bind("[::1]:0") {
        Ok(socket) => {
            let server = Server::serve(zones.path(), &["--listen", "[::1]:0"]);
            let (_, line) = server.process.wait_for_line(0, |line| line.contains("\"address\":\"[::1]:"));
            let port: String =
                line.split("[::1]:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
            socket.connect(format!("[::1]:{port}")).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send(&Query::new(Name::from_text("host.example.com"), A).to_wire(5)).unwrap();
            let mut buffer = [0; 512];
            let n_octets = socket.recv(&mut buffer).unwrap();
            assert_eq!(address(&Answer::from_wire(&buffer[..n_octets]).unwrap()), [192, 0, 2, 1]);
            server.stop();
        }
        // A host without IPv6: what was asked for cannot be had.
        Err(_) => {
            assert!(refusal(zones.path(), "[::1]:0").contains("[::1]:0"));
        }
    }
}

#[test]
fn no_thread_of_the_server_has_a_capability() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(zones.path(), &[]);
    let log = server.process.log();
    let field = |path: &std::path::Path, name: &str| {
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    // A container may keep root from changing its user; the log says so then.
    if !log.contains("stays root") {
        for task in fs::read_dir(format!("/proc/{}/task", server.process.pid())).unwrap() {
            let status = task.unwrap().path().join("status");
            assert_eq!(field(&status, "CapEff:"), "0000000000000000");
            assert_eq!(field(&status, "CapPrm:"), "0000000000000000");
            assert_ne!(field(&status, "Uid:").split('\t').next(), Some("0"));
        }
    }
    server.stop();
}

#[test]
fn queries_can_be_steered_to_the_cpu_that_received_them() {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let config = "[server]\nzones = \".\"\nworkers = 3\n[ingress]\nsteer = \"cpu\"\n";
    let server = Server::serve_config(place.path(), config);
    for _ in 0..20 {
        assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 1]);
    }
    let log = server.stop();
    assert!(!log.contains("SO_ATTACH_REUSEPORT_CBPF"), "the program was attached: {log}");
}

#[test]
fn a_bad_zone_answers_servfail_and_the_others_are_served() {
    let zones = folder();
    write_zone(zones.path(), "good.test", &zone(1, "192.0.2.1"));
    let bad = write_zone(zones.path(), "bad.test", &zone(1, "not-an-address"));
    let server = Server::serve(zones.path(), &[]);
    assert_eq!(server.ask("host.good.test", A).rcode(), NOERROR);
    assert_eq!(server.ask("host.bad.test", A).rcode(), SERVFAIL);
    let log = server.stop();
    assert!(log.contains(&format!("{}:5:", bad.display())), "file and line are named:\n{log}");
}

#[test]
fn hang_up_rereads_changed_new_and_removed_zones() {
    let zones = folder();
    write_zone(zones.path(), "changed.test", &zone(1, "192.0.2.1"));
    write_zone(zones.path(), "same.test", &zone(1, "192.0.2.2"));
    let removed = write_zone(zones.path(), "removed.test", &zone(1, "192.0.2.3"));
    let server = Server::serve(zones.path(), &[]);
    assert_eq!(address(&server.ask("host.removed.test", A)), [192, 0, 2, 3]);

    write_zone(zones.path(), "changed.test", &zone(2, "192.0.2.11"));
    write_zone(zones.path(), "new.test", &zone(1, "192.0.2.4"));
    fs::remove_file(removed).unwrap();
    server.reload();
    assert_eq!(address(&server.ask("host.changed.test", A)), [192, 0, 2, 11]);
    assert_eq!(address(&server.ask("host.same.test", A)), [192, 0, 2, 2]);
    assert_eq!(address(&server.ask("host.new.test", A)), [192, 0, 2, 4]);
    assert_eq!(server.ask("host.removed.test", A).rcode(), REFUSED);
    assert_eq!(server.sample("weir_reloads_total{result=\"ok\"}"), 1);
    assert_eq!(server.sample("weir_zones_loaded"), 3);
    server.stop();
}

#[test]
fn records_that_change_under_the_same_serial_are_remarked_upon() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(7, "192.0.2.1"));
    let server = Server::serve(zones.path(), &[]);
    let remark = "zone example.com.: the records changed and serial 7 did not";
    write_zone(zones.path(), "example.com", &("; the same records\n".to_owned() + &zone(7, "192.0.2.1")));
    assert!(!server.reload().contains(remark));
    write_zone(zones.path(), "example.com", &zone(7, "192.0.2.2"));
    let log = server.reload();
    assert!(log.contains(remark) && log.contains("1 zone loaded"), "{log}");
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 2]);
    server.stop();
}

#[test]
fn a_zone_that_became_bad_keeps_its_old_data_and_says_so() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(7, "192.0.2.1"));
    let server = Server::serve(zones.path(), &[]);
    let bad = write_zone(zones.path(), "example.com", &zone(8, "nonsense"));
    let log = server.reload();
    assert!(log.contains("serial 7 is still served"), "{log}");
    assert!(log.contains(&format!("{}:5:", bad.display())), "file and line are named: {log}");
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 1]);
    assert_eq!(server.sample("weir_reloads_total{result=\"error\"}"), 1);

    write_zone(zones.path(), "example.com", &zone(9, "192.0.2.9"));
    server.reload();
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 9]);
    server.stop();
}

#[test]
fn a_zone_directory_that_vanished_leaves_everything_in_place() {
    let parent = folder();
    let (zones, aside) = (parent.path().join("zones"), parent.path().join("aside"));
    fs::create_dir(&zones).unwrap();
    write_zone(&zones, "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(&zones, &[]);
    fs::rename(&zones, &aside).unwrap();
    server.reload();
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 1]);
    server.stop();
}

#[test]
fn a_second_server_on_the_port_is_refused() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let first = Server::serve(zones.path(), &[]);
    let listen = first.address.to_string();
    let stderr = refusal(zones.path(), &listen);
    assert!(stderr.contains(&listen) && stderr.contains("another weir"), "{stderr}");
    // And the first one got every query.
    assert_eq!(address(&first.ask("host.example.com", A)), [192, 0, 2, 1]);
    first.stop();
}

#[test]
fn what_has_arrived_before_the_end_is_answered() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(zones.path(), &["--workers", "1"]);
    // A stopped process answers nothing: all queries wait in the socket when TERM comes.
    server.process.signal("STOP");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let query = Query::new(Name::from_text("host.example.com"), A);
    for id in 0..100 {
        socket.send(&query.to_wire(id)).unwrap();
    }
    server.process.signal("TERM");
    server.process.signal("CONT");
    let mut buffer = [0; 512];
    let mut ids: Vec<u16> = (0..100)
        .map(|_| {
            let n_octets = socket.recv(&mut buffer).unwrap();
            Answer::from_wire(&buffer[..n_octets]).unwrap().id
        })
        .collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..100));
    let (status, log) = server.process.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn term_and_int_end_the_server_with_exit_code_0_whoever_is_connected() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    for signal in ["TERM", "INT"] {
        let server = Server::serve(zones.path(), &[]);
        let mut idle = server.connect();
        server.process.signal(signal);
        let (status, log) = server.process.wait();
        assert_eq!(status.code(), Some(0), "after {signal}:\n{log}");
        assert!(matches!(idle.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}

#[test]
fn signals_that_other_servers_know_end_nothing_and_are_told_of() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(zones.path(), &[]);
    server.process.signal("USR1");
    server.process.wait_for_line(0, |line| line.contains("USR1 does nothing here"));
    server.process.signal("USR2");
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 1]);
    server.stop();
}

#[test]
fn a_limit_on_open_files_that_is_too_low_is_told_before_anything_is_opened() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let limited = |n_files: u32| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("ulimit -n {n_files}; exec \"$0\" \"$@\"")]).arg(weir().get_program());
        command.args(["serve", "--workers", "1", "--zones"]).arg(zones.path());
        command
    };
    for n_files in [6, 63] {
        let refused =
            limited(n_files).args(["--listen", "127.0.0.1:0", "--metrics", "off"]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("{n_files} open files are too few for a server")), "{said}");
    }
    let server = Server::serve_command(limited(64), &[]);
    assert_eq!(address(&server.ask_tcp("host.example.com", A)), [192, 0, 2, 1]);
    server
        .process
        .wait_for_line(0, |line| line.contains("64 open files leaves room for 1 TCP connection only"));
    server.stop();
}

#[test]
fn nothing_to_serve_ends_with_exit_code_1() {
    let empty = folder();
    let missing = empty.path().join("missing");
    let all_bad = folder();
    write_zone(all_bad.path(), "bad.test", "nonsense\n");
    for (zones, expected) in
        [(missing.as_path(), "missing"), (empty.path(), "no zone in"), (all_bad.path(), "none of 1 zone can")]
    {
        let stderr = refusal(zones, "127.0.0.1:0");
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}

#[test]
fn metrics_count_what_was_asked_and_readiness_is_told() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    write_zone(zones.path(), "bad.test", "nonsense\n");
    let server = Server::serve(zones.path(), &[]);
    for _ in 0..3 {
        server.ask("host.example.com", A);
    }
    server.ask_tcp("nowhere.example.com", A);
    assert_eq!(server.sample("weir_queries_total{transport=\"udp\"}"), 3);
    assert_eq!(server.sample("weir_queries_total{transport=\"tcp\"}"), 1);
    assert_eq!(server.sample("weir_answers_total{rcode=\"NOERROR\"}"), 3);
    assert_eq!(server.sample("weir_answers_total{rcode=\"NXDOMAIN\"}"), 1);
    assert_eq!(server.sample("weir_zones_loaded"), 1);
    assert_eq!(server.sample("weir_zones_broken"), 1);
    server.wait_for_sample("weir_tcp_connections_closed_total{reason=\"done\"}", 1);
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(server.get("/nothing").0, 404);
    assert!(server.get("/").1.contains("<title>weir</title>"));
    server.stop();
}

#[test]
fn a_repeated_alias_is_answered_from_the_cache_octet_for_octet() {
    let zones = folder();
    let text = zone(1, "192.0.2.1") + "alias CNAME host\nalias2 CNAME alias\n";
    write_zone(zones.path(), "example.com", &text);
    let cached = Server::serve(zones.path(), &["--workers", "1"]);
    let plain = Server::serve(zones.path(), &["--workers", "1", "--cache-size", "0"]);
    let ask = |server: &Server, case: u64, edns: Option<u16>| {
        let query =
            Query { name: Name::from_text("alias2.example.com"), rtype: A, edns, case, dnssec_ok: false };
        weir_testkit::client::exchange_udp(server.address, &query.to_wire(0x1234), PATIENCE).unwrap()
    };
    for (case, edns) in [(0, None), (0x5555, None), (0, Some(1232)), (0xf0f0, Some(512)), (0, None)] {
        assert_eq!(ask(&cached, case, edns), ask(&plain, case, edns), "case {case:#x}, EDNS {edns:?}");
    }
    // What is asked for once is not kept.
    assert_eq!(cached.sample("weir_cache_misses_total"), 2);
    assert_eq!(cached.sample("weir_cache_hits_total"), 3);
    cached.wait_for_sample("weir_cache_entries", 1);
    assert!(cached.sample("weir_cache_octets") > 0);
    assert_eq!(plain.sample("weir_cache_misses_total"), 0);

    // A reload asks for other keys: what was cached is never seen again.
    write_zone(zones.path(), "example.com", &text.replace("192.0.2.1", "192.0.2.2"));
    cached.reload();
    let answer = cached.ask("alias2.example.com", A);
    assert_eq!(answer.answer.last().unwrap().rdata, [192, 0, 2, 2]);
    cached.stop();
    plain.stop();
}

#[test]
fn zones_named_in_the_configuration_are_served_and_reread_with_it() {
    let place = folder();
    let file = place.path().join("company.db");
    fs::write(&file, zone(1, "192.0.2.1")).unwrap();
    let config = place.path().join("weir.toml");
    let with_zone = |name: &str| format!("[[zone]]\nname = \"{name}\"\nfile = \"company.db\"\n");
    let server = Server::serve_config(place.path(), &with_zone("company.test"));
    assert_eq!(address(&server.ask("host.company.test", A)), [192, 0, 2, 1]);

    fs::write(&config, format!("[server]\nworkers = 9\n{}", with_zone("renamed.test"))).unwrap();
    let log = server.reload();
    assert!(log.contains("server.workers was changed"), "{log}");
    assert_eq!(address(&server.ask("host.renamed.test", A)), [192, 0, 2, 1]);
    assert_eq!(server.ask("host.company.test", A).rcode(), REFUSED);

    fs::write(&config, "[sever]\n").unwrap();
    let log = server.reload();
    assert!(log.contains("did you mean `server`?") && log.contains("the old one stays"), "{log}");
    assert_eq!(address(&server.ask("host.renamed.test", A)), [192, 0, 2, 1]);
    server.stop();
}

#[test]
fn a_changed_limit_of_the_checks_judges_zones_anew_that_have_not_changed() {
    let place = folder();
    write_zone(place.path(), "good.test", &zone(1, "192.0.2.1"));
    write_zone(place.path(), "costly.test", &(zone(1, "192.0.2.1") + "@ NSEC3PARAM 1 0 100 -\n"));
    let config = |limit: u16| format!("[server]\nzones = \".\"\n[checks]\nmax_nsec3_iterations = {limit}\n");
    let write = |limit| fs::write(place.path().join("weir.toml"), config(limit)).unwrap();
    let server = Server::serve_config(place.path(), &config(99));
    assert_eq!(server.ask("host.costly.test", A).rcode(), SERVFAIL);
    write(100);
    server.reload();
    assert_eq!(address(&server.ask("host.costly.test", A)), [192, 0, 2, 1]);
    write(99);
    let log = server.reload();
    assert!(log.contains("the new data are bad; serial 1 is still served"), "{log}");
    assert_eq!(address(&server.ask("host.costly.test", A)), [192, 0, 2, 1]);
    server.stop();
}

#[test]
fn zones_that_only_root_can_read_are_served_all_the_same() {
    // Without root there is nobody else to become, and the folder is the server's own.
    let zones = tempfile::tempdir().unwrap();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(zones.path(), &[]);
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 1]);
    server.reload();
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 1]);
    server.stop();
}

#[test]
fn zones_that_lead_to_files_which_only_root_can_read_are_served_all_the_same() {
    let place = folder();
    let (zones, closed) = (place.path().join("zones"), place.path().join("closed"));
    fs::create_dir(&zones).unwrap();
    fs::create_dir(&closed).unwrap();
    write_zone(&closed, "linked", &zone(1, "192.0.2.1"));
    fs::write(closed.join("hosts"), "inner A 192.0.2.2\n").unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let is_served = |name: &str| {
        let server = Server::serve(&zones, &[]);
        assert_eq!(address(&server.ask(&format!("host.{name}"), A)), [192, 0, 2, 1]);
        server.stop();
    };
    std::os::unix::fs::symlink("../closed/linked.zone", zones.join("linked.test.zone")).unwrap();
    is_served("linked.test");
    fs::remove_file(zones.join("linked.test.zone")).unwrap();
    write_zone(&zones, "including.test", &(zone(1, "192.0.2.1") + "$INCLUDE ../closed/hosts\n"));
    is_served("including.test");
}

#[test]
fn a_configuration_that_only_root_can_read_is_told_of_at_the_start() {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let file = place.path().join("weir.toml");
    let is_told_with = |mode| {
        fs::write(&file, "[server]\nzones = \".\"\n").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let mut serve = weir();
        serve.args(["serve", "--config"]).arg(&file);
        let log = Server::serve_command(serve, &[]).stop();
        (log.contains("weir.toml is closed to user"), log.contains("runs as user"))
    };
    let (is_told, is_other_user) = is_told_with(0o600);
    assert_eq!(is_told, is_other_user);
    assert!(!is_told_with(0o644).0);
}

#[test]
fn cookie_secrets_that_only_root_can_read_stay_when_the_rest_is_reread() {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let secrets = place.path().join("secrets");
    fs::write(&secrets, "e5e973e5a6b2a43f48e7dc849e37bfcf\n").unwrap();
    fs::set_permissions(&secrets, PermissionsExt::from_mode(0o600)).unwrap();
    let config = "[server]\nzones = \".\"\n[cookies]\nsecrets_file = \"secrets\"\n";
    let server = Server::serve_config(place.path(), config);
    let is_other_user = server.process.log().contains("runs as user");
    write_zone(place.path(), "example.com", &zone(2, "192.0.2.2"));
    let log = server.reload();
    assert_eq!(
        log.matches("the cookie secrets that were read at the start stay").count(),
        usize::from(is_other_user)
    );
    assert!(!log.contains("with errors") && !log.contains("in force"), "{log}");
    assert_eq!(address(&server.ask("host.example.com", A)), [192, 0, 2, 2]);
    server.stop();
}

#[test]
fn term_while_zones_are_loaded_ends_the_server_in_order() {
    let place = folder();
    // Ten million records, which take seconds. As root they are read before rights are dropped, since the other user
    // could not read them.
    let records: String = (0..10).map(|n| format!("$GENERATE 1-1000000 h$-{n} A 192.0.2.1\n")).collect();
    fs::write(place.path().join("large.zone"), zone(1, "192.0.2.1") + &records).unwrap();
    fs::set_permissions(place.path().join("large.zone"), PermissionsExt::from_mode(0o600)).unwrap();
    let config = place.path().join("weir.toml");
    fs::write(&config, "[[zone]]\nname = \"large.test\"\nfile = \"large.zone\"\n").unwrap();
    let mut command = weir();
    command.args(["serve", "--listen", "127.0.0.1:0", "--metrics", "off", "--config"]).arg(&config);
    let process = Process::start("weir", &mut command);
    process.wait_for_line(0, |line| line.contains("is read as root now") || line.contains(", ingress "));
    let (status, log) = process.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("TERM: stopped before zones were loaded"), "{log}");
}

#[test]
fn zones_that_are_ready_are_served_while_others_load_and_everyone_is_told() {
    let zones = folder();
    write_zone(zones.path(), "a.test", &zone(1, "192.0.2.1"));
    // Ten million records, which take seconds.
    let records: String = (0..10).map(|n| format!("$GENERATE 1-1000000 h$-{n} A 192.0.2.1\n")).collect();
    write_zone(zones.path(), "b.test", &(zone(1, "192.0.2.2") + &records));
    let mut command = weir();
    command.args(["serve", "--zones"]).arg(zones.path());
    let server = Server::listen(command, &[]);
    until("the small zone answers", || server.ask("host.a.test", A).rcode() == NOERROR);
    let query = Query { edns: Some(1232), ..Query::new(Name::from_text("host.b.test"), A) };
    let loading = ask_udp(server.address, &[query]).remove(0);
    assert_eq!(loading.rcode(), SERVFAIL);
    // RFC 8914 section 4.15: not ready.
    let opt = loading.opt.expect("EDNS was asked for").rdata;
    assert_eq!(opt[..6], [0, 15, 0, 2, 0, 14]);
    let loading = (503, "loading: 1 of 2 zones done\n".to_owned());
    until("/readyz to count the small zone", || server.get("/readyz") == loading);
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.sample("weir_zones_loading"), 1);
    let (address, metrics) = (server.address.to_string(), server.metrics.to_string());
    let health = weir_testkit::weir::run(&["healthcheck", "--server", &address, "--metrics", &metrics]);
    let said = String::from_utf8(health.stdout).unwrap();
    assert_eq!(said, format!("{address} answers, loading: 1 of 2 zones done\n"));
    assert_eq!(health.status.code(), Some(0));
    let log = server.stop();
    assert!(log.contains("TERM: stopped before zones were loaded"), "{log}");
}

#[test]
fn nonsense_gets_no_answer_or_an_error_and_the_server_stays() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(zones.path(), &[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut response = Query::new(Name::from_text("host.example.com"), A).to_wire(1);
    response[2] |= 0x80;
    // Two that get no answer, then one that gets FORMERR: the first answer to come is its.
    for message in [&response[..], b"short", b"\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00cut"] {
        socket.send(message).unwrap();
    }
    let mut buffer = [0; 512];
    let n_octets = socket.recv(&mut buffer).unwrap();
    let answer = Answer::from_wire(&buffer[..n_octets]).unwrap();
    assert_eq!((answer.id, answer.rcode()), (7, 1), "{answer:?}");
    assert_eq!(server.ask("host.example.com", TXT).rcode(), NOERROR);
    assert_eq!(server.sample("weir_dropped_total{reason=\"not_a_query\"}"), 2);
    server.stop();
}

#[test]
fn a_datagram_that_is_too_long_for_a_query_is_answered_and_not_counted_as_dropped() {
    let zones = folder();
    write_zone(zones.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(zones.path(), &[]);
    let mut query = Query::new(Name::from_text("host.example.com"), A).to_wire(9);
    query.resize(3_000, 0);
    let answer = weir_testkit::client::exchange_udp(server.address, &query, PATIENCE).unwrap();
    assert_eq!(Answer::from_wire(&answer).unwrap().rcode(), FORMERR);
    assert_eq!(server.sample("weir_overlong_queries_total"), 1);
    let (_, metrics) = server.get("/metrics");
    let dropped = metrics.lines().filter(|line| line.starts_with("weir_dropped_total"));
    assert!(dropped.clone().count() > 0 && dropped.clone().all(|line| line.ends_with(" 0")), "{metrics}");
    server.stop();
}

#[test]
fn queries_that_the_kernel_drops_are_counted_and_told_once_a_minute() {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let config = "[server]\nzones = \".\"\nworkers = 1\n[ingress]\nreceive_buffer = \"4 KiB\"\n";
    let server = Server::serve_config(place.path(), config);
    let drops = format!("weir_kernel_drops_total{{address=\"{}\",worker=\"0\"}}", server.address);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let query = Query::new(Name::from_text("host.example.com"), A).to_wire(1);
    for _ in 0..2 {
        let before = server.sample(&drops);
        // A stopped process takes nothing out of its queue.
        server.process.signal("STOP");
        for _ in 0..1_000 {
            socket.send_to(&query, server.address).unwrap();
        }
        server.process.signal("CONT");
        until("the drops to be counted", || server.sample(&drops) > before);
    }
    let log = server.stop();
    assert_eq!(log.matches("were dropped by the kernel").count(), 1, "{log}");
}
