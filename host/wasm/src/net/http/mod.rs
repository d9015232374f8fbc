//! HTTP to granted places.
//!
//! ```text
//! request ──▶ Destination ──▶ HttpPlace ──▶ headers, auth ──▶ Pool ──▶ exchange ──▶ answer
//!             canonical        or denied     by the host       dial      deadline,     stripped,
//!                                                              and TLS   caps          counted
//! ```
//! Everything happens on the instance's own thread, in its own runtime: there is no task that could go on sending for a
//! plugin that was killed, and what encryption costs is charged to who wanted it. Connections belong to one instance and
//! one place; they are reset when the instance ends. No redirect is followed, nothing is decompressed, no proxy is asked.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod destination;
pub(crate) mod exchange;
pub(crate) mod headers;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod wire;

/// What is counted when something is denied.
pub(crate) const HTTP: &str = "http";
