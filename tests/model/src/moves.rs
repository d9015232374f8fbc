//! What can happen to a world, and which of it happens if nothing goes wrong.

use tidegate_protocol::event::{Effect, Event, Timer};
use tidegate_protocol::plugin::AtomicScope;

use crate::engine::Engine;
use crate::item::{Item, Prepare};
use crate::judge::Violation;
use crate::outside::{called, faults_of};
use crate::plan::{How, PutBack, Spend, StartKind};
use crate::world::{HOSTS, Host, Move, NONE, Over, World};

impl Engine {
    /// Everything that can happen, in an order that depends on nothing but the world.
    ///
    /// # Errors
    /// The log cannot be folded.
    pub fn moves(&self, world: &World) -> Result<Vec<Move>, Violation> {
        let mut moves = Vec::new();
        for at in world.living() {
            self.moves_of(world, at, &mut moves);
        }
        self.starts(world, &mut moves);
        let mut last = NONE;
        for item in self.bags.get(world.late) {
            if *item != last {
                moves.push(Move::Land(*item));
                last = *item;
            }
        }
        self.decisions(world, &mut moves)?;
        self.disasters(world, &mut moves);
        Ok(moves)
    }

    fn moves_of(&self, world: &World, at: usize, moves: &mut Vec<Move>) {
        let host = self.hosts.get(world.hosts[at]);
        let mut last = NONE;
        for item in host.bag.iter().copied() {
            if item != last {
                self.moves_with(world, at, host, item, moves);
                last = item;
            }
        }
        self.outside_moves(world, at, host, moves);
        if world.has(Spend::Crash) {
            moves.push(Move::Crash(at));
        }
    }

    fn moves_with(&self, world: &World, at: usize, host: &Host, item: u32, moves: &mut Vec<Move>) {
        match self.items.get(item) {
            Item::Tell(Event::TimerFired { timer: Timer::Sweep }) => {
                if world.has(Spend::Sweep) {
                    moves.push(Move::Deliver(at, item));
                }
            }
            Item::Tell(event) => {
                moves.push(Move::Deliver(at, item));
                let twice = self.plan.faults.iter().any(|how| matches!(how, How::Twice | How::ToldTwice));
                if world.has(Spend::Fault) && twice && is_answer(event) {
                    moves.push(Move::DeliverTwice(at, item));
                }
            }
            Item::Prepare(prepare) => {
                if self.may_prepare(host, prepare) {
                    moves.push(Move::Carry(at, item, How::Well));
                }
            }
            Item::Do(_, effect) => {
                moves.push(Move::Carry(at, item, How::Well));
                if world.has(Spend::Fault) {
                    let single = called(effect).map(|sink| self.index(sink));
                    let parts = single.is_some_and(|at| self.manners[at].scope == AtomicScope::Participant);
                    let may = faults_of(effect, parts).iter().filter(|how| self.plan.faults.contains(how));
                    moves.extend(may.map(|how| Move::Carry(at, item, *how)));
                }
            }
            Item::Late(..) => {}
        }
    }

    /// Participants are identical. Those with equally many rows are told apart by their ordinals alone, and renaming them
    /// renames everything that follows (`tests/renaming.rs`); so of the orders in which they prepare only the sorted one
    /// is explored.
    fn may_prepare(&self, host: &Host, prepare: &Prepare) -> bool {
        let before = |item: &u32| match self.items.get(*item) {
            Item::Prepare(other) => {
                other.at == prepare.at
                    && other.epoch == prepare.epoch
                    && other.ordinal < prepare.ordinal
                    && other.rows.len() == prepare.rows.len()
            }
            _ => false,
        };
        prepare.waits_for.is_none() && !host.bag.iter().any(before)
    }

