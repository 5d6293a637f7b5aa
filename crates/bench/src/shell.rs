//! Running other programs, and saying what they said when they fail.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Runs a command given as words, to its end, and yields its standard output.
///
/// # Errors
/// It cannot be started, or its exit code is not 0; the error holds what it wrote.
pub(crate) fn run(words: &[&str]) -> anyhow::Result<String> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    finish(Command::new(program).args(arguments))
}

/// As [`run`], for a command that is built already.
pub(crate) fn finish(command: &mut Command) -> anyhow::Result<String> {
    let told = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {told}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{told}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// Compiles a C program of `benchmarks/` as the floors and twins are: gcc -O2.
pub(crate) fn compile(source: &Path, program: &Path) -> anyhow::Result<()> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(program).arg(source);
    finish(&mut gcc).map(drop)
}

/// The first line of what a program says about its version, whatever its exit code and whichever output it uses.
pub(crate) fn version(words: &[&str]) -> String {
    let Some((program, arguments)) = words.split_first() else { return String::new() };
    let Ok(output) = Command::new(program).args(arguments).stdin(Stdio::null()).output() else {
        return "not installed".to_owned();
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}
