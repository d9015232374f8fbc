//! Small deterministic pipelines, so chosen that every failure point lies on the way of one of them.

use tidegate_protocol::coordinator;
use tidegate_protocol::plugin::{AtomicScope, Call, Orphans};

use super::bench::Tenant;
use super::effect::{Between, DiskOp, Phase, What};
use crate::dest::{Destination, Kind, Rejects};
use crate::dice::Dice;
use crate::host::{Numbers, SinkSpec, Spec};
use crate::operator::Counter;
use crate::source::{Mark, Pace, Rows, SimSource};
use crate::store::SimStore;
use crate::world::World;

/// A pipeline, and what is done to it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) build: fn(&World) -> Vec<Tenant>,
    /// What happens while the host is dead, besides nothing.
    pub(crate) betweens: &'static [Between],
    /// Power cuts, with all that they may leave.
    pub(crate) power: bool,
    /// A crash at every effect of every recovery.
    pub(crate) nested: bool,
    /// Another host takes over while this one is held; two hosts start at once.
    pub(crate) hosts: bool,
    /// How plugins fail; without it only crashes, the disk and the log do.
    pub(crate) plugins: bool,
    /// After how many further calls late requests arrive.
    pub(crate) late: &'static [u32],
    pub(crate) slow_prepare_ms: u64,
    pub(crate) slow_commit_ms: u64,
    /// So much is added to each sink's configuration, so that records are long.
    pub(crate) padding: usize,
    /// Two savepoints are asked for when the epoch of this number is sealed.
    pub(crate) savepoints_at: Option<u64>,
    /// When the processes of `prelude` are dead, a person goes back to the first savepoint.
    pub(crate) goes_back: bool,
    /// These effects are disturbed, and no others; everything else is like that of another scenario.
    pub(crate) only: Option<fn(&What) -> bool>,
    /// Processes that were killed before: at which call, at which point of it, the how manyth time.
    pub(crate) prelude: &'static [(Call, Phase, usize)],
    /// With `--quick`, every effect is disturbed that lies so far from the one before; 1: all.
    pub(crate) quick_stride: u64,
}

pub(super) const PLAIN: Scenario = Scenario {
    name: "",
    about: "",
    build: small,
    betweens: &[],
    power: true,
    nested: false,
    hosts: false,
    plugins: true,
    late: &[2],
    slow_prepare_ms: 0,
    slow_commit_ms: 0,
    padding: 0,
    savepoints_at: None,
    goes_back: false,
    only: None,
    prelude: &[],
    quick_stride: 7,
};

