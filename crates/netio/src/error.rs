//! What can go wrong while sockets are opened.

use std::io;
use std::net::SocketAddr;

/// The transport of a listener, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Streams.
    Tcp,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

/// Why a listener could not be opened.
///
/// The first four are the operator's to mend (another server, a wrong address, missing rights); [`NetError::Call`] is
/// what is left: the kernel refused a call that Weir cannot do without.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Somebody else holds the port (`EADDRINUSE`).
    #[error("{transport} {address} is in use by another process")]
    AddressInUse {
        /// What was to be opened.
        address: SocketAddr,
        /// The transport on which it is taken.
        transport: Transport,
    },
    /// The host has no IPv6, or it is switched off (`EAFNOSUPPORT`, or `EADDRNOTAVAIL` for a wildcard address).
    #[error("{address}: this host has no IPv6")]
    Ipv6Unavailable {
        /// What was to be opened.
        address: SocketAddr,
    },
    /// No interface has the address (`EADDRNOTAVAIL`).
    #[error("{address}: no interface of this host has this address")]
    AddressUnavailable {
        /// What was to be opened.
        address: SocketAddr,
    },
    /// The process may not open this port (`EACCES`): below `net.ipv4.ip_unprivileged_port_start` and no
    /// `CAP_NET_BIND_SERVICE`.
    #[error("{address}: no right to open this port")]
    PermissionDenied {
        /// What was to be opened.
        address: SocketAddr,
    },
    /// A call failed that cannot be done without.
    #[error("{call}{}: {source}", .address.map(|a| format!(" for {a}")).unwrap_or_default())]
    Call {
        /// The system call or socket option.
        call: &'static str,
        /// The listener that it was made for, if any.
        address: Option<SocketAddr>,
        /// What the kernel said.
        source: io::Error,
    },
}

impl NetError {
    /// Returns a closure for `map_err` that names the call and the address.
    pub(crate) fn call(call: &'static str, address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Call { call, address: Some(address), source }
    }

    /// Sorts an error of `socket`, `bind` or `listen` by whose fault it is.
    pub(crate) fn opening(
        call: &'static str,
        address: SocketAddr,
        transport: Transport,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::AddressInUse { address, transport },
            Some(libc::EACCES) => Self::PermissionDenied { address },
            Some(libc::EAFNOSUPPORT) if address.is_ipv6() => Self::Ipv6Unavailable { address },
            Some(libc::EADDRNOTAVAIL) if address.is_ipv6() && address.ip().is_unspecified() => {
                Self::Ipv6Unavailable { address }
            }
            Some(libc::EADDRNOTAVAIL) => Self::AddressUnavailable { address },
            _ => Self::Call { call, address: Some(address), source },
        }
    }
}

/// An option that the kernel refused and that Weir does without; the caller logs it once.
#[derive(Debug)]
pub struct Degraded {
    /// The socket option, as `socket(7)`, `ip(7)` or `ipv6(7)` name it.
    pub option: &'static str,
    /// What the kernel said, or what it gave instead.
    pub reason: String,
}
