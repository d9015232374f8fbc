//! The pools of everything that was ever reached, and the real protocol's steps between coordinators.
//!
//! A world is a handful of numbers. What happens to it happens to one or two of the things behind them, and the same
//! thing happens in very many worlds: each step of a coordinator, each append and each call is carried out once and
//! remembered. That changes nothing, since all of them are functions of what is in the key.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_protocol::coordinator::Coordinator;
use tidegate_protocol::event::{Effect, End, Event, Refusal, TaskFailure, Timer};
use tidegate_protocol::ids::{EpochRef, RunId, SinkId};

use crate::coverage::{Branch, Coverage};
use crate::destination::{Destination, Manner};
use crate::intern::{Fingerprint, Map, Pool};
use crate::item::Item;
use crate::judge::{self, Violation};
use crate::log::{Facts, Log};
use crate::plan::{Plan, StartKind, nonce, pipeline, sink};
use crate::world::{Host, NONE, Over, World};

/// The time is always this.
pub const NOW: u64 = 1_000;

/// What a step made of a coordinator.
#[derive(Debug)]
pub struct Stepped {
    /// The coordinator behind it; `NONE` if it is over.
    pub next: u32,
    /// What is to be done, in order.
    pub out: Vec<Out>,
    /// What was reached on the way.
    pub branches: Vec<Branch>,
}

/// One effect, sorted by who carries it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    /// Something under way.
    Do(u32),
    /// A timer is set: its event. One of the same timer is taken back.
    Timer(u32),
    /// An announcement got its answer.
    Intent(u64, Option<u64>),
    /// Progress is published.
    Publish(EpochRef),
    /// The run is over.
    End(Over),
}

/// How a coordinator came to be, to make it again.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Born(Birth),
    Step(u32, u32),
}

/// What a run is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// What it reads.
    pub log: u32,
    /// How it is started.
    pub kind: StartKind,
    /// The number of the last host that left a trace.
    pub before: u8,
}

/// Coordinators are large, so only those are kept that a waiting world has; all others are known by fingerprint.
#[derive(Debug, Default)]
struct Coordinators {
    numbers: Map<u128, u32>,
    origins: Vec<Origin>,
    values: Map<u32, Coordinator>,
    waiting: Map<u32, u32>,
    fresh: Vec<u32>,
    /// No waiting world has them; the oldest are let go when there are many.
    resting: VecDeque<u32>,
    rebuilt: u64,
}

/// So many coordinators are kept although no waiting world has them.
const RESTING: usize = 30_000;

impl Coordinators {
    fn put(&mut self, coordinator: Coordinator, origin: Origin) -> u32 {
        let next = u32::try_from(self.origins.len()).unwrap_or(NONE);
        let number = *self.numbers.entry(Fingerprint::of(&coordinator)).or_insert(next);
        if number == next {
            self.origins.push(origin);
        }
        if self.values.insert(number, coordinator).is_none() {
            self.fresh.push(number);
        }
        number
    }

    fn rest(&mut self, number: u32) {
        self.resting.push_back(number);
        if self.resting.len() > RESTING
            && let Some(oldest) = self.resting.pop_front()
            && !self.waiting.contains_key(&oldest)
        {
            self.values.remove(&oldest);
        }
    }
}

/// So many logs stay read by the judge.
const FACTS_KEPT: usize = 4_096;

/// Everything that was reached.
#[derive(Debug)]
pub struct Engine {
    /// What is explored.
    pub plan: Plan,
    /// How the destinations behave.
    pub manners: Vec<Manner>,
    /// Names of the sinks.
    pub names: Vec<SinkId>,
    /// Logs.
    pub logs: Pool<Log>,
    facts: RefCell<Map<u32, Rc<Facts>>>,
    /// Destinations.
    pub destinations: Pool<Destination>,
    /// What is or was under way.
    pub items: Pool<Item>,
    /// Hosts.
    pub hosts: Pool<Host>,
    /// What dead hosts left under way.
    pub bags: Pool<Vec<u32>>,
    coordinators: Coordinators,
    steps: Map<(u32, u32), Rc<Stepped>>,
    /// Pairs of log and destination that were judged.
    pub judged: Map<(u32, u32, usize), ()>,
    /// Pairs of coordinator and log that were compared.
    pub compared: Map<(u32, u32), ()>,
    /// What appends came to.
    pub appended: Map<(u32, u32, u8), (u32, u32)>,
    /// What calls came to.
    pub called: Map<(u32, u32, u8), (u32, u32)>,
    /// Items as they are when nobody waits for them any more.
    pub left: Map<u32, u32>,
    /// What was reached, and how often.
    pub coverage: Coverage,
}

