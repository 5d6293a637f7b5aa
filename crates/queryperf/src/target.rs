//! Whom a load may be sent to without further words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `ip` can only be a machine of one's own network: loopback, link-local, private, or the network for
/// benchmarks, 198.18.0.0/15 (RFC 2544 appendix C.2.2).
pub(crate) fn is_ones_own(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => is_ones_own_v4(v4),
        IpAddr::V6(v6) => is_ones_own_v6(v6),
    }
}

fn is_ones_own_v4(ip: Ipv4Addr) -> bool {
    let [first, second, ..] = ip.octets();
    let for_benchmarks = first == 198 && second & 0xfe == 18;
    ip.is_loopback() || ip.is_link_local() || ip.is_private() || for_benchmarks
}

fn is_ones_own_v6(ip: Ipv6Addr) -> bool {
    match ip.to_ipv4_mapped() {
        Some(v4) => is_ones_own_v4(v4),
        None => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_networks_are_told_from_everybody_elses() {
        let own = [
            "127.0.0.1",
            "127.9.9.9",
            "169.254.1.1",
            "10.0.0.1",
            "172.31.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "::1",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ];
        let others = [
            "0.0.0.0",
            "192.0.2.1",
            "172.32.0.1",
            "198.17.255.255",
            "198.20.0.0",
            "100.64.0.1",
            "8.8.8.8",
            "::",
            "2001:db8::1",
            "fec0::1",
            "::ffff:8.8.8.8",
        ];
        for (list, expected) in [(&own[..], true), (&others[..], false)] {
            for ip in list {
                assert_eq!(is_ones_own(ip.parse().unwrap()), expected, "{ip}");
            }
        }
    }
}
