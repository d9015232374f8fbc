//! Connections to granted places.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

use super::State;
use crate::bindings::imported::tcp;
use crate::bindings::imported::types::{Error, ErrorKind};
use crate::text::{MAX_NAME, clean};

/// A connection behind a handle.
#[allow(unreachable_pub, reason = "the generated bindings re-export it within this crate")]
pub struct HostConnection;

impl tcp::Host for State {
    async fn connect(&mut self, name: String) -> wasmtime::Result<Result<Resource<HostConnection>, Error>> {
        self.meter.check()?;
        let name = clean(&name, MAX_NAME);
        let message = format!("no place named `{name}` is granted in this role");
        Ok(Err(super::error(ErrorKind::Denied, "not-granted", message)))
    }
}

impl tcp::HostConnection for State {
    async fn streams(
        &mut self,
        _: Resource<HostConnection>,
    ) -> wasmtime::Result<Result<(Resource<DynInputStream>, Resource<DynOutputStream>), Error>> {
        Ok(Err(super::error(ErrorKind::Denied, "not-granted", "")))
    }

    async fn start_tls(&mut self, _: Resource<HostConnection>) -> wasmtime::Result<Result<(), Error>> {
        Ok(Err(super::error(ErrorKind::Denied, "not-granted", "")))
    }

    async fn tls_server_end_point(&mut self, _: Resource<HostConnection>) -> wasmtime::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    async fn drop(&mut self, connection: Resource<HostConnection>) -> wasmtime::Result<()> {
        self.table.delete(connection)?;
        Ok(())
    }
}
