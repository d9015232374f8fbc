//! What the driver lets others see, and where tests may hold it.

use std::collections::BTreeMap;

use tidegate_protocol::event::Notice;
use tidegate_protocol::ids::{EpochRef, SinkId, SourceId};
use tidegate_protocol::positions::Positions;

/// A point that a run passes. A process killed at each of them must lose nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// The log has been read; nothing was asked of any destination.
    Starting,
    /// The run is decided; older epochs are being finished.
    Restoring,
    /// The first rows of an epoch are on their way.
    Open,
    /// The barrier has been sent.
    Preparing,
    /// The seal is durable; nothing was sent.
    Sealed,
    /// A commit has been handed to the plugin.
    Sent,
    /// A commit's outcome is not known.
    InDoubt,
    /// The last epoch is committed, the end not yet recorded.
    Finishing,
}

impl Moment {
    /// All of them, in the order in which a run passes them.
    pub const ALL: [Moment; 8] = [
        Moment::Starting,
        Moment::Restoring,
        Moment::Open,
        Moment::Preparing,
        Moment::Sealed,
        Moment::Sent,
        Moment::InDoubt,
        Moment::Finishing,
    ];

    /// Its name: `starting`, `in-doubt`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Moment::Starting => "starting",
            Moment::Restoring => "restoring",
            Moment::Open => "open",
            Moment::Preparing => "preparing",
            Moment::Sealed => "sealed",
            Moment::Sent => "sent",
            Moment::InDoubt => "in-doubt",
            Moment::Finishing => "finishing",
        }
    }

    /// The moment of that name.
    pub fn parse(name: &str) -> Option<Moment> {
        Self::ALL.into_iter().find(|moment| moment.as_str() == name)
    }
}

/// Counters of a process, over all its runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows handed on by all sources since the process began; rows read twice after a restart count twice.
    pub rows_read: u64,
    /// Rows made visible, per sink.
    pub rows_committed: BTreeMap<SinkId, u64>,
    /// Rows sent to the dead-letter sink in sealed epochs.
    pub rows_dead_lettered: u64,
    /// Rows that the sinks' filters left out in sealed epochs, over all sinks.
    pub rows_filtered: u64,
    /// Epochs sealed by this process.
    pub epochs_sealed: u64,
    /// Epochs committed by every sink, by this process.
    pub epochs_committed: u64,
    /// Unix milliseconds of the last commit at any sink.
    pub last_commit_at: Option<u64>,
    /// Unix milliseconds of the newest seal.
    pub last_seal_at: Option<u64>,
    /// How long the newest epoch took from barrier to seal, in milliseconds.
    pub last_checkpoint_millis: Option<u64>,
    /// Positions at the newest cut, per source.
    pub positions: BTreeMap<SourceId, Positions>,
    /// Sealed and not yet committed, per sink.
    pub waiting: Vec<(SinkId, EpochRef)>,
    /// Runs begun by this process.
    pub runs: u64,
    /// Sinks whose plugin failed so often that no instance of it is made. Empty where nobody counts.
    pub quarantined: Vec<SinkId>,
}

/// Looks on. Called from the driver's own task, so an implementation returns at once — or never, where a test holds
/// the process at a [`Moment`].
pub trait Observer: Send + Sync {
    /// A run passes this point.
    fn reached(&self, moment: Moment) {
        let _ = moment;
    }

    /// The protocol has something to tell.
    fn notice(&self, notice: &Notice) {
        let _ = notice;
    }

    /// Counters changed; at most a few times per epoch.
    fn progress(&self, progress: &Progress) {
        let _ = progress;
    }
}

/// Looks at nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}
