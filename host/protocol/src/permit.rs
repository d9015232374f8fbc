//! Permission to commit, as a value.

use crate::ids::{EpochRef, PartId, RunId, SinkId};
use crate::plugin::Committable;
use crate::record::Binding;

/// What may be sent to a committer. Only the coordinator makes one, and only from a seal that is known to be durable;
/// without it the driver has nothing to call `commit` with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommitPermit {
    sink: SinkId,
    of: EpochRef,
    run: RunId,
    attempt: u32,
    binding: Binding,
    previous: Vec<PartId>,
    committables: Vec<Committable>,
}

impl CommitPermit {
    pub(crate) fn new(
        sink: SinkId,
        of: EpochRef,
        run: RunId,
        attempt: u32,
        binding: Binding,
        previous: Vec<PartId>,
        committables: Vec<Committable>,
    ) -> Self {
        Self { sink, of, run, attempt, binding, previous, committables }
    }

    /// Where to commit.
    pub fn sink(&self) -> &SinkId {
        &self.sink
    }

    /// The sealed epoch.
    pub fn of(&self) -> EpochRef {
        self.of
    }

    /// The run that sends it; not always the run that sealed it.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The configuration in the seal.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// The parts committed before this epoch.
    pub fn previous(&self) -> &[PartId] {
        &self.previous
    }

    /// What to commit; never empty.
    pub fn committables(&self) -> &[Committable] {
        &self.committables
    }
}
