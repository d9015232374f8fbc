//! One thing happens to a world.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_protocol::event::{Effect, Event, Restored, SourceProgress, TaskFailure};
use tidegate_protocol::history::{CheckpointState, SinkEpochState};
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, PartId, RunId, Slot};
use tidegate_protocol::plugin::{Call, Committable, ErrorKind, FaultKind, Orphans, Prepared, WriterState};
use tidegate_protocol::record::{Blocked, Body, Choice, CutReason, Decision, Record};

use crate::coverage::Branch;
use crate::engine::{Birth, Engine, NOW, Out};
use crate::item::{Item, Prepare};
use crate::judge::{self, Violation};
use crate::outside::{self, called, fault, may_matter, staged_file};
use crate::plan::{Choosing, How, PutBack, STRANGER, Spend, StartKind, is_stranger, number_of, pipeline, source};
use crate::world::{Host, Move, NONE, Over, Tasks, World};

/// Requests of people, by number.
const SAVEPOINT: u64 = 1;
const FORGET: u64 = 2;
/// The name of the one savepoint.
const SAVED: &str = "s";

impl Engine {
    /// The world before anything happened.
    ///
    /// # Errors
    /// Never, unless the judge is broken.
    pub fn genesis(&mut self) -> Result<World, Violation> {
        let log = self.log(crate::log::Log::default())?;
        let mut sinks = [NONE; crate::plan::SINKS];
        for sink in sinks.iter_mut().take(self.plan.sinks.len()) {
            *sink = self.destinations.put(crate::destination::Destination::default()).0;
        }
        let late = self.bags.put(Vec::new()).0;
        let hosts = [NONE; crate::world::HOSTS];
        Ok(World { log, sinks, hosts, late, budget: self.plan.budget, over: Over::Not })
    }

    /// The world behind a move.
    ///
    /// # Errors
    /// A promise is broken.
    pub fn act(&mut self, world: &World, chosen: Move) -> Result<World, Violation> {
        let mut world = *world;
        match chosen {
            Move::Deliver(at, item) => {
                if self.timer(item) == Some(&tidegate_protocol::event::Timer::Sweep) {
                    world.spend(Spend::Sweep);
                }
                let mut host = self.host(&world, at);
                take(&mut host.bag, item);
                self.deliver(&mut world, at, host, vec![item])?;
            }
            Move::DeliverTwice(at, item) => {
                world.spend(Spend::Fault);
                let host = self.host(&world, at);
                self.deliver(&mut world, at, host, vec![item])?;
            }
            Move::Carry(at, item, how) => {
                if how != How::Well {
                    world.spend(Spend::Fault);
                }
                let mut host = self.host(&world, at);
                take(&mut host.bag, item);
                self.carry(&mut world, at, host, item, how)?;
            }
            Move::Crash(at) => {
                world.spend(Spend::Crash);
                self.bury(&mut world, at, Over::Again);
            }
            Move::Start(kind) => self.start(&mut world, kind)?,
            Move::Land(item) => self.land(&mut world, item)?,
            Move::Decide(choosing) => self.decide(&mut world, choosing)?,
            Move::RestoreLog(kept) => self.restore_log(&mut world, kept)?,
            Move::RestoreDestination(at) => self.restore_destination(&mut world, at),
            Move::Stranger(at) => self.let_a_stranger_in(&mut world, at),
            Move::PowerCut => self.cut_power(&mut world)?,
            Move::Read(at)
            | Move::Due(at)
            | Move::EndOfInput(at)
            | Move::Stop(at)
            | Move::Lose(at, _)
            | Move::Savepoint(at)
            | Move::Forget(at)
            | Move::Withdraw(at) => self.person_or_task(&mut world, at, chosen)?,
        }
        self.tidy_late(&mut world);
        self.judge_pairs(&world)?;
        Ok(world)
    }

    fn host(&self, world: &World, at: usize) -> Host {
        self.hosts.get(world.hosts[at]).clone()
    }

    fn judge_pairs(&mut self, world: &World) -> Result<(), Violation> {
        for at in 0..self.plan.sinks.len() {
            let key = (world.log, world.sinks[at], at);
            if self.judged.insert(key, ()).is_none() {
                let destination = self.destinations.get(world.sinks[at]);
                judge::pair(&self.facts(world.log), &self.names[at], destination)?;
            }
        }
        Ok(())
    }

