//! The values that flags, environment and file have in common, each read from text by one rule.
//!
//! Sizes and durations carry their unit in the text (`"64 MiB"`, `"30s"`), so that no reader has to know the unit of
//! a key. Each type is read by `FromStr`; serde and clap both go through it and therefore accept the same words.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use weir_wire::name::{FoldedBuf, Name, NameBuf};

use super::ingress::{AnswerWay, IngressMode, Steer, Switch};

/// The port of DNS (RFC 1035 section 4.2.1).
pub(crate) const DNS_PORT: u16 = 53;

/// A value that is written as text, and how that looks: for whoever wrote a number, or forgot the quotes.
pub(super) trait Example {
    /// A value as it is written, without its quotes.
    const EXAMPLE: &'static str;
}

/// Reads a value from a TOML string by its `FromStr`.
pub(super) fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err = String> + Example,
    D: Deserializer<'de>,
{
    struct Text<T>(PhantomData<T>);

    impl<T: FromStr<Err = String> + Example> de::Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "text in quotes, such as \"{}\"", T::EXAMPLE)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(PhantomData))
}

macro_rules! deserialize_from_text {
    ($($of:ty: $example:literal),+) => {
        $(impl Example for $of {
            const EXAMPLE: &'static str = $example;
        }

        impl<'de> Deserialize<'de> for $of {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer)
            }
        })+
    };
}

/// Most UDP workers: there are hosts with hundreds of CPUs, and none with more.
pub(crate) const MAX_WORKERS: usize = 1024;

/// How many UDP workers: a number, or `auto` for one a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workers(pub(crate) Option<NonZeroUsize>);

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Workers, String> {
        if text == "auto" {
            return Ok(Workers(None));
        }
        let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MAX_WORKERS);
        number.map(|number| Workers(Some(number))).ok_or_else(|| {
            format!("`{text}` is not a number of workers; write 1 to {MAX_WORKERS}, or `auto`")
        })
    }
}

deserialize_from_text!(
    Octets: "64 MiB",
    Span: "10s",
    ListenAddress: "192.0.2.53:53",
    MetricsAddress: "127.0.0.1:9153",
    User: "65532:65532",
    IngressMode: "auto",
    Steer: "hash",
    Switch: "on",
    AnswerWay: "link",
    LogFormat: "text",
    ZoneName: "example.com"
);

/// A number of octets: `64 MiB`, `512 KiB`, `1 GiB`, `4096`, `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Octets(pub(crate) u64);

impl FromStr for Octets {
    type Err = String;

