//! Every world that can be reached, each once, with a way to it.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use crate::coverage::Coverage;
use crate::engine::Engine;
use crate::intern::Fingerprint;
use crate::judge::{Promise, Violation};
use crate::moves::describe;
use crate::plan::Plan;
use crate::world::{Move, NONE, World};

/// Worlds by number, each once. Equality is equality of worlds, not of fingerprints.
#[derive(Debug)]
struct Visited {
    worlds: Vec<World>,
    /// Open addressing; a power of two.
    table: Vec<u32>,
}

impl Visited {
    fn new() -> Self {
        Self { worlds: Vec::new(), table: vec![NONE; 1 << 16] }
    }

    fn put(&mut self, world: World) -> (u32, bool) {
        if self.worlds.len() * 2 >= self.table.len() {
            self.grow();
        }
        let at = self.place(&world);
        if self.table[at] != NONE {
            return (self.table[at], false);
        }
        let number = self.worlds.len() as u32;
        self.table[at] = number;
        self.worlds.push(world);
        (number, true)
    }

    fn place(&self, world: &World) -> usize {
        let mask = self.table.len() - 1;
        let mut at = Fingerprint::of(world) as usize & mask;
        while self.table[at] != NONE && self.worlds[self.table[at] as usize] != *world {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        self.table = vec![NONE; self.table.len() * 2];
        for number in 0..self.worlds.len() {
            let at = self.place(&self.worlds[number]);
            self.table[at] = number as u32;
        }
    }
}

/// What an exploration found.
#[derive(Debug)]
pub struct Report {
    /// Of which plan.
    pub name: &'static str,
    /// Different states.
    pub states: u64,
    /// Steps between them.
    pub transitions: u64,
    /// States without a further step.
    pub ends: u64,
    /// The longest way without faults to an end, in steps.
    pub longest: u32,
    /// Wall time.
    pub seconds: f64,
    /// Different coordinators, and steps of them that were carried out.
    pub coordinators: (usize, usize),
    /// Coordinators that had been let go and were made again.
    pub rebuilt: u64,
    /// Different things under way.
    pub items: usize,
    /// Different logs, destinations and hosts.
    pub parts: (usize, usize, usize),
    /// What was reached.
    pub coverage: Coverage,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} states, {} transitions, {} ends, K {}, {:.1} s ({:.0} states/s), {} coordinators, {} steps of them, \
             {} made again, {} logs, {} destinations, {} hosts, {} things under way",
            self.name,
            self.states,
            self.transitions,
            self.ends,
            self.longest,
            self.seconds,
            self.states as f64 / self.seconds.max(0.001),
            self.coordinators.0,
            self.coordinators.1,
            self.rebuilt,
            self.parts.0,
            self.parts.1,
            self.parts.2,
            self.items,
        )
    }
}

/// Why an exploration came to nothing.
#[derive(Debug)]
pub enum Failure {
    /// A promise is broken; how it comes to that, step by step.
    Broken(Violation, Vec<String>),
    /// It was cut short at so many states.
    TooLarge(u64),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(violation, trace) => {
                for (number, step) in trace.iter().enumerate() {
                    writeln!(f, "{:3}  {step}", number + 1)?;
                }
                write!(f, "     breaks {violation}")
            }
            Self::TooLarge(states) => write!(f, "not complete: it was cut short at {states} states"),
        }
    }
}

/// Which of the known worlds is explored next. What is found is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A broken promise comes with a shortest way to it; very many worlds wait.
    ShortestFirst,
    /// Few worlds wait, so few coordinators are kept.
    NewestFirst,
}

/// A fair way to an end may have at most so many steps.
pub const MOST_STEPS: u32 = 400;

/// Explores a plan to its end.
///
/// # Errors
/// A promise is broken, or there are more states than `most`.
pub fn explore(plan: Plan, order: Order, most: u64) -> Result<Report, Failure> {
    let name = plan.name;
    let mut search = Search::new(plan, order);
    let began = Instant::now();
    search.run(most)?;
    let longest = search.liveness()?;
    let engine = search.engine;
    Ok(Report {
        name,
        states: search.visited.worlds.len() as u64,
        transitions: search.transitions,
        ends: search.ends,
        longest,
        seconds: began.elapsed().as_secs_f64(),
        coordinators: (engine.coordinators(), engine.steps()),
        rebuilt: engine.rebuilt(),
        items: engine.items.len(),
        parts: (engine.logs.len(), engine.destinations.len(), engine.hosts.len()),
        coverage: engine.coverage,
    })
}