    /// What people and tasks do.
    fn person_or_task(&mut self, world: &mut World, at: usize, chosen: Move) -> Result<(), Violation> {
        let mut host = self.host(world, at);
        let mut told = Vec::new();
        let tasks = host.tasks.as_mut();
        match (chosen, tasks) {
            (Move::Read(_), Some(tasks)) => {
                let rows = self.plan.bundle(tasks.read).unwrap_or(0);
                if tasks.rows.is_empty() && tasks.lost == 0 {
                    told.push(Event::Busy);
                }
                tasks.rows.extend(tasks.read..tasks.read + rows);
                tasks.read += rows;
            }
            (Move::Due(_), Some(tasks)) => {
                tasks.due = true;
                told.push(Event::BarrierDue { reason: CutReason::Interval });
            }
            (Move::EndOfInput(_), Some(tasks)) => {
                tasks.ended = true;
                told.push(Event::SourcesEnded);
            }
            (Move::Lose(_, which), Some(tasks)) => {
                world.spend(Spend::Loss);
                // A fresh instance knows nothing of what the one before it had taken.
                tasks.lost += u8::try_from(tasks.rows.len()).unwrap_or(u8::MAX);
                tasks.rows.clear();
                told.push(Event::EpochLost { reason: self.loss(which) });
            }
            (Move::Stop(_), tasks) => {
                world.spend(Spend::Stop);
                if let Some(tasks) = tasks {
                    tasks.stopping = true;
                }
                told.push(Event::StopRequested);
            }
            (Move::Savepoint(_), _) => {
                world.spend(Spend::Savepoint);
                told.push(Event::SavepointAsked { request: SAVEPOINT, name: SAVED.to_owned() });
            }
            (Move::Forget(_), _) => {
                world.spend(Spend::Forget);
                told.push(Event::ForgetAsked { request: FORGET, name: SAVED.to_owned() });
            }
            (Move::Withdraw(_), _) => {
                world.spend(Spend::Withdraw);
                told.push(Event::RequestWithdrawn { request: SAVEPOINT });
            }
            _ => return Err(judge::fault("a move that is not possible")),
        }
        let told = told.into_iter().map(|event| self.item(Item::Tell(event))).collect();
        self.deliver(world, at, host, told)
    }

    fn loss(&self, which: u8) -> TaskFailure {
        let plugin = |kind| TaskFailure::Plugin(self.names[0].clone(), fault(Call::Write, kind));
        let error = |kind| FaultKind::Error(outside::plugin_error(kind));
        let message = String::new;
        match which {
            0 => plugin(FaultKind::Trap),
            1 => TaskFailure::Host(message()),
            2 => TaskFailure::Source { source: source(), message: message(), permanent: false },
            3 => plugin(error(ErrorKind::Fenced)),
            4 => plugin(error(ErrorKind::Permanent)),
            5 => TaskFailure::Source { source: source(), message: message(), permanent: true },
            6 => TaskFailure::BadRow { message: message() },
            _ => TaskFailure::Shape { sink: self.names[0].clone(), message: message() },
        }
    }

    /// Events reach a coordinator, one after the other; all effects of one before the next.
    fn deliver(&mut self, world: &mut World, at: usize, mut host: Host, events: Vec<u32>) -> Result<(), Violation> {
        let mut told = std::collections::VecDeque::from(events);
        while let Some(event) = told.pop_front() {
            let appended = matches!(self.items.get(event), Item::Tell(Event::Appended { .. }));
            let stepped = self.step(host.coordinator, event)?;
            self.coverage.reach(&stepped.branches);
            if stepped.branches.contains(&Branch::DrainedBeforeFork) {
                // What was changed so far, a run of its own has changed.
                host.touched = false;
            }
            let mut ended = None;
            for out in &stepped.out {
                match out {
                    Out::Do(item) => put(&mut host.bag, *item),
                    Out::Timer(item) => {
                        if !host.bag.contains(item) {
                            put(&mut host.bag, *item);
                        }
                    }
                    Out::Intent(request, number) => self.on_intent(&mut host, *request, *number),
                    Out::Publish(of) => self.judge_progress(world, *of)?,
                    Out::End(over) => ended = Some(*over),
                }
            }
            if let Some(over) = ended {
                self.judge_end(world, &host, over)?;
                world.hosts[at] = self.hosts.put(host).0;
                self.bury(world, at, over);
                return Ok(());
            }
            host.coordinator = stepped.next;
            if appended {
                self.compare_with_log(world.log, host.coordinator)?;
            }
        }
        world.hosts[at] = self.hosts.put(host).0;
        Ok(())
    }

