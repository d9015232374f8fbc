//! Carries a plan out, to its calm end, and judges.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_protocol::event::{End, Refusal};
use tidegate_protocol::history::{CheckpointState, History, SinkEpochState};
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::record::{Blocked, Body, MismatchPolicy};
use tidegate_store::disk::sim::Image;
use tidegate_store::{AppendFault, ErrorKind};

use super::plan::{Item, Plan, PlannedLife};
use crate::dest::Destination;
use crate::dice::Dice;
use crate::host::{Do, Ended, Life, SinkSpec, Spec, Told};
use crate::operator::Counter;
use crate::oracle::{Evidence, Facts, Violation, judge};
use crate::person;
use crate::source::SimSource;
use crate::store::{Ending, LogJournal, SimStore};
use crate::world::{Line, World};

/// So many lives without faults may bring nothing new. Where each epoch needs a person there are many lives.
const FRUITLESS_LIVES: u32 = 8;
/// So many must be enough to finish.
const CALM_LIVES: u32 = 200;

/// What came of a seed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// Epochs with rows that every sink committed.
    pub epochs: usize,
    /// Faults that took place, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Runs after the first.
    pub recoveries: usize,
    /// Rows of the source.
    pub rows: usize,
    /// Kinds of the destinations.
    pub kinds: Vec<&'static str>,
    /// How lives ended.
    pub ends: BTreeMap<&'static str, u64>,
    /// What happened, if it was written down.
    pub trace: Vec<Line>,
}

impl Outcome {
    /// Whether enough happened for the seed to count.
    pub fn counts(&self) -> bool {
        self.epochs >= 10 && self.faults.values().sum::<u64>() >= 3 && self.recoveries >= 1
    }
}

/// Carries out a plan in a runtime of its own, with paused time.
pub fn carry_out(plan: &Plan, tracing: bool, planted: Option<super::PlantedDisk>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(async { Run::new(plan, tracing, planted).carry_out().await }),
        Err(error) => {
            let what = format!("there is no runtime: {error}");
            Outcome { violations: vec![Violation { promise: "host", what, at: None }], ..Outcome::default() }
        }
    }
}

