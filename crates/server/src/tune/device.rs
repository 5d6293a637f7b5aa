//! Settings of one interface: which CPUs take its packets.

use super::{Host, Setting, exists, is_interface_name};

/// The settings of an interface.
///
/// # Errors
/// There is no such interface; the text says which there are.
pub(super) fn settings(host: &Host, interface: &str) -> Result<Vec<Setting>, String> {
    let folder = format!("sys/class/net/{interface}");
    if !is_interface_name(interface) || !exists(host, &folder) {
        let known = host.names("sys/class/net").join(", ");
        return Err(format!("no interface `{interface}`; there are: {known}"));
    }
    let queues = host.names(&format!("{folder}/queues"));
    let device = Device {
        host,
        interface,
        receive: queues.iter().filter(|name| name.starts_with("rx-")).map(String::as_str).collect(),
        transmit: queues.iter().filter(|name| name.starts_with("tx-")).map(String::as_str).collect(),
        is_hardware: exists(host, &format!("{folder}/device")),
    };
    Ok([device.queues(), device.receive_steering(), device.transmit_steering(), device.interrupts()].concat())
}

/// The interfaces that the default route leaves by: where queries come in, most likely.
pub(super) fn of_default_route(host: &Host) -> Vec<String> {
    let text = host.read("proc/net/route").unwrap_or_default();
    let mut found: Vec<String> = Vec::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split_whitespace();
        if let (Some(interface), Some("00000000")) = (fields.next(), fields.next())
            && !found.iter().any(|name| name == interface)
        {
            found.push(interface.to_owned());
        }
    }
    found
}

struct Device<'a> {
    host: &'a Host,
    interface: &'a str,
    receive: Vec<&'a str>,
    transmit: Vec<&'a str>,
    /// Whether a device is behind it; veth, bridges and lo have none.
    is_hardware: bool,
}

impl Device<'_> {
    /// How many queues there are: shown, since only ethtool changes it.
    fn queues(&self) -> Vec<Setting> {
        let (n, n_cpus) = (self.receive.len(), self.host.n_cpus);
        let why = match n.cmp(&n_cpus) {
            _ if !self.is_hardware => "no hardware behind it".to_owned(),
            std::cmp::Ordering::Less => {
                format!(
                    "{n_cpus} CPUs: `ethtool -L {} combined {n_cpus}` if the device has more",
                    self.interface
                )
            }
            _ => "a queue a CPU".to_owned(),
        };
        let name = format!("{} receive queues", self.interface);
        let path = self.host.root.join(format!("sys/class/net/{}/queues", self.interface));
        vec![Setting { name, path, now: n.to_string(), better: None, why }]
    }

    fn queue_setting(&self, queue: &str, file: &str, better: Option<String>, why: &str) -> Option<Setting> {
        let path = format!("sys/class/net/{}/queues/{queue}/{file}", self.interface);
        self.host.setting(&format!("{} {queue} {file}", self.interface), &path, better, why)
    }

    /// RPS and RFS: worth an interrupt to another CPU only where one hardware queue feeds many CPUs.
    fn receive_steering(&self) -> Vec<Setting> {
        let n_cpus = self.host.n_cpus;
        // With two CPUs the interrupt costs more than the second CPU gives: an echo fell from 220 to 80 kqps.
        let spreads = self.is_hardware && n_cpus >= 4 && self.receive.len() * 2 <= n_cpus;
        let (better, why) = if spreads {
            (
                mask_of_all(n_cpus),
                "RPS: few queues feed many CPUs; set `steer = \"cpu\"` in [ingress] with it",
            )
        } else {
            (mask_of_none(n_cpus), "RPS would cost an interrupt to another CPU a packet")
        };
        let mut settings = Vec::new();
        for queue in &self.receive {
            settings.extend(self.mask_setting(queue, "rps_cpus", &better, why));
            let rfs = "RFS follows connected sockets; a name server's are not";
            settings.extend(self.queue_setting(queue, "rps_flow_cnt", Some("0".to_owned()), rfs));
        }
        settings
    }

    /// XPS: each CPU sends by a queue of its own, where there are as many.
    fn transmit_steering(&self) -> Vec<Setting> {
        let n_cpus = self.host.n_cpus;
        if self.transmit.len() < 2 || self.transmit.len() < n_cpus {
            let why = "XPS: fewer transmit queues than CPUs, nothing to divide";
            return self
                .transmit
                .iter()
                .filter_map(|queue| self.queue_setting(queue, "xps_cpus", None, why))
                .collect();
        }
        let why = "XPS: a transmit queue a CPU, so that no two workers meet at its lock";
        let number = |queue: &str| queue.strip_prefix("tx-").and_then(|number| number.parse::<usize>().ok());
        let of = |queue: &&str| {
            let cpu = number(queue)? % n_cpus;
            self.mask_setting(queue, "xps_cpus", &mask_of_one(cpu, n_cpus), why)
        };
        self.transmit.iter().filter_map(of).collect()
    }

    /// A mask of CPUs; the same CPUs written with other zeros are the same.
    fn mask_setting(&self, queue: &str, file: &str, better: &str, why: &str) -> Option<Setting> {
        let mut setting = self.queue_setting(queue, file, Some(better.to_owned()), why)?;
        if significant(&setting.now) == significant(better) {
            setting.better = None;
        }
        Some(setting)
    }

    /// Each interrupt of the device on a CPU of its own, in turn.
    fn interrupts(&self) -> Vec<Setting> {
        let interrupts = self.host.names(&format!("sys/class/net/{}/device/msi_irqs", self.interface));
        let mut numbers: Vec<u32> = interrupts.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        let of = |(i, number): (usize, &u32)| {
            let path = format!("proc/irq/{number}/smp_affinity_list");
            let now = self.host.read(&path)?;
            // One CPU already, whichever: somebody chose it.
            let better = now.parse::<usize>().is_err().then(|| (i % self.host.n_cpus).to_string());
            let why = "the device's interrupts spread over the CPUs (stop irqbalance, which moves them)";
            self.host.setting(&format!("irq {number} affinity"), &path, better, why)
        };
        numbers.iter().enumerate().filter_map(of).collect()
    }
}

