//! One process: a coordinator, its tasks, and the calls that are under way.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_protocol::coordinator::{Coordinator, Settings};
use tidegate_protocol::event::{
    Effect, End, Event, Graph, RequestRefused, Restored, SourceProgress, TaskFailure, Timer,
};
use tidegate_protocol::history::History;
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, Nonce, PartId, SinkId};
use tidegate_protocol::plugin::{
    Call, CallFault, Committable, ErrorKind, External, FaultKind, Orphan, OrphanPage, Orphans, Outcome, PluginError,
    Prepared, WriterState,
};
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::CutReason;

use super::rng::Rng;
use super::{World, body_bytes, pipeline, sampled_keys, source};

pub struct Host {
    pub coordinator: Coordinator,
    pub graph: Graph,
    /// Effects to carry out and events to deliver, in any order.
    pub todo: Vec<Todo>,
    pub tasks: Option<Tasks>,
    pub ended: Option<End>,
    pub now: u64,
    /// Requests of people and their answers; `None` while there is none.
    pub answers: BTreeMap<u64, Option<Result<EpochRef, RequestRefused>>>,
    next_request: u64,
}

pub enum Todo {
    Do(Effect),
    Tell(Event),
}

pub struct Tasks {
    epoch: Epoch,
    /// Rows read so far, per stream.
    pub read: Vec<u64>,
    /// Rows read since the last cut, per stream.
    rows: Vec<u64>,
    /// Rows of each partition that moved since the last cut, per stream.
    moved: Vec<BTreeMap<String, u64>>,
    /// Rows per sink and participant of the epoch being written.
    buffers: BTreeMap<(SinkId, u32), Vec<u64>>,
    busy: bool,
    pub ended: bool,
    run: tidegate_protocol::ids::RunId,
}

pub fn fault(call: Call, kind: FaultKind) -> CallFault {
    CallFault::new("model 1", call, kind, "as the dice fell")
}

pub fn plugin_error(kind: ErrorKind) -> FaultKind {
    FaultKind::Error(PluginError { kind, code: "c".to_owned(), message: "m".to_owned() })
}

impl Host {
    pub fn start(world: &World, graph: &Graph, settings: Settings, nonce: u8) -> Host {
        let made = Coordinator::new(
            pipeline(),
            graph.clone(),
            "graph".to_owned(),
            settings,
            world.log.all(),
            Nonce([nonce; 10]),
        );
        let coordinator = made.unwrap_or_else(|refusal| panic!("an honest log was refused: {refusal:?}"));
        let mut host = Host {
            coordinator,
            graph: graph.clone(),
            todo: Vec::new(),
            tasks: None,
            ended: None,
            now: 1_000,
            answers: BTreeMap::new(),
            next_request: 0,
        };
        host.tell(Event::Start);
        host
    }

    pub fn tell(&mut self, event: Event) {
        self.now += 1;
        for effect in self.coordinator.step(self.now, event) {
            match effect {
                Effect::End(end) => self.ended = Some(end),
                Effect::RequestAnswered { request, result } => self.answer(request, result),
                Effect::Notice(_) | Effect::IntentRecorded { .. } => {}
                effect => self.todo.push(Todo::Do(effect)),
            }
        }
    }

    pub fn ask(&mut self, event: impl FnOnce(u64) -> Event) -> u64 {
        let request = self.answers.len() as u64 + 1;
        self.answers.insert(request, None);
        self.tell(event(request));
        request
    }

    fn answer(&mut self, request: u64, result: Result<EpochRef, RequestRefused>) {
        let before = self.answers.insert(request, Some(result));
        assert_eq!(before, Some(None), "request {request} is answered once");
    }

    /// Carries out one thing that waits, with faults of the given likelihood.
    pub fn one(&mut self, world: &mut World, rng: &mut Rng, faults: usize) {
        if self.todo.is_empty() || self.ended.is_some() {
            return;
        }
        let chosen = rng.below(self.todo.len());
        match self.todo.swap_remove(chosen) {
            Todo::Tell(event) => {
                if rng.percent(faults) {
                    self.todo.push(Todo::Tell(event.clone()));
                }
                self.tell(event);
            }
            Todo::Do(effect) => self.carry_out(world, rng, faults, effect),
        }
    }

