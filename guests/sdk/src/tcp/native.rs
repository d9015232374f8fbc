//! Plain connections of the system, for tests.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::{Batch, Ctx, Error};

/// A connection to a granted place. Reads and writes block.
pub struct Connection(TcpStream);

impl Ctx {
    /// Connects to the place granted under this name.
    ///
    /// # Errors
    /// `denied`: nothing of that name was granted. `retryable`: it cannot be reached now.
    pub fn connect(&self, grant: &str) -> Result<Connection, Error> {
        let place = self.host.place(grant)?;
        let stream = TcpStream::connect(place);
        let stream = stream.map_err(|error| Error::retryable("connect-failed", format!("{place}: {error}")))?;
        Ok(Connection(stream))
    }
}

impl Connection {
    /// There is no TLS outside of the sandbox.
    ///
    /// # Errors
    /// Always.
    pub fn start_tls(&mut self) -> Result<(), Error> {
        Err(Error::unsupported("TLS outside of the sandbox"))
    }

    /// `None`: there is no TLS outside of the sandbox.
    pub fn tls_server_end_point(&self) -> Option<Vec<u8>> {
        None
    }

    /// Writes the rows, and returns their number of bytes.
    ///
    /// # Errors
    /// `epoch-lost`: some of the rows may be there; the connection is dead.
    pub fn write_batch(&mut self, rows: &Batch) -> Result<u64, Error> {
        self.0.write_all(&rows.inner.bytes).map_err(|error| Error::epoch_lost("write-failed", error.to_string()))?;
        Ok(rows.info().bytes)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
