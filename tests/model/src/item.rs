//! What is under way: calls, appends, answers, timers.

use tidegate_protocol::event::{Effect, Event};
use tidegate_protocol::ids::{Epoch, RunId, SinkId};

/// One thing under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Item {
    /// An effect that its host has not carried out, and the run of that host.
    Do(Option<RunId>, Effect),
    /// An event on its way to the coordinator, an answer or a timer.
    Tell(Event),
    /// A participant has reached the barrier; its part is staged and prepared.
    Prepare(Prepare),
    /// What a host had sent and nobody waits for any more. It may be carried out, or never.
    Late(Option<RunId>, Effect),
}

/// A part to be prepared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prepare {
    /// Which sink of the plan.
    pub at: usize,
    /// Its name in this host's graph.
    pub sink: SinkId,
    /// Which participant.
    pub ordinal: u32,
    /// Of how many.
    pub of: u32,
    /// The run.
    pub run: RunId,
    /// The epoch that the barrier ends.
    pub epoch: Epoch,
    /// Its rows.
    pub rows: Vec<u8>,
    /// Rows that an instance took which is gone; only if an epoch may outlive its instance.
    pub lost: u64,
    /// The announcement that must be durable before anything is staged.
    pub waits_for: Option<u64>,
}
