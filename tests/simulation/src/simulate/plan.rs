//! What a seed decides before anything runs: the pipeline, its destinations, and everything that will go wrong.
//!
//! Every misfortune is an [`Item`] of its own, so that a failure can be tried again with fewer of them.

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::plugin::{Call, ErrorKind, Outcome};
use tidegate_store::AppendFault;
use tidegate_store::disk::sim::Fault;

use crate::dest::mischief::error;
use crate::dest::{Act, Kind, Planted, Rejects};
use crate::dice::Dice;
use crate::host::{Do, Numbers};
use crate::source::{Mark, Pace, Rows};

/// The whole of a seed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The rows of the source.
    pub rows: Rows,
    /// How fast it gives them.
    pub pace: Pace,
    /// Rows travel as columns.
    pub columns: bool,
    /// There is a step with state.
    pub operator: bool,
    /// For so much of event time it holds rows back.
    pub holds: Option<i64>,
    /// Partitions are files of so many rows, which are forgotten one after the other.
    pub file: Option<u32>,
    /// The sinks; the last one is for dead letters.
    pub sinks: Vec<PlannedSink>,
    /// From this partition on the rows come from a second source.
    pub second_from: Option<u32>,
    /// The log lies in an object store.
    pub object_store: bool,
    /// Numbers of the pipeline.
    pub numbers: Numbers,
    /// Longest delay of a call, in milliseconds.
    pub jitter_ms: u64,
    /// Digits of a position. Of long ones a few are as many bytes as very many short ones.
    pub digits: usize,
    /// Bytes of filler in the state of the step.
    pub filler: usize,
    /// Lives of hosts, one after the other.
    pub lives: Vec<PlannedLife>,
}

/// A sink.
#[derive(Debug, Clone)]
pub struct PlannedSink {
    /// Its destination.
    pub kind: Kind,
    /// Which rows it does not take.
    pub rejects: Rejects,
    /// Rows find their participant by key.
    pub by_key: bool,
}

/// One life.
#[derive(Debug, Clone)]
pub struct PlannedLife {
    /// Tasks of the source.
    pub tasks: u32,
    /// Subtasks of the step.
    pub operator_subtasks: u32,
    /// Participants of each sink.
    pub subtasks: Vec<u32>,
    /// What goes wrong.
    pub items: Vec<Item>,
}

/// One misfortune, or one deed of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The nth call of a kind at a sink misbehaves.
    Call(usize, Call, u64, Act),
    /// A changing operation of the disk fails.
    DiskFails(u64, Fault),
    /// The host dies in a changing operation of the disk.
    DiesInDisk(u64),
    /// A read of the disk fails.
    ReadFails(u64),
    /// An append to the object store fails.
    AppendFails(usize, AppendFault),
    /// The first read of the object store's log is old.
    StaleRead(usize),
    /// A read of the source fails.
    SourceFails(u64),
    /// A batch cannot be worked on by the step.
    OperatorFails(u64),
    /// Something happens at a moment.
    At(Moment, u64, Do),
    /// The host dies after so many milliseconds.
    DiesAfter(u64),
    /// After this life: the power was cut, not only the process ended.
    PowerCut,
    /// After this life: nobody starts the pipeline for so many milliseconds.
    Outage(u64),
    /// After this life: a destination is put back to its newest backup.
    GoBack(usize),
    /// After this life: a person goes back to an older checkpoint, chosen by this number.
    Fork(u64),
    /// After this life: a byte of the log is damaged, at this place counted in thousandths.
    Damage(u64),
    /// After this life: a byte of a piece of state that the newest checkpoint names is damaged; chosen by this number.
    DamageState(u64),
    /// The second source is not in the pipeline.
    SourceAway,
    /// After so many milliseconds another host takes over with a copy of the log, or in the same object store; this one
    /// goes on for so many.
    TakenOver(u64, u64),
}

impl Item {
    /// Its kind, for figures; calls tell theirs when they are made.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Item::PowerCut => Some("power-cut"),
            Item::Outage(_) => Some("outage"),
            Item::GoBack(_) => Some("destination-restored"),
            Item::Fork(_) => Some("fork"),
            Item::Damage(_) => Some("log-damaged"),
            Item::DamageState(_) => Some("state-damaged"),
            Item::SourceAway => Some("source-away"),
            Item::TakenOver(..) => Some("second-host"),
            _ => None,
        }
    }
}

