//! Simulated destinations, plugins and disks around the real pipeline: everything that a run meets, in memory and from
//! a seed.
//!
//! The kit: [`world::World`] is time, order and trace; [`dest::Destination`] a destination of any kind with its plugin;
//! [`store::SimStore`] the log of a host, on a simulated disk or in a simulated object store; [`host`] one life of a host
//! around the production pipeline, up to a crash at any instant; [`oracle`] what must hold of all that happened. `README.md`
//! shows how they go together.

pub mod crash;
pub mod dest;
pub mod dice;
pub mod host;
pub mod operator;
pub mod oracle;
pub mod person;
mod said;
pub mod simulate;
pub mod source;
pub mod store;
pub mod sweep;
pub mod world;
