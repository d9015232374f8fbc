//! What one exploration is about: a small pipeline, what may happen to it, and how often.

use std::collections::BTreeMap;

use tidegate_protocol::coordinator::Settings;
use tidegate_protocol::event::{Graph, SinkSpec, SourceSpec};
use tidegate_protocol::ids::{Epoch, EpochRef, Nonce, PipelineId, RunId, SinkId, SourceId};
use tidegate_protocol::plugin::{Abilities, AtomicScope, Orphans, Visibility};
use tidegate_protocol::record::{Binding, MismatchPolicy};

/// At most so many sinks.
pub const SINKS: usize = 2;

/// What is counted down. Every kind of thing that could happen without end has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Spend {
    /// A host dies; what it had sent may still arrive.
    Crash,
    /// A call or an append goes wrong, or an answer comes twice.
    Fault,
    /// A host is started while another one lives.
    Zombie,
    /// A start after an end that nothing forces: finished, stopped, blocked, refused, failed.
    Restart,
    /// A person decides about a blocked epoch, or starts with a decision in the settings.
    Decision,
    /// A writer, a source or a task is lost, and the epoch with it.
    Loss,
    /// Somebody asks the run to stop.
    Stop,
    /// Somebody asks for a savepoint.
    Savepoint,
    /// Somebody gives a savepoint up.
    Forget,
    /// Log or destination are put back to what they were before.
    Backup,
    /// Orphans are looked for once more.
    Sweep,
    /// The power fails: all hosts die, and what the log's disk had not kept is gone.
    Power,
    /// Somebody withdraws a request.
    Withdraw,
    /// Another log, of which this one knows nothing, fences a destination and commits there.
    Stranger,
}

/// How many kinds there are.
pub const SPENDS: usize = 14;

/// What is left of each kind.
pub type Budget = [u8; SPENDS];

/// One sink of the pipeline, and its destination.
#[derive(Debug, Clone)]
pub struct SinkPlan {
    /// Its name.
    pub name: &'static str,
    /// Participants of the first host, of the second, …; the last one counts for all that follow.
    pub participants: Vec<u32>,
    /// What the plugin can do.
    pub abilities: Abilities,
    /// Writers answer with a state.
    pub states: bool,
}

impl SinkPlan {
    /// A sink whose plugin can do everything.
    pub fn able(name: &'static str, participants: u32) -> Self {
        Self { name, participants: vec![participants], abilities: able(), states: false }
    }

    /// The same with other abilities.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Abilities)) -> Self {
        change(&mut self.abilities);
        self
    }

    /// Its id.
    pub fn id(&self) -> SinkId {
        sink(self.name)
    }
}

/// How a host is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StartKind {
    /// With the settings that it always has.
    Plain,
    /// Going back to the oldest checkpoint that is retained, under the id `f`.
    Fork(MismatchPolicy),
    /// Accepting a mismatch at the first sink, under the id `m`.
    Accept(MismatchPolicy),
    /// Going back to a checkpoint that is not there.
    ForkNowhere,
    /// With the second sink under another name.
    Renamed,
    /// With the sinks' grants changed.
    OtherGrants,
    /// With a plugin that cannot finish what the one before it prepared.
    OtherPlugin,
}

/// What an older state is put back of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutBack {
    /// The log, to any of its states, or one destination, to what it was before its newest commit.
    Either,
    /// Only a log.
    Log,
    /// Only a destination.
    Destination,
    /// Log and destinations together, to what they were in the beginning.
    Everything,
}

/// What a person may decide about a blocked epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choosing {
    /// Send again.
    Retry,
    /// Give its rows up.
    GiveUp,
    /// Go back to the oldest checkpoint that is retained.
    Fork(MismatchPolicy),
    /// Accept a mismatch at the first sink.
    Accept(MismatchPolicy),
}

/// How a call, an append or a local effect is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// As it should be.
    Well,
    /// Done, and the answer is lost.
    DoneLost,
    /// Nothing comes back; it may be done later, or never.
    Late,
    /// Done, answered, and done once more later.
    Twice,
    /// Nothing goes wrong at the destination; the answer comes once more later.
    ToldTwice,
    /// Not done: the plugin trapped.
    Trapped,
    /// Not done, and answered so: `not-committed`, or certainly not written.
    NotDone,
    /// Not done, and answered with `retry`.
    RetryAfter,
    /// Not known, says the answer; not done.
    Unknown,
    /// Not known, says the answer; done.
    UnknownDone,
    /// An error that says that the same call may work later; not done.
    Retryable,
    /// An error that says that this call is not allowed; not done.
    Denied,
    /// An error that says that a newer run owns the destination; not done.
    Superseded,
    /// An error, or an outcome, that says that it will never work; not done.
    Rejected,
    /// The destination dropped what was prepared: nobody can commit it any more.
    Never,
    /// The first part is done, the others are not.
    Partly,
    /// Done, and the list of outcomes lacks its last entry.
    Short,
    /// An error that says that the plugin cannot do that.
    Unsupported,
    /// The same as an outcome.
    CannotSay,
    /// An error that says that it will never work; not done.
    Permanent,
    /// Not written, and the store accepts nothing more.
    Refused,
    /// Written, and answered with the record itself as if somebody else had been there before.
    TakenByItself,
    /// The flush failed: it can be read now, and is gone after a power cut.
    Volatile,
}