struct Run<'a> {
    plan: &'a Plan,
    world: World,
    dice: Dice,
    spec: Spec,
    store: SimStore,
    told: Vec<Told>,
    published: Vec<(crate::world::Seq, tidegate_protocol::record::SourceCut)>,
    copies: Vec<SimStore>,
    /// When another host took the log over by a copy.
    copied_at: Vec<crate::world::Seq>,
    ends: BTreeMap<&'static str, u64>,
    decisions: u64,
    /// How often each blocked epoch was sent again.
    retries: BTreeMap<(SinkId, EpochRef), u32>,
    violations: Vec<Violation>,
    /// The log as it was before it was damaged.
    undamaged: Option<Image>,
    /// Pieces of state that were damaged, by file: as they are, and as they were.
    rotten: BTreeMap<String, (Vec<u8>, Vec<u8>)>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, tracing: bool, planted: Option<super::PlantedDisk>) -> Self {
        let dice = Dice::new(plan.seed).fork("run");
        let world = World::new(&dice, plan.jitter_ms, tracing);
        let store = if plan.object_store { SimStore::object(&world) } else { SimStore::local(&world) };
        store.plant(planted);
        let sinks: Vec<SinkSpec> = plan
            .sinks
            .iter()
            .enumerate()
            .map(|(number, sink)| {
                let name = if number + 1 == plan.sinks.len() { "letters".to_owned() } else { format!("s{number}") };
                let destination = Destination::new(&world, &name, sink.kind.clone()).rejecting(sink.rejects);
                SinkSpec { id: name_of(&name), destination, subtasks: 1, by_key: sink.by_key }
            })
            .collect();
        let mut sinks = sinks;
        let dead_letter = sinks.pop();
        let source = SimSource::new(&world, plan.rows.clone(), plan.pace, &dice)
            .with_long_positions(plan.digits)
            .with_second_from(plan.second_from);
        let source = if plan.holds.is_some() { source.with_time() } else { source };
        let source = plan.file.map_or(source.clone(), |rows| source.in_files(rows));
        let counter = Counter::new(&world).with_filler(plan.filler);
        let counter = plan.holds.map_or(counter.clone(), |time| counter.holding(time));
        let spec = Spec {
            id: name_of("simulated"),
            source,
            tasks: 1,
            columns: plan.columns,
            operator: plan.operator.then_some((counter, 1)),
            sinks,
            dead_letter,
            settings: plan.numbers.clone(),
        };
        Self {
            plan,
            world,
            dice,
            spec,
            store,
            told: Vec::new(),
            published: Vec::new(),
            copies: Vec::new(),
            copied_at: Vec::new(),
            ends: BTreeMap::new(),
            decisions: 0,
            retries: BTreeMap::new(),
            violations: Vec::new(),
            undamaged: None,
            rotten: BTreeMap::new(),
        }
    }

    async fn carry_out(mut self) -> Outcome {
        let mut finished = false;
        for (number, planned) in self.plan.lives.iter().enumerate() {
            finished = self.live(number, planned).await;
            if finished {
                break;
            }
        }
        self.calm_down();
        // Also a finished pipeline is started once more: it must find nothing to do.
        let (mut lives, mut fruitless, mut reached) = (0, 0, self.reached());
        loop {
            let again = finished;
            finished = self.quiet_life().await;
            lives += 1;
            if finished && again {
                break;
            }
            let now = self.reached();
            fruitless = if finished || now > reached { 0 } else { fruitless + 1 };
            reached = reached.max(now);
            if fruitless >= FRUITLESS_LIVES || lives >= CALM_LIVES {
                let what = format!("after {lives} lives without faults the pipeline is not finished");
                self.violations.push(Violation { promise: "P10", what, at: None });
                break;
            }
        }
        self.judge(finished)
    }

    /// Seals and decisions: what a life without faults adds to.
    fn reached(&self) -> usize {
        let journal = self.store.journal();
        let counts = journal.durable().filter(|entry| matches!(entry.record.body, Body::Seal(_) | Body::Decision(_)));
        counts.count()
    }

    fn rescale(&mut self, tasks: u32, operator: u32, subtasks: &[u32]) {
        let before: Vec<u32> = self.spec.all_sinks().map(|sink| sink.subtasks).collect();
        self.spec.tasks = tasks;
        if let Some((_, count)) = &mut self.spec.operator {
            *count = operator;
        }
        for (sink, count) in self.spec.sinks.iter_mut().chain(&mut self.spec.dead_letter).zip(subtasks) {
            sink.subtasks = *count;
        }
        if before != subtasks && !self.told.is_empty() {
            self.world.fired("rescale");
        }
    }

    /// One life with misfortunes; true if the pipeline is finished.
    async fn live(&mut self, number: usize, planned: &PlannedLife) -> bool {
        self.rescale(planned.tasks, planned.operator_subtasks, &planned.subtasks);
        // What is sealed is finished with the configuration of its seal.
        self.spec.settings.revision += 1;
        let source = self.spec.source.for_one_host();
        let mut life = Life::new(&Spec { source: source.clone(), ..self.spec.clone() }, &self.store);
        let mut taken_over = None;
        for item in &planned.items {
            self.prepare(item, &mut life, &mut taken_over);
        }
        let dice = self.dice.fork(&format!("life {number}"));
        let mut after = dice.fork("after");
        let copies = self.copied_at.len();
        let (ended, mut told) = match taken_over {
            Some((after_ms, goes_on_ms)) => self.taken_over(life, after_ms, goes_on_ms, &dice).await,
            None => life.live(&self.world, &dice).await,
        };
        let mut published = source.published();
        let copied = self.copied_at.get(copies).copied();
        if let Some(seq) = copied {
            // What it did with the log that was copied from it is another story.
            told.notices.retain(|(at, _)| *at < seq);
            published.retain(|(at, _)| *at < seq);
        }
        self.told.push(told);
        self.published.extend(published);
        self.spec.all_sinks().for_each(|sink| sink.destination.script().clear());
        let died = matches!(ended, Ended::Died);
        let power = planned.items.contains(&Item::PowerCut) && taken_over.is_none();
        if power {
            self.world.fired("power-cut");
        }
        self.store.end(if power { Ending::PowerCut } else { Ending::Process }, &mut after);
        self.store.clear_faults();
        if died {
            *self.ends.entry("died").or_default() += 1;
        }
        self.forget_damage(&ended);
        let finished = self.react(&ended, &mut after);
        for item in &planned.items {
            self.clean_up(item, &mut after).await;
        }
        // What one source has not read yet is not missed while it is away.
        finished && !planned.items.contains(&Item::SourceAway)
    }

    /// Before a life.
    fn prepare(&mut self, item: &Item, life: &mut Life, taken_over: &mut Option<(u64, u64)>) {
        match item {
            Item::Call(sink, call, nth, act) => {
                if let Some(sink) = self.spec.all_sinks().nth(*sink) {
                    sink.destination.script().plan(*call, *nth, act.clone());
                }
            }
            Item::DiskFails(skip, fault) => self.store.fail_after(*skip, *fault),
            Item::DiesInDisk(skip) => self.store.crash_after(*skip),
            Item::ReadFails(skip) => self.store.fail_read_after(*skip),
            Item::AppendFails(skip, fault) => {
                self.world.fired(if *fault == AppendFault::Full { "log-full" } else { "log-answer-lost" });
                self.store.fail_append(*skip, fault.clone());
            }
            Item::StaleRead(records) => self.store.read_stale_once(*records),
            Item::SourceFails(skip) => life.spec.source.fail_read_after(*skip),
            Item::OperatorFails(skip) => {
                if let Some((counter, _)) = &self.spec.operator {
                    counter.fail_after(*skip);
                }
            }
            Item::At(moment, nth, what) => {
                match what {
                    Do::Stop => drop(self.world.fired("stop")),
                    Do::Savepoint(_) => drop(self.world.fired("savepoint")),
                    _ => {}
                }
                life.plan.push((*moment, *nth, what.clone()));
            }
            Item::DiesAfter(millis) => life.dies_after_ms = Some(*millis),
            Item::TakenOver(after, goes_on) => *taken_over = Some((*after, *goes_on)),
            Item::SourceAway => {
                self.world.fired("source-away");
                life.spec.source = life.spec.source.clone().without_second();
            }
            Item::PowerCut
            | Item::Outage(_)
            | Item::GoBack(_)
            | Item::Fork(_)
            | Item::Damage(_)
            | Item::DamageState(_) => {}
        }
    }

    /// Another host begins while this one goes on: with a copy of the log's directory, or in the same object store.
    async fn taken_over(&mut self, life: Life, after_ms: u64, goes_on_ms: u64, dice: &Dice) -> (Ended, Told) {
        let (world, host) = (self.world.clone(), life.host.clone());
        let dice = dice.clone();
        let old = tokio::spawn({
            let world = world.clone();
            async move { life.live(&world, &dice).await }
        });
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        if !old.is_finished() {
            world.fired("second-host");
            if self.store.is_local() {
                let copy = self.store.copy();
                self.copied_at.push(world.seq());
                self.copies.push(std::mem::replace(&mut self.store, copy));
            }
            // The new one runs without faults of its own while the old one goes on.
            self.spec.all_sinks().for_each(|sink| sink.destination.script().clear());
            let source = self.spec.source.for_one_host();
            let mut life = Life::new(&Spec { source: source.clone(), ..self.spec.clone() }, &self.store);
            life.dies_after_ms = Some(goes_on_ms);
            let (ended, told) = life.live(&world, &self.dice.fork("second host")).await;
            self.told.push(told);
            self.published.extend(source.published());
            self.store.end(Ending::Process, &mut self.dice.fork("second host's disk"));
            let mut dice = self.dice.fork("second host's person");
            self.react(&ended, &mut dice);
        }
        host.now();
        match old.await {
            Ok(ended) => ended,
            Err(error) => {
                let what = format!("a host broke: {error}");
                self.violations.push(Violation { promise: "P10", what, at: None });
                (Ended::Died, Told::default())
            }
        }
    }

    /// After a life.
    async fn clean_up(&mut self, item: &Item, dice: &mut Dice) {
        match item {
            Item::Outage(millis) => {
                self.world.fired("outage");
                tokio::time::sleep(Duration::from_millis(*millis)).await;
            }
            Item::GoBack(sink) => {
                let destination = self.spec.all_sinks().nth(*sink).map(|sink| sink.destination.clone());
                if destination.is_some_and(|destination| destination.go_back()) {
                    self.world.fired("destination-restored");
                }
            }
            Item::Fork(choice) => self.fork(*choice),
            Item::Damage(place) => self.damage(*place, dice),
            Item::DamageState(choice) => self.damage_state(*choice),
            _ => {}
        }
    }

    fn fork(&mut self, choice: u64) {
        if self.spec.settings.protocol.fork.is_some() {
            return;
        }
        let Some(history) = person::look(&self.store, &self.spec.id) else { return };
        let retained: Vec<EpochRef> = history
            .checkpoints()
            .filter(|epoch| epoch.checkpoint == CheckpointState::Retained)
            .map(|epoch| epoch.of)
            .collect();
        if retained.is_empty() {
            return;
        }
        let of = retained[usize::try_from(choice % retained.len() as u64).unwrap_or(0)];
        self.world.note(|| format!("a person goes back to {of}"));
        self.world.fired("fork");
        // It stays in the settings: the same request seen again must do nothing.
        self.spec.settings.protocol.fork =
            Some(("fork-1".into(), "a person".into(), of, MismatchPolicy::AcceptDuplicates));
    }

    fn damage(&mut self, place: u64, dice: &mut Dice) {
        if self.undamaged.is_some() {
            return;
        }
        let Some(mut image) = self.store.image() else { return };
        let Some(path) = image.paths().into_iter().rfind(|path| path.ends_with(".log")) else { return };
        self.undamaged = Some(image.clone());
        if let Some(bytes) = image.file_mut(&path)
            && !bytes.is_empty()
        {
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |at| at + 1);
            let at = used * usize::try_from(place).unwrap_or(0) / 1_000;
            bytes[at] ^= 1 << dice.below(8);
            self.world.fired("log-damaged");
            self.store.put_image(image);
        }
    }

    /// Damages a piece of state that the next run needs, if there is one. Its length stays.
    fn damage_state(&mut self, choice: u64) {
        let history = person::look(&self.store, &self.spec.id);
        let newest = history.as_ref().and_then(|history| history.seal(history.newest_seal()?));
        let pieces: Vec<String> =
            newest.into_iter().flat_map(|epoch| epoch.seal.state_chunks()).map(|chunk| chunk.sha256.clone()).collect();
        let Some(mut image) = self.store.image().filter(|_| !pieces.is_empty()) else { return };
        let piece = &pieces[usize::try_from(choice % pieces.len() as u64).unwrap_or(0)];
        let Some(path) = image.paths().into_iter().find(|path| path.ends_with(piece)) else { return };
        let Some(bytes) = image.file_mut(&path).filter(|bytes| !bytes.is_empty()) else { return };
        let whole = bytes.clone();
        let at = usize::try_from(choice / 7 % bytes.len() as u64).unwrap_or(0);
        // A digit stays one, and what is damaged can still be read.
        bytes[at] ^= 1;
        self.world.note(|| format!("byte {at} of `{path}` is damaged"));
        self.world.fired("state-damaged");
        self.rotten.entry(path).or_insert((bytes.clone(), whole)).0 = bytes.clone();
        self.store.put_image(image);
    }

    /// A person puts back those pieces of state that are still damaged.
    fn mend_state(&mut self) {
        let Some(mut image) = self.store.image().filter(|_| !self.rotten.is_empty()) else { return };
        let mut mended = false;
        for (path, (damaged, whole)) in &self.rotten {
            if let Some(bytes) = image.file_mut(path).filter(|bytes| *bytes == damaged) {
                bytes.clone_from(whole);
                mended = true;
                self.world.note(|| format!("a person puts back `{path}`"));
            }
        }
        if mended {
            self.store.put_image(image);
        }
    }

    /// A log that was read whole has no damage that matters, and has gone on since.
    fn forget_damage(&mut self, ended: &Ended) {
        let opened = self.told.last().is_some_and(|told| !told.notices.is_empty());
        let refused = matches!(ended, Ended::Report(report) if matches!(report.end, End::Refused(Refusal::Log(_))));
        if opened && !refused {
            self.undamaged = None;
        }
    }

    /// What a person does about the end of a life; true if the pipeline is finished.
    fn react(&mut self, ended: &Ended, dice: &mut Dice) -> bool {
        if must_be_looked_into(ended) {
            self.mend_state();
        }
        let end = match ended {
            Ended::Report(report) => &report.end,
            Ended::Unopened(error) | Ended::Error(tidegate_pipeline::run::RunError::Log(error)) => {
                *self.ends.entry("log-refused").or_default() += 1;
                self.world.note(|| format!("the log is refused: {error}"));
                if error.kind() == ErrorKind::Damaged && self.undamaged.is_none() && self.rotten.is_empty() {
                    let what = format!("nobody damaged the log, and it cannot be read: {error}");
                    self.violations.push(Violation { promise: "P4", what, at: Some(self.world.seq()) });
                }
                if let Some(image) = self.undamaged.take() {
                    self.world.note(|| "a person puts back the log as it was".to_owned());
                    self.store.put_image(image);
                }
                return false;
            }
            Ended::Error(error) => {
                let what = format!("a run broke: {error}");
                self.violations.push(Violation { promise: "P10", what, at: None });
                return false;
            }
            Ended::Stuck => {
                let what = "a run neither went on nor ended".to_owned();
                self.violations.push(Violation { promise: "P10", what, at: None });
                return false;
            }
            Ended::Died => return false,
        };
        *self.ends.entry(word(end)).or_default() += 1;
        match end {
            End::Finished => return true,
            End::Blocked { .. } | End::StoppedInDoubt { .. } => self.resolve(dice),
            End::Refused(Refusal::Mismatch { sink, policies, .. }) => self.accept(sink, policies, dice),
            End::Refused(Refusal::Log(_)) => {
                if let Some(image) = self.undamaged.take() {
                    self.store.put_image(image);
                }
            }
            // Work behind the fork point waits for a person, or the checkpoint is retired by now.
            End::Refused(Refusal::Fork(_)) => {
                self.resolve(dice);
                self.spec.settings.protocol.fork = None;
                self.accept_loss_instead();
            }
            _ => {}
        }
        false
    }

    /// Looks at each blocked epoch's destination and decides.
    fn resolve(&mut self, dice: &mut Dice) {
        let Some(history) = person::look(&self.store, &self.spec.id) else { return };
        let blocked: Vec<(SinkId, EpochRef, Blocked)> = self
            .spec
            .all_sinks()
            .flat_map(|sink| history.unfinished(&sink.id).into_iter().map(move |of| (sink.id.clone(), of)))
            .filter_map(|(sink, of)| match history.outcome(&sink, of) {
                Some(SinkEpochState::Blocked(_, why)) => Some((sink, of, why.clone())),
                _ => None,
            })
            .collect();
        for (sink, of, why) in blocked {
            self.decisions += 1;
            let id = format!("d{}", self.decisions);
            let tried = self.retries.entry((sink.clone(), of)).or_default();
            let retry =
                *tried < 2 && !is_there(&self.spec, &history, &sink, of) && why != Blocked::Never || dice.chance(2);
            *tried += u32::from(retry);
            let word = if retry { "sends again" } else { "gives up" };
            self.world.note(|| format!("a person {word} {of} at {sink}: {why:?}"));
            person::resolve(&self.world, &self.store, &self.spec.id, &id, (&sink, of), retry);
        }
    }

    fn accept(&mut self, sink: &SinkId, policies: &[MismatchPolicy], dice: &mut Dice) {
        if policies.is_empty() {
            return;
        }
        // On a quiet day whoever decides wants to get on, and does not change their mind.
        let policy = if self.world.is_calm() { policies[0] } else { *dice.pick(policies) };
        self.decisions += 1;
        let id = format!("m{}", self.decisions);
        self.world.note(|| format!("a person accepts {policy:?} at {sink}"));
        self.spec.settings.protocol.mismatch.insert(sink.clone(), (id, "a person".into(), policy));
    }

    /// To replay needs every epoch behind the destination at its end; what is still on its way does not come to one while
    /// nothing runs.
    fn accept_loss_instead(&mut self) {
        for (id, _, policy) in self.spec.settings.protocol.mismatch.values_mut() {
            if *policy == MismatchPolicy::ReplayFromDestination {
                self.decisions += 1;
                *id = format!("m{}", self.decisions);
                *policy = MismatchPolicy::AcceptLoss;
            }
        }
    }

    fn calm_down(&mut self) {
        self.world.calm_down();
        self.world.skew(0);
        self.store.clear_faults();
    }

    async fn quiet_life(&mut self) -> bool {
        let source = self.spec.source.for_one_host();
        let life = Life::new(&Spec { source: source.clone(), ..self.spec.clone() }, &self.store);
        let dice = self.dice.fork("quiet");
        let (ended, told) = life.live(&self.world, &dice).await;
        self.told.push(told);
        self.published.extend(source.published());
        self.forget_damage(&ended);
        self.store.end(Ending::Process, &mut self.dice.fork("quiet disk"));
        let mut person = self.dice.fork(&format!("quiet person {}", self.world.seq()));
        self.react(&ended, &mut person)
    }

    fn judge(mut self, finished: bool) -> Outcome {
        // What is only seen by reading the log once more.
        let _ = person::look(&self.store, &self.spec.id);
        let log = self.store.journal();
        let mut evidence =
            Evidence::gather(&self.spec, log, std::mem::take(&mut self.told), self.plan.numbers.protocol.retain_age_ms);
        evidence.published = std::mem::take(&mut self.published);
        evidence.copies = self.copies.iter().map(SimStore::journal).collect::<Vec<LogJournal>>();
        evidence.copied_at = std::mem::take(&mut self.copied_at);
        evidence.finished = finished;
        let facts = Facts::of(&evidence);
        let mut violations = self.violations;
        violations.extend(judge(&evidence));
        Outcome {
            violations,
            epochs: facts.committed_with_rows(),
            faults: self.world.faults(),
            recoveries: facts.runs.len().saturating_sub(1),
            rows: self.plan.rows.count(),
            kinds: self.plan.sinks.iter().map(|sink| sink.kind.name).collect(),
            ends: self.ends,
            trace: self.world.trace(),
        }
    }
}

