//! `wasi:io` with bounds on what the host does and keeps because a plugin named a number.
//!
//! The streams themselves are WASI's. Bounded here, for all of them alike: how much one read may fetch, how much a read
//! that does not wait may leave behind in the host, and how many pollables one wait may name. A write of nothing does
//! nothing: streams that queue would queue it.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::io::{error, poll, streams};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, IoError, StreamError, StreamResult};

use super::State;
use crate::limits::{Unit, budget};
use crate::text::MAX_NAME;

/// Most bytes of one read that waits.
const MAX_READ: u64 = 64 << 10;
/// Most bytes of one read that does not: a file keeps what it has read until it is fetched, one such piece per stream.
const MAX_READ_AHEAD: u64 = 4 << 10;

fn checked(state: &State) -> StreamResult<()> {
    state.meter.check().map_err(StreamError::Trap)
}

impl error::Host for State {}

impl error::HostError for State {
    fn drop(&mut self, error: Resource<IoError>) -> wasmtime::Result<()> {
        error::HostError::drop(&mut self.table, error)
    }

    /// Not WASI's: that one may tell the host's call stack and paths.
    fn to_debug_string(&mut self, error: Resource<IoError>) -> wasmtime::Result<String> {
        let text = self.table.get(&error)?.root_cause().to_string();
        Ok(self.redactor.show(&text, MAX_NAME))
    }
}

impl poll::Host for State {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        self.meter.check()?;
        let most = self.max_handles as u64;
        self.meter.bound(budget::HANDLES, pollables.len() as u64, most, Unit::Count)?;
        poll::Host::poll(&mut self.table, pollables).await
    }
}

impl poll::HostPollable for State {
    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.meter.check()?;
        poll::HostPollable::block(&mut self.table, pollable).await
    }

    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        self.meter.check()?;
        poll::HostPollable::ready(&mut self.table, pollable).await
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::drop(&mut self.table, pollable)
    }
}

impl streams::Host for State {
    fn convert_stream_error(&mut self, error: StreamError) -> wasmtime::Result<streams::StreamError> {
        streams::Host::convert_stream_error(&mut self.table, error)
    }
}

impl streams::HostInputStream for State {
    async fn drop(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<()> {
        streams::HostInputStream::drop(&mut self.table, stream).await
    }

    fn read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        checked(self)?;
        streams::HostInputStream::read(&mut self.table, stream, len.min(MAX_READ_AHEAD))
    }

    async fn blocking_read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        checked(self)?;
        streams::HostInputStream::blocking_read(&mut self.table, stream, len.min(MAX_READ)).await
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        checked(self)?;
        streams::HostInputStream::skip(&mut self.table, stream, len.min(MAX_READ_AHEAD))
    }

    async fn blocking_skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        checked(self)?;
        streams::HostInputStream::blocking_skip(&mut self.table, stream, len.min(MAX_READ)).await
    }

    fn subscribe(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        self.meter.check()?;
        streams::HostInputStream::subscribe(&mut self.table, stream)
    }
}

impl streams::HostOutputStream for State {
    async fn drop(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<()> {
        streams::HostOutputStream::drop(&mut self.table, stream).await
    }

    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        checked(self)?;
        streams::HostOutputStream::check_write(&mut self.table, stream)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        checked(self)?;
        if bytes.is_empty() {
            return self.table.get(&stream).map(drop).map_err(StreamError::from);
        }
        streams::HostOutputStream::write(&mut self.table, stream, bytes)
    }

    fn subscribe(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        self.meter.check()?;
        streams::HostOutputStream::subscribe(&mut self.table, stream)
    }

    async fn blocking_write_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        bytes: Vec<u8>,
    ) -> StreamResult<()> {
        checked(self)?;
        if bytes.is_empty() {
            return streams::HostOutputStream::blocking_flush(&mut self.table, stream).await;
        }
        streams::HostOutputStream::blocking_write_and_flush(&mut self.table, stream, bytes).await
    }

    async fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        len: u64,
    ) -> StreamResult<()> {
        checked(self)?;
        if len == 0 {
            return streams::HostOutputStream::blocking_flush(&mut self.table, stream).await;
        }
        streams::HostOutputStream::blocking_write_zeroes_and_flush(&mut self.table, stream, len).await
    }

    /// A stream's own permit bounds it.
    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        checked(self)?;
        if len == 0 {
            return self.table.get(&stream).map(drop).map_err(StreamError::from);
        }
        streams::HostOutputStream::write_zeroes(&mut self.table, stream, len)
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        checked(self)?;
        streams::HostOutputStream::flush(&mut self.table, stream)
    }

    async fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        checked(self)?;
        streams::HostOutputStream::blocking_flush(&mut self.table, stream).await
    }

    fn splice(
        &mut self,
        out: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        checked(self)?;
        streams::HostOutputStream::splice(&mut self.table, out, from, len.min(MAX_READ_AHEAD))
    }

    async fn blocking_splice(
        &mut self,
        out: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        checked(self)?;
        streams::HostOutputStream::blocking_splice(&mut self.table, out, from, len.min(MAX_READ)).await
    }
}