/// Rules of the environment that can be taken out, to see that they are needed. All are in force by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Without {
    /// Counter-example 1: whoever creates a record need not have read the one before it.
    pub one_log: bool,
    /// Counter-example 6: runs have no random part.
    pub nonce: bool,
    /// Counter-example 7: a repeated commit publishes again.
    pub idempotence: bool,
    /// Counter-example 9: what a dead writer had begun ends as if it were whole.
    pub broken_ends: bool,
    /// Counter-example 10: a log is read as it lies in the page cache.
    pub rewritten_tail: bool,
    /// The destination lets older runs through.
    pub fence: bool,
}

impl Without {
    /// The rules by name, for the command line.
    pub const NAMES: [&str; 6] = ["one-log", "nonce", "idempotence", "broken-ends", "rewritten-tail", "fence"];

    /// Takes a rule out.
    pub fn take_out(&mut self, name: &str) -> bool {
        let rule = match name {
            "one-log" => &mut self.one_log,
            "nonce" => &mut self.nonce,
            "idempotence" => &mut self.idempotence,
            "broken-ends" => &mut self.broken_ends,
            "rewritten-tail" => &mut self.rewritten_tail,
            "fence" => &mut self.fence,
            _ => return false,
        };
        *rule = true;
        true
    }
}

/// One exploration.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its name.
    pub name: &'static str,
    /// One or two.
    pub sinks: Vec<SinkPlan>,
    /// So many rows are read at a time.
    pub bundles: Vec<u8>,
    /// What may happen how often.
    pub budget: Budget,
    /// What may go wrong.
    pub faults: Vec<How>,
    /// Ways in which hosts may be started besides the plain one; each costs a decision.
    pub starts: Vec<StartKind>,
    /// What a person may decide between two runs.
    pub choices: Vec<Choosing>,
    /// So many of the reasons for which an epoch may be lost.
    pub losses: u8,
    /// Answers travel: something may happen between a call and its answer. Otherwise both are one step.
    pub answers_travel: bool,
    /// What is put back to an older state.
    pub put_back: PutBack,
    /// Records that must be refused are tried on every log.
    pub probes: bool,
    /// Tries until an epoch is blocked.
    pub tries: u32,
    /// Checkpoints that are kept.
    pub retain: u32,
    /// Sealed epochs that may wait.
    pub max_waiting: u32,
    /// What is taken out.
    pub without: Without,
}

impl Plan {
    /// One able sink and nothing that goes wrong.
    pub fn new(name: &'static str, sinks: Vec<SinkPlan>, bundles: &[u8]) -> Self {
        Self {
            name,
            sinks,
            bundles: bundles.to_vec(),
            budget: [0; SPENDS],
            faults: Vec::new(),
            starts: Vec::new(),
            choices: Vec::new(),
            losses: 1,
            answers_travel: false,
            put_back: PutBack::Either,
            probes: true,
            tries: 2,
            retain: 4,
            max_waiting: 2,
            without: Without::default(),
        }
    }

    /// Allows something so many times.
    #[must_use]
    pub fn allow(mut self, what: Spend, times: u8) -> Self {
        self.budget[what as usize] = times;
        self
    }

    /// Allows these faults, so many of them in one life.
    #[must_use]
    pub fn faults(mut self, times: u8, faults: &[How]) -> Self {
        self.faults = faults.to_vec();
        self.allow(Spend::Fault, times)
    }

    /// Allows these ways to start.
    #[must_use]
    pub fn starts(mut self, starts: &[StartKind]) -> Self {
        self.starts = starts.to_vec();
        self
    }

    /// Allows these decisions.
    #[must_use]
    pub fn choices(mut self, choices: &[Choosing]) -> Self {
        self.choices = choices.to_vec();
        self
    }