    /// What the coordinator knows must be what a fold of the log says, as far as it has read.
    fn compare_with_log(&mut self, log: u32, coordinator: u32) -> Result<(), Violation> {
        // What is behind the newest record that a run knows is none of its business.
        if self.compared.insert((coordinator, log), ()).is_none() {
            self.coordinator(coordinator)?;
            judge::history(self.logs.get(log), self.known(coordinator).history())?;
        }
        Ok(())
    }

    fn judge_progress(&mut self, world: &World, of: EpochRef) -> Result<(), Violation> {
        let facts = self.facts(world.log);
        for (at, name) in self.names.iter().enumerate() {
            judge::progress(&facts, of, name, self.destinations.get(world.sinks[at]))?;
        }
        Ok(())
    }

    fn judge_end(&mut self, world: &World, host: &Host, over: Over) -> Result<(), Violation> {
        match over {
            Over::Finished => {
                let facts = self.facts(world.log);
                for (at, name) in self.names.iter().enumerate() {
                    judge::finished(&facts, self.plan.rows(), name, self.destinations.get(world.sinks[at]))?;
                }
                Ok(())
            }
            Over::Refused => judge::refused(host.touched),
            Over::Not | Over::Again | Over::Stopped | Over::Blocked | Over::Failed => Ok(()),
        }
    }

    /// A host is gone. What it had sent may still arrive.
    fn bury(&mut self, world: &mut World, at: usize, over: Over) {
        let host = self.host(world, at);
        let mut late = self.bags.get(world.late).clone();
        for item in &host.bag {
            if let Item::Do(run, effect) = self.items.get(*item)
                && (called(effect).is_some() || matches!(effect, Effect::Append { .. }))
            {
                let left = Item::Late(*run, effect.clone());
                put(&mut late, self.item(left));
            }
            if self.plan.without.broken_ends
                && let Item::Prepare(prepare) = self.items.get(*item)
                && !prepare.rows.is_empty()
            {
                // What had begun to be staged ends cleanly, and whoever gets it takes it for whole.
                let part = part(prepare);
                let rows = prepare.rows[..1].to_vec();
                let mut destination = self.destinations.get(world.sinks[prepare.at]).clone();
                destination.committed.push((part, rows));
                world.sinks[prepare.at] = self.destinations.put(destination).0;
            }
        }
        world.late = self.bags.put(late).0;
        world.remove_host(at);
        if world.living().next().is_none() {
            world.over = over;
        }
    }

    fn tidy_late(&mut self, world: &mut World) {
        let late = self.bags.get(world.late);
        if late.is_empty() {
            return;
        }
        let matters = |item: &&u32| match self.items.get(**item) {
            Item::Late(run, effect) => may_matter(self, world.log, &world.sinks, effect, *run),
            Item::Do(..) | Item::Tell(_) | Item::Prepare(_) => false,
        };
        let kept: Vec<u32> = late.iter().filter(matters).copied().collect();
        if kept.len() < late.len() {
            world.late = self.bags.put(kept).0;
        }
    }

    /// Which graph the next host has, and its random part: by the hosts that left a trace.
    fn next_host(&self, world: &World) -> u8 {
        let in_log = self.facts(world.log).newest_host;
        let living = world.living().map(|at| self.hosts.get(world.hosts[at]).graph + 1);
        let late = self.bags.get(world.late).iter().filter_map(|item| match self.items.get(*item) {
            Item::Late(run, _) => run.map(number_of),
            _ => None,
        });
        let outside = (0..self.plan.sinks.len()).flat_map(|at| {
            let destination = self.destinations.get(world.sinks[at]);
            let runs = destination.fence.into_iter().chain(destination.committed.iter().map(|(part, _)| part.run));
            runs.filter(|run| !is_stranger(*run)).map(number_of)
        });
        in_log.max(living.chain(late).chain(outside).max().unwrap_or(0))
    }

