//! Settings of the whole system.

use super::{Host, Setting};

/// What Weir asks for as each UDP socket's receive buffer by default, and what the limit has to allow.
const RECEIVE_BUFFER: u64 = 4 << 20;
/// What it asks for as send buffer.
const SEND_BUFFER: u64 = 1 << 20;
/// Connections that may wait for a listener, as Weir asks for.
const TCP_BACKLOG: u64 = 4096;
/// Packets that may wait for a CPU when another one handed them over: a burst of some milliseconds at a million a second.
const CPU_BACKLOG: u64 = 4096;

/// The settings that there are here.
pub(super) fn settings(host: &Host) -> Vec<Setting> {
    let at_least = |path: &str, least: u64| {
        let now = host.number(path)?;
        (now < least).then(|| least.to_string())
    };
    let raised = |name: &str, least, why: &str| {
        let path = path_of(name);
        host.setting(name, &path, at_least(&path, least), why)
    };
    let shown = |name: &str, why: &str| host.setting(name, &path_of(name), None, why);
    let zero = |name: &str, why: &str| host.setting(name, &path_of(name), Some("0".to_owned()), why);
    [
        raised(
            "net.core.rmem_max",
            RECEIVE_BUFFER,
            "lets a worker's socket hold a burst (4 MiB: some 5,000 queries)",
        ),
        raised("net.core.wmem_max", SEND_BUFFER, "lets a worker hand over a whole batch of large answers"),
        shown("net.core.rmem_default", "of no matter: Weir asks for its own sizes"),
        shown("net.core.wmem_default", "of no matter: Weir asks for its own sizes"),
        raised(
            "net.core.netdev_max_backlog",
            CPU_BACKLOG,
            "queue of packets that RPS, veth and lo hand to a CPU",
        ),
        shown("net.core.netdev_budget", "packets a softirq takes at once; raise it when squeezes below grow"),
        shown(
            "net.core.netdev_budget_usecs",
            "time a softirq takes at once; raise it when squeezes below grow",
        ),
        zero("net.core.busy_read", "polling takes CPU time from the other workers"),
        zero("net.core.busy_poll", "polling takes CPU time from the other workers"),
        zero("net.core.rps_sock_flow_entries", "RFS follows connected sockets; a name server's are not"),
        raised("net.core.somaxconn", TCP_BACKLOG, "connections that may wait for a TCP listener"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn path_of(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

/// What has been lost on the way to the sockets since boot, a line each CPU that lost something.
pub(super) fn losses(host: &Host) -> Vec<String> {
    let text = host.read("proc/net/softnet_stat").unwrap_or_default();
    let of_cpu = |(cpu, line): (usize, &str)| {
        // Columns of softnet_seq_show in net/core/net-procfs.c, in hexadecimal: processed, dropped, time_squeeze.
        let column = |i: usize| u64::from_str_radix(line.split_whitespace().nth(i)?, 16).ok();
        let (dropped, squeezed) = (column(1)?, column(2)?);
        (dropped > 0 || squeezed > 0).then(|| {
            format!("CPU {cpu} since boot: {dropped} packets dropped at netdev_max_backlog, {squeezed} softirqs squeezed")
        })
    };
    text.lines().enumerate().filter_map(of_cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::host;
    use super::*;

    fn better(settings: &[Setting], name: &str) -> Option<String> {
        settings.iter().find(|setting| setting.name == name).unwrap().better.clone()
    }

    #[test]
    fn a_limit_below_the_buffers_is_raised_and_one_above_is_left() {
        let (_root, host) = host(
            2,
            &[
                ("proc/sys/net/core/rmem_max", "212992\n"),
                ("proc/sys/net/core/wmem_max", "16777216\n"),
                ("proc/sys/net/core/busy_poll", "50\n"),
            ],
        );
        let settings = settings(&host);
        assert_eq!(settings.len(), 3);
        assert_eq!(better(&settings, "net.core.rmem_max"), Some("4194304".to_owned()));
        assert_eq!(better(&settings, "net.core.wmem_max"), None);
        assert_eq!(better(&settings, "net.core.busy_poll"), Some("0".to_owned()));
    }

    #[test]
    fn losses_are_told_for_the_cpus_that_had_some() {
        let (_root, host) = host(2, &[("proc/net/softnet_stat", "04 00 00 00\n05 0000000a 00000002 00\n")]);
        let told = losses(&host);
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("CPU 1 since boot: 10 packets dropped") && told[0].contains("2 softirqs")
        );
    }
}
