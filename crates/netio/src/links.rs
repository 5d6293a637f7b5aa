//! The interfaces and addresses of this network namespace, asked of the kernel by rtnetlink(7).
//!
//! Not from /sys: in a container or behind `nsenter` that may show another namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::filter::Taken;
use crate::netlink::{self, attributes, u16_at, u32_at};

/// `ARPHRD_ETHER`, include/uapi/linux/if_arp.h.
const ETHERNET: u16 = 1;

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Octets of the longest packet that it sends.
    pub mtu: usize,
    /// Whether it is up, Ethernet-like, and no port of a bridge or bond (which then is what carries the addresses).
    pub suits_rings: bool,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The interface's number.
    pub interface: u32,
    /// The address.
    pub ip: IpAddr,
    /// Bits of it that name its network.
    pub prefix_bits: u8,
    /// The broadcast address that was given with it, if one was.
    pub broadcast: Option<Ipv4Addr>,
}

impl Address {
    /// Addresses that are everybody's on its network. The last one of a network is, whether it was given or not
    /// (`fib_add_ifaddr` in net/ipv4/fib_frontend.c); networks of one or two addresses have none.
    fn broadcasts(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let last = match self.ip {
            IpAddr::V4(v4) if self.prefix_bits < 31 => {
                Some(Ipv4Addr::from_bits(v4.to_bits() | u32::MAX >> self.prefix_bits))
            }
            _ => None,
        };
        self.broadcast.into_iter().chain(last)
    }
}

/// What this network namespace has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Links {
    /// Interfaces, in the kernel's order.
    pub interfaces: Vec<Interface>,
    /// Their addresses.
    pub addresses: Vec<Address>,
}

impl Links {
    /// Asks the kernel.
    ///
    /// # Errors
    /// A socket that cannot be opened, or an answer that breaks off.
    pub fn read() -> io::Result<Self> {
        let mut links = Self::default();
        // The body is zeros: "any family".
        let dump =
            |kind, each: &mut dyn FnMut(&[u8])| netlink::dump(libc::NETLINK_ROUTE, kind, &[0; 16], each);
        dump(libc::RTM_GETLINK, &mut |body| links.interfaces.extend(interface(body)))?;
        dump(libc::RTM_GETADDR, &mut |body| links.addresses.extend(address(body)))?;
        Ok(links)
    }

    /// The same with no interface for rings but those of these names; none means all that suit.
    #[must_use]
    pub fn only(mut self, chosen: &[String]) -> Self {
        for interface in &mut self.interfaces {
            interface.suits_rings &= chosen.is_empty() || chosen.contains(&interface.name);
        }
        self
    }

    /// Those of these names that are no interface for rings: not there, not up, not Ethernet-like, without an address.
    pub fn missing(&self, chosen: &[String]) -> Vec<String> {
        let is_missing = |name: &&String| !self.carriers().any(|interface| interface.name == **name);
        chosen.iter().filter(is_missing).cloned().collect()
    }

    /// What rings can answer of what `listeners` listen to: on every suitable interface that carries an address, the
    /// addresses that a listener is bound to or that a wildcard takes in. Loopback addresses are the sockets' affair.
    pub fn taken(&self, listeners: &[SocketAddr], max_packet_octets: u16) -> Taken {
        let mut taken = Taken { max_packet_octets, ..Taken::default() };
        for listener in listeners {
            let served = |ip: IpAddr| {
                listener.ip() == ip || (listener.ip().is_unspecified() && listener.is_ipv4() == ip.is_ipv4())
            };
            for ip in self.addresses.iter().map(|a| a.ip).filter(|ip| served(*ip) && !ip.is_loopback()) {
                match ip {
                    IpAddr::V4(v4) => taken.ipv4.push((v4, listener.port())),
                    IpAddr::V6(v6) => taken.ipv6.push((v6, listener.port())),
                }
            }
        }
        taken.interfaces = self.carriers().map(|interface| interface.index).collect();
        taken.broadcasts = self.addresses.iter().flat_map(Address::broadcasts).collect();
        taken.ipv4.sort_unstable();
        taken.ipv4.dedup();
        taken.ipv6.sort_unstable();
        taken.ipv6.dedup();
        taken.broadcasts.sort_unstable();
        taken.broadcasts.dedup();
        taken
    }

    /// The longest packet that every interface of rings sends.
    pub fn mtu(&self) -> usize {
        self.carriers().map(|interface| interface.mtu).min().unwrap_or(0)
    }

    /// Names of the interfaces of rings, for log lines.
    pub fn names(&self) -> String {
        self.carriers().map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn carriers(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|interface| {
            interface.suits_rings && self.addresses.iter().any(|address| address.interface == interface.index)
        })
    }
}

/// Reads `struct ifinfomsg` and its attributes.
fn interface(body: &[u8]) -> Option<Interface> {
    let (kind, index, flags) = (u16_at(body, 2)?, u32_at(body, 4)?, u32_at(body, 8)?);
    let is_up = flags & libc::IFF_UP.cast_unsigned() != 0;
    let mut found = Interface { index, name: String::new(), mtu: 0, suits_rings: is_up && kind == ETHERNET };
    for (kind, value) in attributes(body, 16) {
        match kind {
            libc::IFLA_IFNAME => {
                let name = value.split(|octet| *octet == 0).next().unwrap_or(&[]);
                found.name = String::from_utf8_lossy(name).into_owned();
            }
            libc::IFLA_MTU => found.mtu = u32_at(value, 0)? as usize,
            libc::IFLA_MASTER => found.suits_rings = false,
            _ => {}
        }
    }
    Some(found)
}

