//! Batches of rows. The bytes stay in the host; `write-to` moves them into a stream without the plugin seeing them.

use std::io;

use bytes::Bytes;
use tidegate_protocol::plugin::{Batch, Encoding};
use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynOutputStream, StreamError};

use super::State;
use crate::bindings::imported::rows::{self, BatchInfo, FileChunk};
use crate::bindings::imported::types::{Error, ErrorKind};

/// A batch on loan to the plugin for the time of one `write`.
#[allow(unreachable_pub, reason = "the generated bindings re-export it within this crate")]
pub struct HostBatch(pub(crate) Batch);

impl rows::Host for State {}

impl rows::HostBatch for State {
    async fn info(&mut self, batch: Resource<HostBatch>) -> wasmtime::Result<BatchInfo> {
        self.meter.check()?;
        let HostBatch(batch) = self.table.get(&batch)?;
        Ok(BatchInfo {
            rows: batch.rows,
            bytes: batch.bytes.len() as u64,
            encoding: encoding_to_wit(batch.encoding),
            schema: batch.schema,
            file: batch.file.as_ref().map(|file| FileChunk {
                number: file.number,
                folder: file.folder.to_string(),
                extension: file.extension.to_string(),
                last: file.last,
            }),
        })
    }

    async fn bytes(&mut self, batch: Resource<HostBatch>) -> wasmtime::Result<Vec<u8>> {
        self.meter.check()?;
        let bytes = self.table.get(&batch)?.0.bytes.clone();
        self.hand_over(bytes.len())?;
        Ok(bytes.to_vec())
    }

    async fn write_to(
        &mut self,
        batch: Resource<HostBatch>,
        out: Resource<DynOutputStream>,
    ) -> wasmtime::Result<Result<u64, Error>> {
        self.meter.check()?;
        let bytes = self.table.get(&batch)?.0.bytes.clone();
        let stream = self.table.get_mut(&out)?;
        move_into(stream, bytes).await
    }

    async fn drop(&mut self, batch: Resource<HostBatch>) -> wasmtime::Result<()> {
        self.table.delete(batch)?;
        Ok(())
    }
}

/// One write of the whole batch and one flush. A file stream does both right here, on the instance's own thread; it
/// and the network streams close themselves after an error.
async fn move_into(stream: &mut DynOutputStream, bytes: Bytes) -> wasmtime::Result<Result<u64, Error>> {
    let moved = bytes.len() as u64;
    if moved == 0 {
        return Ok(Ok(0));
    }
    match stream.blocking_write_and_flush(bytes).await {
        Ok(()) => Ok(Ok(moved)),
        Err(StreamError::Closed) => Ok(Err(super::error(
            ErrorKind::EpochLost,
            "stream-closed",
            "the stream is closed: an earlier write to it failed, or the other side ended it",
        ))),
        Err(StreamError::LastOperationFailed(cause)) => Ok(Err(write_error(&cause))),
        Err(StreamError::Trap(cause)) => Err(cause),
    }
}

fn write_error(cause: &wasmtime::Error) -> Error {
    let code = match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::StorageFull) => "storage-full",
        Some(io::ErrorKind::QuotaExceeded) => "quota-exceeded",
        Some(io::ErrorKind::FileTooLarge) => "file-too-large",
        Some(io::ErrorKind::ReadOnlyFilesystem) => "read-only",
        _ => "write-failed",
    };
    super::error(ErrorKind::EpochLost, code, format!("the rows could not be written: {cause}"))
}

pub(crate) fn encoding_to_wit(encoding: Encoding) -> rows::Encoding {
    match encoding {
        Encoding::Raw => rows::Encoding::Raw,
        Encoding::JsonLines => rows::Encoding::JsonLines,
        Encoding::Csv => rows::Encoding::Csv,
        Encoding::ArrowStream => rows::Encoding::ArrowStream,
        Encoding::Files => rows::Encoding::Files,
    }
}

pub(crate) fn encoding_from_wit(encoding: rows::Encoding) -> Encoding {
    match encoding {
        rows::Encoding::Raw => Encoding::Raw,
        rows::Encoding::JsonLines => Encoding::JsonLines,
        rows::Encoding::Csv => Encoding::Csv,
        rows::Encoding::ArrowStream => Encoding::ArrowStream,
        rows::Encoding::Files => Encoding::Files,
    }
}
