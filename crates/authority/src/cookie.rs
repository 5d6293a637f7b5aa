//! DNS cookies (RFC 7873) in the form that all servers of one name can check (RFC 9018).

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::net::IpAddr;

/// Octets of a client cookie (RFC 7873 section 4.1).
const CLIENT_LEN: usize = 8;
/// Octets of a server cookie of version 1 (RFC 9018 section 4).
const SERVER_LEN: usize = 16;
/// Octets of both together, as an answer carries them.
pub(crate) const COOKIE_LEN: usize = CLIENT_LEN + SERVER_LEN;
/// Server cookies have 8 to 32 octets (RFC 7873 section 4.2).
const SERVER_LENS: std::ops::RangeInclusive<usize> = 8..=32;
/// The version of the server cookies made here, and three reserved octets: zero in what is made, anything in what is
/// checked (RFC 9018 section 4.2).
const VERSION: [u8; 4] = [1, 0, 0, 0];
/// A server cookie is good for an hour, and up to five minutes before its time for clocks that differ
/// (RFC 9018 section 4.3).
const MAX_AGE_S: u32 = 3600;
const MAX_AHEAD_S: u32 = 300;

/// A secret that servers of one name share.
pub type CookieSecret = [u8; 16];

/// The secrets that cookies are made and checked with.
#[derive(Clone)]
pub struct CookieKeys {
    /// New cookies are made with this one.
    pub current: CookieSecret,
    /// Cookies made with this one are still good: the one before, while secrets are exchanged
    /// (RFC 9018 section 5).
    pub previous: Option<CookieSecret>,
    /// Whether UDP queries that carry a client cookie without a good server cookie are sent back for one
    /// (BADCOOKIE, RFC 7873 section 5.2.3).
    pub required: bool,
}

/// Secrets are not for logs.
impl std::fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CookieKeys").field("required", &self.required).finish_non_exhaustive()
    }
}

/// The COOKIE option of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    client: [u8; CLIENT_LEN],
    /// The server cookie, when it has the length of those made here; others are never good.
    server: Option<[u8; SERVER_LEN]>,
}

impl Cookie {
    /// Reads the option; `None` for a length that no cookie has, which is a format error (RFC 7873 section 5.2.2).
    pub(crate) fn parse(data: &[u8]) -> Option<Cookie> {
        let (client, server) = data.split_first_chunk::<CLIENT_LEN>()?;
        let is_possible = server.is_empty() || SERVER_LENS.contains(&server.len());
        is_possible.then(|| Cookie { client: *client, server: server.try_into().ok() })
    }

    /// Whether the server cookie was made here, or by a server that shares a secret, for this client and not too
    /// long ago.
    pub(crate) fn is_good(&self, keys: &CookieKeys, client: IpAddr, now: u32) -> bool {
        let Some(server) = self.server else { return false };
        let [version, r2, r1, r0, t3, t2, t1, t0, ..] = server;
        let made_at = u32::from_be_bytes([t3, t2, t1, t0]);
        // Serial number arithmetic, so that 2106 is a year like any other (RFC 9018 section 4.3).
        let age = now.wrapping_sub(made_at);
        let is_of_age = age <= MAX_AGE_S || age.wrapping_neg() <= MAX_AHEAD_S;
        let secrets = [Some(keys.current), keys.previous];
        let head = [version, r2, r1, r0];
        let is_ours =
            |secret: &CookieSecret| same_octets(&self.server_cookie(secret, head, client, made_at), &server);
        version == VERSION[0] && is_of_age && secrets.iter().flatten().any(is_ours)
    }

    /// Both cookies as the answer carries them.
    pub(crate) fn answer(&self, keys: &CookieKeys, client: IpAddr, now: u32) -> [u8; COOKIE_LEN] {
        let mut both = [0; COOKIE_LEN];
        let server = self.server_cookie(&keys.current, VERSION, client, now);
        both.iter_mut().zip(self.client.iter().chain(&server)).for_each(|(to, from)| *to = *from);
        both
    }

    /// RFC 9018 section 4: SipHash-2-4 of client cookie, version, time and address.
    fn server_cookie(
        &self,
        secret: &CookieSecret,
        head: [u8; 4],
        client: IpAddr,
        made_at: u32,
    ) -> [u8; SERVER_LEN] {
        let mut hasher = SipHasher24::new_with_key(secret);
        let made_at = made_at.to_be_bytes();
        hasher.write(&self.client);
        hasher.write(&head);
        hasher.write(&made_at);
        match client {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        let hash = hasher.finish().to_le_bytes();
        let mut cookie = [0; SERVER_LEN];
        cookie.iter_mut().zip(head.iter().chain(&made_at).chain(&hash)).for_each(|(to, from)| *to = *from);
        cookie
    }
}

/// Compares in a time that does not tell how much was right.
fn same_octets(a: &[u8; SERVER_LEN], b: &[u8; SERVER_LEN]) -> bool {
    a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets<const N: usize>(hex: &str) -> [u8; N] {
        let mut octets = [0; N];
        for (at, octet) in octets.iter_mut().enumerate() {
            *octet = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        }
        octets
    }

    fn keys(secret: &str) -> CookieKeys {
        CookieKeys { current: octets(secret), previous: None, required: false }
    }

    #[test]
    fn cookies_are_those_of_rfc_9018_appendix_a() {
        let keys = keys("e5e973e5a6b2a43f48e7dc849e37bfcf");
        // A.1: a new server cookie.
        let cookie = Cookie { client: octets("2464c4abcf10c957"), server: None };
        let both = cookie.answer(&keys, "198.51.100.100".parse().unwrap(), 1_559_731_985);
        assert_eq!(both[8..], octets::<16>("010000005cf79f111f8130c3eee29480"));
        // A.3: the reserved octets of a cookie that is checked may be anything.
        let server = Some(octets("01abcdef5cf78f71a314227b6679ebf5"));
        let cookie = Cookie { client: octets("fc93fc62807ddb86"), server };
        assert!(cookie.is_good(&keys, "203.0.113.203".parse().unwrap(), 0x5cf7_8f71));
    }

    #[test]
    fn a_cookie_is_good_for_its_client_its_secret_and_its_hour() {
        let old = keys("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let both_keys =
            CookieKeys { previous: Some(old.current), ..keys("445536bcd2513298075a5d379663c962") };
        let (client, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let now = u32::MAX - 100;
        let answered = Cookie { client: [7; 8], server: None }.answer(&old, client, now);
        let cookie = Cookie::parse(&answered).unwrap();
        assert!(cookie.is_good(&old, client, now));
        assert!(cookie.is_good(&both_keys, client, now), "made with the secret before");
        assert!(!cookie.is_good(&old, other, now));
        assert!(!cookie.is_good(&keys("445536bcd2513298075a5d379663c962"), client, now));
        assert!(cookie.is_good(&old, client, now.wrapping_add(3600)), "across the end of the clock");
        assert!(!cookie.is_good(&old, client, now.wrapping_add(3601)));
        assert!(cookie.is_good(&old, client, now - 300));
        assert!(!cookie.is_good(&old, client, now - 301));
    }

    #[test]
    fn lengths_that_no_cookie_has_are_refused() {
        for len in 0..=45 {
            let is_possible = len == 8 || (16..=40).contains(&len);
            assert_eq!(Cookie::parse(&vec![1; len]).is_some(), is_possible, "{len} octets");
        }
    }
}
