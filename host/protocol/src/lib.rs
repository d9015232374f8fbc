//! The protocol: everything that Tidegate decides, and nothing that it does.
//!
//! This crate has no IO, no clock, no randomness, no async runtime and no iteration in hash order; it builds for
//! `wasm32-unknown-unknown` without imports, and CI proves that. The product, the model checker, the simulator and the
//! replay of a trace all run the same [`coordinator::Coordinator::step`].

// Refusals and failures end a run: they are made once in its life and carry what a person needs to read.
#![allow(clippy::result_large_err)]

pub mod align;
pub mod coordinator;
mod display;
pub mod event;
pub mod fault;
pub mod guarantee;
pub mod history;
pub mod ids;
pub mod permit;
pub mod plugin;
pub mod positions;
pub mod record;
