//! The commands that serve nothing: what they print, and their exit codes.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use common::{Server, folder, weir, write_zone, zone};

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    Ran {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

#[test]
fn checkzone_says_the_serial_of_a_good_zone() {
    let place = folder();
    let file = write_zone(place.path(), "example.com", &zone(2026, "192.0.2.1"));
    let ran = run(weir().args(["checkzone", "example.com"]).arg(&file));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "zone example.com/IN: loaded serial 2026\nOK\n"));
    let ran = run(weir().args(["checkzone", "."]).arg(&file));
    assert_eq!(ran.stdout, "zone ./IN: loaded serial 2026\nOK\n");
}

#[test]
fn checkzone_reads_standard_input() {
    let mut child = weir()
        .args(["checkzone", "Example.COM.", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(zone(7, "192.0.2.1").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"zone example.com/IN: loaded serial 7\nOK\n");
}

#[test]
fn checkzone_names_file_line_and_column_of_every_mistake() {
    let place = folder();
    let file = write_zone(place.path(), "example.com", &(zone(1, "nonsense") + "www A\nmail MX x mail\n"));
    let ran = run(weir().args(["checkzone", "example.com"]).arg(&file));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    for line in [5, 6, 7] {
        let place = format!("{}:{line}:", file.display());
        assert!(ran.stderr.lines().any(|said| said.starts_with(&place)), "{place} in:\n{}", ran.stderr);
    }
}

#[test]
fn checkconf_reports_every_mistake_of_the_file() {
    let place = folder();
    let config = place.path().join("weir.toml");
    fs::write(&config, "[server]\nlistne = []\n[cache]\nsize = \"much\"\n").unwrap();
    let ran = run(weir().arg("checkconf").arg(&config));
    assert_eq!(ran.code, Some(1));
    let path = config.display();
    assert!(
        ran.stderr.contains(&format!("{path}:2:1: unknown key `listne`; did you mean `listen`?")),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains(&format!("{path}:4:8: ")), "{}", ran.stderr);
}

#[test]
fn checkconf_reads_every_zone() {
    let place = folder();
    write_zone(place.path(), "good.test", &zone(5, "192.0.2.1"));
    let config = place.path().join("weir.toml");
    fs::write(&config, "[server]\nzones = \".\"\n").unwrap();
    let ran = run(weir().arg("checkconf").arg(&config));
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "zone good.test/IN: loaded serial 5\nOK\n"),
        "{}",
        ran.stderr
    );

    let bad = write_zone(place.path(), "bad.test", &zone(5, "nonsense"));
    let ran = run(weir().arg("checkconf").arg(&config));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains(&format!("{}:5:", bad.display())), "{}", ran.stderr);

    let ran = run(weir().args(["checkconf", "--json"]).arg(&config));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["errors"][0]["line"], 5, "{report}");
    assert_eq!(report["zones"][0]["name"], "good.test.", "{report}");
    assert_eq!(ran.code, Some(1));
}

#[test]
fn healthcheck_tells_a_running_server_from_none() {
    let place = folder();
    write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let server = Server::serve(place.path(), &[]);
    let address = server.address.to_string();
    let ran = run(weir().args(["healthcheck", "--server", &address]));
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("{address} answers\n")));
    let ran = run(weir().arg("healthcheck").env("WEIR_LISTEN", format!("0.0.0.0:{}", server.address.port())));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    server.stop();
    let ran = run(weir().args(["healthcheck", "--server", &address]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains(&address) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["serve", "--listen", "nowhere"][..],
        &["serve", "--ingress", "xdp"],
        &["serve", "--workers", "0"],
        &["serve", "--no-such-flag"],
        &["no-such-command"],
        &["checkzone", "example.com"],
    ] {
        let ran = run(weir().args(arguments));
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty());
    }
}

#[test]
fn version_and_help_are_exit_code_0() {
    let ran = run(weir().arg("--version"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), concat!("weir ", env!("CARGO_PKG_VERSION"), "\n")));
    for command in ["serve", "checkzone", "checkconf", "healthcheck"] {
        let ran = run(weir().args([command, "--help"]));
        assert_eq!(ran.code, Some(0));
        assert!(ran.stdout.contains(&format!("weir {command}")), "{command} --help has an example");
    }
}