/// Names of all faults that a long enough simulation must have seen.
pub(super) fn all_faults() -> Vec<String> {
    let mut names: Vec<String> = CALLS.iter().flat_map(|(call, _)| acts(*call)).map(|(_, act)| act.kind()).collect();
    let others = [
        "power-cut",
        "outage",
        "destination-restored",
        "fork",
        "log-damaged",
        "state-damaged",
        "source-away",
        "second-host",
        "disk-eio",
        "disk-full",
        "disk-read-eio",
        "crash-in-disk-write",
        "crash-at-moment",
        "crash-at-time",
        "log-stale-read",
        "log-answer-lost",
        "log-full",
        "source-error",
        "operator-error",
        "foreign-write",
        "clock-jump",
        "savepoint",
        "stop",
        "rescale",
    ];
    names.extend(others.map(str::to_owned));
    names.sort();
    names.dedup();
    names
}

const CALLS: [(Call, u64); 12] = [
    (Call::Commit, 34),
    (Call::Prepare, 14),
    (Call::Reconcile, 9),
    (Call::Write, 7),
    (Call::Observe, 6),
    (Call::Fence, 7),
    (Call::Abandon, 7),
    (Call::Release, 6),
    (Call::ListOrphans, 3),
    (Call::Begin, 4),
    (Call::Open, 3),
    (Call::Instantiate, 3),
];

/// What a call may do, with weights.
fn acts(call: Call) -> Vec<(u64, Act)> {
    let refused = Outcome::Rejected(error(ErrorKind::Permanent));
    let mut acts = vec![
        (3, Act::Trap),
        (2, Act::Hang),
        (3, Act::Error(ErrorKind::Retryable)),
        (3, Act::LoseAnswer),
        (2, Act::CrashBefore),
        (4, Act::CrashAfter),
        (2, Act::Slow(60)),
        (1, Act::HostPanic),
    ];
    acts.extend(match call {
        Call::Commit => vec![
            (6, Act::LoseAnswer),
            (3, Act::TrapAfter),
            (3, Act::HangAfter),
            (5, Act::Late(900)),
            (3, Act::Twice),
            (2, Act::Error(ErrorKind::Unknown)),
            (1, Act::Error(ErrorKind::Denied)),
            (1, Act::Error(ErrorKind::Permanent)),
            (3, Act::ErrorAfter(ErrorKind::Unknown)),
            (2, Act::Answer(Outcome::Retry(Some(30)))),
            (2, Act::Answer(Outcome::NotCommitted)),
            (2, Act::Answer(Outcome::Unknown)),
            (1, Act::Answer(refused)),
            (3, Act::Partly),
            (3, Act::BlamesFirst),
            (2, Act::OneTooFew),
            (2, Act::OneTooMany),
            (1, Act::OnlySays),
        ],
        Call::Reconcile => vec![
            (3, Act::Answer(Outcome::Unknown)),
            (3, Act::Answer(Outcome::Retry(Some(30)))),
            (1, Act::Answer(Outcome::Unsupported)),
            (2, Act::Answer(Outcome::NotCommitted)),
            (1, Act::Answer(Outcome::Never)),
            (2, Act::OneTooFew),
            (1, Act::Error(ErrorKind::Unknown)),
        ],
        Call::Prepare => vec![
            (3, Act::TrapAfter),
            (2, Act::HangAfter),
            (3, Act::Late(700)),
            (2, Act::Error(ErrorKind::EpochLost)),
            (2, Act::ErrorAfter(ErrorKind::Unknown)),
            (1, Act::WrongRows),
            (1, Act::WrongPart),
            (2, Act::OldName),
            (1, Act::Twice),
        ],
        Call::Write => vec![(2, Act::Error(ErrorKind::EpochLost)), (1, Act::OneTooMany), (2, Act::TrapAfter)],
        Call::Fence => {
            vec![(3, Act::Late(600)), (2, Act::Twice), (2, Act::TrapAfter), (2, Act::ErrorAfter(ErrorKind::Unknown))]
        }
        Call::Abandon | Call::Release => vec![
            (3, Act::Late(800)),
            (2, Act::HangAfter),
            (2, Act::Partly),
            (2, Act::Twice),
            (2, Act::OneTooFew),
            (2, Act::Answer(Outcome::Unknown)),
            (1, Act::Answer(refused)),
            (1, Act::OnlySays),
        ],
        _ => vec![],
    });
    acts
}

