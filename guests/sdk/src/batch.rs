//! Rows on their way to the destination.

use crate::fs::Stream;
use crate::{BatchInfo, Error};

/// Rows in the host's memory. They enter the plugin's memory only with [`Batch::bytes`].
pub struct Batch<'a> {
    #[cfg(target_family = "wasm")]
    pub(crate) inner: &'a crate::guest::bindings::tidegate::sink::rows::Batch,
    #[cfg(not(target_family = "wasm"))]
    pub(crate) inner: &'a crate::native::Rows,
}

#[cfg(target_family = "wasm")]
impl Batch<'_> {
    /// How many rows and bytes, how encoded.
    pub fn info(&self) -> BatchInfo {
        self.inner.info().into()
    }

    /// Copies the rows into the plugin's memory.
    pub fn bytes(&self) -> Vec<u8> {
        self.inner.bytes()
    }

    /// The host moves the rows into the stream and returns after the flush, with the number of bytes moved.
    ///
    /// # Errors
    /// The rows may be there in part; the stream is dead.
    pub fn write_to(&self, stream: &mut Stream) -> Result<u64, Error> {
        self.inner.write_to(stream.output()).map_err(Error::from)
    }
}

#[cfg(not(target_family = "wasm"))]
impl Batch<'_> {
    /// How many rows and bytes, how encoded.
    pub fn info(&self) -> BatchInfo {
        let bytes = u64::try_from(self.inner.bytes.len()).unwrap_or(u64::MAX);
        BatchInfo {
            rows: self.inner.rows,
            bytes,
            encoding: self.inner.encoding,
            schema: self.inner.schema,
            file: self.inner.file.clone(),
        }
    }

    /// Copies the rows.
    pub fn bytes(&self) -> Vec<u8> {
        self.inner.bytes.to_vec()
    }

    /// Moves the rows into the stream.
    ///
    /// # Errors
    /// The rows may be there in part; the stream is dead.
    pub fn write_to(&self, stream: &mut Stream) -> Result<u64, Error> {
        stream.write_all(&self.inner.bytes)?;
        Ok(self.info().bytes)
    }
}
