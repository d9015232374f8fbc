//! A granted HTTP place: from the operator's words to a connection.

use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};

use super::destination::{Destination, Prefix};
use crate::grants::place::HttpGrant;
use crate::net::address::{self, Host};
use crate::net::dial::{self, Target};
use crate::net::resolve::{Resolve, SystemResolver};
use crate::net::tls::{self, Client};
use crate::net::{Deadline, NetError};

/// Bytes both ways.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The version of HTTP that both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// One granted service, of one sink. Its instances share it, and none of its connections.
pub(crate) struct HttpPlace {
    /// The plugin's and the operator's name for it.
    pub(crate) name: String,
    pub(crate) grant: HttpGrant,
    pub(crate) target: Target,
    prefix: Prefix,
    authority: String,
    client: Client,
}

impl HttpPlace {
    /// Reads host and path, and the files that TLS needs.
    pub(crate) fn new(
        name: &str,
        grant: &HttpGrant,
        tenant: &str,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, NetError> {
        let (host, prefix) = checked(grant)?;
        let default_port = if grant.secure { 443 } else { 80 };
        let authority = if grant.port == default_port { host.to_string() } else { format!("{host}:{}", grant.port) };
        let target = Target { host, port: grant.port, allow: grant.allow.clone(), tenant: tenant.to_owned(), resolver };
        let protocols: &[&[u8]] = if grant.http2_only { &[b"h2"] } else { &[b"h2", b"http/1.1"] };
        let client = Client::new(grant.trust.clone(), protocols);
        let place = Self { name: name.to_owned(), grant: grant.clone(), target, prefix, authority, client };
        if grant.secure {
            place.client.config()?;
            place.server_name()?;
        }
        Ok(place)
    }

    /// Whether a request may go there.
    pub(crate) fn takes(&self, to: &Destination) -> bool {
        self.grant.secure == to.secure
            && self.target.host == to.host
            && self.target.port == to.port
            && self.prefix.covers(&to.path)
    }

    /// Of two places that take a request, the narrower one is meant.
    pub(crate) fn narrowness(&self) -> usize {
        self.prefix.len()
    }

    /// Host and, where it is not the scheme's own, port: what every request to it names, however the plugin wrote it.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    fn server_name(&self) -> Result<ServerName<'static>, NetError> {
        self.client.server_name(&self.target.host)
    }

    /// Lookup, connection and TLS, all within one deadline.
    pub(crate) async fn connect(&self, deadline: Deadline) -> Result<(Box<dyn Duplex>, Version), NetError> {
        let stream = dial::connect(&self.target, deadline).await?;
        if !self.grant.secure {
            let version = if self.grant.http2_only { Version::Http2 } else { Version::Http1 };
            return Ok((Box::new(stream), version));
        }
        let config = self.client.config()?;
        let stream = tls::handshake(&self.target, stream, config, self.server_name()?, deadline).await?;
        let version = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Version::Http2,
            _ if self.grant.http2_only => {
                let detail = "it does not speak HTTP/2, and the grant wants nothing else".to_owned();
                return Err(NetError::Tls { place: self.target.to_string(), detail });
            }
            _ => Version::Http1,
        };
        Ok((Box::new(stream), version))
    }
}

impl HttpGrant {
    /// Whether it could be used: host and path are some, the address, where it is written as one, may be dialled, and the
    /// files for TLS can be read. Nothing is looked up, and no secret is read.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn check(&self) -> Result<(), String> {
        HttpPlace::new("", self, "", SystemResolver::shared()).map(drop).map_err(|error| error.to_string())
    }

    /// Whether host and path are some and the host, where it is written as an address, may be dialled.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn check_place(&self) -> Result<(), String> {
        checked(self).map(drop).map_err(|error| error.to_string())
    }
}

/// The canonical host and the path. A host in a special range is refused here where it is written as an address.
fn checked(grant: &HttpGrant) -> Result<(Host, Prefix), NetError> {
    let host = Host::parse(&grant.host)?;
    if let Host::Address(address) = host {
        address::check(address, &grant.allow).map_err(|range| NetError::Prohibited {
            host: grant.host.clone(),
            address,
            range,
        })?;
    }
    let prefix = Prefix::parse(&grant.path)
        .map_err(|detail| NetError::BadPath { path: grant.path.clone(), detail: detail.to_owned() })?;
    Ok((host, prefix))
}