fn weighted<T: Clone>(dice: &mut Dice, of: &[(u64, T)]) -> T {
    let sum = of.iter().map(|(weight, _)| weight).sum();
    let mut drawn = dice.below(sum);
    for (weight, item) in of {
        if drawn < *weight {
            return item.clone();
        }
        drawn -= weight;
    }
    of[0].1.clone()
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64, planted: Option<Planted>) -> Self {
        let dice = Dice::new(seed);
        let mut shape = dice.fork("shape");
        let operator = shape.chance(35);
        let columns = shape.chance(12);
        let numbers = numbers(&mut shape);
        let count = shape.between(1, 2) as usize;
        let mut sinks: Vec<PlannedSink> = (0..count).map(|_| sink(&mut shape, operator)).collect();
        let letters = if shape.chance(70) { Kind::register() } else { shape.pick(&Kind::all()).clone() };
        sinks.push(PlannedSink { kind: letters, rejects: Rejects::default(), by_key: false });
        if let Some(planted) = planted {
            sinks[0].kind = Kind { planted: Some(planted), ..sinks[0].kind.clone() };
        }
        let partitions = shape.between(1, 3) as u32;
        let object_store = shape.chance(25);
        let mut weight = dice.fork("weight");
        let digits = if weight.chance(8) { 9_000 } else { 1 };
        let filler = if weight.chance(20) { weight.between(5_000, 90_000) as usize } else { 0 };
        let second_from =
            (partitions > 1 && weight.chance(40)).then(|| weight.between(1, u64::from(partitions) - 1) as u32);
        let mut chaos = dice.fork("chaos");
        let mut lives: Vec<PlannedLife> =
            (0..chaos.between(2, 4)).map(|_| life(&mut chaos, (partitions, &sinks, operator, object_store))).collect();
        // State lies beside the log where it is large.
        let beside = !object_store && (digits > 1 || operator && filler > 0);
        for (number, life) in lives.iter_mut().enumerate() {
            if beside && weight.chance(25) {
                life.items.push(Item::DamageState(weight.draw()));
            }
            // Not the first: it must have read something.
            if number > 0 && second_from.is_some() && weight.chance(40) {
                life.items.push(Item::SourceAway);
            }
        }
        let pace = Pace { batch: shape.between(1, 3) as u32, pause_ms: shape.between(10, 30) };
        let tasks = u64::from(lives.iter().map(|life| life.tasks).min().unwrap_or(1));
        // Enough for some twenty epochs at that pace.
        let per_epoch = tasks * numbers.interval_ms * (u64::from(pace.batch) + 1) / (pace.pause_ms + 8);
        let rows = (per_epoch.max(2) * shape.between(25, 31)).clamp(60, 800);
        let rows = Rows {
            marks: marks(&mut shape, partitions, rows, !operator && !columns),
            keys: shape.between(1, 9) as u32,
        };
        let jitter_ms = *shape.pick(&[0, 1, 3, 6]);
        let mut time = dice.fork("time");
        // A source that comes back is behind the time of the others.
        let holds = (operator && second_from.is_none() && time.chance(60)).then(|| time.between(1, 30) as i64);
        let file = time.chance(10).then(|| time.between(1, 6) as u32);
        Self {
            seed,
            rows,
            pace,
            columns,
            operator,
            holds,
            file,
            sinks,
            second_from,
            object_store,
            numbers,
            jitter_ms,
            digits,
            filler,
            lives,
        }
    }

    /// All items, by their place.
    pub fn items(&self) -> Vec<(usize, usize)> {
        let of_life = |(life, planned): (usize, &PlannedLife)| {
            (0..planned.items.len()).map(move |item| (life, item)).collect::<Vec<_>>()
        };
        self.lives.iter().enumerate().flat_map(of_life).collect()
    }

    /// The same without one item.
    #[must_use]
    pub fn without(&self, (life, item): (usize, usize)) -> Self {
        let mut plan = self.clone();
        plan.lives[life].items.remove(item);
        plan
    }
}