/// All of them.
pub(crate) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "small",
        about: "one participant, one sink, a few epochs",
        nested: true,
        late: &[1, 2, 4, 8],
        betweens: &[
            Between::ClockBack,
            Between::Corrupt,
            Between::Cut,
            Between::Hollow,
            Between::Forgotten,
            Between::SourceBehind,
        ],
        quick_stride: 3,
        ..PLAIN
    },
    Scenario {
        name: "pair",
        about: "two participants and an idle partition, a second sink, commits part by part and slowly",
        build: pair,
        slow_commit_ms: 45,
        betweens: &[Between::Upgrade, Between::UpgradeBlind, Between::Rescale(1), Between::Rescale(3), Between::Denied],
        ..PLAIN
    },
    Scenario {
        name: "remote",
        about: "the log lies in an object store that other hosts reach",
        build: remote,
        power: false,
        hosts: true,
        late: &[1, 3, 6],
        ..PLAIN
    },
    Scenario {
        name: "retire",
        about: "long records, one checkpoint kept: segments fill, are written again and go",
        build: retire,
        plugins: false,
        padding: 9_000,
        quick_stride: 23,
        ..PLAIN
    },
    Scenario {
        name: "expiring",
        about: "the destination drops prepared work after a while",
        build: expiring,
        plugins: false,
        betweens: &[Between::Downtime],
        quick_stride: 3,
        ..PLAIN
    },
    Scenario {
        name: "announced",
        about: "two participants that announce what they create",
        build: announced,
        late: &[2, 5],
        ..PLAIN
    },
    Scenario {
        name: "left-staged",
        about: "a process was killed when a part was staged: the next one looks for it and gives it back",
        build: small,
        prelude: &[(Call::Prepare, Phase::After, 2)],
        late: &[2, 6, 9, 13, 17, 22],
        ..PLAIN
    },
    Scenario {
        name: "left-announced",
        about: "a process was killed before it prepared what it had announced",
        build: announced,
        prelude: &[(Call::Prepare, Phase::Before, 1)],
        late: &[2, 6, 9, 13, 17, 22],
        ..PLAIN
    },
    Scenario {
        name: "left-sent",
        about: "a process was killed when a commit was done: the next one asks what became of it",
        build: small,
        prelude: &[(Call::Commit, Phase::After, 1)],
        ..PLAIN
    },
    Scenario {
        name: "left-remote",
        about: "the same with a log in an object store, which other hosts reach",
        build: remote,
        power: false,
        prelude: &[(Call::Commit, Phase::After, 1)],
        hosts: true,
        ..PLAIN
    },
    Scenario {
        name: "poison",
        about: "rows that cannot be read, written or prepared, and a dead-letter sink",
        build: poison,
        ..PLAIN
    },
    Scenario {
        name: "sweeper",
        about: "prepares take longer than the time between two looks for orphans",
        build: sweeper,
        slow_prepare_ms: 120,
        late: &[3, 9],
        ..PLAIN
    },
    Scenario {
        name: "savepoints",
        about: "savepoints, the second of them of an epoch without rows",
        build: unhurried,
        savepoints_at: Some(1),
        plugins: false,
        ..PLAIN
    },
    Scenario {
        name: "tenants",
        about: "two pipelines in one process, each with a log of its own",
        build: tenants,
        plugins: false,
        quick_stride: 3,
        ..PLAIN
    },
    Scenario {
        name: "forked",
        about: "a process was killed behind a savepoint: a person goes back to it",
        build: forked,
        savepoints_at: Some(1),
        prelude: &[(Call::Commit, Phase::After, 4)],
        goes_back: true,
        ..PLAIN
    },
    Scenario {
        name: "counted",
        about: "columns, and a step in two subtasks whose state lies beside the log",
        build: counted,
        betweens: &[Between::Rescale(2)],
        ..PLAIN
    },
    Scenario {
        name: "part-by-part",
        about: "commits of several participants, of which some are done, at destinations that can be asked or cannot",
        build: part_by_part,
        only: Some(|what| is_call(what, &[Call::Commit, Call::Reconcile])),
        quick_stride: 1,
        ..PLAIN
    },
    Scenario {
        name: "left-by-many",
        about: "work that participants of seven kinds of sinks had staged is given back",
        build: many_kinds,
        prelude: &[(Call::Prepare, Phase::After, 7)],
        late: LATE_FOR_MANY,
        only: Some(|what| is_call(what, GIVING_BACK)),
        quick_stride: 1,
        ..PLAIN
    },
    Scenario {
        name: "left-twice",
        about: "the same after two processes were killed, the second with an epoch committed",
        build: many_kinds,
        prelude: &[(Call::Prepare, Phase::After, 5), (Call::Prepare, Phase::After, 14)],
        late: LATE_FOR_MANY,
        only: Some(|what| is_call(what, GIVING_BACK)),
        quick_stride: 1,
        ..PLAIN
    },
    Scenario {
        name: "released",
        about: "one checkpoint kept: what older ones needed is released, at two kinds of sinks",
        build: released,
        late: &[2, 9, 25],
        only: Some(|what| is_call(what, &[Call::Release])),
        quick_stride: 1,
        ..PLAIN
    },
    Scenario {
        name: "segments",
        about: "records so long that a segment goes with nearly every checkpoint",
        build: retire,
        plugins: false,
        padding: 30_000,
        only: Some(|what| matches!(what, What::Disk { op: DiskOp::Remove, .. })),
        quick_stride: 1,
        ..PLAIN
    },
    Scenario {
        name: "paged",
        about: "positions so long that they lie beside the log",
        build: paged,
        plugins: false,
        only: Some(|what| matches!(what, What::Disk { .. })),
        ..PLAIN
    },
    Scenario {
        name: "grown-remote",
        about: "a log in an object store that has grown before it is opened again",
        build: remote,
        power: false,
        prelude: &[(Call::Commit, Phase::After, 3)],
        only: Some(|what| matches!(what, What::Log { .. })),
        quick_stride: 1,
        ..PLAIN
    },
    Scenario {
        name: "left-twice-remote",
        about: "the same, by two processes",
        build: remote,
        power: false,
        prelude: &[(Call::Commit, Phase::After, 1), (Call::Commit, Phase::Before, 2)],
        only: Some(|what| matches!(what, What::Log { .. })),
        quick_stride: 1,
        ..PLAIN
    },
];

