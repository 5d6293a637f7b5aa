//! What is asked, of which zone, over which transport.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;

use crate::random::Random;
use crate::{root, sign, zones};

/// The seed of all zones and queries.
const SEED: u64 = 4;

/// A zone and the questions about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// 100,000 names with an A record each; every query hits one.
    Flat,
    /// The same zone; no query hits.
    Nxdomain,
    /// 300,000 delegations, as a top-level domain has them; every answer is a referral with glue.
    Delegations,
    /// A root zone: top-level domains asked for by Zipf's law, and 60 % of the queries for domains that are not there.
    Root,
    /// A zone signed with NSEC; every query hits, and asks for signatures.
    SignedHit,
    /// A zone signed with NSEC3; no query hits, and each answer proves it.
    SignedNxdomain,
    /// A zone signed with NSEC3; denials, chains of aliases and referrals, of names by Zipf's law.
    SignedPopular,
    /// Hits, misses, referrals, wildcards, aliases, other types, by Zipf's law.
    Mixed,
    /// TXT and DNSKEY answers of about a kilobyte.
    Large,
}

impl Workload {
    pub(crate) const ALL: [Workload; 9] = [
        Workload::Flat,
        Workload::Nxdomain,
        Workload::Delegations,
        Workload::Root,
        Workload::SignedHit,
        Workload::SignedNxdomain,
        Workload::SignedPopular,
        Workload::Mixed,
        Workload::Large,
    ];

    /// Its name in commands and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Flat => "flat",
            Workload::Nxdomain => "nxdomain",
            Workload::Delegations => "delegations",
            Workload::Root => "root",
            Workload::SignedHit => "signed-hit",
            Workload::SignedNxdomain => "signed-nxdomain",
            Workload::SignedPopular => "signed-popular",
            Workload::Mixed => "mixed",
            Workload::Large => "large",
        }
    }

    /// One line for the reader of a table.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Workload::Flat => "100,000 names with an A record; every query hits one",
            Workload::Nxdomain => "the same zone; no query hits",
            Workload::Delegations => "300,000 delegations; every answer is a referral with glue",
            Workload::Root => {
                "a root zone; TLDs by Zipf's law, 60 % of the queries for domains that are not there"
            }
            Workload::SignedHit => "20,000 names signed with NSEC; every query hits and has the DO bit",
            Workload::SignedNxdomain => "20,000 names signed with NSEC3; no query hits, each has the DO bit",
            Workload::SignedPopular => {
                "20,000 names signed with NSEC3; denials 60 %, aliases 20 %, referrals 20 %, by Zipf's law; DO bit"
            }
            Workload::Mixed => {
                "hits 60 %, misses 15 %, referrals 10 %, other types and aliases 15 %; by Zipf's law"
            }
            Workload::Large => "TXT and DNSKEY answers of about a kilobyte",
        }
    }

    /// Whether the zone holds signatures and queries ask for them.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Workload::SignedHit | Workload::SignedNxdomain | Workload::SignedPopular)
    }

    /// Whether the zone denies with NSEC3.
    pub(crate) fn is_nsec3(self) -> bool {
        matches!(self, Workload::SignedNxdomain | Workload::SignedPopular)
    }

    /// Whether queries carry an EDNS record: where answers would not fit 512 octets.
    pub(crate) fn has_edns(self) -> bool {
        self.is_signed() || matches!(self, Workload::Large | Workload::Root)
    }

    fn origin(self) -> &'static str {
        match self {
            Workload::Root => ".",
            _ => "bench.test",
        }
    }

    /// Writes the zone and the queries into `folder`, a `scale`-th of the names, unless they lie there already.
    ///
    /// # Errors
    /// The folder cannot be written to, or a program that signs is missing.
    pub(crate) fn prepare(self, folder: &Path, scale: usize) -> anyhow::Result<Input> {
        let folder = folder.join(self.name());
        let zone_name = if self.origin() == "." { "root" } else { self.origin() };
        let input = Input {
            origin: self.origin(),
            zone: folder.join(format!("zones/{zone_name}.zone")),
            queries: folder.join("queries"),
        };
        // The queries are written last: where they are, all is.
        if input.queries.exists() {
            return Ok(input);
        }
        fs::create_dir_all(folder.join("zones")).with_context(|| folder.display().to_string())?;
        let (zone, queries) = self.generate(scale.max(1))?;
        fs::write(&input.zone, zone)?;
        match self {
            Workload::SignedHit => sign::sign(&input.zone, self.origin(), sign::Denial::Nsec)?,
            Workload::SignedNxdomain | Workload::SignedPopular => {
                sign::sign(&input.zone, self.origin(), sign::Denial::Nsec3)?;
            }
            _ => {}
        }
        fs::write(&input.queries, queries)?;
        Ok(input)
    }

    fn generate(self, scale: usize) -> anyhow::Result<(String, String)> {
        let mut random = Random::new(SEED);
        Ok(match self {
            Workload::Flat => zones::flat(100_000 / scale, &mut random),
            Workload::Nxdomain => zones::nxdomain(100_000 / scale, &mut random),
            Workload::Delegations => zones::delegations(300_000 / scale, &mut random),
            Workload::Root => root::root(&mut random)?,
            Workload::SignedHit => zones::flat(20_000 / scale, &mut random),
            Workload::SignedNxdomain => zones::nxdomain(20_000 / scale, &mut random),
            Workload::SignedPopular => zones::popular(20_000 / scale, &mut random),
            Workload::Mixed => zones::mixed(100_000 / scale, &mut random),
            Workload::Large => zones::large(2_000, &mut random),
        })
    }
}

