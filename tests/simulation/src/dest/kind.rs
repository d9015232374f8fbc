//! The kinds of destinations that there are, as one model with switches.

use tidegate_protocol::plugin::{Abilities, AtomicScope, Orphans, Visibility};

/// How a destination behaves, and what its plugin declares. What is declared is true unless a bug is planted.
#[derive(Debug, Clone)]
pub struct Kind {
    /// Its name in figures.
    pub name: &'static str,
    /// Scope of a commit's atomicity.
    pub scope: AtomicScope,
    /// Rows wait unseen until commit. Without it they are seen as they are written.
    pub staging: bool,
    /// A commit of an id that was committed changes nothing, as long as its marker is kept.
    pub idempotent: bool,
    /// `observe` answers.
    pub observe: bool,
    /// `fence` answers.
    pub fence: bool,
    /// `reconcile` answers.
    pub reconcile: bool,
    /// Markers are forgotten after so many milliseconds.
    pub marker_retention: Option<u64>,
    /// A foreign writer leaves markers alone.
    pub marker_survives_foreign_writers: bool,
    /// `reconcile` looks back so many commits; behind them it does not know.
    pub history_kept: Option<usize>,
    /// Rows with the same key replace each other.
    pub upsert: bool,
    /// Prepared work is dropped after so many milliseconds.
    pub prepared_ttl: Option<u64>,
    /// How unsealed work is found.
    pub orphans: Orphans,
    /// Writers keep a stream open over epochs, and name it in their state and among their resources.
    pub streams: bool,
    /// How many epochs may be unfinished.
    pub open_epochs: u32,
    /// It does not do what it declares.
    pub planted: Option<Planted>,
}

/// What a dishonest destination does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Commits every time that it is asked, although it says that a repeat changes nothing.
    NotIdempotent,
    /// Answers `fence` and `observe` as if it were fenced, and lets older runs commit.
    NoFence,
    /// `observe` shows nothing of what was committed. No promise breaks by it: the next run finds the destination behind
    /// the log, and is refused.
    ObserveForgets,
    /// Rows are seen as soon as they are prepared.
    VisibleWhenPrepared,
    /// Says "committed" and drops the rows of every third commit.
    DropsCommits,
    /// Abandons whatever carries the part's epoch number, of any run, sealed and committed or not.
    AbandonsCommitted,
}

impl Planted {
    /// All of them, by name.
    pub const ALL: [(&'static str, Planted); 6] = [
        ("not-idempotent", Planted::NotIdempotent),
        ("no-fence", Planted::NoFence),
        ("observe-forgets", Planted::ObserveForgets),
        ("visible-when-prepared", Planted::VisibleWhenPrepared),
        ("drops-commits", Planted::DropsCommits),
        ("abandons-committed", Planted::AbandonsCommitted),
    ];

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, planted)| *planted)
    }
}

impl Kind {
    /// The strongest: a register that is updated with the data, in one step for the whole sink.
    pub fn register() -> Self {
        Self {
            name: "register",
            scope: AtomicScope::Sink,
            staging: true,
            idempotent: true,
            observe: true,
            fence: true,
            reconcile: true,
            marker_retention: None,
            marker_survives_foreign_writers: true,
            history_kept: None,
            upsert: false,
            prepared_ttl: None,
            orphans: Orphans::Listable,
            streams: false,
            open_epochs: 8,
            planted: None,
        }
    }

    /// All kinds, each by its name.
    pub fn all() -> Vec<Self> {
        let with = |name, change: fn(&mut Self)| {
            let mut kind = Self { name, ..Self::register() };
            change(&mut kind);
            kind
        };
        vec![
            Self::register(),
            with("per-participant", |kind| kind.scope = AtomicScope::Participant),
            with("not-observable", |kind| {
                kind.observe = false;
                kind.fence = false;
            }),
            with("not-fenced", |kind| kind.fence = false),
            with("not-asked", |kind| kind.reconcile = false),
            with("not-asked-per-participant", |kind| {
                kind.reconcile = false;
                kind.scope = AtomicScope::Participant;
            }),
            with("markers-expire", |kind| kind.marker_retention = Some(3_000)),
            with("pruned-history", |kind| {
                kind.history_kept = Some(2);
                kind.scope = AtomicScope::Participant;
            }),
            with("foreign-writers-erase", |kind| kind.marker_survives_foreign_writers = false),
            with("append-only", |kind| {
                kind.idempotent = false;
                kind.scope = AtomicScope::Participant;
            }),
            with("append-only-pruned", |kind| {
                kind.idempotent = false;
                kind.history_kept = Some(1);
                kind.scope = AtomicScope::Participant;
            }),
            with("append-only-mute", |kind| {
                kind.idempotent = false;
                kind.reconcile = false;
            }),
            with("upsert", |kind| {
                kind.upsert = true;
                kind.scope = AtomicScope::Participant;
            }),
            with("early-visible", |kind| {
                kind.staging = false;
                kind.scope = AtomicScope::Participant;
            }),
            with("early-upsert", |kind| {
                kind.staging = false;
                kind.upsert = true;
                kind.scope = AtomicScope::Participant;
            }),
            with("prepared-work-expires", |kind| kind.prepared_ttl = Some(4_000)),
            with("announced", |kind| kind.orphans = Orphans::DurableIntent),
            with("orphans-expire", |kind| kind.orphans = Orphans::Expires(2_000)),
            with("streams", |kind| {
                kind.streams = true;
                kind.scope = AtomicScope::Participant;
            }),
            with("announced-streams", |kind| {
                kind.streams = true;
                kind.orphans = Orphans::DurableIntent;
                kind.scope = AtomicScope::Participant;
            }),
            with("one-open-epoch", |kind| kind.open_epochs = 1),
        ]
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|kind| kind.name == name)
    }

    /// What the plugin declares.
    pub fn abilities(&self) -> Abilities {
        Abilities {
            staging: self.staging,
            idempotent_commit: self.idempotent,
            marker_retention: self.marker_retention,
            marker_survives_foreign_writers: self.marker_survives_foreign_writers,
            observe: self.observe,
            fence: self.fence,
            reconcile: self.reconcile,
            atomic_scope: self.scope,
            visibility: match (self.staging, self.scope) {
                (false, _) => Visibility::Early,
                (true, AtomicScope::Participant) => Visibility::PerParticipant,
                (true, AtomicScope::Sink) => Visibility::WholeEpoch,
            },
            max_open_epochs: self.open_epochs,
            upsert_keys: self.upsert,
            prepared_ttl: self.prepared_ttl,
            max_idle: None,
            names_per_day: None,
            orphans: self.orphans,
        }
    }

    /// Prepared rows are still there after a commit, so that a commit that is not recognised appends them again.
    pub(crate) fn keeps_prepared(&self) -> bool {
        !self.idempotent
            || self.marker_retention.is_some()
            || !self.marker_survives_foreign_writers
            || self.planted == Some(Planted::NotIdempotent)
    }
}
