//! A zone file to a zone: read it, build the tree, say what is wrong at which line.

use crate::ZoneBuilder;
use crate::builder::Refused;
use crate::checks;
use crate::diagnostic::{Diagnostic, Location, OpenedFile, Severity};
use crate::finding::Finding;
use crate::text::{self, Record, RecordSink, Refusal, Source};
use crate::tree::Zone;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use weir_wire::name::{Folded, HashSeed};
use weir_wire::rtype::Rtype;

/// How a zone is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// How its text is read.
    pub text: text::Options,
    /// Whether a warning keeps the zone from being loaded.
    pub strict: bool,
    /// What the zone as a whole is judged by.
    pub limits: checks::Limits,
}

/// A zone that can be served.
#[derive(Debug)]
pub struct Loaded {
    /// The zone.
    pub zone: Zone,
    /// What is odd about it.
    pub warnings: Vec<Diagnostic>,
    /// The files that it was read from: its own, then what that includes, as far as it was read.
    pub files: Vec<Arc<Path>>,
    /// Those files as they were before they were read: what a later look is compared with.
    pub opened: Vec<OpenedFile>,
}

/// Loads the zone named `origin` from a file.
///
/// `seed` is that of the zone set that the zone is for.
///
/// # Errors
/// All that is wrong with the zone, warnings among it; at least one error.
pub fn load_file(
    path: &Path,
    origin: Folded<'_>,
    seed: HashSeed,
    options: &LoadOptions,
) -> Result<Loaded, Vec<Diagnostic>> {
    load(Source::Path(path), origin, seed, options)
}

/// Loads the zone named `origin` from standard input.
///
/// # Errors
/// As [`load_file`].
pub fn load_stdin(
    origin: Folded<'_>,
    seed: HashSeed,
    options: &LoadOptions,
) -> Result<Loaded, Vec<Diagnostic>> {
    load(Source::Reader("<stdin>", Box::new(std::io::stdin().lock())), origin, seed, options)
}

/// Loads the zone named `origin` from any source of text.
///
/// When a line cannot be read, what may be missing because of it is not looked for: it would show up a second time.
///
/// # Errors
/// As [`load_file`].
pub fn load(
    source: Source<'_>,
    origin: Folded<'_>,
    seed: HashSeed,
    options: &LoadOptions,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut sink = BuilderSink {
        builder: ZoneBuilder::new(origin, options.text.class, seed),
        places: Places::default(),
    };
    let again = source.again();
    let reading = text::read(source, origin.name(), &mut sink, &options.text);
    let (files, mut findings) = (reading.files, reading.findings);
    let is_whole = !findings.has_errors();
    let BuilderSink { builder, places } = sink;
    let (zone, mut found) = match builder.finish() {
        Ok((zone, found)) => (Some(zone).filter(|_| is_whole), found),
        Err(found) => (None, found),
    };
    found.retain(|finding| is_whole || finding.rule.is_broken_by_any_part());
    if let Some(zone) = &zone {
        found.extend(checks::check(zone, &options.limits).into_vec());
    }
    let located = again.map_or_else(Located::default, |again| locate(again, origin, &found, options));
    for finding in &found {
        let at = finding.tag.map(|tag| places.location(tag)).or_else(|| located.get(finding));
        let severity = if finding.rule.is_error() { Severity::Error } else { Severity::Warning };
        let at = at.unwrap_or_default();
        findings.push(files.diagnostic(severity, at, finding.rule.name(), finding.to_string()));
    }
    let has_errors = findings.has_errors();
    let list = findings.into_list();
    match zone {
        Some(zone) if !has_errors && (list.is_empty() || !options.strict) => Ok(Loaded {
            zone,
            warnings: list,
            files: files.paths().to_vec(),
            opened: files.opened().to_vec(),
        }),
        _ => Err(if options.strict { as_errors(list) } else { list }),
    }
}

fn as_errors(list: Vec<Diagnostic>) -> Vec<Diagnostic> {
    list.into_iter().map(|finding| Diagnostic { severity: Severity::Error, ..finding }).collect()
}

/// Where records stand that the finished zone has something against: the first of each name and type.
#[derive(Debug, Default)]
struct Located {
    places: HashMap<(Vec<u8>, Rtype), Location>,
}

impl Located {
    fn get(&self, finding: &Finding) -> Option<Location> {
        self.places.get(&key(finding)).copied().filter(|at| *at != Location::default())
    }
}

fn key(finding: &Finding) -> (Vec<u8>, Rtype) {
    (finding.owner.folded().octets().to_vec(), finding.rtype)
}

/// Reads the text once more for the places of what was found in the tree, which has none. Only zones with such
/// findings pay for it.
fn locate(source: Source<'_>, origin: Folded<'_>, found: &[Finding], options: &LoadOptions) -> Located {
    let without_place = found.iter().filter(|finding| finding.tag.is_none());
    let mut places: HashMap<_, _> =
        without_place.map(|finding| (key(finding), Location::default())).collect();
    if places.is_empty() {
        return Located::default();
    }
    let mut asked = (Vec::new(), Rtype::A);
    let mut sink = |record: Record<'_>| {
        asked.0.clear();
        asked.0.extend_from_slice(record.owner.octets());
        asked.0.make_ascii_lowercase();
        asked.1 = record.rtype;
        if let Some(place) = places.get_mut(&asked).filter(|place| **place == Location::default()) {
            *place = Location { column: 0, ..record.at };
        }
    };
    text::read(source, origin.name(), &mut sink, &options.text);
    Located { places }
}