    pub fn carry_out(&mut self, world: &mut World, rng: &mut Rng, faults: usize, effect: Effect) {
        let lost = |rng: &mut Rng| rng.percent(faults);
        match effect {
            Effect::Append { record } => {
                let slot = record.slot;
                let result = world.log.append(&record);
                let folded = world.log.fold();
                self.tell(Event::Appended { slot, result: result.clone() });
                if result == tidegate_protocol::event::AppendResult::Created {
                    assert!(
                        *self.coordinator.history() == folded,
                        "{}",
                        difference(self.coordinator.history(), &folded)
                    );
                }
            }
            Effect::Observe { sink, .. } => {
                let position = world.destinations[&sink].position();
                let result = if lost(rng) { Err(fault(Call::Observe, FaultKind::Timeout)) } else { Ok(position) };
                self.tell(Event::Observed { sink, result });
            }
            Effect::Fence { sink, expected, run } => {
                let destination = world.destinations.get_mut(&sink).expect("a sink of the world");
                let dropped = lost(rng);
                let done = if dropped && rng.percent(50) { None } else { destination.fence(&expected, run) };
                let result = match done {
                    _ if dropped => Err(fault(Call::Fence, FaultKind::AnswerLost)),
                    Some(position) => Ok(position),
                    None => Err(fault(Call::Fence, plugin_error(ErrorKind::Retryable))),
                };
                self.tell(Event::Fenced { sink, result });
            }
            Effect::Commit(permit) => {
                let parts: Vec<PartId> = permit.committables().iter().map(|c| c.part.clone()).collect();
                let destination = world.destinations.get_mut(permit.sink()).expect("a sink of the world");
                let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
                let result = match rng.below(100) {
                    // Delayed: it lands later, the answer is lost now.
                    n if n < faults / 2 => {
                        self.todo.push(Todo::Do(Effect::Commit(permit.clone())));
                        Err(fault(Call::Commit, FaultKind::Timeout))
                    }
                    n if n < faults => {
                        destination.commit(permit.run(), &parts, &world.log.sealed);
                        Err(fault(Call::Commit, FaultKind::AnswerLost))
                    }
                    n if n < faults + faults / 2 => Err(fault(Call::Commit, FaultKind::Trap)),
                    n if n < faults * 2 && destination.scope == tidegate_protocol::plugin::AtomicScope::Participant => {
                        let half = parts.len().div_ceil(2);
                        let mut outcomes = destination.commit(permit.run(), &parts[..half], &world.log.sealed);
                        outcomes.resize(parts.len(), Outcome::NotCommitted);
                        Ok(outcomes)
                    }
                    n if n < faults * 2 => Ok(vec![]),
                    _ => Ok(destination.commit(permit.run(), &parts, &world.log.sealed)),
                };
                self.tell(Event::CommitAnswered { sink, of, attempt, result });
            }
            Effect::Reconcile(permit) => {
                let destination = &world.destinations[permit.sink()];
                let outcome = |c: &Committable| match destination.has(&c.part) {
                    true => Outcome::AlreadyCommitted,
                    false => Outcome::NotCommitted,
                };
                let outcomes = permit.committables().iter().map(outcome).collect();
                let result = if lost(rng) { Err(fault(Call::Reconcile, FaultKind::Trap)) } else { Ok(outcomes) };
                let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
                self.tell(Event::Reconciled { sink, of, attempt, result });
            }
            Effect::ListOrphans { sink, prefix, .. } => {
                let staged = world.destinations[&sink].staged.keys().filter(|short| short.starts_with(&prefix));
                let orphans =
                    staged.map(|short| Orphan { short: short.clone(), resource: staged_file(short), bytes: None });
                let page = OrphanPage { orphans: orphans.collect(), next: None };
                let result = if lost(rng) { Err(fault(Call::ListOrphans, FaultKind::Trap)) } else { Ok(page) };
                self.tell(Event::OrphansListed { sink, result });
            }
            Effect::Abandon { sink, parts, .. } => {
                let run = self.coordinator.run().expect("a run abandons");
                let destination = world.destinations.get_mut(&sink).expect("a sink of the world");
                let outcomes =
                    parts.iter().map(|p| destination.abandon(run, &p.part, &world.log.sealed)).collect::<Vec<_>>();
                let result = if lost(rng) { Err(fault(Call::Abandon, FaultKind::AnswerLost)) } else { Ok(outcomes) };
                self.tell(Event::Abandoned { sink, result });
            }
            Effect::Release { sink, resources, .. } => {
                check_release(world, &sink, &resources);
                let destination = world.destinations.get_mut(&sink).expect("a sink of the world");
                destination.released.extend(resources.iter().map(|resource| resource.name.clone()));
                let outcomes = vec![Outcome::Committed; resources.len()];
                let result = if lost(rng) { Err(fault(Call::Release, FaultKind::AnswerLost)) } else { Ok(outcomes) };
                self.tell(Event::ReleaseAnswered { sink, result });
            }
            Effect::OpenTasks(restored) => {
                self.tasks = Some(self.open(world, *restored));
                self.tell(Event::TasksOpened);
            }
            Effect::InjectBarrier { epoch, .. } => self.barrier(world, epoch),
            Effect::DeleteRecords { slots } => {
                // Cut short now and then: the rest is left for the next run.
                let keep = if lost(rng) { rng.below(slots.len()) } else { slots.len() };
                world.log.delete(&slots[..keep]);
                // Only the owner of the lock gets that far.
                if self.coordinator.run() == world.log.fold().newest_run() {
                    world.log.retain_pages(&self.coordinator.history().state_chunks());
                }
            }
            Effect::PublishProgress { sources, .. } => {
                let cut = &sources[&source()];
                if cut.partitions.entries().is_err() {
                    return;
                }
                for destination in world.destinations.values() {
                    let rows = destination.rows();
                    for (stream, read) in (0..).zip(rows_read(&cut.partitions, world.streams)) {
                        for n in 0..read {
                            assert!(rows.binary_search(&row(stream, n)).is_ok(), "P11: published before committed");
                        }
                    }
                }
            }
            Effect::Wait { timer, .. } => {
                self.todo.retain(|todo| !matches!(todo, Todo::Tell(Event::TimerFired { timer: t }) if *t == timer));
                if timer != Timer::Sweep || rng.percent(20) {
                    self.todo.push(Todo::Tell(Event::TimerFired { timer }));
                }
            }
            Effect::End(_) | Effect::Notice(_) | Effect::IntentRecorded { .. } | Effect::RequestAnswered { .. } => {}
        }
    }