    fn start(&mut self, world: &mut World, kind: StartKind) -> Result<(), Violation> {
        if world.living().next().is_some() {
            world.spend(Spend::Zombie);
        } else if !matches!(world.over, Over::Not | Over::Again) {
            world.spend(Spend::Restart);
        }
        if kind != StartKind::Plain {
            world.spend(Spend::Decision);
        }
        self.read_tail(world)?;
        let before = self.next_host(world);
        match self.create(Birth { log: world.log, kind, before }) {
            Ok(coordinator) => {
                let host = Host { coordinator, graph: before, kind, tasks: None, bag: Vec::new(), touched: false };
                let at = world.living().count();
                world.over = Over::Not;
                world.hosts[at] = self.hosts.put(host.clone()).0;
                let begin = self.item(Item::Tell(Event::Start));
                self.deliver(world, at, host, vec![begin])
            }
            Err(refusal) => {
                self.coverage.reach(&[Branch::of_refusal(&refusal), Branch::RefusedBeforeStart]);
                if world.living().next().is_none() {
                    world.over = Over::Refused;
                }
                Ok(())
            }
        }
    }

    /// Opening a log writes its tail again, so that what is acted upon is on the disk.
    fn read_tail(&mut self, world: &mut World) -> Result<(), Violation> {
        let log = self.logs.get(world.log);
        if !self.plan.without.rewritten_tail && log.entries.iter().any(|entry| entry.volatile) {
            let mut kept = log.clone();
            kept.entries.iter_mut().for_each(|entry| entry.volatile = false);
            world.log = self.log(kept)?;
        }
        Ok(())
    }

    fn land(&mut self, world: &mut World, item: u32) -> Result<(), Violation> {
        let mut late = self.bags.get(world.late).clone();
        take(&mut late, item);
        world.late = self.bags.put(late).0;
        let Item::Late(run, effect) = self.items.get(item).clone() else { return Ok(()) };
        match &effect {
            Effect::Append { record } => {
                (world.log, _) = self.append(world.log, item, record, How::Well)?;
            }
            effect => {
                _ = self.at_destination(world, item, run, effect, How::Well)?;
            }
        }
        Ok(())
    }

    /// A call reaches its destination.
    fn at_destination(
        &mut self,
        world: &mut World,
        item: u32,
        run: Option<RunId>,
        effect: &Effect,
        how: How,
    ) -> Result<u32, Violation> {
        let Some(at) = called(effect).map(|sink| self.index(sink)) else {
            return Err(judge::fault("an effect that calls nobody"));
        };
        let destination = self.destinations.get(world.sinks[at]);
        judge::outside(&self.facts(world.log), &self.names[at], destination, run, effect, how)?;
        let (destination, answer) = self.call(at, world.sinks[at], item, run, effect, how)?;
        world.sinks[at] = destination;
        Ok(answer)
    }

    fn decide(&mut self, world: &mut World, choosing: Choosing) -> Result<(), Violation> {
        world.spend(Spend::Decision);
        let Some(record) = self.decision(world.log, choosing)? else { return Ok(()) };
        let mut log = self.logs.get(world.log).clone();
        log.append(&record);
        world.log = self.log(log)?;
        Ok(())
    }

    /// The record of a decision, if there is something to be decided.
    pub fn decision(&self, log: u32, choosing: Choosing) -> Result<Option<Record>, Violation> {
        let log = self.logs.get(log);
        let history = log.fold().map_err(|error| judge::folding(&error))?;
        let blocked = history.checkpoints().find_map(|epoch| {
            let waits = |state: &SinkEpochState| {
                matches!(state, SinkEpochState::Blocked(_, why) if !matches!(why, Blocked::TriesSpent(_)))
            };
            epoch.sinks.iter().find(|(_, state)| waits(state)).map(|(sink, _)| (sink.clone(), epoch.of))
        });
        let oldest = history.checkpoints().find(|epoch| epoch.checkpoint == CheckpointState::Retained);
        let choice = match (choosing, blocked, oldest) {
            (Choosing::Retry, Some((sink, of)), _) => Choice::Retry { sink, of },
            (Choosing::GiveUp, Some((sink, of)), _) => Choice::GiveUp { sink, of },
            (Choosing::Fork(policy), _, Some(oldest)) => Choice::Fork { from: oldest.of, policy },
            (Choosing::Accept(policy), ..) => Choice::Accept { sink: self.names[0].clone(), policy },
            _ => return Ok(None),
        };
        let Some(run) = history.newest_run() else { return Ok(None) };
        let decision =
            Decision { id: format!("d{}", history.decisions().len() + 1), by: "somebody".to_owned(), choice };
        let slot = history.next_slot();
        Ok(Some(Record { slot, run, written_at: NOW, outcomes: Vec::new(), body: Body::Decision(decision) }))
    }

