//! EDNS options: what a query asks for and what its answer carries.

use crate::cookie::{COOKIE_LEN, Cookie};
use crate::policy::{Context, Transport};
use weir_wire::edns::Edns;
use weir_wire::query::Query;
use weir_wire::rtype::Rtype;
use weir_zone::Zone;

/// Option codes (IANA's registry of DNS EDNS0 option codes).
mod code {
    pub(super) const NSID: u16 = 3;
    pub(super) const EXPIRE: u16 = 9;
    pub(super) const COOKIE: u16 = 10;
    pub(super) const TCP_KEEPALIVE: u16 = 11;
    pub(super) const EXTENDED_ERROR: u16 = 15;
    pub(super) const ZONEVERSION: u16 = 19;
}

/// Why an answer is not what was hoped for (RFC 8914 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedError {
    /// The zone is not loaded yet.
    NotReady = 14,
    /// The client is not allowed this.
    Prohibited = 18,
    /// The server does not hold a zone of the name.
    NotAuthoritative = 20,
    /// The operation or the type is not supported.
    NotSupported = 21,
    /// The zone's data are unusable.
    InvalidData = 24,
    /// The type is not one to ask for (RFC 9824 section 3.5).
    InvalidQueryType = 30,
}

/// The options of a query that this server knows; others are ignored (RFC 6891 section 6.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) cookie: Option<Cookie>,
    nsid: bool,
    expire: bool,
    keepalive: bool,
    zone_version: bool,
}

impl Wanted {
    /// Reads a query's options in place of those known; false is a format error, and none are known then.
    #[inline]
    pub(crate) fn read(&mut self, query: &Query<'_>, context: &Context<'_>) -> bool {
        *self = Wanted::default();
        match query.edns {
            Some(edns) if !edns.options.is_empty() => {
                let wanted = Wanted::of(edns, context);
                *self = wanted.unwrap_or_default();
                wanted.is_some()
            }
            _ => true,
        }
    }

    fn of(edns: Edns<'_>, context: &Context<'_>) -> Option<Wanted> {
        let mut wanted = Wanted::default();
        for (code, data) in edns.options {
            match code {
                code::NSID => wanted.nsid = true,
                code::EXPIRE => wanted.expire = true,
                // RFC 7873 section 5.2.2: a wrong length is a format error. Of several cookies the first counts.
                code::COOKIE if context.policy.cookies.is_some() => {
                    let cookie = Cookie::parse(data)?;
                    wanted.cookie = wanted.cookie.or(Some(cookie));
                }
                // RFC 7828 sections 3.2.1 and 3.3.1: clients send no time; over UDP the option means nothing.
                code::TCP_KEEPALIVE if context.transport == Transport::Tcp => {
                    if !data.is_empty() {
                        return None;
                    }
                    wanted.keepalive = true;
                }
                // RFC 9660 section 3.2: what a query carries in it is ignored.
                code::ZONEVERSION => wanted.zone_version = true,
                _ => {}
            }
        }
        Some(wanted)
    }

    /// Whether the answer must be BADCOOKIE: cookies are required, and the client that speaks of them has no good
    /// one yet (RFC 7873 section 5.2.3).
    pub(crate) fn needs_cookie(&self, context: &Context<'_>) -> bool {
        match (&context.policy.cookies, self.cookie) {
            (Some(keys), Some(cookie)) => {
                keys.required
                    && context.transport == Transport::Udp
                    && !cookie.is_good(keys, context.client, context.now)
            }
            _ => false,
        }
    }
}

/// What an answer's options depend on beside the query.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'z> {
    pub(crate) error: Option<ExtendedError>,
    /// The zone that the answer is from.
    pub(crate) zone: Option<&'z Zone>,
    /// Whether it is a referral out of that zone.
    pub(crate) is_referral: bool,
}

/// Most octets of options: an identity of 128 octets, which configuration keeps to, and one of each other option.
const MAX_OPTIONS_LEN: usize = 256;

/// Memory for an answer's options.
#[derive(Debug)]
pub(crate) struct OptionBuf {
    octets: [u8; MAX_OPTIONS_LEN],
    len: usize,
}

impl OptionBuf {
    pub(crate) fn new() -> OptionBuf {
        OptionBuf { octets: [0; MAX_OPTIONS_LEN], len: 0 }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or(&[])
    }

    /// Writes the options of the answer to `query`, which has an OPT record.
    #[inline]
    pub(crate) fn write(
        &mut self,
        query: &Query<'_>,
        wanted: &Wanted,
        context: &Context<'_>,
        about: About<'_>,
    ) {
        self.len = 0;
        if let Some(error) = about.error {
            self.push(code::EXTENDED_ERROR, &[&(error as u16).to_be_bytes()]);
        }
        if query.edns.is_some_and(|edns| !edns.options.is_empty()) {
            self.write_wanted(query, wanted, context, about);
        }
    }

    /// Writes the one option of an answer to a query for a cookie alone; `None` when that is not what it is.
    pub(crate) fn write_cookie(&mut self, edns: Edns<'_>, context: &Context<'_>) -> Option<&[u8]> {
        let keys = context.policy.cookies.as_ref()?;
        let (_, data) = edns.options.into_iter().find(|(code, _)| *code == code::COOKIE)?;
        let both = Cookie::parse(data)?.answer(keys, context.client, context.now);
        self.len = 0;
        self.push(code::COOKIE, &[&both]);
        Some(self.octets())
    }

    fn write_wanted(&mut self, query: &Query<'_>, wanted: &Wanted, context: &Context<'_>, about: About<'_>) {
        let policy = context.policy;
        if let (Some(cookie), Some(keys)) = (wanted.cookie, &policy.cookies) {
            let both: [u8; COOKIE_LEN] = cookie.answer(keys, context.client, context.now);
            self.push(code::COOKIE, &[&both]);
        }
        if let (true, Some(nsid)) = (wanted.nsid, &policy.nsid) {
            self.push(code::NSID, &[nsid]);
        }
        if wanted.keepalive {
            self.push(code::TCP_KEEPALIVE, &[&policy.tcp_keepalive.to_be_bytes()]);
        }
        let Some(zone) = about.zone else { return };
        // RFC 7314 section 3.2: asked for beside the SOA; a primary tells what the zone says.
        if wanted.expire && matches!(query.qtype, Rtype::SOA | Rtype::AXFR | Rtype::IXFR) {
            self.push(code::EXPIRE, &[&zone.expire().to_be_bytes()]);
        }
        // RFC 9660 section 3: number of the zone's labels, type 0 for the SOA serial, the serial.
        if wanted.zone_version && !about.is_referral {
            let n_labels = u8::try_from(zone.origin().name().n_labels()).unwrap_or(0);
            self.push(code::ZONEVERSION, &[&[n_labels, 0], &zone.serial().to_be_bytes()]);
        }
    }

    /// Adds an option, or leaves it out when there is no room.
    fn push(&mut self, code: u16, data: &[&[u8]]) {
        let data_len: usize = data.iter().map(|part| part.len()).sum();
        let (Ok(len), true) = (u16::try_from(data_len), self.len + 4 + data_len <= MAX_OPTIONS_LEN) else {
            return;
        };
        for part in [&code.to_be_bytes()[..], &len.to_be_bytes()].into_iter().chain(data.iter().copied()) {
            if let Some(space) = self.octets.get_mut(self.len..self.len + part.len()) {
                space.copy_from_slice(part);
                self.len += part.len();
            }
        }
    }
}