impl Engine {
    /// Nothing is reached yet.
    pub fn new(plan: Plan) -> Self {
        let manner = |at: &crate::plan::SinkPlan| Manner {
            scope: at.abilities.atomic_scope,
            fences: at.abilities.fence,
            without: plan.without,
        };
        Self {
            manners: plan.sinks.iter().map(manner).collect(),
            names: plan.sinks.iter().map(|plan| sink(plan.name)).collect(),
            plan,
            logs: Pool::default(),
            facts: RefCell::default(),
            destinations: Pool::default(),
            items: Pool::default(),
            hosts: Pool::default(),
            bags: Pool::default(),
            coordinators: Coordinators::default(),
            steps: Map::default(),
            judged: Map::default(),
            compared: Map::default(),
            appended: Map::default(),
            called: Map::default(),
            left: Map::default(),
            coverage: Coverage::default(),
        }
    }

    /// The number of a log. A new one is read by the judge and folded by the product.
    ///
    /// # Errors
    /// It breaks a promise, or contradicts itself.
    pub fn log(&mut self, log: Log) -> Result<u32, Violation> {
        let (number, new) = self.logs.put(log);
        if new {
            let facts = self.facts(number);
            judge::log(&self.plan, self.logs.get(number), &facts, &mut self.coverage)?;
        }
        Ok(number)
    }

    /// What the judge knows of a log.
    pub fn facts(&self, log: u32) -> Rc<Facts> {
        let mut known = self.facts.borrow_mut();
        if let Some(facts) = known.get(&log) {
            return Rc::clone(facts);
        }
        if known.len() >= FACTS_KEPT {
            known.clear();
        }
        let facts = Rc::new(Facts::of(self.logs.get(log)));
        known.insert(log, Rc::clone(&facts));
        facts
    }

    /// Which destination a sink writes to. One that was renamed writes where it did before.
    pub fn index(&self, sink: &SinkId) -> usize {
        self.names.iter().position(|name| name == sink).unwrap_or(self.names.len() - 1)
    }

    /// How many coordinators there are.
    pub fn coordinators(&self) -> usize {
        self.coordinators.origins.len()
    }

    /// How many were made again.
    pub fn rebuilt(&self) -> u64 {
        self.coordinators.rebuilt
    }

    /// How many of their steps were carried out.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The number of an item.
    pub fn item(&mut self, item: Item) -> u32 {
        self.items.put(item).0
    }

    /// A run made of what can be read in a log.
    ///
    /// # Errors
    /// What was refused.
    pub fn create(&mut self, birth: Birth) -> Result<u32, Refusal> {
        let made = self.born(birth)?;
        Ok(self.coordinators.put(made, Origin::Born(birth)))
    }

    fn born(&self, birth: Birth) -> Result<Coordinator, Refusal> {
        let log = self.logs.get(birth.log);
        let oldest = self.facts(birth.log).oldest();
        let graph = self.plan.graph(usize::from(birth.before), birth.kind);
        let settings = self.plan.settings(birth.kind, oldest);
        let records = log.readable().cloned().collect();
        let random = if self.plan.without.nonce { 1 } else { birth.before + 1 };
        Coordinator::new(pipeline(), graph, "graph".to_owned(), settings, records, nonce(random))
    }

    /// The coordinator behind a number. One that was let go is made again, the way it was made before.
    ///
    /// # Errors
    /// It comes out otherwise: the protocol is not a function.
    pub fn coordinator(&mut self, number: u32) -> Result<&Coordinator, Violation> {
        let mut way = Vec::new();
        let mut at = number;
        while !self.coordinators.values.contains_key(&at) {
            match self.coordinators.origins[at as usize] {
                Origin::Born(birth) => {
                    let made = self.born(birth).map_err(|_| judge::fault("a coordinator cannot be made again"))?;
                    self.coordinators.values.insert(at, made);
                    self.coordinators.fresh.push(at);
                }
                Origin::Step(before, event) => {
                    way.push((at, event));
                    at = before;
                }
            }
        }
        while let Some((next, event)) = way.pop() {
            let mut value = self.coordinators.values[&at].clone();
            if let Item::Tell(event) = self.items.get(event) {
                _ = value.step(NOW, event.clone());
            }
            self.coordinators.rebuilt += 1;
            if self.coordinators.numbers.get(&Fingerprint::of(&value)) != Some(&next) {
                return Err(judge::fault("the same step of the same coordinator led somewhere else"));
            }
            self.coordinators.values.insert(next, value);
            self.coordinators.fresh.push(next);
            at = next;
        }
        Ok(&self.coordinators.values[&number])
    }