    fn restore_log(&mut self, world: &mut World, kept: u8) -> Result<(), Violation> {
        world.spend(Spend::Backup);
        while let Some(at) = world.living().next() {
            self.bury(world, at, Over::Again);
        }
        let mut log = self.logs.get(world.log).clone();
        let lost = log.entries.split_off(usize::from(kept));
        log.lost.extend(lost.into_iter().map(|entry| entry.record));
        world.log = self.log(log)?;
        self.forget_appends(world);
        if self.plan.put_back == PutBack::Everything {
            for at in 0..self.plan.sinks.len() {
                let empty = crate::destination::Destination { restored: true, ..Default::default() };
                world.sinks[at] = self.destinations.put(empty).0;
            }
        }
        world.over = Over::Again;
        Ok(())
    }

    /// What was on its way into a log that is no more is lost with it.
    fn forget_appends(&mut self, world: &mut World) {
        let stays = |item: &&u32| !matches!(self.items.get(**item), Item::Late(_, Effect::Append { .. }));
        let late = self.bags.get(world.late).iter().filter(stays).copied().collect();
        world.late = self.bags.put(late).0;
    }

    fn restore_destination(&mut self, world: &mut World, at: usize) {
        world.spend(Spend::Backup);
        let mut destination = self.destinations.get(world.sinks[at]).clone();
        if let Some((newest, _)) = destination.committed.last() {
            let epoch = newest.epoch_ref();
            destination.committed.retain(|(part, _)| part.epoch_ref() != epoch);
        }
        if destination.committed.is_empty() {
            destination.fence = None;
        }
        destination.restored = true;
        world.sinks[at] = self.destinations.put(destination).0;
    }

    /// Somebody starts the same pipeline with a state of its own. What it finds there was accepted, so it gets through.
    fn let_a_stranger_in(&mut self, world: &mut World, at: usize) {
        world.spend(Spend::Stranger);
        let mut destination = self.destinations.get(world.sinks[at]).clone();
        let number = destination.fence.map_or(1, |fence| fence.number + 1);
        let run = RunId { number, nonce: STRANGER };
        destination.fence = Some(run);
        let part = PartId::mint(&pipeline(), &self.names[at], run, Epoch(1), 0, 1);
        destination.committed.push((part, Vec::new()));
        world.sinks[at] = self.destinations.put(destination).0;
    }

    fn cut_power(&mut self, world: &mut World) -> Result<(), Violation> {
        world.spend(Spend::Power);
        while let Some(at) = world.living().next() {
            self.bury(world, at, Over::Again);
        }
        let mut log = self.logs.get(world.log).clone();
        if let Some(first) = log.entries.iter().position(|entry| entry.volatile) {
            log.entries.truncate(first);
        }
        world.log = self.log(log)?;
        self.forget_appends(world);
        world.over = Over::Again;
        Ok(())
    }
}

/// Carrying out effects.
impl Engine {
    fn carry(&mut self, world: &mut World, at: usize, mut host: Host, item: u32, how: How) -> Result<(), Violation> {
        match self.items.get(item).clone() {
            Item::Prepare(prepare) => self.prepare(world, at, host, &prepare),
            Item::Do(run, effect) => match &effect {
                Effect::Append { record } => {
                    let (log, answer) = self.append(world.log, item, record, how)?;
                    world.log = log;
                    if how == How::Late {
                        self.put_late(world, run, &effect);
                    }
                    self.answer(world, at, host, answer)
                }
                Effect::OpenTasks(restored) => {
                    host.tasks = Some(self.open(world, &host, restored)?);
                    let opened = self.item(Item::Tell(Event::TasksOpened));
                    self.answer(world, at, host, opened)
                }
                Effect::InjectBarrier { epoch, .. } => self.barrier(world, at, host, *epoch),
                Effect::DeleteRecords { slots } => self.delete(world, at, host, slots, how),
                _ => {
                    let before = world.sinks;
                    let answer = self.at_destination(world, item, run, &effect, how)?;
                    host.touched |= world.sinks != before;
                    if matches!(how, How::Late | How::Twice) {
                        self.put_late(world, run, &effect);
                    }
                    self.answer(world, at, host, answer)
                }
            },
            Item::Tell(_) | Item::Late(..) => Err(judge::fault("an item that cannot be carried out")),
        }
    }