struct Search {
    engine: Engine,
    order: Order,
    visited: Visited,
    /// Worlds that are known and not explored.
    waiting: VecDeque<u32>,
    /// How each world was first reached: from which, and by which of its moves.
    parents: Vec<(u32, u16)>,
    /// The world that follows if nothing goes wrong.
    fair: Vec<u32>,
    transitions: u64,
    ends: u64,
}

impl Search {
    fn new(plan: Plan, order: Order) -> Self {
        Self {
            engine: Engine::new(plan),
            order,
            visited: Visited::new(),
            waiting: VecDeque::new(),
            parents: Vec::new(),
            fair: Vec::new(),
            transitions: 0,
            ends: 0,
        }
    }

    fn run(&mut self, most: u64) -> Result<(), Failure> {
        let genesis = self.engine.genesis().map_err(|violation| Failure::Broken(violation, Vec::new()))?;
        self.put(genesis, NONE, 0);
        while let Some(at) = self.next() {
            let world = self.visited.worlds[at as usize];
            self.expand(at, &world)?;
            self.engine.let_go(&world);
            if self.visited.worlds.len() as u64 > most {
                return Err(Failure::TooLarge(self.visited.worlds.len() as u64));
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<u32> {
        match self.order {
            Order::ShortestFirst => self.waiting.pop_front(),
            Order::NewestFirst => self.waiting.pop_back(),
        }
    }

    fn put(&mut self, world: World, from: u32, by: u16) -> u32 {
        let (index, new) = self.visited.put(world);
        if new {
            self.parents.push((from, by));
            self.fair.push(NONE);
            self.waiting.push_back(index);
            self.engine.keep(&world);
        }
        self.engine.tidy();
        index
    }

    fn expand(&mut self, at: u32, world: &World) -> Result<(), Failure> {
        let moves = self.engine.moves(world).map_err(|violation| self.failed(at, None, violation))?;
        let fair = self.engine.fair(world);
        let mut next_fair = NONE;
        // Backwards: what goes well is explored first, while more may still go wrong, so that its coordinators meet all
        // their events before they are let go.
        for (number, chosen) in moves.iter().enumerate().rev() {
            let next =
                self.engine.act(world, *chosen).map_err(|violation| self.failed(at, Some(*chosen), violation))?;
            self.transitions += 1;
            let index = self.put(next, at, number as u16);
            if fair == Some(*chosen) {
                next_fair = index;
            }
        }
        if moves.is_empty() {
            self.ends += 1;
        }
        if fair.is_some() == (next_fair == NONE) {
            let violation = crate::judge::fault("the fair move is none of the moves");
            return Err(self.failed(at, None, violation));
        }
        if fair.is_none() && !self.engine.is_end(world) {
            let message = "it is stuck: nothing is under way and nothing came to an end".to_owned();
            return Err(self.failed(at, None, Violation { promise: Promise::Liveness, message }));
        }
        self.fair[at as usize] = next_fair;
        Ok(())
    }

    /// From every state the fair steps lead to an end: follows each chain until it meets one whose length is known.
    fn liveness(&self) -> Result<u32, Failure> {
        const UNKNOWN: u32 = u32::MAX;
        let mut lengths = vec![UNKNOWN; self.fair.len()];
        let mut longest = 0;
        let mut way: Vec<u32> = Vec::new();
        for start in 0..self.fair.len() as u32 {
            let mut at = start;
            way.clear();
            while at != NONE && lengths[at as usize] == UNKNOWN && way.len() as u32 <= MOST_STEPS {
                way.push(at);
                at = self.fair[at as usize];
            }
            let begin = if at == NONE { 0 } else { lengths[at as usize].saturating_add(1) };
            if begin > MOST_STEPS || way.len() as u32 > MOST_STEPS {
                let message = format!("no end within {MOST_STEPS} steps without faults");
                return Err(self.failed(start, None, Violation { promise: Promise::Liveness, message }));
            }
            for (length, step) in (begin..).zip(way.iter().rev()) {
                lengths[*step as usize] = length;
                longest = longest.max(length);
            }
        }
        Ok(longest)
    }

    fn failed(&self, at: u32, last: Option<Move>, violation: Violation) -> Failure {
        let mut way = vec![at];
        let mut at = at;
        while self.parents[at as usize].0 != NONE {
            at = self.parents[at as usize].0;
            way.push(at);
        }
        way.reverse();
        let mut trace = Vec::new();
        for pair in way.windows(2) {
            let world = &self.visited.worlds[pair[0] as usize];
            let moves = self.engine.moves(world).unwrap_or_default();
            let (_, number) = self.parents[pair[1] as usize];
            trace.extend(moves.get(usize::from(number)).map(|chosen| describe(&self.engine, *chosen)));
        }
        trace.extend(last.map(|chosen| describe(&self.engine, chosen)));
        Failure::Broken(violation, trace)
    }
}
