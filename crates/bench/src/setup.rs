//! On what and how a record was made.

use std::fmt::Write;
use std::fs;

use crate::record::Record;
use crate::run::Plan;
use crate::server::Tools;
use crate::shell;

const TO_STRING: &str = "a string takes all that is written";

/// The text of `SETUP.md`.
pub(crate) fn describe(record: &Record, plan: &Plan, tools: &Tools) -> String {
    let mut text = format!("# How this was measured\n\n{}", machine());
    text.push_str("\n## Versions\n\n");
    for server in record.servers() {
        writeln!(text, "- {}: {}", server.title(), server.version(tools)).expect(TO_STRING);
    }
    let queryperf = tools.queryperf.to_string_lossy();
    writeln!(text, "- load: {}", shell::version(&[&queryperf, "--version"])).expect(TO_STRING);
    write!(
        text,
        "
## Commands

```
{}
```

Run again, it goes on with what is not in `raw.csv`. `benchmarks/run --report FOLDER` makes tables and plots anew.

## Method

- Two network namespaces joined by a veth pair, made anew for each turn. The server runs on CPU 0, queryperf on CPU 1.
- Each server has one worker (thread or process) and the settings in `benchmarks/rivals/`; Weir: `--workers 1`.
- A turn: start, first answer, {:.1} s warm-up, {:.1} s at full load (closed loop), {:.1} s at half of the rate just seen (open loop;
  over pipelined TCP at most {:.0} a second), stop.
  Servers take turns, {} rounds; medians are compared, so that drift of the machine meets all.
- Server CPU time is user and system time of the process and its children (proc_pid_stat(5)). Over veth a send runs the
  receiver's stack in the sender's softirq: each side pays for its own sends, and the server does not pay for the kernel's
  part of receiving up to the socket. That is so for all servers and floors alike, for the packet rings and XDP too.
- Every answer is checked by queryperf (id, question), and all have to be NOERROR or NXDOMAIN.
- Floors answer with the mean size of Weir's answers in the same case, and look nothing up.
- Default socket buffers are 4 MiB during the run (net.core.rmem_default, wmem_default), for servers that ask for none.
- Zones and queries are made from a fixed seed; keys of signed zones are made anew.
",
        command(plan),
        0.5,
        plan.full.as_secs_f64(),
        plan.half.as_secs_f64(),
        crate::run::MOST_OVER_TCP,
        plan.rounds,
    )
    .expect(TO_STRING);
    text
}

/// The machine in a list.
pub(crate) fn machine() -> String {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_default();
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let n_cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let hypervisor = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" hypervisor"));
    let kind = if hypervisor { "virtual machine" } else { "no hypervisor seen" };
    format!(
        "- CPU: {cpu}, {n_cpus} logical CPUs ({kind})\n- memory: {memory}\n- kernel: Linux {}\n",
        kernel.trim()
    )
}

/// `DATE-MACHINE`: the name of a record's folder.
pub(crate) fn record_name() -> String {
    let date = shell::run(&["date", "-u", "+%Y-%m-%d"]).unwrap_or_default();
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_default().to_lowercase();
    let words = cpu.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).take(3);
    let n_cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}-{n_cpus}x-{}", date.trim(), words.collect::<Vec<_>>().join("-"))
}

/// The value behind `key` and a colon in a file of the kernel's.
fn field(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn command(plan: &Plan) -> String {
    let cases: Vec<String> = plan.cases.iter().map(ToString::to_string).collect();
    let servers: Vec<&str> = plan.servers.iter().map(|server| server.name()).collect();
    let root = match std::env::var_os("ROOT_ZONE") {
        Some(_) => "ROOT_ZONE=root.zone ",
        None => "",
    };
    format!(
        "{root}benchmarks/run --rounds {} --seconds {} --half-seconds {} \\\n    --only {} \\\n    --servers {}",
        plan.rounds,
        plan.full.as_secs_f64(),
        plan.half.as_secs_f64(),
        cases.join(","),
        servers.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_by_date_and_machine() {
        let name = record_name();
        assert!(name.len() > 12 && name.starts_with("20"), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}");
    }
}
