//! What can be seen of a run.

use std::collections::BTreeMap;

use super::Coordinator;
use crate::ids::{Epoch, EpochRef, RunId, SinkId};
use crate::record::Blocked;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Made, not started.
    New,
    /// Destinations are asked where they stand.
    Observing,
    /// Decisions that the start needs are being recorded.
    Deciding,
    /// The run's record is being created.
    Opening,
    /// Destinations are fenced and asked again.
    Fencing,
    /// Sealed epochs of older runs are being committed.
    Finishing,
    /// Unsealed work of older runs is being given back.
    Cleaning,
    /// Sources, operators and writers are opened.
    OpeningTasks,
    /// Rows flow.
    Running,
    /// Over.
    Ended,
}

/// One sink of a [`Status`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SinkStatus {
    /// Sealed epochs without an end, in order.
    pub waiting: Vec<EpochRef>,
    /// The one whose commit may have been sent and whose outcome is not known.
    pub in_doubt: Option<EpochRef>,
    /// The one that waits for a person, and why.
    pub blocked: Option<(EpochRef, Blocked)>,
    /// The one committed last by this run.
    pub committed: Option<EpochRef>,
}

/// What can be seen of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Status {
    /// Where it is.
    pub phase: Phase,
    /// Its id, once decided.
    pub run: Option<RunId>,
    /// The epoch being written; `None` before tasks are open.
    pub open_epoch: Option<Epoch>,
    /// The epoch whose barrier is under way.
    pub preparing: Option<Epoch>,
    /// All sealed epochs without an end, per sink in order.
    pub waiting: Vec<(SinkId, EpochRef)>,
    /// Commits whose outcome is not known.
    pub in_doubt: Vec<(SinkId, EpochRef)>,
    /// Epochs that wait for a person.
    pub blocked: Vec<(SinkId, EpochRef, Blocked)>,
    /// A barrier is due and withheld because too many epochs wait.
    pub backpressure: bool,
    /// The same per sink.
    pub sinks: BTreeMap<SinkId, SinkStatus>,
}

impl Coordinator {
    /// What can be seen of the run now. Changes with every step.
    pub fn status(&self) -> Status {
        let sinks: BTreeMap<SinkId, SinkStatus> =
            self.lanes.iter().map(|(sink, lane)| (sink.clone(), lane.status())).collect();
        Status {
            phase: self.phase,
            run: self.run,
            open_epoch: (self.phase == Phase::Running).then_some(self.writing.epoch),
            preparing: self.writing.preparing(),
            waiting: self.waiting(),
            in_doubt: sinks.iter().filter_map(|(sink, s)| Some((sink.clone(), s.in_doubt?))).collect(),
            blocked: sinks
                .iter()
                .filter_map(|(sink, s)| s.blocked.clone().map(|(of, why)| (sink.clone(), of, why)))
                .collect(),
            backpressure: self.is_held_up(),
            sinks,
        }
    }

    /// A barrier is due and withheld because too many epochs wait. Cheap: for every step.
    pub fn is_held_up(&self) -> bool {
        self.writing.due.is_some() && self.phase == Phase::Running && self.full_lane().is_some()
    }

    /// All sealed epochs without an end, per sink in order.
    pub fn waiting(&self) -> Vec<(SinkId, EpochRef)> {
        self.lanes.iter().flat_map(|(sink, lane)| lane.epochs().map(|of| (sink.clone(), of))).collect()
    }
}