/// Hands records to a builder and remembers where they stood.
struct BuilderSink {
    builder: ZoneBuilder,
    places: Places,
}

impl RecordSink for BuilderSink {
    #[inline]
    fn record(&mut self, record: Record<'_>) -> Result<(), Refusal> {
        let tag = self.places.tag(record.at);
        self.builder.add(record.owner, record.rtype, record.ttl, record.rdata, tag).map_err(refusal)
    }
}

#[cold]
fn refusal(refused: Refused) -> Refusal {
    let (rule, message) = match refused {
        Refused::OutOfZone => ("out-of-zone", "the owner is not in the zone"),
        Refused::NotZoneData => ("type", "the record cannot stand in a zone"),
    };
    Refusal { rule, message: message.to_owned() }
}

/// Locations as numbers of four octets: lines are numbered through all files in the order they were read.
#[derive(Debug, Default)]
struct Places {
    runs: Vec<Run>,
    last: Location,
    last_tag: u32,
}

/// Records that follow each other in one file.
#[derive(Debug)]
struct Run {
    first_tag: u32,
    file: u16,
    first_line: u32,
}

impl Places {
    /// A number for `at`, not below those given before.
    #[inline]
    fn tag(&mut self, at: Location) -> u32 {
        if at.file != self.last.file || self.runs.is_empty() {
            let first_tag = self.last_tag.saturating_add(1);
            self.runs.push(Run { first_tag, file: at.file, first_line: at.line });
            self.last_tag = first_tag;
        } else {
            self.last_tag = self.last_tag.saturating_add(at.line.saturating_sub(self.last.line));
        }
        self.last = at;
        self.last_tag
    }

    /// The line that a number stands for; its column is not kept.
    fn location(&self, tag: u32) -> Location {
        let n_before = self.runs.partition_point(|run| run.first_tag <= tag);
        match n_before.checked_sub(1).and_then(|at| self.runs.get(at)) {
            Some(run) => Location { file: run.file, line: run.first_line + (tag - run.first_tag), column: 0 },
            None => Location::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::name::FoldedBuf;

    fn try_load(text: &str, strict: bool) -> Result<Loaded, Vec<String>> {
        let origin = FoldedBuf::from_text("example.").unwrap();
        let options = LoadOptions { strict, ..LoadOptions::default() };
        let source = Source::Octets("example.zone", text.as_bytes());
        load(source, origin.folded(), HashSeed::fixed(), &options)
            .map_err(|list| list.iter().map(ToString::to_string).collect())
    }

    const APEX: &str = "$TTL 1h\n@ SOA ns mail 7 1h 1h 1w 1h\n@ NS ns\nns A 192.0.2.1\n";

    #[test]
    fn a_good_zone_has_its_serial_and_no_findings() {
        let loaded = try_load(APEX, true).unwrap();
        assert_eq!(loaded.zone.serial(), 7);
        assert_eq!(loaded.zone.n_records(), 3);
        assert!(loaded.warnings.is_empty());
    }

    #[test]
    fn findings_of_the_whole_zone_name_the_line() {
        let text = format!("{APEX}\nwww CNAME ns\nwww TXT x\n");
        let errors = try_load(&text, false).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("example.zone:"), "{errors:?}");
        assert!(errors[0].contains("www.example."), "{errors:?}");
    }

    #[test]
    fn a_line_that_cannot_be_read_hides_nothing_but_what_may_be_missing() {
        let broken = "@ SOA ns mail x 1h 1h 1w 1h\nns A 192.0.2.x\n";
        let wrong =
            "www CNAME ns\nwww TXT x\nd DNAME a\nd DNAME b\nsub SOA ns mail 7 1h 1h 1w 1h\nm MX 1 missing\n";
        let errors = try_load(&format!("$TTL 1h\n{broken}{wrong}"), false).unwrap_err();
        let lines: Vec<&str> = errors.iter().filter_map(|error| error.split(':').nth(1)).collect();
        assert_eq!(lines, ["2", "3", "7", "8", "4"], "{errors:?}");
    }

    #[test]
    fn a_warning_stops_the_zone_only_when_asked_to() {
        let text = format!("{APEX}ns 5m A 192.0.2.2\n");
        assert_eq!(try_load(&text, false).unwrap().warnings.len(), 1);
        assert_eq!(try_load(&text, true).unwrap_err().len(), 1);
    }

    #[test]
    fn an_empty_file_lacks_its_soa_record() {
        let errors = try_load("", false).unwrap_err();
        assert!(errors[0].contains("SOA"), "{errors:?}");
    }

    #[test]
    fn places_survive_changes_of_file() {
        let mut places = Places::default();
        let at = |file, line| Location { file, line, column: 0 };
        let all = [at(0, 3), at(0, 3), at(0, 9), at(1, 1), at(1, 20), at(0, 10), at(2, 5)];
        let tags: Vec<u32> = all.iter().map(|&at| places.tag(at)).collect();
        for (tag, at) in tags.iter().zip(all) {
            assert_eq!(places.location(*tag), at);
        }
    }
}
