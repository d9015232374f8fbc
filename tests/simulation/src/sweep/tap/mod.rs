//! Layers around everything that a host meets: each effect passes the [`Director`](super::director::Director), and what
//! happened is written down. They stand between the production code and the simulated world, and know nothing of either.

pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod log;
pub(crate) mod network;
pub(crate) mod plugin;
mod roles;
pub(crate) mod source;
