//! A stateful step: counts the rows of each key and writes the count into them, so that lost, repeated or mixed up state
//! shows in the rows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_pipeline::operator::{Operator, OperatorError, OperatorSnapshot, OperatorState, OperatorTask};
use tidegate_pipeline::source::key::KeyExtractor;
use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::Batch;

use crate::world::{Seq, World};

/// Counts rows by the field `key`. Clones share what is planned for them.
#[derive(Debug, Clone)]
pub struct Counter {
    world: World,
    fails: Arc<Mutex<Vec<u64>>>,
    calls: Arc<Mutex<u64>>,
    filler: usize,
    seen: Arc<Mutex<Seen>>,
}

/// What became of its state.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// All states that it handed out.
    kept: Vec<Bytes>,
    /// When it was given one that it had never handed out.
    strange: Vec<Seq>,
}

impl Counter {
    /// A counter.
    pub fn new(world: &World) -> Self {
        Self { world: world.clone(), fails: Arc::default(), calls: Arc::default(), filler: 0, seen: Arc::default() }
    }

    /// With so many bytes of filler in its state, which then lies beside the log.
    #[must_use]
    pub fn with_filler(self, filler: usize) -> Self {
        Self { filler, ..self }
    }

    /// The same in another world; what is planned for it is left out.
    #[must_use]
    pub fn fork(&self, world: &World) -> Self {
        let seen = Arc::new(Mutex::new(self.seen().clone()));
        Self { seen, ..Self::new(world).with_filler(self.filler) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it was given back a state that it had never handed out.
    pub fn strange_states(&self) -> Vec<Seq> {
        self.seen().strange.clone()
    }

    /// The batch after `skip` further ones of any subtask cannot be worked on.
    pub fn fail_after(&self, skip: u64) {
        let at = *self.calls.lock().unwrap_or_else(PoisonError::into_inner) + skip;
        self.fails.lock().unwrap_or_else(PoisonError::into_inner).push(at);
    }

    fn fails_now(&self) -> bool {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let now = *calls;
        *calls += 1;
        let mut fails = self.fails.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = fails.len();
        fails.retain(|at| *at != now);
        planned != fails.len() && !self.world.is_calm()
    }
}

impl Operator for Counter {
    fn open(&self, range: KeyRange, restored: &[OperatorState]) -> Result<Box<dyn OperatorTask>, OperatorError> {
        let mut counts = BTreeMap::new();
        for state in restored {
            if !self.seen().kept.contains(&state.state) {
                let seq = self.world.note(|| format!("the step is given a state for {range:?} that it never kept"));
                self.seen().strange.push(seq);
            }
            let text =
                std::str::from_utf8(&state.state).map_err(|error| OperatorError { message: error.to_string() })?;
            for line in text.lines() {
                let (Some((point, rest)), _) = (line.split_once(' '), ()) else { continue };
                let (Some((key, count)), Ok(point)) = (rest.split_once(' '), point.parse::<u32>()) else { continue };
                if let (true, Ok(count)) = (range.first <= point && point <= range.last, count.parse::<u64>()) {
                    counts.insert(key.to_owned(), (point, count));
                }
            }
        }
        Ok(Box::new(CounterTask { counter: self.clone(), range, counts, keys: KeyExtractor::new("key") }))
    }
}

struct CounterTask {
    counter: Counter,
    range: KeyRange,
    counts: BTreeMap<String, (u32, u64)>,
    keys: KeyExtractor,
}

impl OperatorTask for CounterTask {
    fn process(&mut self, rows: &Batch) -> Result<Vec<Batch>, OperatorError> {
        if self.counter.fails_now() {
            self.counter.world.fired("operator-error");
            return Err(OperatorError { message: "as the simulation wants it".into() });
        }
        let mut out = String::new();
        for row in rows.bytes.split(|byte| *byte == b'\n').filter(|row| !row.is_empty()) {
            let point = self.keys.point(row).map_err(|error| OperatorError { message: error.to_string() })?;
            let text = String::from_utf8_lossy(row);
            let Some((_, key)) = text.split_once(r#""key":""#) else { continue };
            let key = key.split('"').next().unwrap_or_default();
            if point < self.range.first || point > self.range.last {
                return Err(OperatorError { message: format!("key {key} does not belong to {:?}", self.range) });
            }
            let entry = self.counts.entry(key.to_owned()).or_insert((point, 0));
            entry.1 += 1;
            out.push_str(text.trim_end_matches('}'));
            out.push_str(&format!(",\"c\":{}}}\n", entry.1));
        }
        Ok(vec![Batch::new(Bytes::from(out), rows.rows, rows.encoding)])
    }

    fn watermark(&mut self, _watermark: i64) -> Result<Vec<Batch>, OperatorError> {
        Ok(vec![])
    }

    fn barrier(&mut self) -> Result<(Vec<Batch>, OperatorSnapshot), OperatorError> {
        let mut state = String::new();
        for (key, (point, count)) in &self.counts {
            state.push_str(&format!("{point} {key} {count}\n"));
        }
        state.push_str(&"#".repeat(self.counter.filler));
        let state = Bytes::from(state);
        self.counter.seen().kept.push(state.clone());
        Ok((vec![], OperatorSnapshot { version: 1, state, timers: vec![] }))
    }
}
