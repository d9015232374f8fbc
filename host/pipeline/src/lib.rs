//! The tokio driver: sources, exchange, operators, sink subtasks and committers.
//!
//! It carries out what [`tidegate_protocol`] decides, and decides nothing itself.

pub mod clock;
pub mod source;
