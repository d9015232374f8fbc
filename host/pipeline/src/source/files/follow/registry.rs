//! Every followed file of a source: what is known of it, whose it is, and what a look at the directories changes.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use super::FollowOptions;
use super::generation::{Generation, Place};
use super::look::Look;
use super::names;
use crate::source::SourceError;
use crate::source::files::position::Position;

/// Looks without growth after which a file without a known name is let go.
const PATIENCE: u32 = 10;
/// Files that are gone and remembered, so that they are not read again if they come back.
const GONE_KEPT: usize = 1_000;
/// Files that were rotated to names that no pattern matches, read to their end and still looked after.
const ROTATED_KEPT: usize = 64;
/// Files that stay open while nothing is read of them.
const OPEN_KEPT: usize = 256;
/// Longest pause between two tries to open a file that is refused, in looks.
const LONGEST_PAUSE: u64 = 64;

/// See the module.
pub(super) struct Registry {
    pub(super) options: FollowOptions,
    pub(super) base: PathBuf,
    /// By the order in which they were found.
    pub(super) generations: BTreeMap<u64, Generation>,
    labels: BTreeSet<Arc<str>>,
    pub(super) tasks: usize,
    pub(super) looks: u64,
    next: u64,
    /// The number of the next file that finds its name taken.
    number: u64,
    ready: Vec<VecDeque<u64>>,
    forgotten: Vec<Vec<Arc<str>>>,
    /// Whose positions a look changed.
    dirty: Vec<Vec<u64>>,
    /// Gone, oldest first.
    pub(super) gone: VecDeque<u64>,
    /// With a handle and nothing to read, oldest first.
    open: VecDeque<u64>,
    /// Problems that were told, until they are gone.
    told: BTreeSet<String>,
}

impl Registry {
    /// With the positions of a checkpoint, looked at for the first time.
    ///
    /// # Errors
    /// A position is none, rows are lost, or a pattern is none.
    pub(super) fn open(
        options: FollowOptions,
        base: PathBuf,
        restored: Vec<(String, Position)>,
        tasks: usize,
        look: Look,
    ) -> Result<Self, SourceError> {
        let mut registry = Self {
            options,
            generations: BTreeMap::new(),
            labels: BTreeSet::new(),
            tasks,
            looks: 0,
            next: 0,
            number: 2,
            ready: vec![VecDeque::new(); tasks],
            forgotten: vec![Vec::new(); tasks],
            dirty: vec![Vec::new(); tasks],
            gone: VecDeque::new(),
            open: VecDeque::new(),
            told: BTreeSet::new(),
            base,
        };
        registry.restore(restored);
        registry.work_in(look, true)?;
        Ok(registry)
    }

    fn restore(&mut self, restored: Vec<(String, Position)>) {
        let mut shares = vec![0u64; self.tasks];
        let mut together: BTreeMap<String, usize> = BTreeMap::new();
        for (label, position) in restored {
            let (log, number) = match label.rsplit_once('#') {
                Some((log, number)) => (log, number.parse().unwrap_or(1)),
                None => (&label[..], 1),
            };
            self.number = self.number.max(u64::saturating_add(number, 1));
            let least = (0..self.tasks).min_by_key(|&task| shares[task]).unwrap_or(0);
            let task = *together.entry(log.to_owned()).or_insert(least);
            shares[task] += 1 + position.size.saturating_sub(position.offset);
            let path = self.base.join(position.name.as_deref().unwrap_or(log));
            let label: Arc<str> = label.into();
            self.labels.insert(Arc::clone(&label));
            self.add(Generation::new(label, task, path, position));
        }
    }

    pub(super) fn add(&mut self, generation: Generation) -> u64 {
        let number = self.next;
        self.next += 1;
        self.generations.insert(number, generation);
        number
    }

    /// Positions of all files of a task, and names to be forgotten.
    pub(super) fn positions(&mut self, task: usize) -> Vec<(String, String)> {
        let mine = self.generations.iter().filter(|(_, generation)| generation.task == task);
        self.dirty[task] = mine.map(|(number, _)| *number).collect();
        self.moved(task, usize::MAX)
    }

