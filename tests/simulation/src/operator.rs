//! A stateful step: counts the rows of each key and writes the count into them, so that lost, repeated or mixed up state
//! shows in the rows. It may hold some of them back for a while of event time, and drop those that come too late.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_pipeline::operator::{Operator, OperatorError, OperatorSnapshot, OperatorState, OperatorTask};
use tidegate_pipeline::source::key::KeyExtractor;
use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{Batch, Encoding};

use crate::source::row_id;
use crate::world::{Seq, World};

/// Counts rows by the field `key`. Clones share what is planned for them.
#[derive(Debug, Clone)]
pub struct Counter {
    world: World,
    fails: Arc<Mutex<Vec<u64>>>,
    calls: Arc<Mutex<u64>>,
    filler: usize,
    holds: Option<i64>,
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
        Self {
            world: world.clone(),
            fails: Arc::default(),
            calls: Arc::default(),
            filler: 0,
            holds: None,
            seen: Arc::default(),
        }
    }

    /// With so many bytes of filler in its state, which then lies beside the log.
    #[must_use]
    pub fn with_filler(self, filler: usize) -> Self {
        Self { filler, ..self }
    }

    /// Every third row waits until event time has come so much farther than its own, under a timer that the checkpoint
    /// keeps; a row that is earlier than the watermark is dropped. Lost or repeated timers, and time that runs ahead, show
    /// as rows lost or twice.
    #[must_use]
    pub fn holding(self, time: i64) -> Self {
        Self { holds: Some(time), ..self }
    }

    /// Whether it holds rows back.
    pub fn holds(&self) -> bool {
        self.holds.is_some()
    }

    /// The same in another world; what is planned for it is left out.
    #[must_use]
    pub fn fork(&self, world: &World) -> Self {
        let seen = Arc::new(Mutex::new(self.seen().clone()));
        Self { seen, filler: self.filler, holds: self.holds, ..Self::new(world) }
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
        let keys = KeyExtractor::new("key");
        let own = |row: &[u8]| keys.point(row).is_ok_and(|point| range.first <= point && point <= range.last);
        let timers = restored.iter().flat_map(|state| &state.timers).filter(|(_, row)| own(row)).cloned().collect();
        let watermark = restored.iter().map(|state| state.watermark).min().flatten();
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
        Ok(Box::new(CounterTask { counter: self.clone(), range, counts, keys, timers, watermark }))
    }
}

struct CounterTask {
    counter: Counter,
    range: KeyRange,
    counts: BTreeMap<String, (u32, u64)>,
    keys: KeyExtractor,
    /// Rows that wait, with the time for which they do.
    timers: Vec<(i64, Bytes)>,
    watermark: Option<i64>,
}

impl CounterTask {
    /// Whether a row goes on at once. Without event time all do.
    fn goes_on(&mut self, row: &[u8], counted: &str) -> bool {
        let (Some(holds), Some((_, place))) = (self.counter.holds, row_id(row)) else { return true };
        let time = i64::from(place);
        if self.watermark.is_some_and(|watermark| time < watermark) {
            self.counter.world.note(|| format!("the step drops row {place}, which comes too late"));
            return false;
        }
        let waits = place % 3 == 0;
        if waits {
            self.timers.push((time + holds, Bytes::copy_from_slice(counted.as_bytes())));
        }
        !waits
    }
}

impl OperatorTask for CounterTask {
    fn process(&mut self, rows: &Batch) -> Result<Vec<Batch>, OperatorError> {
        if self.counter.fails_now() {
            self.counter.world.fired("operator-error");
            return Err(OperatorError { message: "as the simulation wants it".into() });
        }
        let (mut out, mut handed_on) = (String::new(), 0);
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
            let counted = format!("{},\"c\":{}}}\n", text.trim_end_matches('}'), entry.1);
            if self.goes_on(row, &counted) {
                out.push_str(&counted);
                handed_on += 1;
            }
        }
        Ok(vec![Batch::new(Bytes::from(out), handed_on, rows.encoding)])
    }

    fn watermark(&mut self, watermark: i64) -> Result<Vec<Batch>, OperatorError> {
        self.watermark = self.watermark.max(Some(watermark));
        let due: Vec<Bytes> = self.timers.extract_if(.., |(at, _)| *at <= watermark).map(|(_, row)| row).collect();
        if due.is_empty() {
            return Ok(vec![]);
        }
        Ok(vec![Batch::new(Bytes::from(due.concat()), due.len() as u64, Encoding::JsonLines)])
    }

    fn barrier(&mut self) -> Result<(Vec<Batch>, OperatorSnapshot), OperatorError> {
        let mut state = String::new();
        for (key, (point, count)) in &self.counts {
            state.push_str(&format!("{point} {key} {count}\n"));
        }
        state.push_str(&"#".repeat(self.counter.filler));
        let state = Bytes::from(state);
        self.counter.seen().kept.push(state.clone());
        Ok((vec![], OperatorSnapshot { version: 1, state, timers: self.timers.clone() }))
    }
}