    fn from_str(text: &str) -> Result<Octets, String> {
        let (number, unit) = split_unit(text);
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            _ => return Err(format!("`{text}` is not a size; write it like \"64 MiB\" (KiB, MiB, GiB)")),
        };
        let number: u64 = number.parse().map_err(|_| {
            format!("`{text}` is not a size; write a whole number and a unit like \"64 MiB\"")
        })?;
        number.checked_mul(factor).map(Octets).ok_or_else(|| format!("`{text}` is too large a size"))
    }
}

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >> shift > 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A duration: `500ms`, `10s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let (number, unit) = split_unit(text);
        let of_unit: fn(u64) -> Option<Duration> = match unit {
            "us" => |n| Some(Duration::from_micros(n)),
            "ms" => |n| Some(Duration::from_millis(n)),
            "s" => |n| Some(Duration::from_secs(n)),
            "m" | "min" => |n| n.checked_mul(60).map(Duration::from_secs),
            "h" => |n| n.checked_mul(3600).map(Duration::from_secs),
            _ => return Err(format!("`{text}` is not a duration; write it like \"10s\" (us, ms, s, m, h)")),
        };
        // A year is longer than any wait here; it also keeps sums of durations from overflowing.
        let longest = Duration::from_secs(365 * 24 * 3600);
        let duration = number.parse().ok().and_then(of_unit).filter(|&span| span <= longest);
        duration.map(Span).ok_or_else(|| {
            format!(
                "`{text}` is not a duration; write a whole number and a unit like \"10s\", at most a year"
            )
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        match micros {
            _ if micros.is_multiple_of(1_000_000) => write!(f, "{}s", micros / 1_000_000),
            _ if micros.is_multiple_of(1_000) => write!(f, "{}ms", micros / 1_000),
            _ => write!(f, "{micros}us"),
        }
    }
}

/// The digits at the front, and what follows them without the space between.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end_of_digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end_of_digits);
    (number, unit.trim_start())
}

/// An address to answer on: `192.0.2.1:53`, `[2001:db8::1]:53`, `192.0.2.1@53`, or an address alone for port 53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl ListenAddress {
    /// Takes any address that a host can have, but IPv4 in the form of IPv6: sockets for IPv6 are for that alone.
    fn of(address: SocketAddr) -> Result<ListenAddress, String> {
        match address {
            SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
                let plain = SocketAddr::new(v6.ip().to_canonical(), v6.port());
                Err(format!("`{address}` is an IPv4 address in the form of IPv6; write {plain}"))
            }
            _ => one_of_this_host(address).map(ListenAddress),
        }
    }
}

/// Refuses addresses that no host has for itself, or that may be any link's.
fn one_of_this_host(address: SocketAddr) -> Result<SocketAddr, String> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(format!("`{address}` is {LINK_LOCAL}"))
        }
        _ if is_of_many(address.ip()) => Err(format!(
            "`{address}` is the address of a group; write one of this host's, or 0.0.0.0 or [::] for all"
        )),
        _ => Ok(address),
    }
}

/// Whether `text` starts with an address of a link, whatever follows a percent sign.
fn is_of_link(text: &str) -> bool {
    let (ip, _) = text.trim_start_matches('[').split_once('%').unwrap_or_default();
    ip.parse().is_ok_and(|ip: Ipv6Addr| ip.is_unicast_link_local())
}

/// What is missing of an address that each link may have for itself (RFC 4007 section 11).
const LINK_LOCAL: &str = "an address of a link: write its interface's number behind it, such as [fe80::1%2]:53; `ip link` shows the numbers";

/// Whether an address is that of a group: a socket can be bound to it, and no answer can come from it.
fn is_of_many(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        let text = text.trim();
        if let Ok(address) = text.parse() {
            return ListenAddress::of(address);
        }
        let (ip, port) = match text.rsplit_once('@') {
            Some((ip, port)) => (ip, port.parse().ok()),
            None => (text, Some(DNS_PORT)),
        };
        let ip = ip.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        match (ip, port) {
            (Some(ip), Some(port)) => ListenAddress::of(SocketAddr::new(ip, port)),
            _ if is_of_link(text) => Err(format!("`{text}` is {LINK_LOCAL}")),
            _ => Err(format!("`{text}` is not an address; write ip:port, [v6]:port or ip@port")),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where metrics and health are served, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress(pub(crate) Option<SocketAddr>);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        if text.trim() == "off" {
            return Ok(MetricsAddress(None));
        }
        match text.trim().parse::<SocketAddr>() {
            Ok(address) => Ok(MetricsAddress(Some(one_of_this_host(address)?))),
            Err(_) => {
                Err(format!("`{text}` is not an address with a port; write it like 127.0.0.1:9153, or `off`"))
            }
        }
    }
}

/// Whom to become once the sockets are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Stay who started the program.
    Keep,
    /// Become this user and group, with no capability left.
    Ids {
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
}

impl FromStr for User {
    type Err = String;

    /// Reads `keep`, `UID`, `UID:GID`, or a name from /etc/passwd.
    fn from_str(text: &str) -> Result<User, String> {
        let text = text.trim();
        if text == "keep" {
            return Ok(User::Keep);
        }
        let (user, group) = text.split_once(':').unwrap_or((text, text));
        let of_numbers = match (user.parse(), group.parse()) {
            (Ok(uid), Ok(gid)) => Some(User::Ids { uid, gid }),
            _ => user_in(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), text),
        };
        match of_numbers {
            // To the kernel this number means that nothing is to be changed (setresuid(2)).
            Some(User::Ids { uid: u32::MAX, .. } | User::Ids { gid: u32::MAX, .. }) => {
                Err(format!("`{text}` is nobody's: {} is no user and no group", u32::MAX))
            }
            Some(user) => Ok(user),
            None => Err(format!("`{text}` is not a user; write UID:GID, a name from /etc/passwd, or `keep`")),
        }
    }
}

/// The numbers of user `name` in the text of a passwd file.
fn user_in(passwd: &str, name: &str) -> Option<User> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(User::Ids { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("`{text}` is not a log format; use text or json")),
        }
    }
}

/// The name of a zone, relative to the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneName(pub(crate) FoldedBuf);

impl PartialEq for ZoneName {
    fn eq(&self, other: &ZoneName) -> bool {
        self.0.folded() == other.0.folded()
    }
}

impl FromStr for ZoneName {
    type Err = String;

    fn from_str(text: &str) -> Result<ZoneName, String> {
        match NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)) {
            // It stands for an origin, and there is none here.
            _ if text == "@" => Err("`@` is not the name of a zone; the root is `.`".to_owned()),
            Ok(name) => Ok(ZoneName(name.name().fold())),
            Err(error) => Err(format!("`{text}` is not the name of a zone: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_carry_their_unit() {
        let octets = |text: &str| text.parse::<Octets>().map(|octets| octets.0);
        assert_eq!(octets("64 MiB"), Ok(64 << 20));
        assert_eq!(octets("512KiB"), Ok(512 << 10));
        assert_eq!(octets("1g"), Ok(1 << 30));
        assert_eq!(octets("0"), Ok(0));
        for wrong in ["", "MiB", "1.5 MiB", "-1", "64 MB/s", "99999999999 GiB"] {
            assert!(octets(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn workers_are_a_number_within_bounds_or_auto() {
        let workers = |text: &str| text.parse::<Workers>().map(|workers| workers.0.map(NonZeroUsize::get));
        assert_eq!(workers("auto"), Ok(None));
        assert_eq!(workers("1024"), Ok(Some(1024)));
        for wrong in ["", "0", "-1", "1025", "18446744073709551615", "99999999999999999999", "two"] {
            assert!(workers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_carry_their_unit() {
        let span = |text: &str| text.parse::<Span>().map(|span| span.0);
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(span("10 s"), Ok(Duration::from_secs(10)));
        assert_eq!(span("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["", "10", "s", "18446744073709551615h", "9000h", "-1s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn listen_addresses_are_read_in_every_documented_form() {
        let address = |text: &str| text.parse::<ListenAddress>().map(|address| address.0.to_string());
        assert_eq!(address("127.0.0.1:5300").as_deref(), Ok("127.0.0.1:5300"));
        assert_eq!(address("127.0.0.1@5300").as_deref(), Ok("127.0.0.1:5300"));
        assert_eq!(address("[::1]:5300").as_deref(), Ok("[::1]:5300"));
        assert_eq!(address("::1@5300").as_deref(), Ok("[::1]:5300"));
        assert_eq!(address("192.0.2.1").as_deref(), Ok("192.0.2.1:53"));
        assert_eq!(address("::").as_deref(), Ok("[::]:53"));
        for wrong in [
            "",
            "localhost:53",
            "127.0.0.1:",
            "127.0.0.1@66000",
            ":53",
            "[::ffff:127.0.0.1]:53",
            "::ffff:7f00:1",
            "224.0.0.1:53",
            "255.255.255.255",
            "[ff02::1]:53",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        for wrong in ["224.0.0.1:9153", "[fe80::1]:9153"] {
            assert!(wrong.parse::<MetricsAddress>().is_err(), "{wrong}");
        }
        assert_eq!(address("[fe80::1%2]:5300").as_deref(), Ok("[fe80::1%2]:5300"));
        for wrong in ["[fe80::1]:53", "fe80::1", "fe80::1%eth0", "[fe80::1%eth0]:53"] {
            assert!(address(wrong).is_err_and(|error| error.contains("its interface's number")), "{wrong}");
        }
    }

    #[test]
    fn users_are_numbers_or_names_of_the_passwd_file() {
        assert_eq!("65532".parse(), Ok(User::Ids { uid: 65532, gid: 65532 }));
        assert_eq!("1000:100".parse(), Ok(User::Ids { uid: 1000, gid: 100 }));
        assert_eq!("keep".parse(), Ok(User::Keep));
        for wrong in
            ["no such user", "", "-1", "-1:-1", "4294967295:4294967295", "0:4294967295", "4294967295"]
        {
            assert!(wrong.parse::<User>().is_err(), "{wrong}");
        }
        let passwd = "root:x:0:0:root:/root:/bin/sh\nweir:x:990:991::/:/bin/false\n";
        assert_eq!(user_in(passwd, "weir"), Some(User::Ids { uid: 990, gid: 991 }));
        assert_eq!(user_in(passwd, "wei"), None);
    }
}
