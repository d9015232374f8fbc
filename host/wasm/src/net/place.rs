//! A granted TCP place: from the operator's words to a connection.

use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::address::{self, Host};
use super::dial::{self, Target};
use super::link::Io;
use super::resolve::Resolve;
use super::tls::{self, Client};
use super::{Deadline, NetError};
use crate::grants::place::{TcpGrant, TlsStart};

/// One granted host and port, of one sink. Its instances share it.
pub(crate) struct TcpPlace {
    pub(crate) target: Target,
    pub(crate) tls: TlsStart,
    client: Client,
    grant: TcpGrant,
}

impl TcpPlace {
    /// Reads the host, and the files that TLS needs.
    pub(crate) fn new(grant: &TcpGrant, tenant: &str, resolver: Arc<dyn Resolve>) -> Result<Self, NetError> {
        let host = checked_host(grant)?;
        let target = Target { host, port: grant.port, allow: grant.allow.clone(), tenant: tenant.to_owned(), resolver };
        let client = Client::new(grant.trust.clone(), &[]);
        let place = Self { target, tls: grant.tls, client, grant: grant.clone() };
        if place.tls != TlsStart::Off {
            place.client.config()?;
            place.server_name()?;
        }
        Ok(place)
    }

    fn server_name(&self) -> Result<ServerName<'static>, NetError> {
        self.client.server_name(&self.target.host)
    }

    /// For one connection.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.grant.connect_time)
    }

    /// Lookup, connection and, where it begins at once, TLS; all within one deadline.
    pub(crate) async fn connect(&self) -> Result<Io, NetError> {
        let deadline = self.deadline();
        let stream = dial::connect(&self.target, deadline).await?;
        match self.tls {
            TlsStart::AtOnce => Ok(Io::Tls(Box::new(self.secure(stream, deadline).await?))),
            TlsStart::Off | TlsStart::WhenAsked => Ok(Io::Plain(stream)),
        }
    }

    /// Begins TLS.
    pub(crate) async fn secure(&self, stream: TcpStream, deadline: Deadline) -> Result<TlsStream<TcpStream>, NetError> {
        let config = self.client.config()?;
        tls::handshake(&self.target, stream, config, self.server_name()?, deadline).await
    }
}

impl TcpGrant {
    /// Whether it could be used: [`TcpGrant::check_host`] has nothing to say, and the files for TLS can be read. Nothing is
    /// looked up.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn check(&self) -> Result<(), String> {
        let resolver = super::resolve::SystemResolver::shared();
        TcpPlace::new(self, "", resolver).map(drop).map_err(|error| error.to_string())
    }

    /// Whether the host is one and, where it is written as an address, that may be dialled.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn check_host(&self) -> Result<(), String> {
        checked_host(self).map(drop).map_err(|error| error.to_string())
    }
}

/// The canonical host. What lies in a special range is refused here where it is written as an address.
fn checked_host(grant: &TcpGrant) -> Result<Host, NetError> {
    let host = Host::parse(&grant.host)?;
    if let Host::Address(address) = host {
        address::check(address, &grant.allow).map_err(|range| NetError::Prohibited {
            host: grant.host.clone(),
            address,
            range,
        })?;
    }
    Ok(host)
}