    fn open(&self, world: &World, restored: Restored) -> Tasks {
        let none = Positions::new();
        check_restored(world, &self.graph, &restored);
        let before = restored.sources.get(&source()).map_or(&none, |cut| &cut.partitions);
        world.log.load(before);
        let known = before.entries().expect("all pages are there");
        let new = |stream: u32| {
            let all = (0..world.partitions).map(|partition| (partition_name(stream, partition), 0));
            all.filter(|(name, _)| known.get(name).is_none()).collect()
        };
        Tasks {
            epoch: restored.first_epoch,
            read: rows_read(before, world.streams),
            moved: (0..world.streams).map(new).collect(),
            rows: vec![0; world.streams as usize],
            buffers: BTreeMap::new(),
            busy: false,
            ended: false,
            run: restored.run,
        }
    }

    /// The source task that has the stream reads one of its rows; every sink stages it.
    pub fn read(&mut self, world: &mut World, stream: usize, limit: u64) {
        let Some(tasks) = self.tasks.as_mut().filter(|tasks| tasks.read[stream] < limit) else { return };
        let row = row(stream as u64, tasks.read[stream]);
        let partition = tasks.read[stream] % world.partitions;
        tasks.moved[stream].insert(partition_name(stream as u32, partition), tasks.read[stream] / world.partitions + 1);
        tasks.read[stream] += 1;
        tasks.rows[stream] += 1;
        let busy = std::mem::replace(&mut tasks.busy, true);
        for (sink, spec) in &self.graph.sinks {
            let ordinal = ((row / 8 + row % 8) % u64::from(spec.participants)) as u32;
            tasks.buffers.entry((sink.clone(), ordinal)).or_default().push(row);
            let part = PartId::mint(&pipeline(), sink, tasks.run, tasks.epoch, ordinal, 1);
            let destination = world.destinations.get_mut(sink).expect("a sink of the world");
            let first = !destination.staged.contains_key(&part.short);
            destination.staged.entry(part.short.clone()).or_insert_with(|| (part.clone(), Vec::new())).1.push(row);
            if first && spec.abilities.orphans == Orphans::DurableIntent {
                self.next_request += 1;
                self.todo.push(Todo::Tell(Event::IntentAnnounced {
                    request: self.next_request,
                    sink: sink.clone(),
                    resource: staged_file(&part.short),
                    part: Some(part),
                }));
            }
        }
        if !busy {
            self.tell(Event::Busy);
        }
    }

