//! Each rule on a tiny zone of its own: `zones/rules/RULE.master`, whose line `; finds:` lists what is found.

use std::path::{Path, PathBuf};
use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::diagnostic::Diagnostic;
use weir_zone::load::{LoadOptions, load_file};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zones/rules")
}

fn findings(path: &Path) -> Vec<Diagnostic> {
    let origin = FoldedBuf::from_text("example.").unwrap();
    match load_file(path, origin.folded(), HashSeed::fixed(), &LoadOptions::default()) {
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
