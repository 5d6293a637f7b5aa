//! Reads `weir.toml` and reports everything that is wrong with it, not the first thing alone.
//!
//! serde stops at its first error. To find the others, the entry that it tripped over is taken out of the table and
//! what is left is read again, until it reads.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_zone::files::open_regular;

use super::{Config, Octets};

/// Most mistakes that are reported of one file; past that it is not a configuration.
const MAX_MISTAKES: usize = 100;
/// Most octets of a configuration: `[[zone]]` tables of 100 octets each for 100,000 zones.
const MAX_OCTETS: u64 = 16 << 20;

/// Something wrong with a file, printed as `FILE:LINE:COLUMN: what is wrong`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The file, as it was named.
    pub(crate) path: PathBuf,
    /// Line and column, both from 1, when the mistake has a place in the file.
    pub(crate) place: Option<(usize, usize)>,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The configuration in the file at `path`, or all that is wrong with it.
pub(crate) fn read(path: &Path) -> Result<Config, Vec<Mistake>> {
    read_again(path, None)
}

/// As [`read`]; what only root could read when the server started is taken from the configuration that is `running`.
pub(super) fn read_again(path: &Path, running: Option<&Config>) -> Result<Config, Vec<Mistake>> {
    let text = read_text(path, MAX_OCTETS).map_err(|error| {
        vec![Mistake { path: path.to_path_buf(), place: None, message: format!("cannot be read: {error}") }]
    })?;
    let mut config = parse(path, &text)?;
    config.cookies.read_secrets(running.map(|running| &running.cookies)).map_err(|mistake| vec![mistake])?;
    Ok(config)
}

