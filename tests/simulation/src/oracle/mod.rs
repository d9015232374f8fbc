//! What must hold of all that happened, promise by promise: functions over the source, the destinations' own journals, the
//! records of the log, and what the runs told.
//!
//! Nothing here asks the product what it thinks: the line of descent, what is retained and what is committed are worked
//! out from the records alone.

mod conduct;
mod destinations;
mod facts;
mod log;
mod rows;

use std::collections::BTreeMap;
use std::fmt;

use tidegate_protocol::guarantee::Guarantee;
use tidegate_protocol::ids::SinkId;
use tidegate_protocol::record::SourceCut;

pub use facts::Facts;

use crate::dest::{Destination, Journal, Kind, Rejects};
use crate::host::{Spec, Told};
use crate::source::Rows;
use crate::store::LogJournal;
use crate::world::Seq;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which, from `P1` to `P12`.
    pub promise: &'static str,
    /// How it shows.
    pub what: String,
    /// Where in the order of all that happened, if at one place.
    pub at: Option<Seq>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)?;
        self.at.map_or(Ok(()), |at| write!(f, " (at #{at})"))
    }
}

/// Everything that an oracle may look at.
pub struct Evidence {
    /// The rows that there are.
    pub rows: Rows,
    /// The pipeline counts the rows of each key.
    pub counts: bool,
    /// When its step was given back a state that it had never kept.
    pub strange_states: Vec<Seq>,
    /// It hands some rows on in a later epoch than that in which they were read.
    pub holds: bool,
    /// Per sink, and the dead-letter sink.
    pub sinks: BTreeMap<SinkId, SinkEvidence>,
    /// The log that counts.
    pub log: LogJournal,
    /// Logs that somebody copied and went on with.
    pub copies: Vec<LogJournal>,
    /// When the log that counts became one of its own, where it began as a copy: what runs of before do later, they do
    /// with the other.
    pub copied_at: Vec<Seq>,
    /// What the hosts of the log that counts told.
    pub told: Vec<Told>,
    /// Progress that the source was told to publish, by hosts of the log that counts.
    pub published: Vec<(Seq, SourceCut)>,
    /// What was promised at start.
    pub guarantee: Guarantee,
    /// The pipeline read all of its input and said that it is finished.
    pub finished: bool,
}

/// One destination.
pub struct SinkEvidence {
    /// How it behaves.
    pub kind: Kind,
    /// Which rows it does not take.
    pub rejects: Rejects,
    /// It takes what the others refuse.
    pub dead_letter: bool,
    /// What was done to it.
    pub journal: Journal,
    /// What a reader sees.
    pub visible: Vec<(String, Vec<bytes::Bytes>)>,
}

impl SinkEvidence {
    /// Of this destination.
    pub fn of(destination: &Destination, dead_letter: bool) -> Self {
        Self {
            kind: destination.kind(),
            rejects: destination.rejects(),
            dead_letter,
            journal: destination.journal(),
            visible: destination.visible(),
        }
    }
}

impl Evidence {
    /// Of a pipeline whose hosts have all ended. `retain_ms` is how long a commit may have to be recognised.
    pub fn gather(spec: &Spec, log: LogJournal, told: Vec<Told>, retain_ms: Option<u64>) -> Self {
        let sinks = spec.sinks.iter().map(|sink| (sink, false)).chain(spec.dead_letter.iter().map(|sink| (sink, true)));
        Self {
            rows: spec.source.rows().clone(),
            counts: spec.operator.is_some(),
            strange_states: spec.operator.as_ref().map(|(counter, _)| counter.strange_states()).unwrap_or_default(),
            holds: spec.operator.as_ref().is_some_and(|(counter, _)| counter.holds()),
            sinks: sinks
                .map(|(sink, dead_letter)| (sink.id.clone(), SinkEvidence::of(&sink.destination, dead_letter)))
                .collect(),
            log,
            copies: Vec::new(),
            copied_at: Vec::new(),
            told,
            published: spec.source.published(),
            guarantee: spec.guarantee(retain_ms),
            finished: false,
        }
    }
}

/// All promises.
pub fn judge(evidence: &Evidence) -> Vec<Violation> {
    let facts = Facts::of(evidence);
    let mut found = Vec::new();
    found.extend(rows::p1_each_row_as_promised(evidence, &facts));
    found.extend(rows::p1_the_line_holds_each_row_once(evidence, &facts));
    found.extend(destinations::p1_each_sealed_part_once(evidence, &facts));
    found.extend(destinations::p2_sealed_before_visible_and_never_abandoned(evidence, &facts));
    found.extend(log::p3_every_epoch_is_sealed_and_then_told(evidence, &facts));
    found.extend(log::p4_what_is_acknowledged_stays(evidence));
    found.extend(destinations::p4_what_counts_as_committed_is_there(evidence, &facts));
    found.extend(destinations::p5_what_is_needed_is_not_released(evidence, &facts));
    found.extend(destinations::p6_nothing_changes_before_the_run_is_decided(evidence, &facts));
    found.extend(log::p7_only_the_newest_run_writes(evidence));
    found.extend(destinations::p7_older_runs_publish_nothing(evidence));
    found.extend(log::p8_a_strange_destination_needs_a_decision(evidence, &facts));
    found.extend(destinations::p9_rows_are_seen_as_promised(evidence, &facts));
    found.extend(log::p11_progress_is_of_committed_epochs(evidence, &facts));
    found.extend(log::p12_the_sum_of_rows_holds(evidence, &facts));
    found.extend(conduct::p1_finished_means_committed(evidence, &facts));
    found.extend(conduct::p3_savepoints_are_confirmed_when_sealed(evidence, &facts));
    found.extend(conduct::p4_what_landed_is_not_sent_again_unasked(evidence, &facts));
    found.extend(conduct::p4_what_counts_as_released_is_gone(evidence, &facts));
    found.extend(conduct::p5_state_is_kept_with_what_it_speaks_of(evidence, &facts));
    found.extend(conduct::p5_released_names_are_not_used_again(evidence));
    found.extend(conduct::p6_savepoints_stay(evidence));
    found.extend(conduct::p6_steps_get_back_what_they_kept(evidence));
    found.extend(conduct::p6_time_does_not_go_back(&facts));
    found.extend(conduct::p6_writers_get_back_what_was_kept(evidence, &facts));
    found.extend(conduct::p8_a_commit_names_what_came_before(evidence, &facts));
    found.extend(conduct::p10_dead_instances_rest(evidence));
    found
}
