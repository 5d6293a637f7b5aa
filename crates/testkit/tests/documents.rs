//! docs/RFC.md is in step with the code: the files that it names are there, and so are the tests.

use std::fs;
use std::path::{Path, PathBuf};

use weir_testkit::weir;

/// All Rust sources below a folder.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn every_file_and_test_that_the_table_of_rfcs_names_is_there() {
    let crates = weir::workspace().join("crates");
    let mut files = Vec::new();
    sources(&crates, &mut files);
    let code: String =
        files.iter().map(|file| fs::read_to_string(file).expect("it was just listed")).collect();
    let manual = fs::read_to_string(weir::workspace().join("docs/RFC.md")).expect("the table is there");
    let (tables, _) = manual.split_once("## Differences").expect("the third table is checked elsewhere");
    let (mut n_files, mut n_tests) = (0, 0);
    for name in tables
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
    {
        if name.contains('/') {
            assert!(crates.join(name).exists(), "docs/RFC.md names {name}, which is not there");
            n_files += 1;
        } else if name.contains('_') {
            assert!(
                code.contains(&format!("fn {name}(")),
                "docs/RFC.md names the test {name}, which is not there"
            );
            n_tests += 1;
        }
    }
    assert!(n_files > 40 && n_tests > 60, "{n_files} files and {n_tests} tests: the tables are not read");
}