    /// One that is there.
    pub fn known(&self, number: u32) -> &Coordinator {
        &self.coordinators.values[&number]
    }

    /// A world with these hosts waits to be explored.
    pub fn keep(&mut self, world: &World) {
        for at in world.living() {
            let number = self.hosts.get(world.hosts[at]).coordinator;
            *self.coordinators.waiting.entry(number).or_default() += 1;
        }
    }

    /// It was explored.
    pub fn let_go(&mut self, world: &World) {
        for at in world.living() {
            let number = self.hosts.get(world.hosts[at]).coordinator;
            if let Some(count) = self.coordinators.waiting.get_mut(&number) {
                *count -= 1;
                if *count == 0 {
                    self.coordinators.waiting.remove(&number);
                    self.coordinators.rest(number);
                }
            }
        }
    }

    /// Lets go of everything that was made on the way and that no waiting world has.
    pub fn tidy(&mut self) {
        for number in std::mem::take(&mut self.coordinators.fresh) {
            if !self.coordinators.waiting.contains_key(&number) {
                self.coordinators.rest(number);
            }
        }
    }

    /// One step of the real coordinator, judged.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn step(&mut self, coordinator: u32, event: u32) -> Result<Rc<Stepped>, Violation> {
        if let Some(stepped) = self.steps.get(&(coordinator, event)) {
            return Ok(Rc::clone(stepped));
        }
        let stepped = Rc::new(self.first_step(coordinator, event)?);
        self.steps.insert((coordinator, event), Rc::clone(&stepped));
        Ok(stepped)
    }

    fn first_step(&mut self, coordinator: u32, event: u32) -> Result<Stepped, Violation> {
        let number = event;
        self.coordinator(coordinator)?;
        let before = &self.coordinators.values[&coordinator];
        let Item::Tell(event) = self.items.get(number) else { return Err(judge::fault("an item that is no event")) };
        let mut after = before.clone();
        let effects = after.step(NOW, event.clone());
        judge::step(before, event, &after, &effects)?;
        let branches = Branch::of_step(before, event, &after, &effects);
        let run = after.run();
        let mut next = NONE;
        if !effects.iter().any(|effect| matches!(effect, Effect::End(_))) {
            next = self.coordinators.put(after, Origin::Step(coordinator, number));
        }
        let out = effects.into_iter().filter_map(|effect| self.sort(run, effect)).collect();
        Ok(Stepped { next, out, branches })
    }

    fn sort(&mut self, run: Option<RunId>, effect: Effect) -> Option<Out> {
        Some(match effect {
            Effect::Notice(_) | Effect::RequestAnswered { .. } => return None,
            Effect::Wait { timer, .. } => Out::Timer(self.item(Item::Tell(Event::TimerFired { timer }))),
            Effect::IntentRecorded { request, result } => Out::Intent(request, result.ok()),
            Effect::PublishProgress { of, .. } => Out::Publish(of),
            Effect::End(end) => Out::End(over(&end)),
            Effect::Observe { .. }
            | Effect::Append { .. }
            | Effect::Fence { .. }
            | Effect::Commit(_)
            | Effect::Reconcile(_)
            | Effect::ListOrphans { .. }
            | Effect::Abandon { .. }
            | Effect::Release { .. }
            | Effect::OpenTasks(_)
            | Effect::InjectBarrier { .. }
            | Effect::DeleteRecords { .. } => Out::Do(self.item(Item::Do(run, effect))),
        })
    }

    /// Whether an item is a timer, and which.
    pub fn timer(&self, item: u32) -> Option<&Timer> {
        match self.items.get(item) {
            Item::Tell(Event::TimerFired { timer }) => Some(timer),
            _ => None,
        }
    }
}

/// What an end means for whoever runs the host.
pub fn over(end: &End) -> Over {
    match end {
        End::Finished => Over::Finished,
        End::Stopped | End::StoppedInDoubt { .. } => Over::Stopped,
        End::Blocked { .. } => Over::Blocked,
        End::Restart(_) | End::Superseded(_) | End::StoreFailed(_) => Over::Again,
        End::Failed(failure) => match failure {
            TaskFailure::Plugin(..)
            | TaskFailure::Source { .. }
            | TaskFailure::BadRow { .. }
            | TaskFailure::Shape { .. }
            | TaskFailure::Host(_) => Over::Failed,
        },
        End::Refused(_) => Over::Refused,
    }
}