    /// Positions that a look changed, and, as empty ones, those to be forgotten.
    pub(super) fn moved(&mut self, task: usize, most: usize) -> Vec<(String, String)> {
        let forgotten = &mut self.forgotten[task];
        let first = forgotten.len().saturating_sub(most);
        let mut moved: Vec<_> = forgotten.drain(first..).map(|label| (label.to_string(), String::new())).collect();
        while moved.len() < most
            && let Some(number) = self.dirty[task].pop()
        {
            if let Some(generation) = self.generations.get_mut(&number) {
                generation.moved = false;
                moved.push((generation.label.to_string(), generation.position.to_json()));
            }
        }
        moved
    }

    /// The next file with something to read.
    pub(super) fn take(&mut self, task: usize) -> Option<(u64, &mut Generation)> {
        for _ in 0..self.ready[task].len() {
            let number = self.ready[task].pop_front()?;
            let Some(generation) = self.generations.get(&number) else { continue };
            if generation.reading || !generation.has_more() {
                continue;
            }
            let before = generation.after.and_then(|before| self.generations.get(&before));
            if before.is_some_and(|before| before.refused == 0 && (before.reading || before.has_more())) {
                self.ready[task].push_back(number);
                continue;
            }
            let generation = self.generations.get_mut(&number)?;
            generation.reading = true;
            return Some((number, generation));
        }
        None
    }