    pub fn end_input(&mut self, limit: u64) {
        let at_end = |tasks: &&mut Tasks| !tasks.ended && tasks.read.iter().all(|read| *read >= limit);
        if let Some(tasks) = self.tasks.as_mut().filter(at_end) {
            tasks.ended = true;
            self.tell(Event::SourcesEnded);
        }
    }

    fn barrier(&mut self, world: &World, epoch: Epoch) {
        let Some(tasks) = self.tasks.as_mut() else { return };
        assert_eq!(tasks.epoch, epoch);
        let count = self.graph.sources[&source()].tasks as usize;
        for task in 0..count {
            let mine = (task..tasks.read.len()).step_by(count);
            let moved: BTreeMap<_, _> =
                mine.clone().flat_map(|stream| std::mem::take(&mut tasks.moved[stream])).collect();
            let progress = SourceProgress {
                moved: moved.into_iter().map(|(name, rows)| (name, position(rows, world.partitions))).collect(),
                ended: tasks.ended,
                watermark: None,
                rows: mine.map(|stream| std::mem::take(&mut tasks.rows[stream])).sum(),
                dead_lettered: 0,
                schema: None,
            };
            self.todo.push(Todo::Tell(Event::SourceCut { source: source(), task: task as u32, epoch, progress }));
        }
        for (sink, spec) in &self.graph.sinks {
            for ordinal in 0..spec.participants {
                let rows = tasks.buffers.remove(&(sink.clone(), ordinal)).unwrap_or_default();
                let part = PartId::mint(&pipeline(), sink, tasks.run, epoch, ordinal, 1);
                let range = KeyRange::split(spec.participants)[ordinal as usize];
                let mut prepared = (!rows.is_empty()).then(|| prepared(part, rows.len() as u64));
                if let Some(prepared) = prepared.as_mut().filter(|_| world.states) {
                    let body = Bytes::from(epoch.0.to_be_bytes().to_vec());
                    prepared.state = Some(WriterState { range, version: 1, body });
                }
                if prepared.is_some() {
                    let staged = &world.destinations[sink].staged;
                    // A zombie may stage again what a newer run gave back; it can never seal it.
                    let _ = staged;
                }
                self.todo.push(Todo::Tell(Event::PartPrepared {
                    sink: sink.clone(),
                    ordinal,
                    epoch,
                    rows_in: rows.len() as u64,
                    filtered: 0,
                    rejected_in_write: 0,
                    prepared,
                }));
            }
        }
        tasks.epoch = epoch.next();
        tasks.busy = false;
    }

    pub fn lose_epoch(&mut self) {
        if self.tasks.is_some() {
            self.tell(Event::EpochLost { reason: TaskFailure::Host("as the dice fell".to_owned()) });
        }
    }

    pub fn due(&mut self) {
        self.tell(Event::BarrierDue { reason: CutReason::Interval });
    }
}

/// The lines in which two histories differ: all of them would be too many to read.
fn difference(live: &History, folded: &History) -> String {
    let (live, folded) = (format!("{live:#?}"), format!("{folded:#?}"));
    let only = |one: &str, other: &str| -> Vec<String> {
        let lines: std::collections::BTreeSet<&str> = other.lines().collect();
        one.lines().filter(|line| !lines.contains(line)).take(40).map(str::to_owned).collect()
    };
    format!(
        "live and folded history differ: {:#?} only live, {:#?} only folded",
        only(&live, &folded),
        only(&folded, &live)
    )
}

pub fn prepared(part: PartId, rows: u64) -> Prepared {
    Prepared {
        resources: vec![staged_file(&part.short)],
        committable: Committable { part, version: 1, body: body_bytes(), rows, expires_at: None },
        state: None,
        rows,
        rejects: Vec::new(),
    }
}

pub fn staged_file(short: &str) -> External {
    External { kind: "file".to_owned(), name: short.to_owned(), expires_at: None }
}

pub fn partition_name(stream: u32, partition: u64) -> String {
    format!("{stream}/{partition}")
}

