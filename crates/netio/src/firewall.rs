//! Whether this host filters what comes in: packet rings go past such rules.

use std::io;

use crate::netlink::{attributes, dump};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETRULE`, include/uapi/linux/netfilter/nf_tables.h.
const GET_RULE: u16 = 10 << 8 | 7;
/// `NFTA_RULE_CHAIN`.
const RULE_CHAIN: u16 = 2;

/// Where rules for incoming packets are, for a warning: chains of nftables, or the old tables of iptables; empty without
/// any. The rules themselves are not read: what they mean is the operator's to say.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`.
pub fn input_rules() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for (file, what) in
        [("/proc/net/ip_tables_names", "iptables"), ("/proc/net/ip6_tables_names", "ip6tables")]
    {
        // Closed to others than root, and not there without the module.
        let tables = std::fs::read_to_string(file).unwrap_or_default();
        if tables.lines().any(|table| table == "filter") {
            found.push(format!("table filter of {what}"));
        }
    }
    // struct nfgenmsg: any family.
    let rules = dump(libc::NETLINK_NETFILTER, GET_RULE, &[0; 4], &mut |body| {
        let chain = attributes(body, 4).find(|(kind, _)| *kind == RULE_CHAIN);
        let name = chain.map(|(_, name)| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
        if let Some(name) = name.filter(|name| name.to_ascii_lowercase().contains("input")) {
            let line = format!("chain {name} of nftables");
            if !found.contains(&line) {
                found.push(line);
            }
        }
    });
    match rules.map_err(|error| (error.raw_os_error(), error)) {
        // A kernel without nftables has no rules of it.
        Ok(()) | Err((Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL), _)) => Ok(found),
        Err((_, error)) => Err(error),
    }
}