    fn put_late(&mut self, world: &mut World, run: Option<RunId>, effect: &Effect) {
        let mut late = self.bags.get(world.late).clone();
        put(&mut late, self.item(Item::Late(run, effect.clone())));
        world.late = self.bags.put(late).0;
    }

    fn answer(&mut self, world: &mut World, at: usize, mut host: Host, answer: u32) -> Result<(), Violation> {
        if self.plan.answers_travel {
            put(&mut host.bag, answer);
            world.hosts[at] = self.hosts.put(host).0;
            return Ok(());
        }
        self.deliver(world, at, host, vec![answer])
    }

    fn open(&mut self, world: &World, host: &Host, restored: &Restored) -> Result<Tasks, Violation> {
        let graph = self.plan.graph(usize::from(host.graph), host.kind);
        let facts = self.facts(world.log);
        judge::opened(&facts, &graph, restored)?;
        for name in graph.sinks.keys() {
            let at = self.index(name);
            if self.plan.sinks[at].abilities.observe && name == &self.names[at] {
                let destination = self.destinations.get(world.sinks[at]);
                judge::opened_at(&facts, name, self.manners[at], destination, restored.run)?;
            }
        }
        let cut = restored.sources.get(&source());
        let entries = cut.and_then(|cut| cut.partitions.entries().ok());
        let read = entries.and_then(|entries| entries.get("0").and_then(|text| text.parse().ok())).unwrap_or(0);
        Ok(Tasks {
            run: restored.run,
            epoch: restored.first_epoch,
            read,
            rows: Vec::new(),
            lost: 0,
            ended: false,
            due: false,
            stopping: false,
        })
    }

    /// The barrier passes the source, which reports at once: nothing else hangs on when that is told, since a seal waits
    /// for all parts, and they come behind it.
    fn barrier(&mut self, world: &mut World, at: usize, mut host: Host, epoch: Epoch) -> Result<(), Violation> {
        let Some(tasks) = host.tasks.as_mut() else { return Err(judge::fault("a barrier without tasks")) };
        let rows = std::mem::take(&mut tasks.rows);
        let lost = std::mem::take(&mut tasks.lost);
        let ended = tasks.ended;
        tasks.epoch = epoch.next();
        tasks.due = false;
        let (run, read) = (tasks.run, tasks.read);
        let progress = SourceProgress {
            moved: BTreeMap::from([("0".to_owned(), read.to_string())]),
            ended,
            watermark: None,
            rows: rows.len() as u64 + u64::from(lost),
            dead_lettered: 0,
            schema: None,
        };
        let mut told = vec![self.item(Item::Tell(Event::SourceCut { source: source(), task: 0, epoch, progress }))];
        let graph = self.plan.graph(usize::from(host.graph), host.kind);
        for (name, spec) in &graph.sinks {
            let at = self.index(name);
            for ordinal in 0..spec.participants {
                let of = spec.participants;
                // Rows are dealt in turn, so that the participants with rows are always the first ones.
                let own = rows.iter().enumerate().filter(|(i, _)| *i as u32 % of == ordinal).map(|(_, row)| *row);
                let rows: Vec<u8> = own.collect();
                let announces = spec.abilities.orphans == Orphans::DurableIntent && !rows.is_empty();
                let waits_for = announces.then(|| epoch.0 * 100 + (at as u64) * 10 + u64::from(ordinal));
                let lost = if ordinal == 0 { u64::from(lost) } else { 0 };
                let prepare = Prepare { at, sink: name.clone(), ordinal, of, run, epoch, rows, lost, waits_for };
                if let Some(request) = waits_for {
                    let part = part(&prepare);
                    let resource = staged_file(&format!("planned-{}", part.short));
                    let event = Event::IntentAnnounced { request, sink: name.clone(), part: Some(part), resource };
                    told.push(self.item(Item::Tell(event)));
                }
                put(&mut host.bag, self.item(Item::Prepare(prepare)));
            }
        }
        if self.plan.answers_travel {
            told.into_iter().for_each(|event| put(&mut host.bag, event));
            world.hosts[at] = self.hosts.put(host).0;
            return Ok(());
        }
        self.deliver(world, at, host, told)
    }