#[test]
fn an_output_that_takes_nothing_is_an_exit_code_and_no_panic() {
    let place = folder();
    let good = write_zone(place.path(), "example.com", &zone(1, "192.0.2.1"));
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let check = |file: &std::path::Path| {
        let mut command = weir();
        command.args(["checkzone", "example.com"]).arg(file).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let output = check(&good).stdout(full()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("standard output: "), "{said}");

    // Whoever has read enough is no failure.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(check(&good).stdout(writer).status().unwrap().code(), Some(0));

    let missing = place.path().join("missing.zone");
    assert_eq!(check(&missing).stderr(full()).status().unwrap().code(), Some(1));
    let mut serve = weir();
    serve.args(["serve", "--zones"]).arg(&missing).args(["--listen", "127.0.0.1:0", "--metrics", "off"]);
    assert_eq!(serve.stdin(Stdio::null()).stderr(full()).status().unwrap().code(), Some(1));
}

#[test]
fn a_files_name_forges_no_line_and_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let place = folder();
    write_zone(place.path(), "good.test", &zone(5, "192.0.2.1"));
    for name in [&b"x\nOK\x1b[2J.zone"[..], b"\xff.zone"] {
        fs::write(place.path().join(std::ffi::OsStr::from_bytes(name)), "nonsense\n").unwrap();
    }
    let config = place.path().join("weir.toml");
    // Without a warning of what packet rings would lack here.
    fs::write(&config, "[server]\nzones = \".\"\n[ingress]\nmode = \"reuseport\"\n").unwrap();
    let ran = run(weir().arg("checkconf").arg(&config));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.lines().all(|line| line.starts_with(&*place.path().to_string_lossy())),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("x\\x0aOK\\x1b[2J.zone"), "{}", ran.stderr);

    let ran = run(weir().args(["checkconf", "--json"]).arg(&config));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let files: Vec<&str> =
        report["errors"].as_array().unwrap().iter().filter_map(|error| error["message"].as_str()).collect();
    assert!(files.iter().any(|message| message.contains('\u{fffd}')), "{report}");
}

#[test]
fn a_variable_that_is_empty_counts_as_not_set() {
    const VARIABLES: [&str; 12] = [
        "WEIR_CONFIG",
        "WEIR_ZONES",
        "WEIR_LISTEN",
        "WEIR_WORKERS",
        "WEIR_INGRESS",
        "WEIR_METRICS",
        "WEIR_CACHE_SIZE",
        "WEIR_USER",
        "WEIR_LOG_FORMAT",
        "WEIR_LOG_LEVEL",
        "WEIR_SERVER",
        "WEIR_JSON",
    ];
    let place = folder();
    fs::create_dir(place.path().join("zones")).unwrap();
    write_zone(&place.path().join("zones"), "example.com", &zone(1, "192.0.2.1"));
    let all_empty = |command: &mut Command| {
        command.envs(VARIABLES.map(|name| (name, ""))).current_dir(place.path());
    };
    let mut checkconf = weir();
    all_empty(&mut checkconf);
    let ran = run(checkconf.arg("checkconf"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);

    let mut serve = weir();
    all_empty(&mut serve);
    let server = Server::serve_command(
        {
            serve.arg("serve");
            serve
        },
        &[],
    );
    let mut healthcheck = weir();
    all_empty(&mut healthcheck);
    let ran = run(healthcheck.arg("healthcheck").env("WEIR_SERVER", server.address.to_string()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    server.stop();
}

#[test]
fn a_pipe_in_the_place_of_a_file_of_secrets_is_not_waited_for() {
    let place = folder();
    write_zone(place.path(), "good.test", &zone(5, "192.0.2.1"));
    let pipe = place.path().join("secrets");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let config = place.path().join("weir.toml");
    fs::write(&config, "[server]\nzones = \".\"\n[cookies]\nsecrets_file = \"secrets\"\n").unwrap();
    let ran = run(weir().arg("checkconf").arg(&config));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("secrets: cannot be read: this is a pipe, socket or device"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_report_of_checkconf_is_json_when_the_environment_says_so() {
    let place = folder();
    write_zone(place.path(), "good.test", &zone(5, "192.0.2.1"));
    let config = place.path().join("weir.toml");
    fs::write(&config, "[server]\nzones = \".\"\n").unwrap();
    for (value, is_json) in [("true", true), ("1", true), ("false", false), ("", false)] {
        let ran = run(weir().arg("checkconf").env("WEIR_CONFIG", &config).env("WEIR_JSON", value));
        assert_eq!((ran.code, ran.stdout.starts_with('{')), (Some(0), is_json), "{value}: {}", ran.stderr);
    }
}

#[test]
fn checkzone_takes_warnings_for_errors_when_strict() {
    let place = folder();
    let file =
        write_zone(place.path(), "example.com", &(zone(1, "192.0.2.1") + "alias CNAME www\n@ MX 10 alias\n"));
    let ran = run(weir().args(["checkzone", "example.com"]).arg(&file));
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("warning: example.com. MX:"), "{}", ran.stderr);
    let ran = run(weir().args(["checkzone", "--strict", "example.com"]).arg(&file));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("example.com. MX:") && !ran.stderr.contains("warning"), "{}", ran.stderr);
}

#[test]
fn checkzone_reports_as_json() {
    let place = folder();
    let file = write_zone(place.path(), "example.com", &(zone(1, "192.0.2.1") + "mail MX x mail\n"));
    let ran = run(weir().args(["checkzone", "--json", "example.com"]).arg(&file));
    assert_eq!(ran.code, Some(1));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["errors"][0]["rule"], &report["errors"][0]["column"]), (&"rdata".into(), &9.into()));
    let file = write_zone(place.path(), "example.org", &zone(7, "192.0.2.1"));
    let ran = run(weir().args(["checkzone", "--json", "example.org"]).arg(&file));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["zones"][0]["serial"]), (Some(0), &7.into()));
}

