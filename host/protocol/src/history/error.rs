//! Why a record cannot follow the records before it.

use std::fmt;

use crate::ids::{EpochRef, PipelineId, RunId, SinkId, Slot};

/// A record that the log cannot hold at this place. The log contradicts itself, or is not this pipeline's: stop, change
/// nothing, show it to a person.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HistoryError {
    /// Where the record stands.
    pub slot: Slot,
    /// What is wrong with it.
    pub kind: HistoryErrorKind,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HistoryErrorKind {
    /// Records are missing and no record says that they were deleted.
    Gap {
        /// The slot that should have come.
        expected: Slot,
    },
    /// The slot is not behind the one before it.
    SlotNotRising {
        /// The slot that should have come.
        expected: Slot,
    },
    /// The slot, epoch or run number is the last one there is.
    NumberSpent,
    /// The log begins with something other than a run.
    NoRun,
    /// Another pipeline's log.
    ForeignPipeline {
        /// Whose log it was so far.
        log: PipelineId,
        /// Who is named here.
        record: PipelineId,
    },
    /// A run whose number is not larger than all before it.
    RunNotNewer {
        /// The newest run so far.
        newest: RunId,
    },
    /// A run descends from an epoch that is not in the log.
    ParentUnknown(EpochRef),
    /// A run descends from a checkpoint that is retired.
    ParentRetired(EpochRef),
    /// A run leaves sealed epochs behind and names no decision to do so.
    ForkWithoutDecision {
        /// The newest epoch.
        newest: EpochRef,
    },
    /// A run leaves epochs behind that have no end yet.
    ForkBeforeUnfinished {
        /// Which.
        sink: SinkId,
        /// Which.
        of: EpochRef,
    },
    /// A run names a decision that is not there, or was used before.
    DecisionNotPending(String),
    /// A decision id is used a second time.
    DecisionRepeated(String),
    /// Written by a run that is not the newest.
    NotNewestRun {
        /// The newest run.
        newest: RunId,
    },
    /// A second seal of the same epoch of the same run.
    SealedTwice(EpochRef),
    /// The epoch's number does not follow the ones before it.
    EpochNotNext {
        /// What was sealed.
        sealed: EpochRef,
        /// The number that should have come.
        expected: u64,
    },
    /// The participants of a sink or operator do not cover the key space once.
    RangesIncomplete(String),
    /// A part in a seal belongs to another run, epoch or participant, or is there twice.
    WrongPart(String),
    /// A seal gives a savepoint a name that is taken.
    SavepointNameTaken(String),
    /// Speaks of a seal that is not in the log.
    UnknownSeal(EpochRef),
    /// Speaks of a sink that the seal does not have.
    UnknownSink {
        /// The sink.
        sink: SinkId,
        /// The seal.
        of: EpochRef,
    },
    /// An outcome for an epoch whose end was recorded before.
    AlreadyEnded {
        /// The sink.
        sink: SinkId,
        /// The epoch.
        of: EpochRef,
    },
    /// An epoch that waits for a person's decision got an outcome without one.
    NeedsDecision {
        /// The sink.
        sink: SinkId,
        /// The epoch.
        of: EpochRef,
    },
    /// An epoch was committed before an older one of the same sink had an end.
    OutOfOrder {
        /// The sink.
        sink: SinkId,
        /// What was committed.
        of: EpochRef,
        /// What was not.
        before: EpochRef,
    },
    /// A decision about an epoch that does not wait for one.
    NotBlocked {
        /// The sink.
        sink: SinkId,
        /// The epoch.
        of: EpochRef,
    },
    /// A checkpoint that is retired cannot become a savepoint or a fork point.
    Retired(EpochRef),
    /// A savepoint of this name is not there.
    UnknownSavepoint(String),
    /// A checkpoint was retired that must be kept; says why.
    MustBeKept {
        /// Which.
        of: EpochRef,
        /// Why.
        why: &'static str,
    },
    /// An intent number that is not the next.
    IntentNotNext {
        /// The number that should have come.
        expected: u64,
    },
    /// A name for an intent that is not there or has one.
    IntentNotOpen(u64),
    /// A resource was released that something still names.
    ReleasedWhileNamed {
        /// At which sink.
        sink: SinkId,
        /// Its name.
        name: String,
    },
    /// A resource was named again after its release.
    NamedAfterRelease {
        /// At which sink.
        sink: SinkId,
        /// Its name.
        name: String,
    },
    /// The input was called finished although epochs have no end yet, or another epoch is the newest.
    NotFinished,
    /// Records were given up that are still needed, or the list is not ascending.
    DeletesNeeded(Slot),
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use HistoryErrorKind as K;
        write!(f, "record {}: ", self.slot)?;
        match &self.kind {
            K::Gap { expected } => write!(f, "records from {expected} on are missing and none says they were deleted"),
            K::SlotNotRising { expected } => write!(f, "its slot should be {expected}"),
            K::NumberSpent => write!(f, "its slot, epoch or run number is the last one there is"),
            K::NoRun => write!(f, "comes before any run was opened"),
            K::ForeignPipeline { log, record } => {
                write!(f, "belongs to pipeline `{record}`, the records before it to `{log}`")
            }
            K::RunNotNewer { newest } => write!(f, "opens a run that is not newer than run {newest}"),
            K::ParentUnknown(of) => write!(f, "opens a run that descends from {of}, which is not in the log"),
            K::ParentRetired(of) => write!(f, "opens a run that descends from {of}, which is retired"),
            K::ForkWithoutDecision { newest } => {
                write!(f, "opens a run that leaves {newest} behind and names no decision to do so")
            }
            K::ForkBeforeUnfinished { sink, of } => {
                write!(f, "opens a run that leaves {of} behind, which sink `{sink}` has not finished")
            }
            K::DecisionNotPending(id) => write!(f, "names decision `{id}`, which is not there or was used before"),
            K::DecisionRepeated(id) => write!(f, "repeats decision `{id}`"),
            K::NotNewestRun { newest } => write!(f, "was written by a run older than run {newest}"),
            K::SealedTwice(of) => write!(f, "seals {of} a second time"),
            K::EpochNotNext { sealed, expected } => write!(f, "seals {sealed} where {expected} should come"),
            K::RangesIncomplete(what) => write!(f, "the key ranges of {what} do not cover the key space once"),
            K::WrongPart(what) => write!(f, "{what}"),
            K::SavepointNameTaken(name) => write!(f, "there is a savepoint `{name}` already"),
            K::UnknownSeal(of) => write!(f, "speaks of {of}, which was never sealed here"),
            K::UnknownSink { sink, of } => write!(f, "speaks of sink `{sink}`, which {of} does not have"),
            K::AlreadyEnded { sink, of } => write!(f, "gives {of} a second end at sink `{sink}`"),
            K::NeedsDecision { sink, of } => {
                write!(f, "gives {of} an outcome at sink `{sink}`, where it waits for a person's decision")
            }
            K::OutOfOrder { sink, of, before } => write!(f, "sink `{sink}` committed {of} before {before}"),
            K::NotBlocked { sink, of } => write!(f, "decides on {of} at sink `{sink}`, which waits for no decision"),
            K::Retired(of) => write!(f, "names {of}, which is retired"),
            K::UnknownSavepoint(name) => write!(f, "there is no savepoint `{name}`"),
            K::MustBeKept { of, why } => write!(f, "retires {of}, which must be kept: {why}"),
            K::IntentNotNext { expected } => write!(f, "its intent should have number {expected}"),
            K::IntentNotOpen(number) => write!(f, "names intent {number}, which is not there or has a name"),
            K::ReleasedWhileNamed { sink, name } => {
                write!(f, "releases `{name}` of sink `{sink}`, which is still needed")
            }
            K::NamedAfterRelease { sink, name } => {
                write!(f, "names `{name}` of sink `{sink}`, which was released before")
            }
            K::NotFinished => write!(f, "calls the input finished although epochs have no end yet"),
            K::DeletesNeeded(slot) => write!(f, "gives up record {slot}, which is needed"),
        }
    }
}

impl std::error::Error for HistoryError {}