/// The text of the regular file at `path`, which has at most `max_octets`: a pipe would be waited for, and a device
/// may have no end.
pub(super) fn read_text(path: &Path, max_octets: u64) -> io::Result<String> {
    let (file, _) = open_regular(path)?;
    let mut text = String::new();
    file.take(max_octets + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max_octets {
        let why = format!("it has more than {}, which no such file has", Octets(max_octets));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(text)
}

/// The configuration in `text`, which came from `path`, without what it names other files for.
pub(super) fn parse(path: &Path, text: &str) -> Result<Config, Vec<Mistake>> {
    let mistake = |span: Option<Range<usize>>, message: String| Mistake {
        path: path.to_path_buf(),
        place: span.map(|span| place_of(text, span.start)),
        message,
    };
    let (mut table, syntax_errors) = DeTable::parse_recoverable(text);
    if !syntax_errors.is_empty() {
        return Err(syntax_errors.iter().map(|e| mistake(e.span(), one_line(e.message()))).collect());
    }
    let mut mistakes = Vec::new();
    while mistakes.len() < MAX_MISTAKES {
        let error = match Config::deserialize(table.clone().into_deserializer()) {
            Ok(mut config) if mistakes.is_empty() => {
                config.resolve_paths(path.parent().unwrap_or(Path::new("")));
                return Ok(config);
            }
            Ok(_) => break,
            Err(error) => error,
        };
        mistakes.push(mistake(error.span(), with_suggestion(error.message())));
        let removed = error.span().is_some_and(|span| remove_entry_at(table.get_mut(), &span));
        if !removed {
            break;
        }
    }
    Err(mistakes)
}

/// Takes the innermost entry whose key or value covers `span` out of `table`; yields whether there was one.
fn remove_entry_at(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let covers = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    // A table's own span is its header, and its entries lie behind that: look inside whatever the span says.
    if table.iter_mut().any(|(_, value)| remove_inside(value, span)) {
        return true;
    }
    let covering = table.iter().find(|(key, value)| covers(key.span()) || covers(value.span()));
    let Some(key) = covering.map(|(key, _)| key.clone()) else { return false };
    table.remove(&key).is_some()
}

/// Takes the entry at `span` out of the tables inside of `value`; yields whether there was one.
fn remove_inside(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_mut() {
        DeValue::Table(table) => remove_entry_at(table, span),
        DeValue::Array(items) => items.iter_mut().any(|item| remove_inside(item, span)),
        _ => false,
    }
}

/// Line and column, both from 1 and the column in characters, of the octet at `offset`.
fn place_of(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// serde's message in the words of TOML, with the nearest known word where an unknown one was met.
fn with_suggestion(message: &str) -> String {
    let message = one_line(message);
    // Without brackets, or with one where two are needed: `listen = "..."`, `[zone]`.
    if message.starts_with("invalid type: ") && message.ends_with(", expected a sequence") {
        return match message.starts_with("invalid type: map") {
            true => "several are possible: write [[zone]] with two brackets on each side".to_owned(),
            false => {
                "several are possible: write a list in brackets, such as [\"one\", \"another\"]".to_owned()
            }
        };
    }
    let Some((problem, expected)) = message.split_once(", expected") else { return message };
    let mut quoted = problem.split('`').skip(1).step_by(2);
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let Some(unknown) = quoted.next().filter(|_| problem.starts_with("unknown ") && !known.is_empty()) else {
        return message;
    };
    let what = if problem.starts_with("unknown field") { "key" } else { "value" };
    match nearest(unknown, &known) {
        Some(meant) => format!("unknown {what} `{unknown}`; did you mean `{meant}`?"),
        None => format!("unknown {what} `{unknown}`; known here: {}", known.join(", ")),
    }
}

/// The word of `known` that is likely meant by `word`: at most a third of it may be wrong.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let distance = |candidate: &str| strsim::damerau_levenshtein(&plain(word), &plain(candidate));
    let best = known.iter().copied().min_by_key(|candidate| distance(candidate))?;
    (distance(best) * 3 <= best.len().max(3)).then_some(best)
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let found = parse(Path::new("weir.toml"), text).expect_err("the text is wrong");
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_mistake_is_reported_with_its_place() {
        let text =
            "[server]\nlistne = [\"127.0.0.1:53\"]\nworkers = 0\n\n[cache]\nsize = \"64 MB/s\"\n\n[tpc]\n";
        let mut found = mistakes(text);
        found.sort();
        assert_eq!(found.len(), 4, "{found:#?}");
        assert_eq!(found[0], "weir.toml:2:1: unknown key `listne`; did you mean `listen`?");
        assert!(found[1].starts_with("weir.toml:3:11: write a number of at least 1"), "{}", found[1]);
        assert!(found[2].starts_with("weir.toml:6:8: `64 MB/s` is not a size"), "{}", found[2]);
        assert!(
            found[3].starts_with("weir.toml:8:2: unknown key `tpc`; did you mean `tcp`?"),
            "{}",
            found[3]
        );
    }

    #[test]
    fn a_wrong_word_names_the_words_that_are_right() {
        assert_eq!(
            mistakes("[log]\nlevel = \"loud\""),
            ["weir.toml:2:9: unknown value `loud`; known here: error, warn, info, debug"]
        );
        assert_eq!(
            mistakes("[ingress]\nsteer = \"numa\""),
            ["weir.toml:2:9: `numa` is not a way to steer; use hash or cpu"]
        );
    }

    #[test]
    fn interfaces_are_named_one_at_least_and_as_the_kernel_names_them() {
        for (names, says) in [
            ("[]", "name at least one interface"),
            ("[\"eth0\", \"a/b\"]", "`a/b` is not the name"),
            ("[\"sixteen-octets-x\"]", "`sixteen-octets-x` is not the name"),
        ] {
            let found = mistakes(&format!("[ingress]\ninterfaces = {names}"));
            assert!(found[0].starts_with("weir.toml:2:14: ") && found[0].contains(says), "{found:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_toml_is_reported_where_it_breaks() {
        let found = mistakes("[server]\nlisten = [\n");
        assert!(found[0].starts_with("weir.toml:2:") || found[0].starts_with("weir.toml:3:"), "{found:?}");
    }

    #[test]
    fn a_value_without_quotes_or_brackets_is_answered_with_how_to_write_it() {
        for (text, says) in [
            (
                "[cache]\nsize = 64",
                "2:8: invalid type: integer `64`, expected text in quotes, such as \"64 MiB\"",
            ),
            ("[tcp]\nidle_timeout = 10", "expected text in quotes, such as \"10s\""),
            ("[server]\nlisten = \"127.0.0.1\"", "2:10: several are possible: write a list in brackets"),
            ("[zone]\nname = \"a\"\nfile = \"a\"", "write [[zone]] with two brackets"),
            ("[tcp]\nwrite_timeout = \"0s\"", "2:17: write a time of at least \"1ms\""),
        ] {
            let found = mistakes(text);
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
    }

    #[test]
    fn a_zone_entry_without_a_file_is_a_mistake() {
        let found = mistakes("[[zone]]\nname = \"example.com\"\n");
        assert!(found[0].contains("missing field `file`"), "{found:?}");
    }

    #[test]
    fn a_zone_that_has_no_name_is_a_mistake_at_its_place() {
        let found = mistakes("[[zone]]\nname = \"a..b\"\nfile = \"a.zone\"\n");
        assert!(found[0].starts_with("weir.toml:2:8: `a..b` is not the name of a zone"), "{found:?}");
    }

    #[test]
    fn a_server_that_listens_nowhere_or_has_workers_without_end_is_a_mistake() {
        let found = mistakes("[server]\nlisten = []\nworkers = 1025\n");
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].starts_with("weir.toml:2:10: name at least one address"), "{found:?}");
        assert!(found[1].starts_with("weir.toml:3:11: write a number from 1 to 1024"), "{found:?}");
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let text = "[server]\nzones = \"z\"\n[[zone]]\nname = \"a\"\nfile = \"/b/a.zone\"\n";
        let config = parse(Path::new("/etc/weir/weir.toml"), text).expect("the text is right");
        assert_eq!(config.server.zones.as_deref(), Some(Path::new("/etc/weir/z")));
        assert_eq!(config.zone[0].file, Path::new("/b/a.zone"));
    }

    #[test]
    fn what_is_no_file_or_has_no_end_is_not_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let long = folder.path().join("weir.toml");
        std::fs::write(&long, "#".repeat(101)).expect("written");
        for (path, why) in
            [(Path::new("/dev/zero"), "device"), (folder.path(), "folder"), (long.as_path(), "more than")]
        {
            let error = read_text(path, 100).expect_err("it is refused").to_string();
            assert!(error.contains(why), "{}: {error}", path.display());
        }
        assert_eq!(read_text(&long, 101).expect("it is short enough").len(), 101);
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        assert_eq!(parse(Path::new("weir.toml"), ""), Ok(Config::default()));
    }
}
