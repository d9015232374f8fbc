//! The protocol, enumerated: every state that a small pipeline can reach.
//!
//! The coordinators are the product's own, and so is the fold of the log. Around them are a log, destinations and hosts
//! that do whatever a budget allows: crash, linger, lose answers, give them twice, late, or badly. `README.md` says what
//! a state is, what is explored and what is not.

// Errors of the protocol say everything that a person is told; they come once in a run.
#![allow(clippy::result_large_err)]

mod act;
pub mod coverage;
pub mod destination;
pub mod engine;
pub mod examples;
pub mod explore;
pub mod intern;
pub mod item;
pub mod judge;
pub mod log;
pub mod moves;
pub mod outside;
pub mod plan;
pub mod plans;
mod probe;
pub mod world;