    /// The announcement is durable, or is not.
    fn on_intent(&mut self, host: &mut Host, request: u64, number: Option<u64>) {
        let waiting = host.bag.iter().copied().find_map(|item| match self.items.get(item) {
            Item::Prepare(prepare) if prepare.waits_for == Some(request) => Some((item, prepare.clone())),
            _ => None,
        });
        let Some((item, mut prepare)) = waiting else { return };
        let Some(number) = number else {
            let reason = TaskFailure::Host("an announcement was refused".to_owned());
            put(&mut host.bag, self.item(Item::Tell(Event::EpochLost { reason })));
            return;
        };
        take(&mut host.bag, item);
        // First the announcement, then the name that the destination gave it.
        const NAMED: u64 = 1_000_000;
        if request < NAMED {
            prepare.waits_for = Some(request + NAMED);
            let name = part(&prepare).short;
            put(&mut host.bag, self.item(Item::Tell(Event::IntentBound { request: request + NAMED, number, name })));
        } else {
            prepare.waits_for = None;
        }
        put(&mut host.bag, self.item(Item::Prepare(prepare)));
    }

    /// Staging and telling are one step: only the coordinator learns of either, and what a crash between them leaves is
    /// what a crash behind both leaves.
    fn prepare(&mut self, world: &mut World, at: usize, mut host: Host, prepare: &Prepare) -> Result<(), Violation> {
        let part = part(prepare);
        let count = prepare.rows.len() as u64;
        let prepared = (!prepare.rows.is_empty()).then(|| {
            let range = KeyRange::split(prepare.of)[prepare.ordinal as usize];
            let body = Bytes::copy_from_slice(&prepare.rows);
            let state = WriterState { range, version: 1, body: body.clone() };
            Prepared {
                resources: vec![staged_file(&part.short)],
                committable: Committable { part: part.clone(), version: 1, body, rows: count, expires_at: None },
                state: self.plan.sinks[prepare.at].states.then_some(state),
                rows: count,
                rejects: Vec::new(),
            }
        });
        if prepared.is_some() {
            let mut destination = self.destinations.get(world.sinks[prepare.at]).clone();
            judge::staged(&destination, &part)?;
            destination.staged.insert(part.short.clone(), (part, prepare.rows.clone()));
            world.sinks[prepare.at] = self.destinations.put(destination).0;
            host.touched = true;
        }
        let event = Event::PartPrepared {
            sink: prepare.sink.clone(),
            ordinal: prepare.ordinal,
            epoch: prepare.epoch,
            rows_in: count + prepare.lost,
            filtered: 0,
            rejected_in_write: 0,
            prepared,
        };
        let event = self.item(Item::Tell(event));
        self.answer(world, at, host, event)
    }

    fn delete(&mut self, world: &mut World, at: usize, host: Host, slots: &[Slot], how: How) -> Result<(), Violation> {
        let count = if how == How::Partly { slots.len() / 2 } else { slots.len() };
        let mut log = self.logs.get(world.log).clone();
        for slot in &slots[..count] {
            judge::deleted(&self.facts(world.log), &log, *slot)?;
            let index = usize::try_from(slot.0 - 1).unwrap_or(usize::MAX);
            if let Some(entry) = log.entries.get_mut(index) {
                entry.gone = true;
            }
        }
        world.log = self.log(log)?;
        world.hosts[at] = self.hosts.put(host).0;
        Ok(())
    }
}

/// The id of what a participant prepares.
fn part(prepare: &Prepare) -> PartId {
    PartId::mint(&pipeline(), &prepare.sink, prepare.run, prepare.epoch, prepare.ordinal, 1)
}

/// Puts an item into a bag, which stays sorted.
fn put(bag: &mut Vec<u32>, item: u32) {
    let at = bag.partition_point(|other| *other < item);
    bag.insert(at, item);
}

/// Takes one such item out.
fn take(bag: &mut Vec<u32>, item: u32) {
    if let Ok(at) = bag.binary_search(&item) {
        bag.remove(at);
    }
}