fn numbers(dice: &mut Dice) -> Numbers {
    let mut numbers = Numbers {
        interval_ms: dice.between(30, 90),
        call_timeout_ms: dice.between(150, 400),
        restarts: dice.between(1, 3) as u32,
        ..Numbers::default()
    };
    let protocol = &mut numbers.protocol;
    protocol.max_waiting = dice.between(1, 4) as u32;
    protocol.commit_tries = dice.between(2, 5) as u32;
    protocol.backoff_base_ms = dice.between(5, 40);
    protocol.backoff_max_ms = protocol.backoff_base_ms * 4;
    protocol.retain_count = dice.between(1, 4) as u32;
    protocol.retain_age_ms = dice.chance(10).then(|| dice.between(100, 600));
    protocol.idle_flush_ms = dice.between(5, 80);
    protocol.sweep_ms = if dice.chance(80) { dice.between(50, 500) } else { 0 };
    numbers
}

fn sink(dice: &mut Dice, operator: bool) -> PlannedSink {
    let kind = if dice.chance(25) { Kind::register() } else { dice.pick(&Kind::all()).clone() };
    // What was shown as it was written cannot be taken back in `prepare`.
    let (in_write, batches) = (dice.chance(40), dice.chance(20));
    // Both together: what is refused late is numbered among the rows of batches that came in halves.
    let in_prepare = kind.staging && dice.chance(if batches { 60 } else { 15 });
    let rejects = Rejects { in_write, in_prepare, batches };
    let rejects = if operator && dice.chance(60) { Rejects::default() } else { rejects };
    PlannedSink { kind, rejects, by_key: dice.chance(40) }
}

/// `no_text`: something can be made of rows that are no text.
fn marks(dice: &mut Dice, partitions: u32, rows: u64, no_text: bool) -> Vec<Vec<Mark>> {
    let unusual = dice.chance(70);
    let mut last = Mark::Good;
    let mut mark = |dice: &mut Dice| {
        let drawn = dice.below(100);
        last = match (drawn, last) {
            _ if !unusual => Mark::Good,
            // Side by side they are often in one batch.
            (50.., Mark::SpoilsBatch) => Mark::RefusedInPrepare,
            (70.., Mark::RefusedInPrepare) => Mark::SpoilsBatch,
            (0..=1, _) => Mark::Bad,
            (2, _) if no_text => Mark::RefusedNoText,
            (2..=3, _) => Mark::RefusedInWrite,
            (4, _) => Mark::RefusedInPrepare,
            (5, _) => Mark::SpoilsBatch,
            _ => Mark::Good,
        };
        last
    };
    let each = rows / u64::from(partitions) + 1;
    (0..partitions).map(|_| (0..dice.between(each / 2, each + each / 2)).map(|_| mark(dice)).collect()).collect()
}

fn life(
    dice: &mut Dice,
    (partitions, sinks, operator, object_store): (u32, &[PlannedSink], bool, bool),
) -> PlannedLife {
    let mut items = Vec::new();
    for _ in 0..dice.between(2, 5) {
        items.push(call_fault(dice, sinks));
    }
    if dice.chance(15) {
        items.extend(unanswered_question(dice, sinks));
    }
    if object_store {
        match dice.below(4) {
            0 => items.push(Item::AppendFails(dice.below(12) as usize, append_fault(dice))),
            1 => items.push(Item::StaleRead(dice.between(1, 4) as usize)),
            _ => {}
        }
    } else {
        match dice.below(6) {
            0 => items.push(Item::DiskFails(dice.below(60), if dice.chance(60) { Fault::Eio } else { Fault::Full })),
            1 => items.push(Item::DiesInDisk(dice.below(60))),
            2 => items.push(Item::ReadFails(dice.below(6))),
            _ => {}
        }
    }
    if dice.chance(12) {
        items.push(Item::SourceFails(dice.below(12)));
    }
    if operator && dice.chance(15) {
        items.push(Item::OperatorFails(dice.below(12)));
    }
    if dice.chance(20) {
        let name = format!("s{}", dice.below(1_000_000));
        items.push(Item::At(Moment::Open, dice.between(1, 4), Do::Savepoint(name.clone())));
        if dice.chance(40) {
            items.push(Item::At(Moment::Sent, dice.between(3, 9), Do::Forget(name)));
        }
    }
    if dice.chance(12) {
        let sink = dice.below(sinks.len() as u64) as usize;
        items.push(Item::At(Moment::Preparing, dice.between(1, 6), Do::ForeignWrite(sink)));
    }
    // Where work has a term, a clock that is set back makes it seem young: nobody can do anything about that.
    let terms = sinks.iter().any(|sink| sink.kind.prepared_ttl.is_some() || sink.kind.marker_retention.is_some());
    if dice.chance(6) && !terms {
        let millis = dice.between(1, 5_000) as i64;
        items.push(Item::At(
            Moment::Open,
            dice.between(1, 4),
            Do::Skew(if dice.chance(50) { millis } else { -millis }),
        ));
    }
    let goes_back = dice.chance(7);
    if goes_back {
        let sink = dice.below(sinks.len() as u64) as usize;
        items.push(Item::At(Moment::Preparing, dice.between(1, 4), Do::BackUp(sink)));
        items.push(Item::GoBack(sink));
    }
    items.push(the_end(dice));
    if dice.chance(45) {
        items.push(Item::PowerCut);
    }
    if dice.chance(10) {
        items.push(Item::Outage(dice.between(200, 5_000)));
    }
    if dice.chance(5) {
        items.push(Item::Fork(dice.draw()));
    }
    if !object_store && dice.chance(4) {
        items.push(Item::Damage(dice.below(1_000)));
    }
    PlannedLife {
        tasks: dice.between(1, u64::from(partitions)) as u32,
        operator_subtasks: dice.between(1, 3) as u32,
        subtasks: sinks.iter().map(|_| dice.between(1, 3) as u32).collect(),
        items,
    }
}

