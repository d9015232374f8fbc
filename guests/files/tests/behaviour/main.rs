//! The sink, run natively behind the trait that the component exports.

mod calls;
mod crash;
mod power;
mod race;
mod world;
