//! Stateful steps between sources and sinks.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_protocol::ids::{KeyRange, OperatorId};
use tidegate_protocol::plugin::Batch;

use crate::spec::Route;

/// A stateful step of a pipeline.
pub struct OperatorEntry {
    /// Its stable name.
    pub id: OperatorId,
    /// The step.
    pub operator: Arc<dyn Operator>,
    /// How many subtasks; at least 1.
    pub subtasks: u32,
    /// How rows find their subtask. State that belongs to keys needs [`Route::Key`].
    pub route: Route,
}

/// State of one subtask, as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorState {
    /// The keys it speaks of.
    pub range: KeyRange,
    /// The operator's own version of `state`.
    pub version: u32,
    /// The state.
    pub state: Bytes,
    /// Timers: Unix milliseconds of event time and the operator's own key.
    pub timers: Vec<(i64, Bytes)>,
    /// The watermark it had seen.
    pub watermark: Option<i64>,
}

/// What a subtask hands over at a barrier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperatorSnapshot {
    /// The operator's own version of `state`.
    pub version: u32,
    /// The state.
    pub state: Bytes,
    /// Timers: Unix milliseconds of event time and the operator's own key.
    pub timers: Vec<(i64, Bytes)>,
}

/// An operator cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorError {
    /// What happened and how to mend it.
    pub message: String,
}

impl std::fmt::Display for OperatorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OperatorError {}

/// Makes subtasks.
pub trait Operator: Send + Sync {
    /// A subtask that owns `range`, from every restored state that overlaps it.
    ///
    /// # Errors
    /// The state cannot be read; nothing is changed.
    fn open(&self, range: KeyRange, restored: &[OperatorState]) -> Result<Box<dyn OperatorTask>, OperatorError>;
}

/// One subtask. Must be deterministic: the same rows in the same order give the same output.
pub trait OperatorTask: Send {
    /// Takes rows in and hands rows on.
    ///
    /// # Errors
    /// The epoch is lost and the pipeline goes back to the last sealed one.
    fn process(&mut self, rows: &Batch) -> Result<Vec<Batch>, OperatorError>;

    /// The watermark rose; timers up to it are due.
    ///
    /// # Errors
    /// As for `process`.
    fn watermark(&mut self, watermark: i64) -> Result<Vec<Batch>, OperatorError>;

    /// The barrier is here. Rows handed on belong to the epoch that it ends.
    ///
    /// # Errors
    /// As for `process`.
    fn barrier(&mut self) -> Result<(Vec<Batch>, OperatorSnapshot), OperatorError>;
}
