//! Each rule on a tiny zone of its own: `zones/rules/RULE.master`, whose line `; finds:` lists what is found.

use std::path::{Path, PathBuf};
use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::canonical::{print, records};
use weir_zone::checks::Limits;
use weir_zone::diagnostic::Diagnostic;
use weir_zone::load::{LoadOptions, load, load_file};
use weir_zone::text::Source;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zones/rules")
}

fn findings(path: &Path) -> Vec<Diagnostic> {
    let origin = FoldedBuf::from_text("example.").unwrap();
    // The first second of 2026.
    let limits = Limits { now: Some(1_767_225_600), ..Limits::default() };
    let options = LoadOptions { limits, ..LoadOptions::default() };
    match load_file(path, origin.folded(), HashSeed::fixed(), &options) {
        Ok(loaded) => {
            assert!(!loaded.warnings.iter().any(Diagnostic::is_error));
            loaded.warnings
        }
        Err(findings) => {
            assert!(findings.iter().any(Diagnostic::is_error));
            findings
        }
    }
}

fn shown(finding: &Diagnostic) -> String {
    let severity = if finding.is_error() { "error" } else { "warning" };
    format!("{} {severity} {}", finding.line, finding.rule)
}

fn zones() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "master"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn each_zone_has_exactly_the_findings_that_it_lists() {
    let mut wrong = Vec::new();
    for path in zones() {
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = text.lines().find_map(|line| line.strip_prefix("; finds:")).unwrap().trim().to_owned();
        let found: Vec<String> = findings(&path).iter().map(shown).collect();
        if found.join(", ") != expected {
            wrong.push(format!("{}: finds {found:?}, should find {expected}", path.display()));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn each_zone_is_named_by_the_rule_that_it_breaks() {
    for path in zones() {
        let rule = path.file_stem().unwrap().to_str().unwrap();
        let found = findings(&path);
        assert!(found.iter().all(|finding| finding.rule == rule), "{}: {found:?}", path.display());
        assert_eq!(found.is_empty(), rule == "good");
    }
}

#[test]
fn each_finding_says_in_a_sentence_what_is_wrong() {
    for finding in zones().iter().flat_map(|path| findings(path)) {
        let sentence = &finding.message;
        assert!(sentence.split(' ').count() >= 5 && !sentence.ends_with('.'), "{finding}");
    }
}

#[test]
fn each_rule_is_listed_in_the_description_of_the_dialect() {
    let format = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
    let format = std::fs::read_to_string(format).unwrap();
    for path in zones() {
        let rule = path.file_stem().unwrap().to_str().unwrap();
        assert!(rule == "good" || format.contains(&format!("| `{rule}` |")), "{rule}");
    }
}

fn findings_of(origin: &str, text: &[u8]) -> Vec<String> {
    let origin = FoldedBuf::from_text(origin).unwrap();
    // Signatures of the examples do not end, as far as serial numbers tell, before 2080.
    let limits = Limits { now: Some(1_767_225_600), ..Limits::default() };
    let options = LoadOptions { limits, ..LoadOptions::default() };
    let source = Source::Octets("text", text);
    match load(source, origin.folded(), HashSeed::fixed(), &options) {
        Ok(loaded) => loaded.warnings.iter().map(ToString::to_string).collect(),
        Err(findings) => panic!("{findings:?}"),
    }
}

#[test]
fn the_root_is_no_host_that_lacks_addresses() {
    let text =
        b"$TTL 1\n. SOA ns m 1 2 3 4 5\n. NS ns\nns A 192.0.2.1\nno MX 0 .\nno SRV 0 0 0 .\nno HTTPS 1 .\n";
    assert_eq!(findings_of(".", text), [""; 0]);
}

#[test]
fn a_signature_counts_the_labels_of_its_owner_but_for_a_leading_asterisk() {
    let zone = |owner: &str, n_labels: u8| {
        let head = "$TTL 1h\n@ SOA ns m 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n@ DNSKEY 256 3 13 AAAA\n";
        let signature =
            format!("{owner} RRSIG A 13 {n_labels} 3600 20270101000000 20250101000000 1037 @ AAAA\n");
        findings_of("example.", format!("{head}{owner} A 192.0.2.2\n{signature}").as_bytes())
            .into_iter()
            .filter(|finding| finding.contains("no key of the zone"))
            .count()
    };
    for (owner, n_labels, n_found) in [
        ("a", 2, 0),
        ("a", 1, 1),
        ("a", 3, 1),
        ("*.a", 2, 0),
        ("*.a", 3, 1),
        ("a.*.b", 4, 0),
        ("a.*.b", 3, 1),
    ] {
        assert_eq!(zone(owner, n_labels), n_found, "{owner} with {n_labels} labels");
    }
}

#[test]
fn a_zone_that_was_signed_whole_has_nothing_against_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zones/example.net.zone");
    let text = std::fs::read(path).unwrap();
    assert_eq!(findings_of("example.net.", &text), [""; 0]);
}

/// A zone with the four NSEC3 records that it needs, in the order of their hashes: those of example, sub.ent.example,
/// ns.example and ent.example.
fn with_nsec3(records: [(&str, &str, &str); 4], flags: u8) -> Vec<String> {
    with_nsec3_and(records, flags, "")
}

/// The same with further lines.
fn with_nsec3_and(records: [(&str, &str, &str); 4], flags: u8, more: &str) -> Vec<String> {
    let mut text = format!(
        "$TTL 300\n@ SOA ns m 1 2 3 4 300\n@ NS ns\n@ NSEC3PARAM 1 0 0 -\nns A 192.0.2.1\nsub.ent NS ns\n{more}",
    );
    for (owner, next, types) in records.iter().filter(|(owner, ..)| !owner.is_empty()) {
        text += &format!("{owner} NSEC3 1 {flags} 0 - {next} {types}\n");
    }
    findings_of("example.", text.as_bytes())
}

#[test]
fn a_chain_of_nsec3_records_names_all_that_it_must_and_their_types() {
    const APEX: &str = "3msev9usmd4br9s97v51r2tdvmr9iqo1";
    const SUB: &str = "busrfk7poha0gihuu51jup0ggrimtoqm";
    const NS: &str = "kncb8asp44gj31sjvi5s29d8q49gb30r";
    const ENT: &str = "n3mivjm8dklobh7r7f4rd46cg6f4stom";
    let apex = (APEX, SUB, "NS SOA NSEC3PARAM");
    let (sub, ns, ent) = ((SUB, NS, "NS"), (NS, ENT, "A"), (ENT, APEX, ""));
    let (left_out, is_other) = (("", "", ""), "its types are others");
    assert_eq!(with_nsec3([apex, sub, ns, ent], 0), [""; 0]);
    for (records, flags, expected) in [
        ([apex, sub, (NS, ENT, "A TXT"), ent], 0, &["ns.example. NSEC3", is_other][..]),
        ([apex, sub, ns, (ENT, APEX, "A")], 0, &["ent.example. NSEC3", is_other]),
        ([apex, (SUB, NS, "NS DS RRSIG"), ns, ent], 1, &["sub.ent.example. NSEC3", is_other]),
        ([apex, (SUB, APEX, "NS"), ns, ent], 0, &["the next hash is another"]),
        ([apex, sub, (NS, APEX, "A"), left_out], 0, &["ent.example. NSEC3", "it has none"]),
        // Delegations without DS records may opt out, and with them what only leads to them; nothing else may.
        ([(APEX, NS, apex.2), left_out, (NS, APEX, "A"), left_out], 1, &[]),
        ([apex, (SUB, ENT, "NS"), left_out, ent], 1, &["ns.example. NSEC3", "it has none"]),
    ] {
        let found = with_nsec3(records, flags);
        let n_expected = usize::from(!expected.is_empty());
        let is_right = found.iter().all(|finding| expected.iter().all(|part| finding.contains(part)));
        assert!(found.len() == n_expected && is_right, "{expected:?}: {found:?}");
    }
    // An empty non-terminal opts out with what lies below it, all of it.
    let opted_out = [(APEX, NS, apex.2), left_out, (NS, APEX, "A"), left_out];
    let found = with_nsec3_and(opted_out, 1, "cut.deep NS ns\nhost.deep A 192.0.2.2\n");
    assert_eq!(found.len(), 2, "{found:?}");
    for name in [" deep.example. NSEC3", "host.deep.example. NSEC3"] {
        assert!(found.iter().any(|finding| finding.contains(name)), "{name}: {found:?}");
    }
}

/// RFC 8976 appendix A.1.
const WITH_DIGEST: &str = "\
example. 86400 IN SOA ns1 admin 2018031900 1800 900 604800 86400
 86400 IN NS ns1
 86400 IN NS ns2
 86400 IN ZONEMD 2018031900 1 1 (
 c68090d90a7aed716bc459f9340e3d7c1370d4d24b7e2fc3a1ddc0b9a87153b9a9713b3c9ae5cc27777f98b8e730044c )
ns1 3600 IN A 203.0.113.63
ns2 3600 IN AAAA 2001:db8::63
";

#[test]
fn the_digest_of_rfc_8976_matches_its_zone_and_no_other() {
    assert_eq!(findings_of("example.", WITH_DIGEST.as_bytes()), [""; 0]);
    let other = WITH_DIGEST.replace("203.0.113.63", "203.0.113.64");
    let found = findings_of("example.", other.as_bytes());
    assert!(found.len() == 1 && found[0].contains("ZONEMD"), "{found:?}");
}

#[test]
fn a_printed_zone_loads_again_to_the_same_octets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zones");
    for (origin, file) in [
        ("example.net.", "example.net.zone"),
        ("example.com.", "example.com.zone"),
        ("example.", "golden/every-type.master"),
    ] {
        let printed = |text: &[u8]| {
            let name = FoldedBuf::from_text(origin).unwrap();
            let source = Source::Octets(file, text);
            let loaded = load(source, name.folded(), HashSeed::fixed(), &LoadOptions::default()).unwrap();
            let mut out = Vec::new();
            print(&loaded.zone, &mut out).unwrap();
            let records: Vec<_> = loaded
                .zone
                .nodes()
                .map(|node| (node.prefix().to_vec(), records(&loaded.zone, node)))
                .collect();
            (out, records)
        };
        let first = printed(&std::fs::read(folder.join(file)).unwrap());
        assert_eq!(
            first.0.iter().filter(|&&octet| octet == b'\n').count(),
            first.1.iter().map(|(_, records)| records.len()).sum::<usize>()
        );
        assert!(printed(&first.0) == first, "{file}");
    }
}