const GIVING_BACK: &[Call] = &[Call::Abandon, Call::ListOrphans];

/// Where sinks are many, very many calls lie between a request and the staging that it might meet.
const LATE_FOR_MANY: &[u32] = &[1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196];

fn is_call(what: &What, wanted: &[Call]) -> bool {
    matches!(what, What::Call { call, .. } if wanted.contains(call))
}

/// The scenario of that name.
pub(crate) fn named(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

struct Build<'a> {
    world: &'a World,
    pipeline: &'static str,
    marks: Vec<Vec<Mark>>,
    batch: u32,
    pause_ms: u64,
    tasks: u32,
    columns: bool,
    operator: Option<(Counter, u32)>,
    sinks: Vec<(&'static str, Kind, u32, Rejects)>,
    dead_letter: bool,
    remote: bool,
    numbers: Numbers,
}

impl<'a> Build<'a> {
    fn new(world: &'a World, sinks: Vec<(&'static str, Kind, u32)>) -> Self {
        let protocol = coordinator::Settings {
            max_waiting: 3,
            commit_tries: 3,
            backoff_base_ms: 10,
            backoff_max_ms: 40,
            retain_count: 8,
            idle_flush_ms: 30,
            sweep_ms: 400,
            ..coordinator::Settings::default()
        };
        Self {
            world,
            pipeline: "swept",
            marks: vec![vec![Mark::Good; 8]],
            batch: 2,
            pause_ms: 20,
            tasks: 1,
            columns: false,
            operator: None,
            sinks: sinks.into_iter().map(|(name, kind, n)| (name, kind, n, Rejects::default())).collect(),
            dead_letter: false,
            remote: false,
            numbers: Numbers { interval_ms: 25, call_timeout_ms: 300, protocol, restarts: 2, revision: 0 },
        }
    }

    fn done(self) -> Tenant {
        let dice = Dice::new(7);
        let rows = Rows { marks: self.marks, keys: 4 };
        let source = SimSource::new(self.world, rows, Pace { batch: self.batch, pause_ms: self.pause_ms }, &dice);
        let sink = |(name, kind, subtasks, rejects): (&str, Kind, u32, Rejects)| SinkSpec {
            id: Spec::name(name).expect("the names here are legal"),
            destination: Destination::new(self.world, name, kind).rejecting(rejects),
            subtasks,
            by_key: false,
        };
        let letters = self.dead_letter.then(|| sink(("letters", Kind::register(), 1, Rejects::default())));
        let spec = Spec {
            id: Spec::name(self.pipeline).expect("the names here are legal"),
            source,
            tasks: self.tasks,
            columns: self.columns,
            operator: self.operator,
            sinks: self.sinks.into_iter().map(sink).collect(),
            dead_letter: letters,
            settings: self.numbers,
        };
        let store = if self.remote { SimStore::object(self.world) } else { SimStore::local(self.world) };
        Tenant { spec, store, told: Vec::new(), finished: false }
    }
}

fn kind(name: &'static str, change: impl FnOnce(&mut Kind)) -> Kind {
    let mut kind = Kind { name, ..Kind::register() };
    change(&mut kind);
    kind
}

fn per_participant() -> Kind {
    kind("per-participant", |kind| kind.scope = AtomicScope::Participant)
}

fn appends() -> Kind {
    kind("append-only", |kind| {
        kind.idempotent = false;
        kind.scope = AtomicScope::Participant;
    })
}

fn upserts() -> Kind {
    kind("upsert", |kind| {
        kind.upsert = true;
        kind.scope = AtomicScope::Participant;
    })
}

