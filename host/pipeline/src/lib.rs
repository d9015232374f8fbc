//! The tokio driver: sources, exchange, operators, sink subtasks and committers.
//!
//! It carries out what [`tidegate_protocol`] decides, and decides nothing itself. [`run::run`] is the way in: it takes
//! a [`spec::Pipeline`] and a log and returns when there is nothing left to do.

pub mod clock;
mod control;
mod dead_letter;
mod driver;
mod exchange;
pub mod faults;
mod liveness;
mod log;
pub mod observe;
mod open;
pub mod operator;
mod router;
pub mod run;
pub mod source;
pub mod spec;
mod tasks;

pub use control::{Answer, Control, Waiting};
pub use log::Blocking;
pub use run::{Env, RunError, RunReport, run, run_keeping};
pub use tasks::actor::{Callee, timed};
