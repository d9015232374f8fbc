//! Connections to granted places.

use std::sync::Arc;

use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

use super::State;
use super::log::LogLevel;
use crate::bindings::imported::tcp;
use crate::bindings::imported::types::{Error, ErrorKind};
use crate::grants::place::TlsStart;
use crate::limits::budget;
use crate::net::link::{Io, Link, NoTls};
use crate::net::place::TcpPlace;
use crate::net::{NetError, Remedy, tls};
use crate::text::{MAX_NAME, clean};

/// What is counted when something is denied.
const TCP: &str = "tcp";

/// A connection behind a handle.
#[allow(unreachable_pub, reason = "the generated bindings re-export it within this crate")]
pub struct HostConnection {
    link: Arc<Link>,
    place: Arc<TcpPlace>,
    /// The plugin's name for the place.
    name: String,
    stage: Stage,
    end_point: Option<Vec<u8>>,
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// TLS can begin on it. Says whether streams have been handed out.
    Plain(bool),
    /// TLS has begun, or never will. Says whether streams have been handed out.
    Final(bool),
    /// TLS failed.
    Dead,
}

impl tcp::Host for State {
    async fn connect(&mut self, name: String) -> wasmtime::Result<Result<Resource<HostConnection>, Error>> {
        self.meter.check()?;
        let Some(place) = self.network.tcp.get(&name).cloned() else {
            self.network.tenant.count_denied(TCP);
            let name = clean(&name, MAX_NAME);
            let message = format!("no place named `{name}` is granted in this role");
            return Ok(Err(super::error(ErrorKind::Denied, "not-granted", message)));
        };
        let traffic = self.network.traffic.clone();
        traffic.request()?;
        if place.target.needs_lookup() {
            traffic.lookup()?;
        }
        let Some(slot) = traffic.open()? else { return Ok(Err(too_many(self.network.tenant.name()))) };
        let io = match place.connect().await {
            Ok(io) => io,
            Err(error) => return Ok(Err(self.unreached(&name, &error))),
        };
        let stage = if place.tls == TlsStart::WhenAsked { Stage::Plain(false) } else { Stage::Final(false) };
        let end_point = match &io {
            Io::Tls(stream) => tls::server_end_point(stream),
            Io::Plain(_) => None,
        };
        let link = Link::new(io, traffic, slot);
        Ok(Ok(self.table.push(HostConnection { link, place, name, stage, end_point })?))
    }
}

fn too_many(tenant: &str) -> Error {
    let message = format!("the tenant {tenant} has as many {} open as it may", budget::CONNECTIONS);
    super::error(ErrorKind::Retryable, "too-many-connections", message)
}

impl State {
    /// Tells the operator all of it and the plugin what concerns it.
    pub(super) fn unreached(&mut self, name: &str, error: &NetError) -> Error {
        let (kind, level) = match error.remedy() {
            Remedy::Deny => (ErrorKind::Denied, LogLevel::Error),
            Remedy::Configure => (ErrorKind::BadConfig, LogLevel::Error),
            Remedy::Retry => (ErrorKind::Retryable, LogLevel::Warn),
        };
        if let NetError::Prohibited { .. } = error {
            self.network.tenant.count_denied(TCP);
        }
        self.log.write(level, &format!("tcp `{name}`: {error}"), &[]);
        super::error(kind, error.code(), error.for_plugin())
    }
}

impl tcp::HostConnection for State {
    async fn streams(
        &mut self,
        connection: Resource<HostConnection>,
    ) -> wasmtime::Result<Result<(Resource<DynInputStream>, Resource<DynOutputStream>), Error>> {
        self.meter.check()?;
        let connection = self.table.get_mut(&connection)?;
        let (next, last_time) = match connection.stage {
            Stage::Plain(false) => (Stage::Plain(true), false),
            Stage::Final(false) => (Stage::Final(true), true),
            Stage::Plain(true) | Stage::Final(true) => {
                return Ok(Err(misuse("streams-taken", "the streams of a connection are handed out once")));
            }
            Stage::Dead => return Ok(Err(misuse("no-connection", "TLS failed on this connection; make a new one"))),
        };
        connection.stage = next;
        let (input, output) = connection.link.streams(last_time);
        Ok(Ok((self.table.push(input)?, self.table.push(output)?)))
    }

    async fn start_tls(&mut self, resource: Resource<HostConnection>) -> wasmtime::Result<Result<(), Error>> {
        self.meter.check()?;
        let connection = self.table.get_mut(&resource)?;
        let Stage::Plain(_) = connection.stage else {
            self.network.tenant.count_denied(TCP);
            let message = "this grant's `tls` is not \"when-asked\", or TLS has begun already";
            return Ok(Err(super::error(ErrorKind::Denied, "tls-not-granted", message)));
        };
        let plain = match connection.link.take_plain() {
            Ok(plain) => plain,
            Err(NoTls::StreamsHeld) => {
                return Ok(Err(misuse("streams-held", "drop the streams before TLS begins on the connection")));
            }
            Err(NoTls::SpokenBefore) => {
                connection.stage = Stage::Dead;
                let message = "the server said more before TLS than was read; it could be somebody else's words";
                return Ok(Err(super::error(ErrorKind::Denied, "spoken-before-tls", message)));
            }
            Err(NoTls::NotPlain) => {
                connection.stage = Stage::Dead;
                return Ok(Err(super::error(ErrorKind::Retryable, "no-connection", "the connection has ended")));
            }
        };
        // Until it has worked out.
        connection.stage = Stage::Dead;
        let (place, name) = (connection.place.clone(), connection.name.clone());
        match place.secure(plain, place.deadline()).await {
            Ok(stream) => {
                let connection = self.table.get_mut(&resource)?;
                connection.stage = Stage::Final(false);
                connection.end_point = tls::server_end_point(&stream);
                connection.link.secured(stream);
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(self.unreached(&name, &error))),
        }
    }

    async fn tls_server_end_point(
        &mut self,
        connection: Resource<HostConnection>,
    ) -> wasmtime::Result<Option<Vec<u8>>> {
        self.meter.check()?;
        Ok(self.table.get(&connection)?.end_point.clone())
    }

    async fn drop(&mut self, connection: Resource<HostConnection>) -> wasmtime::Result<()> {
        let connection = self.table.delete(connection)?;
        connection.link.let_go().await;
        Ok(())
    }
}

/// A plugin that calls things in an order that cannot work.
fn misuse(code: &str, message: &str) -> Error {
    super::error(ErrorKind::Permanent, code, message)
}
