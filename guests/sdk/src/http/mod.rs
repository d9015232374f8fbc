//! Requests to services that the operator granted under `http`. The host resolves, dials, speaks TLS and adds the
//! credentials of the grant; the plugin sees neither them nor the connection.
//!
//! ```no_run
//! use tidegate_sdk::{Batch, Error, http::Request};
//!
//! fn upload(rows: &Batch) -> Result<(), Error> {
//!     let mut upload = Request::new("PUT", "https://api.example/v1/rows").header("content-type", "text/csv").begin()?;
//!     upload.write_batch(rows)?;
//!     let answer = upload.finish()?;
//!     match answer.status() {
//!         200..=299 => Ok(()),
//!         status => Err(Error::retryable("refused", format!("it answers {status}"))),
//!     }
//! }
//! ```
//!
//! A request that was begun and not finished breaks off when it is dropped, or when the host ends the instance: the server
//! sees no end of its body. Once it is finished, an error says nothing about whether the server carried it out; a commit
//! that was sent is `unknown`. No redirect is followed, and what is compressed stays compressed. Over HTTP/1 trailers are
//! sent only if the header `trailer` announces them, and received only if the request says `te: trailers`.

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(target_family = "wasm")]
mod wasi;

#[cfg(not(target_family = "wasm"))]
pub use native::{Response, Upload};
#[cfg(target_family = "wasm")]
pub use wasi::{Response, Upload};

/// A request that has not begun.
#[derive(Debug, Clone)]
#[cfg_attr(not(target_family = "wasm"), allow(dead_code, reason = "only a component sends it"))]
pub struct Request {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

impl Request {
    /// With a whole URL, such as `https://api.example/v1/rows?dry=1`.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self { method: method.into(), url: url.into(), headers: Vec::new() }
    }

    /// Adds a header field. Those that concern the connection, `host` and `authorization` are the host's.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}