fn name_of<T: TryFrom<String, Error = tidegate_protocol::ids::InvalidId>>(name: &str) -> T {
    Spec::name(name).unwrap_or_else(|error| unreachable!("names of the simulation are legal: {error}"))
}

/// Whether whoever looks at the destination finds the whole epoch there.
fn is_there(spec: &Spec, history: &History, sink: &SinkId, of: EpochRef) -> bool {
    let Some(destination) = spec.all_sinks().find(|other| other.id == *sink).map(|sink| &sink.destination) else {
        return false;
    };
    let parts = history.seal(of).map(|epoch| epoch.parts(sink)).unwrap_or_default();
    parts.iter().all(|part| destination.shows_committed(&part.short))
}

/// Whether a life ended with words that may speak of what lies on the disk.
fn must_be_looked_into(ended: &Ended) -> bool {
    match ended {
        Ended::Report(report) => {
            matches!(report.end, End::Failed(_) | End::Restart(_) | End::StoreFailed(_) | End::Refused(Refusal::Log(_)))
        }
        Ended::Unopened(_) | Ended::Error(_) => true,
        Ended::Died | Ended::Stuck => false,
    }
}

fn word(end: &End) -> &'static str {
    match end {
        End::Finished => "finished",
        End::Stopped => "stopped",
        End::StoppedInDoubt { .. } => "stopped-in-doubt",
        End::Blocked { .. } => "blocked",
        End::Restart(_) => "restart",
        End::Failed(_) => "failed",
        End::Refused(Refusal::Mismatch { .. }) => "refused-mismatch",
        End::Refused(_) => "refused",
        End::Superseded(_) => "superseded",
        End::StoreFailed(_) => "store-failed",
    }
}