    /// Changes anything else.
    #[must_use]
    pub fn set(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// All rows of the source.
    pub fn rows(&self) -> u8 {
        self.bundles.iter().sum()
    }

    /// How many rows the bundle has that begins at row `at`.
    pub fn bundle(&self, at: u8) -> Option<u8> {
        let mut begin = 0;
        self.bundles.iter().copied().find(|rows| {
            let found = begin == at;
            begin += rows;
            found
        })
    }

    /// Participants of a sink for the nth host, from 0.
    pub fn participants(&self, sink: usize, host: usize) -> u32 {
        let counts = &self.sinks[sink].participants;
        counts[host.min(counts.len() - 1)]
    }

    /// The graph of the nth host.
    pub fn graph(&self, host: usize, kind: StartKind) -> Graph {
        let renamed = |at: usize| kind == StartKind::Renamed && at == 1;
        let specs = self.sinks.iter().enumerate().map(|(at, plan)| {
            let mut spec = SinkSpec {
                participants: self.participants(at, host),
                abilities: plan.abilities.clone(),
                committable_versions: vec![1],
                binding: binding(),
                dead_letter: false,
            };
            if kind == StartKind::OtherGrants {
                spec.binding.grants = "[1]".to_owned();
            }
            if kind == StartKind::OtherPlugin {
                spec.binding.plugin = "sha256:01".to_owned();
                spec.committable_versions = vec![2];
            }
            (if renamed(at) { sink("renamed") } else { plan.id() }, spec)
        });
        let source_spec = SourceSpec { tasks: 1, replayable: true, bounded: true };
        Graph {
            sources: BTreeMap::from([(source(), source_spec)]),
            operators: BTreeMap::new(),
            sinks: specs.collect(),
            wiring: BTreeMap::new(),
        }
    }

    /// The settings of a host.
    pub fn settings(&self, kind: StartKind, oldest: Option<EpochRef>) -> Settings {
        let by = || "somebody".to_owned();
        let mut settings = Settings {
            max_waiting: self.max_waiting,
            commit_tries: self.tries,
            backoff_base_ms: 1,
            backoff_max_ms: 1,
            retain_count: self.retain,
            retain_age_ms: None,
            idle_flush_ms: 1,
            sweep_ms: u64::from(self.budget[Spend::Sweep as usize] > 0),
            mismatch: BTreeMap::new(),
            fork: None,
            product: String::new(),
        };
        match kind {
            StartKind::Fork(policy) => {
                settings.fork = oldest.map(|from| ("f".to_owned(), by(), from, policy));
            }
            StartKind::ForkNowhere => {
                let nowhere = EpochRef { run: RunId { number: 1, nonce: nonce(99) }, epoch: Epoch(1) };
                settings.fork = Some(("f".to_owned(), by(), nowhere, MismatchPolicy::AcceptLoss));
            }
            StartKind::Accept(policy) => {
                settings.mismatch.insert(self.sinks[0].id(), ("m".to_owned(), by(), policy));
            }
            StartKind::Plain | StartKind::Renamed | StartKind::OtherGrants | StartKind::OtherPlugin => {}
        }
        settings
    }
}

fn able() -> Abilities {
    Abilities {
        staging: true,
        idempotent_commit: true,
        marker_retention: None,
        marker_survives_foreign_writers: true,
        observe: true,
        fence: true,
        reconcile: true,
        atomic_scope: AtomicScope::Sink,
        visibility: Visibility::WholeEpoch,
        max_open_epochs: 100,
        upsert_keys: false,
        prepared_ttl: None,
        max_idle: None,
        names_per_day: None,
        orphans: Orphans::Listable,
    }
}

fn binding() -> Binding {
    let text = str::to_owned;
    Binding { plugin: text("sha256:00"), plugin_name: text("model 1"), config: text("{}"), grants: text("[]") }
}

/// The pipeline.
pub fn pipeline() -> PipelineId {
    PipelineId::new("p").unwrap_or_else(|error| panic!("{error}"))
}

/// A sink by its name in the plan.
pub fn sink(name: &str) -> SinkId {
    SinkId::new(name).unwrap_or_else(|error| panic!("{error}"))
}

/// The one source.
pub fn source() -> SourceId {
    SourceId::new("in").unwrap_or_else(|error| panic!("{error}"))
}

/// The random part of the nth host that leaves a trace, from 1.
pub fn nonce(number: u8) -> Nonce {
    Nonce([number; 10])
}

/// The random part of a run of another log.
pub const STRANGER: Nonce = Nonce([77; 10]);

/// Whether a run is of another log.
pub fn is_stranger(run: RunId) -> bool {
    run.nonce == STRANGER
}

/// Which host a run is of.
pub fn number_of(run: RunId) -> u8 {
    run.nonce.0[0]
}