/// Files of a workload.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    /// Name of the zone.
    pub(crate) origin: &'static str,
    /// Its master file, alone in its folder.
    pub(crate) zone: PathBuf,
    /// Lines `NAME TYPE`.
    pub(crate) queries: PathBuf,
}

impl Input {
    /// The folder of the zone.
    pub(crate) fn zones(&self) -> &Path {
        self.zone.parent().unwrap_or(&self.zone)
    }

    /// The first question, by which a server shows that it answers.
    pub(crate) fn first_question(&self) -> anyhow::Result<(String, String)> {
        let text = fs::read_to_string(&self.queries)?;
        let line = text.lines().next().context("no queries")?;
        let (name, kind) = line.split_once(' ').context("a query without a type")?;
        Ok((name.to_owned(), kind.to_owned()))
    }
}

/// How queries travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// From 64 ports, 32 queries on their way from each: forwarders and load tools.
    Udp64,
    /// From 1,000 ports, 2 queries on their way from each: many clients.
    Udp1000,
    /// 100 connections, 10 queries on their way on each.
    Tcp,
    /// A connection a query, 64 at a time.
    TcpConn,
}

impl Transport {
    pub(crate) const ALL: [Transport; 4] =
        [Transport::Udp64, Transport::Udp1000, Transport::Tcp, Transport::TcpConn];

    /// Its name in commands and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Udp64 => "udp64",
            Transport::Udp1000 => "udp1000",
            Transport::Tcp => "tcp",
            Transport::TcpConn => "tcp-conn",
        }
    }

    /// One line for the reader of a table.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Transport::Udp64 => {
                "UDP from 64 ports, 2,048 queries on their way, up to 16 in a row from a port"
            }
            Transport::Udp1000 => "UDP from 1,000 ports in turn, 2,000 queries on their way",
            Transport::Tcp => "TCP, 100 connections, 1,000 queries on their way",
            Transport::TcpConn => "TCP, a connection a query, 64 at a time from 16 addresses",
        }
    }

    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Transport::Udp64 | Transport::Udp1000)
    }
}

/// A workload over a transport: a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) transport: Transport,
}

impl Case {
    /// Those of a full run: every workload from 64 ports and from 1,000, and one over TCP in both ways.
    pub(crate) fn usual() -> Vec<Case> {
        let over = |transport| Workload::ALL.map(|workload| Case { workload, transport });
        let tcp = [Transport::Tcp, Transport::TcpConn];
        let tcp = tcp.map(|transport| Case { workload: Workload::Flat, transport });
        [&over(Transport::Udp64)[..], &over(Transport::Udp1000), &tcp].concat()
    }

    /// Those of a quick run.
    pub(crate) fn quick() -> Vec<Case> {
        let cases = [
            (Workload::Flat, Transport::Udp64),
            (Workload::Mixed, Transport::Udp1000),
            (Workload::SignedNxdomain, Transport::Udp64),
            (Workload::Flat, Transport::Tcp),
            (Workload::Flat, Transport::TcpConn),
        ];
        cases.map(|(workload, transport)| Case { workload, transport }).into()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workload.name(), self.transport.name())
    }
}

impl FromStr for Case {
    type Err = String;

    /// `WORKLOAD`, which is over UDP from 64 ports, or `WORKLOAD/TRANSPORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (workload, transport) = text.split_once('/').unwrap_or((text, Transport::Udp64.name()));
        let workload = Workload::ALL.into_iter().find(|w| w.name() == workload).ok_or_else(|| {
            format!("no workload `{workload}`; there are: {}", Workload::ALL.map(Workload::name).join(", "))
        })?;
        let transport = Transport::ALL.into_iter().find(|t| t.name() == transport).ok_or_else(|| {
            format!(
                "no transport `{transport}`; there are: {}",
                Transport::ALL.map(Transport::name).join(", ")
            )
        })?;
        Ok(Case { workload, transport })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        for case in Case::usual() {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        assert_eq!("flat".parse::<Case>().unwrap().to_string(), "flat/udp64");
        assert!("flat/quic".parse::<Case>().unwrap_err().contains("tcp-conn"));
    }

    #[test]
    fn the_same_octets_come_out_twice() {
        for workload in [Workload::Flat, Workload::Mixed, Workload::Root, Workload::Large] {
            assert_eq!(workload.generate(100).unwrap(), workload.generate(100).unwrap());
        }
    }
}
