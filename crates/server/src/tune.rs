//! `weir tune`: what the kernel is set to for a name server's load, what would be better, and why.
//!
//! The load is many small datagrams, each answered at once by the worker that received it. Buffers have to hold a
//! burst; beyond that the best place for a packet is the CPU that it arrived on.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::TuneArgs;
use crate::failure::Failure;
use crate::print;

mod device;
mod system;

/// Where the kernel shows its settings: `/`, or a folder of a test.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    root: PathBuf,
    n_cpus: usize,
}

/// One setting of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// As an operator names it.
    name: String,
    /// The file that holds it.
    path: PathBuf,
    /// What it is.
    now: String,
    /// What would be better; `None` when it is well as it is.
    better: Option<String>,
    /// Why, for either.
    why: String,
}

/// Shows the settings, and with `--apply` changes those that could be better.
pub(crate) fn tune(args: &TuneArgs) -> Result<(), Failure> {
    let host = Host::this();
    let mut settings = system::settings(&host);
    match &args.interface {
        Some(interface) => settings.extend(device::settings(&host, interface).map_err(Failure::new)?),
        None => {
            for interface in device::of_default_route(&host) {
                settings.extend(device::settings(&host, &interface).map_err(Failure::new)?);
            }
        }
    }
    print::out_text(&Table(&settings).to_string())?;
    for line in system::losses(&host) {
        print::out(line)?;
    }
    if args.apply {
        return apply(&settings);
    }
    match settings.iter().filter(|setting| setting.better.is_some()).count() {
        0 => print::out("Nothing to change."),
        n => print::out(format_args!(
            "{n} could be better: `weir tune --apply` sets them until the next boot."
        )),
    }
}

/// Writes what would be better, and says what it wrote.
fn apply(settings: &[Setting]) -> Result<(), Failure> {
    let mut failed = Vec::new();
    let mut n_changed = 0;
    for setting in settings {
        let Some(better) = &setting.better else { continue };
        match fs::write(&setting.path, format!("{better}\n")) {
            Ok(()) => {
                print::out(format_args!("{}: {} -> {better}", setting.name, setting.now))?;
                n_changed += 1;
            }
            Err(error) => failed.push(format!(
                "{} cannot be set: {}: {error}; root of the host may set it",
                setting.name,
                setting.path.display()
            )),
        }
    }
    print::out(format_args!("{n_changed} changed, until the next boot."))?;
    if failed.is_empty() { Ok(()) } else { Err(Failure::of_lines(failed)) }
}

impl Host {
    fn this() -> Host {
        let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Host { root: PathBuf::from("/"), n_cpus }
    }

    /// A file of the kernel's without its line end; `None` when this kernel or container has none.
    fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim_end().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder of the kernel's, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// A setting in `path`, if there is one here. One that nobody may write, as system-wide ones in a network namespace,
    /// is shown and left.
    fn setting(&self, name: &str, path: &str, better: Option<String>, why: &str) -> Option<Setting> {
        let now = self.read(path)?;
        let full = self.root.join(path);
        let is_closed = fs::metadata(&full).is_ok_and(|metadata| metadata.permissions().readonly());
        let better = better.filter(|better| *better != now);
        let why = match better {
            Some(_) if is_closed => format!("{why} (set it outside of this network namespace)"),
            _ => why.to_owned(),
        };
        Some(Setting { name: name.to_owned(), path: full, now, better: better.filter(|_| !is_closed), why })
    }
}

/// The settings, a line each.
struct Table<'a>(&'a [Setting]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Setting) -> usize| self.0.iter().map(of).max().unwrap_or(0);
        let name = width(|setting| setting.name.len()).max("setting".len());
        let now = width(|setting| setting.now.len()).max("now".len());
        let better = width(|setting| setting.better.as_ref().map_or(0, String::len)).max("better".len());
        writeln!(f, "{:<name$}  {:<now$}  {:<better$}  why", "setting", "now", "better")?;
        for setting in self.0 {
            let wanted = setting.better.as_deref().unwrap_or("-");
            writeln!(
                f,
                "{:<name$}  {:<now$}  {wanted:<better$}  {}",
                setting.name, setting.now, setting.why
            )?;
        }
        Ok(())
    }
}

/// The name of an interface that may be put into a path.
fn is_interface_name(name: &str) -> bool {
    // IFNAMSIZ of linux/if.h counts the zero at the end.
    (1..16).contains(&name.len()) && !name.contains('/') && name != "." && name != ".."
}

/// Whether a path of the kernel's is there.
fn exists(host: &Host, path: &str) -> bool {
    Path::exists(&host.root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host made of files.
    pub(super) fn host(n_cpus: usize, files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host { root: root.path().to_owned(), n_cpus };
        (root, host)
    }

    #[test]
    fn applying_writes_what_would_be_better_and_nothing_else() {
        let (root, host) = host(2, &[("a", "1\n"), ("b", "2\n")]);
        let settings: Vec<Setting> = [("a", Some("5".to_owned())), ("b", None)]
            .into_iter()
            .filter_map(|(path, better)| host.setting(path, path, better, "because"))
            .collect();
        apply(&settings).unwrap();
        let text = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!((text("a"), text("b")), ("5\n".to_owned(), "2\n".to_owned()));
    }

    #[test]
    fn a_setting_that_cannot_be_written_is_named() {
        let (root, host) = host(2, &[("a", "1\n")]);
        let setting = host.setting("net.a", "a", Some("5".to_owned()), "because").unwrap();
        fs::remove_file(root.path().join("a")).unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        assert!(format!("{:?}", apply(&[setting])).contains("net.a cannot be set"));
    }

    #[test]
    fn a_setting_that_is_well_already_stays() {
        let (_root, host) = host(2, &[("a", "5\n")]);
        assert_eq!(host.setting("a", "a", Some("5".to_owned()), "").unwrap().better, None);
        assert_eq!(host.setting("b", "b", Some("5".to_owned()), ""), None);
    }
}