/// Cannot be asked what became of a commit.
fn mute() -> Kind {
    kind("not-asked-per-participant", |kind| {
        kind.reconcile = false;
        kind.scope = AtomicScope::Participant;
    })
}

fn streams() -> Kind {
    kind("streams", |kind| {
        kind.streams = true;
        kind.scope = AtomicScope::Participant;
    })
}

fn announces() -> Kind {
    kind("announced", |kind| kind.orphans = Orphans::DurableIntent)
}

fn small(world: &World) -> Vec<Tenant> {
    vec![Build::new(world, vec![("one", Kind::register(), 1)]).done()]
}

fn pair(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("parts", per_participant(), 2), ("whole", Kind::register(), 2)]);
    build.marks = vec![vec![Mark::Good; 12], vec![]];
    build.tasks = 2;
    vec![build.done()]
}

fn remote(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", Kind::register(), 1)]);
    build.remote = true;
    build.numbers.protocol.retain_count = 1;
    vec![build.done()]
}

fn retire(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", streams(), 1)]);
    build.marks = vec![vec![Mark::Good; 30]];
    build.batch = 1;
    build.numbers.protocol.retain_count = 1;
    vec![build.done()]
}

fn paged(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", Kind::register(), 1)]);
    // What moves in each epoch stays in the record: so that something lies beside it, most must rest.
    build.marks = vec![vec![Mark::Good; 2]; 6];
    let mut tenant = build.done();
    tenant.spec.source = tenant.spec.source.with_long_positions(9_000);
    vec![tenant]
}

fn expiring(world: &World) -> Vec<Tenant> {
    let expires = kind("expiring", |kind| kind.prepared_ttl = Some(60_000));
    vec![Build::new(world, vec![("one", expires, 1)]).done()]
}

fn announced(world: &World) -> Vec<Tenant> {
    vec![Build::new(world, vec![("one", announces(), 2)]).done()]
}

fn poison(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", Kind::register(), 1)]);
    build.marks = vec![vec![
        Mark::Good,
        Mark::Bad,
        Mark::RefusedInWrite,
        Mark::SpoilsBatch,
        Mark::Good,
        Mark::RefusedInPrepare,
        Mark::Good,
    ]];
    build.sinks[0].3 = Rejects { in_write: true, in_prepare: true, batches: true };
    build.dead_letter = true;
    vec![build.done()]
}

fn sweeper(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", Kind::register(), 1)]);
    build.numbers.protocol.sweep_ms = 50;
    vec![build.done()]
}

fn unhurried(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", Kind::register(), 1)]);
    build.pause_ms = 60;
    vec![build.done()]
}

fn tenants(world: &World) -> Vec<Tenant> {
    let one = Build::new(world, vec![("one", Kind::register(), 1)]).done();
    let mut other = Build::new(world, vec![("other", Kind::register(), 1)]);
    other.pipeline = "neighbour";
    vec![one, other.done()]
}

fn forked(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", Kind::register(), 1)]);
    build.marks = vec![vec![Mark::Good; 12]];
    vec![build.done()]
}

fn counted(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("one", Kind::register(), 1)]);
    build.columns = true;
    build.operator = Some((Counter::new(world).with_filler(6_000), 2));
    vec![build.done()]
}

fn part_by_part(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("parts", per_participant(), 3), ("mute", mute(), 2)]);
    build.marks = vec![vec![Mark::Good; 16]; 3];
    build.tasks = 3;
    vec![build.done()]
}

fn many_kinds(world: &World) -> Vec<Tenant> {
    let sinks = vec![
        ("listed", Kind::register(), 1),
        ("parts", per_participant(), 2),
        ("announced", announces(), 1),
        ("streams", streams(), 1),
        ("appended", appends(), 1),
        ("upserted", upserts(), 2),
        ("mute", mute(), 1),
    ];
    vec![Build::new(world, sinks).done()]
}

fn released(world: &World) -> Vec<Tenant> {
    let mut build = Build::new(world, vec![("streams", streams(), 2), ("listed", Kind::register(), 1)]);
    build.marks = vec![vec![Mark::Good; 24]];
    build.batch = 1;
    build.numbers.protocol.retain_count = 1;
    vec![build.done()]
}
