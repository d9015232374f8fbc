//! Reaching granted places: the one way from a name to a connection, for TCP and HTTP alike.
//!
//! ```text
//! Host::parse ──▶ Resolve (once) ──▶ address::check (every answer) ──▶ dial::connect ──▶ tls::handshake
//! canonical form                      refuses special ranges            checked address    name, trust
//! ```
//! One [`Deadline`] spans all of it. A connection is reset when it is dropped, until [`dial::end_well`] says otherwise:
//! whoever is killed in mid-stream must not look like somebody who finished.

pub(crate) mod address;
pub(crate) mod dial;
pub(crate) mod http;
pub(crate) mod link;
pub(crate) mod place;
pub(crate) mod resolve;
pub(crate) mod tls;
pub(crate) mod traffic;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Why a place was not reached.
#[derive(Debug)]
pub(crate) enum NetError {
    /// The granted host is no host.
    BadHost {
        /// As it was written.
        host: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The granted path is no path.
    BadPath {
        /// As it was written.
        path: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Roots, client certificate, key or server name cannot be used.
    Trust {
        /// Which file or name, what is wrong with it and how to mend it.
        detail: String,
    },
    /// They could be used before, and cannot now.
    TrustLost {
        /// As above.
        detail: String,
    },
    /// The name leads to an address that may not be dialled.
    Prohibited {
        /// Whose address it is.
        host: String,
        /// The first one that is refused.
        address: IpAddr,
        /// Which special range it is in.
        range: &'static str,
    },
    /// The server's certificate is not trusted.
    Certificate {
        /// Which server.
        place: String,
        /// Why.
        detail: String,
    },
    /// The server does not take the client's certificate, or wants one.
    ClientRefused {
        /// Which server.
        place: String,
        /// What it said.
        detail: String,
    },
    /// The name has no address now.
    Lookup {
        /// The name.
        host: String,
        /// What the resolver says.
        detail: String,
    },
    /// Too many lookups wait already.
    ResolverBusy {
        /// The name.
        host: String,
    },
    /// No address took the connection.
    Connect {
        /// Which server.
        place: String,
        /// What the last address said.
        detail: String,
    },
    /// TLS did not come about.
    Tls {
        /// Which server.
        place: String,
        /// Why.
        detail: String,
    },
    /// The time for lookup, connection and TLS together is over.
    TimedOut {
        /// Which server.
        place: String,
        /// What was being done.
        step: &'static str,
        /// How long all steps together may take.
        allowed: Duration,
    },
}

/// What to do about a [`NetError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing, until a person has changed a grant or the server.
    Deny,
    /// Try later.
    Retry,
    /// Mend the configuration.
    Configure,
}

impl NetError {
    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            NetError::BadHost { .. } | NetError::BadPath { .. } | NetError::Trust { .. } => Remedy::Configure,
            NetError::Prohibited { .. } | NetError::Certificate { .. } | NetError::ClientRefused { .. } => Remedy::Deny,
            NetError::TrustLost { .. }
            | NetError::Lookup { .. }
            | NetError::ResolverBusy { .. }
            | NetError::Connect { .. }
            | NetError::Tls { .. }
            | NetError::TimedOut { .. } => Remedy::Retry,
        }
    }

    /// A word for dashboards.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            NetError::BadHost { .. } => "bad-host",
            NetError::BadPath { .. } => "bad-path",
            NetError::Trust { .. } | NetError::TrustLost { .. } => "bad-trust",
            NetError::Prohibited { .. } => "destination-prohibited",
            NetError::Certificate { .. } => "certificate-refused",
            NetError::ClientRefused { .. } => "client-refused",
            NetError::Lookup { .. } => "name-not-resolved",
            NetError::ResolverBusy { .. } => "resolver-busy",
            NetError::Connect { .. } => "connect-failed",
            NetError::Tls { .. } => "tls-failed",
            NetError::TimedOut { .. } => "connect-timed-out",
        }
    }

    /// What a plugin is told: neither files nor addresses of the host's network.
    pub(crate) fn for_plugin(&self) -> String {
        match self {
            NetError::Trust { .. } | NetError::TrustLost { .. } => {
                "roots, client certificate or server name of this grant cannot be used; the host's log says why"
                    .to_owned()
            }
            NetError::Prohibited { host, range, .. } => {
                format!("{host} leads to {range}, which its grant does not allow; the host's log says more")
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetError::BadHost { host, detail } => write!(f, "`{host}` is not a host: {detail}"),
            NetError::BadPath { path, detail } => write!(f, "`{path}` is not a path: {detail}"),
            NetError::Trust { detail } | NetError::TrustLost { detail } => f.write_str(detail),
            NetError::Prohibited { host, address, range } => write!(
                f,
                "{host} leads to {address}, {range}; if that is meant, add it or its range to the grant's `allow`"
            ),
            NetError::Certificate { place, detail } => {
                write!(f, "{place} shows a certificate that is not trusted: {detail}")
            }
            NetError::ClientRefused { place, detail } => {
                write!(f, "{place} does not accept this client's certificate, or the lack of one: {detail}")
            }
            NetError::Lookup { host, detail } => write!(f, "the name {host} has no address now: {detail}"),
            NetError::ResolverBusy { host } => write!(f, "too many lookups wait already; {host} was not looked up"),
            NetError::Connect { place, detail } => write!(f, "{place} cannot be reached: {detail}"),
            NetError::Tls { place, detail } => write!(f, "{place} does not come to speak TLS: {detail}"),
            NetError::TimedOut { place, step, allowed } => {
                write!(
                    f,
                    "{place}: {step} did not end in time; all steps of connecting together have {allowed:?} (`connect-time`)"
                )
            }
        }
    }
}

impl std::error::Error for NetError {}

/// When lookup, connection and TLS must be over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    allowed: Duration,
}

impl Deadline {
    /// From now on.
    pub(crate) fn after(allowed: Duration) -> Self {
        // A duration that overflows the clock is as good as a year.
        let far = Duration::from_secs(365 * 86_400);
        Self { at: Instant::now() + allowed.min(far), allowed }
    }

    /// Does one step of reaching `place`.
    pub(crate) async fn within<R>(
        self,
        place: &impl fmt::Display,
        step: &'static str,
        work: impl Future<Output = Result<R, NetError>>,
    ) -> Result<R, NetError> {
        match tokio::time::timeout_at(self.at, work).await {
            Ok(answer) => answer,
            Err(_) => Err(NetError::TimedOut { place: place.to_string(), step, allowed: self.allowed }),
        }
    }
}