    fn outside_moves(&self, world: &World, at: usize, host: &Host, moves: &mut Vec<Move>) {
        if let Some(tasks) = &host.tasks {
            if self.plan.bundle(tasks.read).is_some() {
                moves.push(Move::Read(at));
            } else if !tasks.ended {
                moves.push(Move::EndOfInput(at));
            }
            if !tasks.due && !tasks.rows.is_empty() {
                moves.push(Move::Due(at));
            }
            if world.has(Spend::Loss) {
                moves.extend((0..self.plan.losses).map(|which| Move::Lose(at, which)));
            }
        }
        if world.has(Spend::Stop) {
            moves.push(Move::Stop(at));
        }
        if world.has(Spend::Savepoint) {
            moves.push(Move::Savepoint(at));
        }
        if world.has(Spend::Forget) {
            moves.push(Move::Forget(at));
        }
        if world.has(Spend::Withdraw)
            && self.plan.budget[Spend::Savepoint as usize] > world.budget[Spend::Savepoint as usize]
        {
            moves.push(Move::Withdraw(at));
        }
    }

    fn starts(&self, world: &World, moves: &mut Vec<Move>) {
        let living = world.living().count();
        let may = match (living, world.over) {
            (0, Over::Not | Over::Again) => true,
            (0, _) => world.has(Spend::Restart),
            (n, _) => n < HOSTS && world.has(Spend::Zombie),
        };
        if may {
            moves.push(Move::Start(StartKind::Plain));
            if world.has(Spend::Decision) {
                moves.extend(self.plan.starts.iter().map(|kind| Move::Start(*kind)));
            }
        }
    }

    /// A person decides while no host lives: the log is locked otherwise.
    fn decisions(&self, world: &World, moves: &mut Vec<Move>) -> Result<(), Violation> {
        if world.has(Spend::Decision) && world.living().next().is_none() {
            for choosing in &self.plan.choices {
                if self.decision(world.log, *choosing)?.is_some() {
                    moves.push(Move::Decide(*choosing));
                }
            }
        }
        Ok(())
    }

    fn disasters(&self, world: &World, moves: &mut Vec<Move>) {
        if world.has(Spend::Backup) {
            let log = self.logs.get(world.log);
            if log.lost.is_empty() && self.plan.put_back != PutBack::Destination {
                let everything = self.plan.put_back == PutBack::Everything;
                let most = if everything { log.entries.len().min(1) } else { log.entries.len() };
                moves.extend((0..most).map(|kept| Move::RestoreLog(u8::try_from(kept).unwrap_or(0))));
            }
            for at in 0..self.plan.sinks.len() {
                let destination = self.destinations.get(world.sinks[at]);
                let there = destination.fence.is_some() || !destination.committed.is_empty();
                let alone = matches!(self.plan.put_back, PutBack::Either | PutBack::Destination);
                if there && world.living().next().is_none() && alone {
                    moves.push(Move::RestoreDestination(at));
                }
            }
        }
        if world.has(Spend::Stranger) {
            moves.extend((0..self.plan.sinks.len()).map(Move::Stranger));
        }
        if world.has(Spend::Power) {
            moves.push(Move::PowerCut);
        }
    }

    /// What happens next if nothing goes wrong: the newest host goes on, timers come last. `None`: it came to an end, or
    /// is stuck.
    pub fn fair(&self, world: &World) -> Option<Move> {
        for at in world.living().rev() {
            if let Some(next) = self.fair_of(world, at) {
                return Some(next);
            }
        }
        let over = world.living().next().is_none() && matches!(world.over, Over::Not | Over::Again);
        over.then_some(Move::Start(StartKind::Plain))
    }

