//! Connections of the host.

use std::io::{self, Read, Write};

use crate::guest::bindings::tidegate::sink::tcp;
use crate::guest::bindings::wasi::io::streams::{InputStream, OutputStream, StreamError};
use crate::{Batch, Ctx, Error};

/// Streams are dropped before the connection that they belong to.
struct Streams {
    input: InputStream,
    output: OutputStream,
}

/// A connection to a granted place. Reads and writes block.
pub struct Connection {
    streams: Option<Streams>,
    inner: tcp::Connection,
}

impl Ctx {
    /// Connects to the place granted under this name; with TLS already begun where the grant says so.
    ///
    /// # Errors
    /// `denied`: nothing of that name was granted, or the place may not be reached. `retryable`: it cannot be reached now.
    /// `bad-config`: the grant cannot be used.
    pub fn connect(&self, grant: &str) -> Result<Connection, Error> {
        let mut connection = Connection { streams: None, inner: tcp::connect(grant)? };
        connection.take_streams()?;
        Ok(connection)
    }
}

impl Connection {
    fn take_streams(&mut self) -> Result<(), Error> {
        let (input, output) = self.inner.streams()?;
        self.streams = Some(Streams { input, output });
        Ok(())
    }

    /// Encrypts what follows, where the grant's `tls` is `when-asked`. What was written must have been flushed, and what
    /// the server said before read.
    ///
    /// # Errors
    /// The grant does not allow it, or TLS did not come about; the connection is dead.
    pub fn start_tls(&mut self) -> Result<(), Error> {
        self.streams = None;
        self.inner.start_tls()?;
        self.take_streams()
    }

    /// `tls-server-end-point` (RFC 5929), for channel binding in SCRAM. `None` without TLS, and with certificates for
    /// which it is not defined.
    pub fn tls_server_end_point(&self) -> Option<Vec<u8>> {
        self.inner.tls_server_end_point()
    }

    /// The host moves the rows onto the connection and returns after the flush, with the number of bytes moved. They do
    /// not pass through the plugin's memory.
    ///
    /// # Errors
    /// `epoch-lost`: some of the rows may be there; the connection is dead.
    pub fn write_batch(&mut self, rows: &Batch) -> Result<u64, Error> {
        match &self.streams {
            Some(streams) => rows.inner.write_to(&streams.output).map_err(Error::from),
            None => Err(super::lost(closed())),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(streams) = &self.streams else { return Ok(0) };
        if buffer.is_empty() {
            return Ok(0);
        }
        match streams.input.blocking_read(buffer.len() as u64) {
            Ok(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            Err(StreamError::Closed) => Ok(0),
            Err(StreamError::LastOperationFailed(error)) => Err(io::Error::other(error.to_debug_string())),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let output = &self.streams.as_ref().ok_or_else(closed)?.output;
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            let permit = usize::try_from(output.check_write().map_err(failed)?).unwrap_or(usize::MAX);
            if permit > 0 {
                let now = &bytes[..bytes.len().min(permit)];
                output.write(now).map_err(failed)?;
                return Ok(now.len());
            }
            output.subscribe().block();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.streams.as_ref().ok_or_else(closed)?.output.blocking_flush().map_err(failed)
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the connection is closed")
}

fn failed(error: StreamError) -> io::Error {
    match error {
        StreamError::Closed => closed(),
        StreamError::LastOperationFailed(error) => io::Error::other(error.to_debug_string()),
    }
}