#[test]
fn checkzone_prints_a_zone_that_prints_the_same_again() {
    let place = folder();
    let file =
        write_zone(place.path(), "example.com", &(zone(1, "192.0.2.1") + "B.a TXT x\na A 192.0.2.9\n"));
    let printed = run(weir().args(["checkzone", "--print", "example.com"]).arg(&file));
    assert_eq!(printed.code, Some(0));
    assert!(printed.stdout.starts_with("example.com. "), "{}", printed.stdout);
    let at = |text: &str| printed.stdout.find(text).unwrap();
    assert!(at("\na.example.com. 60 IN A 192.0.2.9\n") < at("\nb.a.example.com. 60 IN TXT \"x\"\n"));
    let again = write_zone(place.path(), "example.net", &printed.stdout);
    let again = run(weir().args(["checkzone", "--print", "example.com"]).arg(&again));
    assert_eq!(again.stdout, printed.stdout);
}

#[test]
fn more_generated_records_than_the_limit_are_an_error_and_the_limit_is_a_setting() {
    let place = folder();
    let file =
        write_zone(place.path(), "example.com", &(zone(1, "192.0.2.1") + "$GENERATE 1-3 h$ A 192.0.2.$\n"));
    let check = |more: &[&str]| run(weir().arg("checkzone").args(more).arg("example.com").arg(&file));
    let too_many = |ran: &Ran| ran.stderr.contains("3 records are more than the");
    assert_eq!(check(&[]).code, Some(0));
    assert_eq!(check(&["--max-generated", "3"]).code, Some(0));
    let ran = check(&["--max-generated", "2"]);
    assert!(ran.code == Some(1) && too_many(&ran), "{}", ran.stderr);

    let config = place.path().join("weir.toml");
    for (limit, code) in [("3", 0), ("2", 1), ("0", 1), ("4294967296", 1), ("-1", 1)] {
        let text = format!("[server]\nzones = \".\"\n[checks]\nmax_generated = {limit}\n");
        fs::write(&config, text).unwrap();
        let ran = run(weir().arg("checkconf").arg(&config));
        assert_eq!(
            (ran.code, too_many(&ran)),
            (Some(code), ["2", "0"].contains(&limit)),
            "{limit}: {}",
            ran.stderr
        );
    }
}

#[test]
fn more_nsec3_iterations_than_the_limit_are_an_error_and_the_limit_is_a_setting() {
    let place = folder();
    let file = write_zone(place.path(), "example.com", &(zone(1, "192.0.2.1") + "@ NSEC3PARAM 1 0 100 -\n"));
    let check = |more: &[&str]| run(weir().arg("checkzone").args(more).arg("example.com").arg(&file));
    let too_many = |ran: &Ran| ran.stderr.contains("there are too many NSEC3 iterations");
    let ran = check(&[]);
    assert!(ran.code == Some(0) && ran.stderr.contains("warning") && !too_many(&ran), "{}", ran.stderr);
    assert_eq!(check(&["--max-nsec3-iterations", "100"]).code, Some(0));
    let ran = check(&["--max-nsec3-iterations", "99"]);
    assert!(ran.code == Some(1) && too_many(&ran), "{}", ran.stderr);
    assert_eq!(check(&["--max-nsec3-iterations", "65536"]).code, Some(2));

    let config = place.path().join("weir.toml");
    for (limit, code) in [("100", 0), ("99", 1), ("65536", 1), ("-1", 1)] {
        let text = format!("[server]\nzones = \".\"\n[checks]\nmax_nsec3_iterations = {limit}\n");
        fs::write(&config, text).unwrap();
        let ran = run(weir().arg("checkconf").arg(&config));
        assert_eq!((ran.code, too_many(&ran)), (Some(code), limit == "99"), "{limit}: {}", ran.stderr);
    }
}