/// Reads `struct ifaddrmsg` and its attributes.
fn address(body: &[u8]) -> Option<Address> {
    let interface = u32_at(body, 4)?;
    let (mut peer, mut local, mut broadcast) = (None, None, None);
    for (kind, value) in attributes(body, 8) {
        match kind {
            libc::IFA_ADDRESS => peer = ip(value),
            libc::IFA_LOCAL => local = ip(value),
            libc::IFA_BROADCAST => broadcast = value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets)),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the other end's.
    Some(Address { interface, ip: local.or(peer)?, prefix_bits: *body.get(1)?, broadcast })
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        16 => value.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_and_suits_no_ring() {
        let links = Links::read().unwrap();
        let lo = links.interfaces.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(!lo.suits_rings && lo.mtu > 0);
        assert!(!links.taken(&["127.0.0.1:53".parse().unwrap()], 400).interfaces.contains(&lo.index));
        assert!(links.taken(&["127.0.0.1:53".parse().unwrap()], 400).is_empty());
    }

    #[test]
    fn a_wildcard_takes_in_every_address_of_its_family() {
        let interface = |index, suits_rings| Interface { index, name: String::new(), mtu: 1500, suits_rings };
        let address = |interface, ip: &str| Address {
            interface,
            ip: ip.parse().unwrap(),
            prefix_bits: 24,
            broadcast: None,
        };
        let links = Links {
            interfaces: vec![interface(1, false), interface(2, true), interface(3, true)],
            addresses: vec![
                address(1, "127.0.0.1"),
                // An anycast address on the loopback interface is asked by way of the others.
                address(1, "198.51.100.1"),
                address(2, "192.0.2.1"),
                address(2, "2001:db8::1"),
            ],
        };
        let taken = links.taken(&["0.0.0.0:53".parse().unwrap()], 400);
        assert_eq!(taken.interfaces, [2]);
        let expected: [(Ipv4Addr, u16); 2] =
            [("192.0.2.1".parse().unwrap(), 53), ("198.51.100.1".parse().unwrap(), 53)];
        assert_eq!(taken.ipv4, expected);
        assert!(taken.ipv6.is_empty());
        let taken = links.taken(&["[2001:db8::1]:5300".parse().unwrap()], 400);
        assert_eq!(taken.ipv6, [("2001:db8::1".parse().unwrap(), 5300)]);
    }

    #[test]
    fn a_networks_last_address_is_a_broadcast_address_whether_it_was_given_or_not() {
        let broadcasts = |ip: &str, prefix_bits, given: Option<&str>| -> Vec<String> {
            let broadcast = given.map(|given| given.parse().unwrap());
            let address = Address { interface: 2, ip: ip.parse().unwrap(), prefix_bits, broadcast };
            address.broadcasts().map(|found| found.to_string()).collect()
        };
        assert_eq!(broadcasts("192.0.2.1", 24, None), ["192.0.2.255"]);
        assert_eq!(broadcasts("192.0.2.1", 30, Some("192.0.2.7")), ["192.0.2.7", "192.0.2.3"]);
        assert_eq!(broadcasts("192.0.2.1", 0, None), ["255.255.255.255"]);
        for (ip, prefix_bits) in
            [("192.0.2.1", 31), ("192.0.2.1", 32), ("2001:db8::1", 64), ("2001:db8::1", 8)]
        {
            assert!(broadcasts(ip, prefix_bits, None).is_empty(), "{ip}/{prefix_bits}");
        }
    }

    #[test]
    fn interfaces_that_are_not_chosen_are_left_alone() {
        let links = || Links {
            interfaces: [(1, "lo", false), (2, "eth0", true), (3, "eth1", true), (4, "eth2", true)]
                .map(|(index, name, suits_rings)| Interface {
                    index,
                    name: name.to_owned(),
                    mtu: 1500 * index as usize,
                    suits_rings,
                })
                .into(),
            addresses: [(1, "127.0.0.1"), (2, "192.0.2.1"), (3, "192.0.2.2")]
                .map(|(interface, ip)| Address {
                    interface,
                    ip: ip.parse().unwrap(),
                    prefix_bits: 24,
                    broadcast: None,
                })
                .into(),
        };
        let listeners = ["0.0.0.0:53".parse().unwrap()];
        let chosen = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(links().only(&[]).taken(&listeners, 400).interfaces, [2, 3]);
        let links = links().only(&chosen(&["eth1", "lo", "eth2", "none"]));
        assert_eq!(links.taken(&listeners, 400).interfaces, [3]);
        assert_eq!((links.names(), links.mtu()), ("eth1".to_owned(), 4500));
        let missing = links.missing(&chosen(&["eth1", "lo", "eth2", "none"]));
        assert_eq!(missing, ["lo", "eth2", "none"], "the loopback suits no ring, eth2 has no address");
    }
}