    /// Whether [`Self::take`] may find something.
    pub(super) fn is_ready(&self, task: usize) -> bool {
        !self.ready[task].is_empty() || !self.forgotten[task].is_empty() || !self.dirty[task].is_empty()
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut Generation> {
        self.generations.get_mut(&number)
    }

    /// Gives back a file of which there is more, for later.
    pub(super) fn put_off(&mut self, number: u64) {
        let Some(generation) = self.generations.get_mut(&number) else { return };
        generation.reading = false;
        self.ready[generation.task].push_back(number);
    }

    /// Gives back a file of which everything whole was read, up to this size.
    pub(super) fn put_dry(&mut self, number: u64, size: u64) {
        let Some(generation) = self.generations.get_mut(&number) else { return };
        generation.reading = false;
        (generation.dry, generation.size) = (size, generation.size.max(size));
        generation.refused = 0;
        if generation.place == Place::Here && generation.handle.is_some() && !self.open.contains(&number) {
            self.open.push_back(number);
            if self.open.len() > OPEN_KEPT {
                let oldest = self.open.pop_front().and_then(|oldest| self.generations.get_mut(&oldest));
                if let Some(oldest) = oldest.filter(|oldest| !oldest.reading && oldest.place == Place::Here) {
                    oldest.handle = None;
                }
            }
        }
    }

    /// Gives back a file that is not what it was.
    pub(super) fn put_changed(&mut self, number: u64) {
        let Some(generation) = self.generations.get_mut(&number) else { return };
        (generation.reading, generation.changed) = (false, true);
    }

    /// Gives back a file that cannot be opened now. It is tried again later and later.
    pub(super) fn put_refused(&mut self, number: u64, problem: &SourceError) {
        let looks = self.looks;
        let Some(generation) = self.generations.get_mut(&number) else { return };
        generation.reading = false;
        let pause = (1 << generation.refused.min(16)).min(LONGEST_PAUSE);
        generation.refused += 1;
        generation.not_before = looks + pause;
        tracing::warn!("{problem}; its rows wait, and it is tried again in {pause} looks");
    }

    /// Gives back a file that is not under its path any more; the next look finds out.
    pub(super) fn put_elsewhere(&mut self, number: u64) {
        let Some(generation) = self.generations.get_mut(&number) else { return };
        generation.reading = false;
    }

    /// Problems are told once, and again when they come back. At the start they are errors.
    pub(super) fn tell(&mut self, problems: Vec<SourceError>, opening: bool) -> Result<(), SourceError> {
        let mut now = BTreeSet::new();
        for problem in problems {
            if opening {
                return Err(problem);
            }
            let text = problem.to_string();
            if !self.told.contains(&text) {
                tracing::warn!("{text}; what is there is not read until it can be");
            }
            now.insert(text);
        }
        for mended in self.told.difference(&now) {
            tracing::info!("no longer so: {mended}");
        }
        self.told = now;
        Ok(())
    }

    pub(super) fn remember(&mut self, number: u64) {
        let Some(generation) = self.generations.get_mut(&number) else { return };
        (generation.place, generation.handle) = (Place::Gone, None);
        if !std::mem::replace(&mut generation.position.done, true) {
            generation.moved = true;
        }
        self.gone.push_back(number);
    }

    /// Forgets what cannot come back, and the oldest of what may.
    pub(super) fn let_go(&mut self, matched: &HashSet<PathBuf>) {
        let mut away = Vec::new();
        let mut rotated = Vec::new();
        for (&number, generation) in &self.generations {
            match generation.place {
                _ if generation.reading => {}
                Place::Away(looks) if looks >= PATIENCE && !generation.has_more() => away.push(number),
                Place::Here if !matched.contains(&generation.path) && !generation.has_more() => rotated.push(number),
                _ => {}
            }
        }
        for number in away {
            let Some(generation) = self.generations.get(&number) else { continue };
            let torn = generation.size.saturating_sub(generation.position.offset);
            if torn > 0 {
                tracing::warn!(
                    "{}: is not there any more, and its last {torn} bytes, behind line {}, never became a line; they are not read",
                    generation.name(),
                    generation.position.line
                );
            }
            let deleted = generation.handle.as_ref().and_then(|handle| handle.metadata().ok());
            if deleted.is_some_and(|data| std::os::unix::fs::MetadataExt::nlink(&data) == 0) {
                self.forget(number);
            } else {
                self.remember(number);
            }
        }
        for number in rotated.iter().take(rotated.len().saturating_sub(ROTATED_KEPT)) {
            self.forget(*number);
        }
        while self.gone.len() > GONE_KEPT {
            if let Some(oldest) = self.gone.pop_front() {
                self.forget(oldest);
            }
        }
    }

    pub(super) fn forget(&mut self, number: u64) {
        let Some(generation) = self.generations.remove(&number) else { return };
        self.labels.remove(&generation.label);
        self.forgotten[generation.task].push(generation.label);
    }

    pub(super) fn make_ready(&mut self) {
        let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
        for (number, generation) in &self.generations {
            if generation.place != Place::Gone {
                by_name.insert(generation.name(), *number);
            }
        }
        let mut ready = vec![VecDeque::new(); self.tasks];
        for dirty in &mut self.dirty {
            dirty.clear();
        }
        let mut held = Vec::new();
        for (&number, generation) in &self.generations {
            if generation.moved {
                self.dirty[generation.task].push(number);
            }
            if generation.reading || !generation.has_more() || generation.not_before > self.looks {
                continue;
            }
            if generation.position.offset == 0 && self.is_held(generation, &by_name) {
                held.push(number);
            } else {
                ready[generation.task].push_back(number);
            }
        }
        self.ready = ready;
        for number in held {
            let Some(generation) = self.generations.get_mut(&number) else { continue };
            if !std::mem::replace(&mut generation.held, true) {
                tracing::warn!(
                    "{}: is a copy of what was read under another name, as rotation makes it; it is not read unless it \
                     becomes a file of its own",
                    generation.name()
                );
            }
        }
    }

    /// Whether nothing is in the file but what stands in another one, out of whose name its own was made.
    fn is_held(&self, generation: &Generation, by_name: &BTreeMap<&str, u64>) -> bool {
        let originals = names::origins(generation.name()).filter_map(|origin| by_name.get(&origin[..]).copied());
        let originals = originals.filter_map(|number| self.generations.get(&number));
        let mut seen = None;
        for original in originals {
            let seen = seen.get_or_insert_with(|| generation.seen());
            if seen.as_ref().is_some_and(|seen| original.begins_with(seen)) {
                return true;
            }
        }
        false
    }

    /// A partition's name for a file with this name.
    pub(super) fn label(&mut self, name: &str) -> Arc<str> {
        let mut label: Arc<str> = name.into();
        while self.labels.contains(&label) {
            label = format!("{name}#{}", self.number).into();
            self.number += 1;
        }
        self.labels.insert(Arc::clone(&label));
        label
    }
}
