//! `weir checkzone` and `weir checkconf`: read everything, report all that is wrong, start nothing.

use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::diagnostic::Diagnostic;
use weir_zone::{Zone, canonical};

use crate::cli::{CheckconfArgs, CheckzoneArgs, ServeArgs};
use crate::config::{self, Checks, Config, Mistake, ZoneName};
use crate::failure::Failure;
use crate::fanout;
use crate::library::{self, Found, Loaded, Source, Sources, load_all, load_from_stdin, load_with, n_threads};
use crate::print;

mod excerpt;
mod progress;

use self::progress::Progress;

/// Reads one zone file.
pub(crate) fn checkzone(args: &CheckzoneArgs) -> Result<(), Failure> {
    let ZoneName(origin) = args.origin;
    let loaded = load_one(args, origin);
    if args.json {
        return report_zone(&origin, args.file.clone(), &loaded);
    }
    loaded.findings.iter().for_each(tell);
    // What is wrong has been told.
    let Some(zone) = loaded.zone else { return Err(Failure::of_lines([""; 0])) };
    if args.print {
        return print_zone(&zone);
    }
    print::out(loaded_line(&zone))?;
    print::out("OK")
}

/// Writes a finding to standard error; on a terminal with the line that it is about.
fn tell(finding: &Diagnostic) {
    print::err(finding);
    if std::io::stderr().is_terminal() {
        excerpt::of(finding).iter().flat_map(|excerpt| excerpt.lines()).for_each(print::err);
    }
}

fn load_one(args: &CheckzoneArgs, origin: FoldedBuf) -> Loaded {
    let default = Checks::default();
    let max_nsec3_iterations = args.max_nsec3_iterations.unwrap_or(default.max_nsec3_iterations);
    let max_generated = args.max_generated.unwrap_or(default.max_generated);
    let mut options = library::options(&Checks { max_nsec3_iterations, max_generated });
    options.strict = args.strict;
    if args.file == Path::new("-") {
        return load_from_stdin(&origin, HashSeed::random(), &options);
    }
    let n_octets = std::fs::metadata(&args.file).map_or(0, |meta| meta.len());
    let n_read = Arc::default();
    let _progress = Progress::start(n_octets, "octets", &n_read);
    options.text.n_read = Some(n_read);
    load_with(&Source { origin: origin.into(), path: args.file.clone() }, HashSeed::random(), &options)
}

/// Writes the zone to standard output. As in [`mod@print`], a reader that is gone is no failure.
fn print_zone(zone: &Zone) -> Result<(), Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match canonical::print(zone, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// The report of one zone as JSON.
fn report_zone(origin: &FoldedBuf, path: PathBuf, loaded: &Loaded) -> Result<(), Failure> {
    let mut report = Report::default();
    report.add(&Source { origin: (*origin).into(), path }, loaded);
    print_json(&report)?;
    match report.errors.as_slice() {
        [] => Ok(()),
        errors => Err(Failure::of_lines(errors.iter().map(|error| &error.text))),
    }
}

/// `zone example.com/IN: loaded serial 7`, the root as a dot.
fn loaded_line(zone: &Zone) -> String {
    let name = zone.origin().to_string();
    let name = name.strip_suffix('.').filter(|name| !name.is_empty()).unwrap_or(&name);
    format!("zone {name}/IN: loaded serial {}", zone.serial())
}

/// What `weir checkconf` found.
#[derive(Debug, Default, Serialize)]
struct Report {
    errors: Vec<Line>,
    warnings: Vec<Line>,
    zones: Vec<ZoneLine>,
    #[serde(skip)]
    loaded_lines: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: String,
    /// The rule of docs/FORMAT.md that is broken; none in configuration files.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'static str>,
    /// As it is printed without --json.
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct ZoneLine {
    name: String,
    file: String,
    serial: u32,
    records: u64,
}

/// A path as JSON can hold it: what is not UTF-8 is replaced.
fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl From<Mistake> for Line {
    fn from(mistake: Mistake) -> Line {
        let text = mistake.to_string();
        let (line, column) = mistake.place.unzip();
        Line { file: Some(lossy(&mistake.path)), line, column, message: mistake.message, rule: None, text }
    }
}

impl From<&Diagnostic> for Line {
    fn from(finding: &Diagnostic) -> Line {
        let number = |n: u32| usize::try_from(n).ok().filter(|n| *n > 0);
        Line {
            file: Some(lossy(&finding.file)),
            line: number(finding.line),
            column: number(finding.column),
            message: finding.message.clone(),
            rule: Some(finding.rule),
            text: finding.to_string(),
        }
    }
}

impl From<String> for Line {
    fn from(message: String) -> Line {
        Line { file: None, line: None, column: None, rule: None, text: message.clone(), message }
    }
}

/// Reads the configuration and every zone.
pub(crate) fn checkconf(args: &CheckconfArgs) -> Result<(), Failure> {
    let mut report = Report::default();
    match read_config(args) {
        Ok(config) => {
            report.warnings.extend(fanout::warnings(&config).into_iter().map(Line::from));
            check_zones(&Sources::of(&config), &mut report);
        }
        Err(mistakes) => report.errors.extend(mistakes.into_iter().map(Line::from)),
    }
    if args.json {
        print_json(&report)?;
    } else {
        report.warnings.iter().for_each(|warning| print::err(&warning.text));
        report.loaded_lines.iter().try_for_each(print::out)?;
    }
    match report.errors.as_slice() {
        [] if args.json => Ok(()),
        [] => print::out("OK"),
        errors => Err(Failure::of_lines(errors.iter().map(|error| &error.text))),
    }
}

/// The configuration that `weir serve` would run by, without its flags.
fn read_config(args: &CheckconfArgs) -> Result<Config, Vec<Mistake>> {
    match &args.file {
        Some(file) => config::read(file),
        None => Config::for_serve(&ServeArgs::default()),
    }
}

fn check_zones(sources: &Sources, report: &mut Report) {
    let checks = sources.checks();
    let Found { sources, problems, .. } = match sources.find() {
        Ok(found) => found,
        Err(problem) => return report.errors.push(problem.into()),
    };
    report.errors.extend(problems.into_iter().map(Line::from));
    let n_done = Arc::default();
    let _progress = Progress::start(sources.len() as u64, "zones", &n_done);
    let all_loaded = load_all(&sources, HashSeed::random(), checks, n_threads(), &n_done);
    for (source, loaded) in sources.iter().zip(all_loaded) {
        report.add(source, &loaded);
    }
}

impl Report {
    fn add(&mut self, source: &Source, loaded: &Loaded) {
        let findings = if loaded.zone.is_some() { &mut self.warnings } else { &mut self.errors };
        findings.extend(loaded.findings.iter().map(Line::from));
        if let Some(zone) = &loaded.zone {
            self.loaded_lines.push(loaded_line(zone));
            self.zones.push(ZoneLine {
                name: source.origin.to_string(),
                file: lossy(&source.path),
                serial: zone.serial(),
                records: zone.n_records(),
            });
        }
    }
}

fn print_json(report: &Report) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| Failure::new(format!("the report cannot be written as JSON: {error}")))?;
    print::out_text(&(text + "\n"))
}
