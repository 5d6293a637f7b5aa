//! Whether this host filters what comes in: packet rings go past such rules.
//!
//! A packet ring sees a frame before the hooks `ingress`, `prerouting` and `input` do. The rules themselves are not read:
//! what they mean is the operator's to say. Rules that translate addresses are left out: they filter nothing.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use libc::c_int;
use socket2::{Domain, Socket, Type};

use crate::netlink::{attributes, dump};
use crate::sys;

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN`, include/uapi/linux/netfilter/nf_tables.h.
const GET_CHAIN: u16 = 10 << 8 | 4;
/// The same with `NFT_MSG_GETRULE`.
const GET_RULE: u16 = 10 << 8 | 7;
/// Octets of `struct nfgenmsg`: family, version, number of a resource.
const FAMILY_OCTETS: usize = 4;
/// `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`, `NFTA_CHAIN_HOOK`, `NFTA_CHAIN_TYPE`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
/// `NFTA_HOOK_HOOKNUM`.
const HOOK_NUMBER: u16 = 1;
/// `NFTA_RULE_TABLE`, `NFTA_RULE_CHAIN`.
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
/// `NFPROTO_INET`, `NFPROTO_IPV4`, `NFPROTO_NETDEV`, `NFPROTO_IPV6`, include/uapi/linux/netfilter.h. The hooks of bridges
/// come before the ring of the bridge.
const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const IPV6: u8 = 10;
/// `NF_INET_PRE_ROUTING`, `NF_INET_LOCAL_IN`, `NF_INET_INGRESS`; `NF_NETDEV_INGRESS`.
const PRE_ROUTING: u32 = 0;
const LOCAL_IN: u32 = 1;
const INET_INGRESS: u32 = 5;
const NETDEV_INGRESS: u32 = 0;

/// Where rules for incoming packets are, for a warning; empty without any.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`.
pub fn input_rules() -> io::Result<Vec<String>> {
    let mut found = nftables()?;
    for (domain, level, names, what) in [
        (Domain::IPV4, libc::IPPROTO_IP, "/proc/net/ip_tables_names", "iptables"),
        (Domain::IPV6, libc::IPPROTO_IPV6, "/proc/net/ip6_tables_names", "ip6tables"),
    ] {
        // Closed to others than root, and not there without the module. To ask for a table that is not there would make it.
        let tables = std::fs::read_to_string(names).unwrap_or_default();
        for table in tables.lines().filter(|table| ["raw", "mangle", "filter", "security"].contains(table)) {
            // What was found so far counts, whatever cannot be read.
            let read =
                Socket::new(domain, Type::DGRAM, None).and_then(|socket| Table::read(&socket, level, table));
            if let Some(chain) = read.ok().and_then(|table| table.first_chain()) {
                found.push(format!("{what} -t {table}, chain {chain}"));
            }
        }
    }
    Ok(found)
}

/// A chain of nftables, by its family, table and name.
type Chain = (u8, Vec<u8>, Vec<u8>);

/// Chains of nftables that packets meet on their way in and that have rules.
fn nftables() -> io::Result<Vec<String>> {
    let (mut chains, mut with_rules) = (BTreeSet::new(), BTreeSet::new());
    let dumped = dump(libc::NETLINK_NETFILTER, GET_CHAIN, &[0; FAMILY_OCTETS], &mut |body| {
        chains.extend(chain_on_the_way_in(body));
    });
    let dumped = dumped.and_then(|()| {
        dump(libc::NETLINK_NETFILTER, GET_RULE, &[0; FAMILY_OCTETS], &mut |body| {
            with_rules.extend(names(body, RULE_TABLE, RULE_CHAIN));
        })
    });
    match dumped.map_err(|error| (error.raw_os_error(), error)) {
        // A kernel without nftables has no rules of it.
        Ok(()) | Err((Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL), _)) => {}
        Err((_, error)) => return Err(error),
    }
    Ok(chains.intersection(&with_rules).map(shown).collect())
}

/// Reads a chain, when it is hooked in where packets come in and filters.
fn chain_on_the_way_in(body: &[u8]) -> Option<Chain> {
    let hook = attribute(body, CHAIN_HOOK)?;
    let number =
        attribute_in(hook, 0, HOOK_NUMBER)?.first_chunk().map(|octets| u32::from_be_bytes(*octets))?;
    let is_on_the_way = match *body.first()? {
        INET | IPV4 | IPV6 => matches!(number, PRE_ROUTING | LOCAL_IN | INET_INGRESS),
        NETDEV => number == NETDEV_INGRESS,
        _ => false,
    };
    let translates = attribute(body, CHAIN_TYPE).is_some_and(|kind| kind.starts_with(b"nat"));
    names(body, CHAIN_TABLE, CHAIN_NAME).filter(|_| is_on_the_way && !translates)
}

fn names(body: &[u8], table: u16, chain: u16) -> Option<Chain> {
    Some((*body.first()?, attribute(body, table)?.to_vec(), attribute(body, chain)?.to_vec()))
}

fn attribute(body: &[u8], wanted: u16) -> Option<&[u8]> {
    attribute_in(body, FAMILY_OCTETS, wanted)
}

fn attribute_in(body: &[u8], n_fixed: usize, wanted: u16) -> Option<&[u8]> {
    // The upper two bits are flags (include/uapi/linux/netlink.h).
    attributes(body, n_fixed).find(|(kind, _)| kind & 0x3FFF == wanted).map(|(_, value)| value)
}

fn shown((family, table, name): &Chain) -> String {
    let family = match *family {
        INET => "inet",
        IPV4 => "ip",
        IPV6 => "ip6",
        _ => "netdev",
    };
    let text = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    format!("nft {family} {}, chain {}", text(table), text(name))
}

/// What is known of a table: `struct ipt_getinfo`, include/uapi/linux/netfilter_ipv4/ip_tables.h; the same for IPv6.
struct Table {
    hooks: u32,
    /// Where the rules of each hook begin, and where its policy lies behind them.
    entry: [u32; 5],
    underflow: [u32; 5],
}

impl Table {
    /// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`.
    const GET_INFO: c_int = 64;

    /// Octets of the name that is asked for, which stands in front.
    const NAME_OCTETS: usize = 32;
    /// Words behind it: valid hooks, five entries, five underflows, the number of entries, their octets.
    const N_WORDS: usize = 13;

    fn read(socket: &Socket, level: c_int, name: &str) -> io::Result<Table> {
        let mut octets = [0; Table::NAME_OCTETS + 4 * Table::N_WORDS];
        octets[..Table::NAME_OCTETS].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        sys::ask_option(socket.as_fd(), level, Table::GET_INFO, &mut octets)?;
        let (words, _) = octets[Table::NAME_OCTETS..].as_chunks::<4>();
        let word = |i: usize| u32::from_ne_bytes(words[i]);
        let five = |start: usize| [0, 1, 2, 3, 4].map(|i| word(start + i));
        Ok(Table { hooks: word(0), entry: five(1), underflow: five(6) })
    }

    /// The first chain on the way in that has rules.
    fn first_chain(&self) -> Option<&'static str> {
        let hooks = [(PRE_ROUTING, "PREROUTING"), (LOCAL_IN, "INPUT")];
        let has_rules = |number: u32| {
            let at = number as usize;
            self.hooks >> number & 1 == 1 && self.entry.get(at) != self.underflow.get(at)
        };
        hooks.into_iter().find(|(number, _)| has_rules(*number)).map(|(_, chain)| chain)
    }
}