fn position(rows: u64, partitions: u64) -> String {
    if partitions == 1 { rows.to_string() } else { format!("{rows} {}", "-".repeat(600)) }
}

/// How many rows of each stream were read when its partitions, read in turn, stand there.
pub fn rows_read(positions: &Positions, streams: u32) -> Vec<u64> {
    let mut read = vec![0; streams as usize];
    for (name, text) in positions.entries().expect("all pages are there").iter() {
        let stream: usize = name.split('/').next().and_then(|stream| stream.parse().ok()).expect("a stream");
        let rows: u64 = text.split(' ').next().and_then(|rows| rows.parse().ok()).expect("a number");
        read[stream] += rows;
    }
    read
}

/// Every row of the world is a number of its own.
pub fn row(stream: u64, n: u64) -> u64 {
    n * 8 + stream
}

/// What writers are told, each key once, is what the last writer of each key said before the checkpoint, whoever has the
/// keys now.
fn check_restored(world: &World, graph: &Graph, restored: &Restored) {
    for sink in graph.sinks.keys().filter(|_| world.states) {
        let told = restored.writers.get(sink).map(Vec::as_slice).unwrap_or_default();
        for key in sampled_keys() {
            let found: Vec<_> =
                told.iter().filter(|state| state.range.first <= key && key <= state.range.last).collect();
            assert!(found.len() <= 1, "writers of {sink} are told of key {key} more than once: {told:?}");
            let said = restored.from.and_then(|of| world.log.said.get(&of)?.get(&(sink.clone(), key)));
            let said = said.map(|epoch| epoch.0.to_be_bytes().to_vec());
            let found = found.first().map(|state| state.body.to_vec());
            assert_eq!(found, said, "what is told of key {key} of {sink}: {told:?}");
        }
    }
}

/// P5: nothing that a retained checkpoint or an unfinished commit names is released.
fn check_release(world: &World, sink: &SinkId, resources: &[External]) {
    for (of, record) in world.log.retained() {
        let tidegate_protocol::record::Body::Seal(seal) = &record.body else { continue };
        let named = seal.sinks.get(sink).into_iter().flat_map(|cut| &cut.parts).flat_map(|part| &part.resources);
        for resource in named {
            assert!(!resources.contains(resource), "P5: {} is released and {of} needs it", resource.name);
        }
    }
    let destination = &world.destinations[sink];
    for resource in resources {
        assert!(
            !destination.staged.contains_key(&resource.name),
            "P5: {} is released and not committed",
            resource.name
        );
    }
}

/// Driving one host by hand, in order and without faults.
impl Host {
    /// Carries out everything that waits, except what `hold` picks and timers.
    pub fn settle(&mut self, world: &mut World, hold: impl Fn(&Effect) -> bool) {
        let rng = &mut Rng(0);
        let waits = |todo: &Todo| match todo {
            Todo::Do(effect) => !hold(effect),
            Todo::Tell(Event::TimerFired { .. }) => false,
            Todo::Tell(_) => true,
        };
        while let Some(at) = self.todo.iter().position(waits).filter(|_| self.ended.is_none()) {
            match self.todo.remove(at) {
                Todo::Tell(event) => self.tell(event),
                Todo::Do(effect) => self.carry_out(world, rng, 0, effect),
            }
        }
    }

    /// Takes out the first effect that waits and is picked.
    pub fn take(&mut self, pick: impl Fn(&Effect) -> bool) -> Option<Effect> {
        let at = self.todo.iter().position(|todo| matches!(todo, Todo::Do(effect) if pick(effect)))?;
        match self.todo.remove(at) {
            Todo::Do(effect) => Some(effect),
            Todo::Tell(_) => None,
        }
    }

    /// Lets every timer run out that is set now.
    pub fn timers(&mut self) {
        for todo in std::mem::take(&mut self.todo) {
            match todo {
                Todo::Tell(Event::TimerFired { timer }) | Todo::Do(Effect::Wait { timer, .. }) => {
                    self.tell(Event::TimerFired { timer });
                }
                other => self.todo.push(other),
            }
        }
    }

    /// Reads `rows` rows with task 0 and cuts an epoch.
    pub fn epoch(&mut self, world: &mut World, rows: u64) {
        for _ in 0..rows {
            self.read(world, 0, u64::MAX);
        }
        self.due();
    }
}