    fn fair_of(&self, world: &World, at: usize) -> Option<Move> {
        let host = self.hosts.get(world.hosts[at]);
        let mut timer = None;
        let mut effect = None;
        for item in &host.bag {
            match self.items.get(*item) {
                Item::Tell(Event::TimerFired { timer: Timer::Sweep }) | Item::Late(..) => {}
                Item::Tell(Event::TimerFired { .. }) => timer = timer.or(Some(Move::Deliver(at, *item))),
                Item::Tell(_) => return Some(Move::Deliver(at, *item)),
                Item::Do(..) => effect = effect.or(Some(Move::Carry(at, *item, How::Well))),
                Item::Prepare(prepare) if self.may_prepare(host, prepare) => {
                    effect = effect.or(Some(Move::Carry(at, *item, How::Well)));
                }
                Item::Prepare(_) => {}
            }
        }
        let tasks = host.tasks.as_ref().and_then(|tasks| {
            if self.plan.bundle(tasks.read).is_some() {
                Some(Move::Read(at))
            } else {
                (!tasks.ended).then_some(Move::EndOfInput(at))
            }
        });
        effect.or(tasks).or(timer)
    }

    /// Whether a world without a fair move is one that a person would call an end.
    pub fn is_end(&self, world: &World) -> bool {
        world.living().next().is_none()
            && matches!(world.over, Over::Finished | Over::Stopped | Over::Blocked | Over::Refused | Over::Failed)
    }
}

fn is_answer(event: &Event) -> bool {
    matches!(
        event,
        Event::Observed { .. }
            | Event::Appended { .. }
            | Event::Fenced { .. }
            | Event::CommitAnswered { .. }
            | Event::Reconciled { .. }
            | Event::OrphansListed { .. }
            | Event::Abandoned { .. }
            | Event::ReleaseAnswered { .. }
            | Event::TasksOpened
            | Event::TimerFired { .. }
            | Event::PartPrepared { .. }
            | Event::SourceCut { .. }
    )
}

/// For traces.
pub fn describe(engine: &Engine, chosen: Move) -> String {
    let item = |number: u32| match engine.items.get(number) {
        Item::Do(_, effect) | Item::Late(_, effect) => short_effect(effect),
        Item::Tell(event) => crop(&format!("{event:?}")),
        Item::Prepare(prepare) => format!(
            "sink {} participant {} prepares epoch {} with rows {:?}",
            prepare.sink, prepare.ordinal, prepare.epoch, prepare.rows
        ),
    };
    match chosen {
        Move::Deliver(at, number) => format!("host {at} is told: {}", item(number)),
        Move::DeliverTwice(at, number) => format!("host {at} is told, not for the last time: {}", item(number)),
        Move::Carry(at, number, How::Well) => format!("host {at}: {}", item(number)),
        Move::Carry(at, number, how) => format!("host {at}, {how:?}: {}", item(number)),
        Move::Land(number) => format!("what a dead host, or nobody, waits for arrives: {}", item(number)),
        other => format!("{other:?}"),
    }
}

fn short_effect(effect: &Effect) -> String {
    match effect {
        Effect::Append { record } => {
            let body = format!("{:?}", record.body);
            let outcomes: Vec<String> =
                record.outcomes.iter().map(|o| format!("{} {} {:?}", o.sink, o.of.epoch, o.outcome)).collect();
            crop(&format!("append slot {} of run {} carrying {outcomes:?}: {body}", record.slot, record.run.number))
        }
        Effect::Commit(permit) => format!(
            "commit attempt {} at {} by run {}: {:?}",
            permit.attempt(),
            permit.sink(),
            permit.run().number,
            permit.committables().iter().map(|c| c.part.short.as_str()).collect::<Vec<_>>()
        ),
        other => crop(&format!("{other:?}")),
    }
}

/// Names of the types, and what is the same everywhere, are noise.
fn crop(text: &str) -> String {
    const MOST: usize = 260;
    let mut text = text.to_owned();
    for number in 0..=9u8 {
        let nonce = format!("nonce: Nonce([{}])", vec![number.to_string(); 10].join(", "));
        text = text.replace(&format!("RunId {{ number: {number}, {nonce} }}"), &format!("run {number}"));
    }
    for noise in ["SinkId", "SourceId", "EpochRef", "Epoch", "Slot"] {
        text = text.replace(&format!("{noise}("), "(").replace(&format!("{noise} {{"), "{");
    }
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text,
    }
}
