//! Connections to places that the operator granted under `tcp`. In the sandbox the host resolves, dials and speaks TLS;
//! natively they are plain connections to what the test granted.
//!
//! ```no_run
//! use std::io::{Read as _, Write as _};
//! use tidegate_sdk::{Ctx, Error, tcp};
//!
//! fn ping(ctx: &Ctx) -> Result<(), Error> {
//!     let mut server = ctx.connect("server")?;
//!     server.write_all(b"PING\r\n").and_then(|()| server.flush()).map_err(tcp::lost)?;
//!     let mut answer = [0; 6];
//!     server.read_exact(&mut answer).map_err(tcp::lost)
//! }
//! ```
//!
//! A connection ends in order when it is dropped, and is reset when the host ends the instance. A server that must tell
//! "finished" from "gone" therefore needs an end mark of its protocol: dropping the connection is none, since it happens
//! when a call returns an error as well.

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(target_family = "wasm")]
mod wasi;

use std::io;

#[cfg(not(target_family = "wasm"))]
pub use native::Connection;
#[cfg(target_family = "wasm")]
pub use wasi::Connection;

use crate::Error;

/// The connection is lost: the same call may work later, over another one. A writer whose rows were on it answers
/// `epoch-lost` instead ([`Error::with_kind`]); a commit that was sent is `unknown`.
pub fn lost(error: io::Error) -> Error {
    Error::retryable("connection-lost", error.to_string())
}
