//! What the operator decides, and what a query comes with beside its octets.

use crate::cookie::CookieKeys;
use std::net::IpAddr;
use weir_wire::query::Query;

/// How a query came and how its answer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One datagram each way.
    Udp,
    /// A stream of messages behind their lengths (RFC 1035 section 4.2.2).
    Tcp,
}

/// Settings that change answers.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Most octets of an answer over UDP and IPv4, whatever a requestor says that it takes; also what answers tell
    /// requestors. 1,232 octets cross every usual path without fragments (RFC 9715 section 3.2).
    pub udp_payload_v4: u16,
    /// The same for IPv6.
    pub udp_payload_v6: u16,
    /// Whether an ANY query over UDP gets one RRset only (RFC 8482 section 4.1). Over TCP it gets all.
    pub minimal_any: bool,
    /// Whether positive answers go without the zone's NS records in their authority section.
    pub minimal_responses: bool,
    /// Whether the records of an RRset start with another one in each answer.
    pub rotate: bool,
    /// Whether a chain of aliases goes on in other zones of the set.
    pub follow_across_zones: bool,
    /// What a query for the server's identity gets (RFC 5001); nothing when unset.
    pub nsid: Option<Box<[u8]>>,
    /// What `version.bind` and `version.server` get; REFUSED when unset.
    pub version: Option<Box<str>>,
    /// What `hostname.bind` and `id.server` get (RFC 4892); REFUSED when unset.
    pub hostname: Option<Box<str>>,
    /// DNS cookies (RFC 7873); clients' cookies are ignored when unset.
    pub cookies: Option<CookieKeys>,
    /// How long an idle TCP connection is kept, in units of 100 ms, as told to clients that ask (RFC 7828).
    pub tcp_keepalive: u16,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            udp_payload_v4: 1232,
            udp_payload_v6: 1232,
            minimal_any: true,
            minimal_responses: true,
            rotate: false,
            follow_across_zones: false,
            nsid: None,
            version: None,
            hostname: None,
            cookies: None,
            tcp_keepalive: 100,
        }
    }
}

/// Everything that an answer depends on beside the query's octets and the zones.
#[derive(Clone, Copy, Debug)]
pub struct Context<'c> {
    /// How the query came.
    pub transport: Transport,
    /// The operator's settings.
    pub policy: &'c Policy,
    /// Where the query came from.
    pub client: IpAddr,
    /// Seconds since 1970, modulo 2^32.
    pub now: u32,
}

impl Context<'_> {
    /// Octets of UDP payload that this server takes and gives, by the client's address family.
    pub(crate) fn udp_payload(&self) -> u16 {
        match self.client {
            IpAddr::V4(_) => self.policy.udp_payload_v4,
            IpAddr::V6(_) => self.policy.udp_payload_v6,
        }
    }

    /// Most octets that the answer to `query` may have (RFC 6891 section 6.2.3, RFC 1035 section 4.2.1).
    #[inline]
    pub(crate) fn limit(&self, query: &Query<'_>) -> usize {
        let smallest = weir_wire::edns::MIN_UDP_PAYLOAD;
        match (self.transport, query.edns) {
            (Transport::Tcp, _) => usize::from(u16::MAX),
            (Transport::Udp, None) => usize::from(smallest),
            (Transport::Udp, Some(edns)) => {
                usize::from(edns.udp_payload.min(self.udp_payload()).max(smallest))
            }
        }
    }
}