/// How a life ends if nothing else ends it.
fn the_end(dice: &mut Dice) -> Item {
    let moments = [
        Moment::Starting,
        Moment::Restoring,
        Moment::Open,
        Moment::Preparing,
        Moment::Sealed,
        Moment::Sent,
        Moment::InDoubt,
    ];
    match dice.below(20) {
        0..=7 => Item::DiesAfter(dice.between(50, 700)),
        8..=14 => {
            let moment = *dice.pick(&moments);
            let nth = if matches!(moment, Moment::Starting | Moment::Restoring | Moment::InDoubt) {
                1
            } else {
                dice.between(1, 9)
            };
            Item::At(moment, nth, Do::Crash)
        }
        15..=17 => Item::At(Moment::Open, dice.between(2, 8), Do::Stop),
        _ => Item::TakenOver(dice.between(100, 600), dice.between(50, 900)),
    }
}

fn append_fault(dice: &mut Dice) -> AppendFault {
    match dice.below(3) {
        0 => AppendFault::UnknownWritten,
        1 => AppendFault::UnknownNotWritten,
        _ => AppendFault::Full,
    }
}

fn call_fault(dice: &mut Dice, sinks: &[PlannedSink]) -> Item {
    let sink = dice.below(sinks.len() as u64) as usize;
    let call = weighted(dice, &CALLS.map(|(call, weight)| (weight, call)));
    let act = match weighted(dice, &acts(call)) {
        Act::Late(longest) => Act::Late(dice.between(1, longest)),
        Act::Slow(longest) => Act::Slow(dice.between(1, longest)),
        act => act,
    };
    let last = match call {
        Call::Observe | Call::Fence | Call::Open | Call::Instantiate | Call::ListOrphans => 2,
        Call::Abandon | Call::Release | Call::Reconcile => 2,
        _ => 9,
    };
    Item::Call(sink, call, dice.between(1, last), act)
}

/// A commit whose answer is lost, and no answer to the question about it either. Preferred is a destination at which a
/// repeat is not without effect.
fn unanswered_question(dice: &mut Dice, sinks: &[PlannedSink]) -> Vec<Item> {
    let asked: Vec<usize> = (0..sinks.len()).filter(|sink| sinks[*sink].kind.reconcile).collect();
    let delicate: Vec<usize> = asked.iter().copied().filter(|sink| !sinks[*sink].kind.idempotent).collect();
    let among = if delicate.is_empty() { asked } else { delicate };
    if among.is_empty() {
        return Vec::new();
    }
    let sink = *dice.pick(&among);
    let lost = dice.pick(&[Act::LoseAnswer, Act::TrapAfter, Act::ErrorAfter(ErrorKind::Unknown)]).clone();
    let no_answer = dice
        .pick(&[
            Act::Answer(Outcome::Retry(Some(30))),
            Act::Answer(Outcome::Retry(None)),
            Act::Answer(Outcome::Unknown),
            Act::Answer(Outcome::Unsupported),
            Act::Answer(Outcome::Never),
            Act::Error(ErrorKind::Retryable),
            Act::Trap,
        ])
        .clone();
    vec![Item::Call(sink, Call::Commit, dice.between(1, 5), lost), Item::Call(sink, Call::Reconcile, 1, no_answer)]
}