/// Masks as the kernel writes them: words of 32 CPUs in hexadecimal, the highest first, with commas between.
fn mask(n_cpus: usize, has: impl Fn(usize) -> bool) -> String {
    let word = |w: usize| {
        (0..32).fold(0_u32, |bits, bit| {
            let cpu = w * 32 + bit;
            bits | (u32::from(cpu < n_cpus && has(cpu)) << bit)
        })
    };
    let words: Vec<String> =
        (0..n_cpus.div_ceil(32).max(1)).rev().map(|w| format!("{:x}", word(w))).collect();
    words.join(",")
}

fn mask_of_all(n_cpus: usize) -> String {
    mask(n_cpus, |_| true)
}

fn mask_of_none(n_cpus: usize) -> String {
    mask(n_cpus, |_| false)
}

fn mask_of_one(cpu: usize, n_cpus: usize) -> String {
    mask(n_cpus, |candidate| candidate == cpu)
}

/// A mask without commas and leading zeros of its words.
fn significant(mask: &str) -> String {
    let words: Vec<String> = mask.split(',').map(|word| format!("{:0>8}", word.trim())).collect();
    words.concat().trim_start_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::host;
    use super::*;

    fn better<'a>(settings: &'a [Setting], name: &str) -> Option<&'a str> {
        settings.iter().find(|setting| setting.name == name).unwrap().better.as_deref()
    }

    #[test]
    fn a_veth_wants_no_steering() {
        let files = [
            ("sys/class/net/veth0/queues/rx-0/rps_cpus", "3\n"),
            ("sys/class/net/veth0/queues/rx-0/rps_flow_cnt", "4096\n"),
            ("sys/class/net/veth0/queues/tx-0/xps_cpus", "0\n"),
        ];
        let (_root, host) = host(8, &files);
        let settings = settings(&host, "veth0").unwrap();
        assert_eq!(better(&settings, "veth0 rx-0 rps_cpus"), Some("0"));
        assert_eq!(better(&settings, "veth0 rx-0 rps_flow_cnt"), Some("0"));
        assert_eq!(better(&settings, "veth0 tx-0 xps_cpus"), None);
    }

    #[test]
    fn one_hardware_queue_is_spread_over_eight_cpus_and_its_interrupt_pinned() {
        let files = [
            ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00\n"),
            ("sys/class/net/eth0/device/msi_irqs/40", "msi\n"),
            ("proc/irq/40/smp_affinity_list", "0-7\n"),
        ];
        let (_root, host) = host(8, &files);
        let settings = settings(&host, "eth0").unwrap();
        assert_eq!(better(&settings, "eth0 rx-0 rps_cpus"), Some("ff"));
        assert_eq!(better(&settings, "irq 40 affinity"), Some("0"));
    }

    #[test]
    fn a_transmit_queue_a_cpu_is_given_to_it() {
        let files = [
            ("sys/class/net/eth0/queues/tx-0/xps_cpus", "1\n"),
            ("sys/class/net/eth0/queues/tx-1/xps_cpus", "0\n"),
            ("sys/class/net/eth0/device/x", ""),
        ];
        let (_root, host) = host(2, &files);
        let settings = settings(&host, "eth0").unwrap();
        assert_eq!(better(&settings, "eth0 tx-0 xps_cpus"), None);
        assert_eq!(better(&settings, "eth0 tx-1 xps_cpus"), Some("2"));
    }

    #[test]
    fn masks_of_many_cpus_are_words() {
        assert_eq!(mask_of_all(40), "ff,ffffffff");
        assert_eq!(mask_of_one(33, 40), "2,0");
        assert_eq!(significant("00000000,00000003"), significant("3"));
        assert_ne!(significant("1,00000000"), significant("1"));
    }

    #[test]
    fn an_interface_that_is_not_there_is_told_with_those_that_are() {
        let (_root, host) = host(2, &[("sys/class/net/eth0/mtu", "1500\n")]);
        assert!(settings(&host, "eth1").unwrap_err().contains("there are: eth0"));
        assert!(settings(&host, "../../etc").is_err());
    }

    #[test]
    fn the_default_route_names_the_interface() {
        let route = "Iface Destination Gateway\neth0 00000000 0101\neth1 0000A8C0 0\n";
        let (_root, host) = host(2, &[("proc/net/route", route)]);
        assert_eq!(of_default_route(&host), ["eth0"]);
    }
}
