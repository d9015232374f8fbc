//! Every followed file of a source: what is known of it, whose it is, and what a look at the directories changes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::generation::{Generation, Likeness, Place};
use super::glance::Warm;
use super::look::{Look, Paths, Seen};
use super::names;
use super::tail::Order;
use super::{Files, FollowOptions, Moments};
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
/// Names of partitions that were forgotten, and not given to another task since.
const RETIRED_KEPT: usize = 10_000;
/// Longest pause between two tries to open a file that is refused, in looks.
const LONGEST_PAUSE: u64 = 64;

/// Files that are searched for from one look to the next because they are not under their paths.
pub(super) const SEARCHES: u32 = 32;

/// See the module.
pub(super) struct Registry {
    pub(super) options: FollowOptions,
    pub(super) base: PathBuf,
    pub(super) moments: Moments,
    /// Files that may be searched for until the next look.
    pub(super) searches: Cell<u32>,
    /// By the order in which they were found.
    pub(super) generations: BTreeMap<u64, Generation>,
    labels: BTreeSet<Arc<str>>,
    /// Labels that were forgotten, and by which task: two tasks must not speak of one in the same epoch.
    retired: HashMap<Arc<str>, usize>,
    /// The same, oldest first.
    retired_order: VecDeque<Arc<str>>,
    pub(super) tasks: usize,
    pub(super) looks: u64,
    next: u64,
    /// The number of the next file that finds its name taken.
    number: u64,
    pub(super) ready: Vec<VecDeque<u64>>,
    pub(super) warm: Warm,
    forgotten: Vec<Vec<Arc<str>>>,
    /// Whose positions a look changed.
    dirty: Vec<Vec<u64>>,
    /// Gone, oldest first.
    pub(super) gone: VecDeque<u64>,
    /// With a handle and nothing to read, oldest first.
    open: VecDeque<u64>,
    /// Problems that were told, until they are gone.
    told: BTreeSet<String>,
    /// Looks in a row that may have missed files.
    pub(super) incomplete: u32,
    /// What had been rotated when the last look was done that missed none, if the last one may have.
    pub(super) unclear: Option<HashMap<u64, Option<u64>>>,
}

impl Registry {
    /// With the positions of a checkpoint, looked at for the first time.
    ///
    /// # Errors
    /// A position is none, rows are lost, or a pattern is none.
    pub(super) fn open(
        files: &Files,
        restored: Vec<(String, Position)>,
        tasks: usize,
        look: Look,
    ) -> Result<Self, SourceError> {
        let mut registry = Self {
            options: files.options,
            base: files.base.clone(),
            moments: files.moments.clone(),
            searches: Cell::new(SEARCHES),
            generations: BTreeMap::new(),
            labels: BTreeSet::new(),
            retired: HashMap::new(),
            retired_order: VecDeque::new(),
            tasks,
            looks: 0,
            next: 0,
            number: 2,
            ready: vec![VecDeque::new(); tasks],
            warm: Warm::default(),
            forgotten: vec![Vec::new(); tasks],
            dirty: vec![Vec::new(); tasks],
            gone: VecDeque::new(),
            open: VecDeque::new(),
            told: BTreeSet::new(),
            incomplete: 0,
            unclear: None,
        };
        registry.restore(restored);
        registry.work_in(look, true)?;
        Ok(registry)
    }

    fn restore(&mut self, restored: Vec<(String, Position)>) {
        let mut shares = vec![0u64; self.tasks];
        let mut together: BTreeMap<String, usize> = BTreeMap::new();
        let mut by_inode: HashMap<u64, Vec<u64>> = HashMap::new();
        for (label, position) in restored {
            let (log, number) = match label.rsplit_once('#') {
                Some((log, number)) => (log, number.parse().unwrap_or(1)),
                None => (&label[..], 1),
            };
            self.number = self.number.max(u64::saturating_add(number, 1));
            let least = (0..self.tasks).min_by_key(|&task| shares[task]).unwrap_or(0);
            // What rotation made of a log stays with it.
            let origin = names::origins(log).find_map(|origin| together.get(&origin).copied());
            let task = *together.entry(log.to_owned()).or_insert(origin.unwrap_or(least));
            shares[task] += 1 + position.size.saturating_sub(position.offset);
            let path = self.base.join(position.name.as_deref().unwrap_or(log));
            let inode = position.file.map(|file| file.ino);
            let label: Arc<str> = label.into();
            self.labels.insert(Arc::clone(&label));
            let number = self.add(Generation::new(label, task, path, position));
            by_inode.entry(inode.unwrap_or(0)).or_default().push(number);
        }
        let by_label: HashMap<&str, u64> =
            self.generations.iter().map(|(number, generation)| (&*generation.label, *number)).collect();
        let held = self.generations.iter().filter_map(|(number, generation)| {
            Some((*number, *by_label.get(generation.position.copy_of.as_deref()?)?))
        });
        for (number, original) in held.collect::<Vec<_>>() {
            if let Some(generation) = self.generations.get_mut(&number) {
                generation.held = Some(original);
            }
        }
        for same in by_inode.into_values().filter(|same| same.len() > 1) {
            self.restore_one_of(&same);
        }
    }

    /// A file that was known, and turned out to be the copy in which another one goes on, may still be in a checkpoint:
    /// each task tells of its own.
    fn restore_one_of(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some(untouched) = self.generations.get(number).filter(|generation| generation.is_untouched()) else {
                continue;
            };
            let id = untouched.position.file;
            let twin = |other: &u64| {
                other != number && self.generations.get(other).is_some_and(|other| id.is_some_and(|id| other.is(&id)))
            };
            if numbers.iter().any(twin) {
                self.forget(*number);
            }
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
                moved.push((generation.label.to_string(), generation.report()));
            }
        }
        moved
    }

    /// The next file with something to read, and under which lease.
    pub(super) fn take(&mut self, task: usize) -> Option<(u64, u64, Order)> {
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
            let search = generation.handle.is_none() && self.may_search();
            let generation = self.generations.get_mut(&number)?;
            generation.reading = true;
            generation.lease += 1;
            return Some((number, generation.lease, Order::of(generation, search)));
        }
        None
    }

    /// Whether [`Self::take`] may find something.
    pub(super) fn is_ready(&self, task: usize) -> bool {
        !self.ready[task].is_empty() || !self.forgotten[task].is_empty() || !self.dirty[task].is_empty()
    }

    /// Whether one more file may be searched for that is not under its path. There is no end of it where very many were
    /// deleted.
    fn may_search(&self) -> bool {
        let left = self.searches.get();
        self.searches.set(left.saturating_sub(1));
        left > 0
    }

    /// Where a file is, also if it was renamed since the directories were looked at.
    pub(super) fn find(&self, generation: &Generation) -> io::Result<Option<Seen>> {
        let seen = generation.seen()?;
        let Some(id) = generation.position.file.filter(|_| seen.is_none() && self.may_search()) else {
            return Ok(seen);
        };
        Ok(Seen::renamed(generation.name(), &generation.path, &id))
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
        (generation.most, generation.before) = (generation.most.max(size), 0);
        generation.refused = 0;
        if generation.place == Place::Here && generation.handle.is_some() && !self.open.contains(&number) {
            self.open.push_back(number);
            if self.open.len() > OPEN_KEPT {
                let oldest = self.open.pop_front().and_then(|oldest| self.generations.get_mut(&oldest));
                if let Some(oldest) = oldest.filter(|oldest| !oldest.reading && oldest.place == Place::Here) {
                    (oldest.handle, oldest.begin) = (None, None);
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

    /// Problems are told once, and again when they come back.
    pub(super) fn tell(&mut self, problems: Vec<SourceError>) {
        let mut now = BTreeSet::new();
        for problem in problems {
            let text = problem.to_string();
            if !self.told.contains(&text) && now.insert(text.clone()) {
                tracing::warn!("{text}; what is there is not read until it can be");
            }
            now.insert(text);
        }
        for mended in self.told.difference(&now) {
            tracing::info!("no longer so: {mended}");
        }
        self.told = now;
    }

    /// It is gone, and its position is kept, so that it is not read again if it comes back.
    pub(super) fn remember(&mut self, number: u64) {
        if self.hand_over(number) {
            return;
        }
        let Some(generation) = self.generations.get_mut(&number) else { return };
        generation.call_back();
        (generation.place, generation.handle, generation.begin) = (Place::Gone, None, None);
        if !std::mem::replace(&mut generation.position.done, true) {
            generation.moved = true;
        }
        self.gone.push_back(number);
    }

    /// A file that goes and of which there is a copy goes on in the copy, which else would be taken for a file of its
    /// own. Whether there is one.
    fn hand_over(&mut self, number: u64) -> bool {
        let Some(generation) = self.generations.get(&number) else { return false };
        let copies = self.generations.iter().filter(|(_, copy)| copy.held == Some(number) && copy.is_untouched());
        let mut copies = copies.filter_map(|(other, copy)| Some((*other, copy.seen().ok().flatten()?)));
        let found = copies.find_map(|(other, seen)| match generation.fits(&seen).ok()? {
            true => Some((other, seen, true)),
            false => generation.outgrew(&seen).ok()?.then_some((other, seen, false)),
        });
        let Some((other, seen, whole)) = found else { return false };
        let Some(generation) = self.generations.get_mut(&number) else { return false };
        if whole {
            generation.go_on_in(&seen);
        } else if generation.go_on_behind(&seen).is_err() {
            return false;
        }
        self.forget(other);
        true
    }

    /// Forgets what cannot come back, and the oldest of what may.
    pub(super) fn let_go(&mut self, matched: &Paths) {
        let mut away = Vec::new();
        let mut rotated = Vec::new();
        for (&number, generation) in &self.generations {
            match generation.place {
                _ if generation.reading => {}
                Place::Away(looks) if looks >= PATIENCE && !generation.has_more() => away.push(number),
                Place::Here if !generation.listed && !generation.has_more() => rotated.push(number),
                _ => {}
            }
        }
        for number in away {
            let Some(generation) = self.generations.get(&number) else { continue };
            let torn = generation.size.saturating_sub(generation.position.offset);
            let copied = self.generations.values().any(|copy| copy.held == Some(number));
            if torn > 0 && !copied {
                tracing::warn!(
                    "{}: is not there any more, and its last {torn} bytes, behind line {}, never became a line; they are not read",
                    generation.name(),
                    generation.position.line
                );
            }
            let deleted = generation.handle.as_ref().and_then(|handle| handle.metadata().ok());
            if deleted.is_none_or(|data| std::os::unix::fs::MetadataExt::nlink(&data) > 0) {
                self.remember(number);
            } else if !self.hand_over(number) {
                self.forget(number);
            }
        }
        if rotated.len() > ROTATED_KEPT {
            // Some may be new.
            let is_listed = |generation: &Generation| matched.contains(&generation.path);
            rotated.retain(|number| !self.generations.get(number).is_some_and(is_listed));
        }
        rotated.sort_by_key(|number| self.generations.get(number).map(Generation::age));
        for &number in rotated.iter().take(rotated.len().saturating_sub(ROTATED_KEPT)) {
            if !self.hand_over(number) {
                self.forget(number);
            }
        }
        while self.gone.len() > GONE_KEPT {
            if let Some(oldest) = self.gone.pop_front() {
                self.forget(oldest);
            }
        }
    }

    pub(super) fn forget(&mut self, number: u64) {
        let Some(generation) = self.generations.remove(&number) else { return };
        let (label, task) = (generation.label, generation.task);
        self.labels.remove(&label);
        self.forgotten[task].push(Arc::clone(&label));
        if self.retired.insert(Arc::clone(&label), task).is_none() {
            self.retired_order.push_back(label);
        }
        if self.retired_order.len() > RETIRED_KEPT
            && let Some(oldest) = self.retired_order.pop_front()
        {
            self.retired.remove(&oldest);
        }
    }

    pub(super) fn make_ready(&mut self, unsettled: &HashSet<PathBuf>) {
        let unsettled = self.logs_of(unsettled);
        let mut ready = vec![VecDeque::new(); self.tasks];
        for dirty in &mut self.dirty {
            dirty.clear();
        }
        let mut untouched = Vec::new();
        for (&number, generation) in &self.generations {
            if generation.moved {
                self.dirty[generation.task].push(number);
            }
            if generation.reading || !generation.has_more() || generation.not_before > self.looks {
                continue;
            }
            if generation.is_untouched() {
                if !is_of(generation, &unsettled) {
                    untouched.push(number);
                }
            } else {
                ready[generation.task].push_back(number);
            }
        }
        self.ready = ready;
        self.let_in(untouched);
    }

    /// The logs of which files were last seen under these paths.
    fn logs_of(&self, paths: &HashSet<PathBuf>) -> HashSet<String> {
        if paths.is_empty() {
            return HashSet::new();
        }
        let there = self.generations.values().filter(|generation| generation.place != Place::Gone);
        there
            .filter(|generation| paths.contains(&generation.path))
            .map(|generation| generation.log().to_owned())
            .collect()
    }

    /// Files of which nothing was read may be read if they are no copies.
    fn let_in(&mut self, untouched: Vec<u64>) {
        if untouched.is_empty() {
            return;
        }
        let mut by_name: HashMap<&str, Vec<u64>> = HashMap::new();
        for (number, generation) in &self.generations {
            if generation.place != Place::Gone {
                let (name, log) = (generation.name(), generation.log());
                by_name.entry(name).or_default().push(*number);
                if log != name {
                    by_name.entry(log).or_default().push(*number);
                }
            }
        }
        let judged: Vec<_> = untouched.into_iter().map(|number| (number, self.judge(number, &by_name))).collect();
        for (number, judged) in judged {
            match judged {
                Judged::Own => {
                    let Some(generation) = self.generations.get_mut(&number) else { continue };
                    let moved = generation.moved;
                    generation.hold(None);
                    if generation.moved && !moved {
                        self.dirty[generation.task].push(number);
                    }
                    self.ready[generation.task].push_back(number);
                }
                Judged::Copy(original) => {
                    let label = self.generations.get(&original).map(|original| Arc::clone(&original.label));
                    let Some(generation) = self.generations.get_mut(&number) else { continue };
                    let moved = generation.moved;
                    let news = generation.hold(label.map(|label| (original, label)));
                    if generation.moved && !moved {
                        self.dirty[generation.task].push(number);
                    }
                    if news {
                        tracing::warn!(
                            "{}: is a copy of what was read under another name, as rotation makes it; it is not read \
                             unless it becomes a file of its own",
                            generation.name()
                        );
                    }
                }
                Judged::Changed(original) => {
                    // It was truncated in this moment: the next look knows of both.
                    if let Some(original) = self.generations.get_mut(&original) {
                        original.changed = original.position.line > 0;
                        original.call_back();
                    }
                }
                Judged::Later => {}
                Judged::Refused(problem) => self.put_refused(number, &problem),
            }
        }
    }

    /// Whether nothing is in the file but what stands in another one, out of whose name its own was made.
    fn judge(&self, number: u64, by_name: &HashMap<&str, Vec<u64>>) -> Judged {
        let Some(generation) = self.generations.get(&number) else { return Judged::Own };
        let origins = names::origins(generation.name());
        let originals = origins.filter_map(|origin| by_name.get(&origin[..])).flatten().copied();
        let originals = originals.filter(|original| *original != number);
        let originals = originals.filter_map(|number| Some((number, self.generations.get(&number)?)));
        let mut seen = None;
        for (original, known) in originals {
            let refuse = |error: io::Error| match error.kind() {
                // Renamed in this moment: for the next look to tell.
                io::ErrorKind::NotFound | io::ErrorKind::Other => Judged::Later,
                _ => Judged::Refused(SourceError::Io { path: generation.path.clone(), error }),
            };
            let seen = match &seen {
                Some(seen) => seen,
                None => match self.find(generation) {
                    Ok(Some(there)) => seen.insert(there),
                    // Not there: for the next look to tell.
                    Ok(None) => return Judged::Later,
                    Err(error) => return refuse(error),
                },
            };
            match known.compare(seen) {
                Ok(Likeness::Copy) => return Judged::Copy(original),
                Ok(Likeness::Changed) => return Judged::Changed(original),
                Ok(Likeness::Unknown) => return Judged::Later,
                Ok(Likeness::Other) => {}
                Err(error) => return refuse(error),
            }
        }
        Judged::Own
    }

    /// A partition's name for a file with this name, to be read by that task.
    pub(super) fn label(&mut self, name: &str, task: usize) -> Arc<str> {
        let mut label: Arc<str> = name.into();
        while self.labels.contains(&label) || self.retired.get(&label).is_some_and(|before| *before != task) {
            label = format!("{name}#{}", self.number).into();
            self.number += 1;
        }
        self.labels.insert(Arc::clone(&label));
        // Forgotten, and not told yet: what is told now is the new one.
        self.forgotten[task].retain(|forgotten| *forgotten != label);
        label
    }
}

/// Whether a file is of one of these logs, as far as its name tells.
fn is_of(generation: &Generation, logs: &HashSet<String>) -> bool {
    let named = || names::origins(generation.name()).any(|origin| logs.contains(&origin));
    !logs.is_empty() && (logs.contains(generation.log()) || named())
}

/// What a file is of which nothing was read.
enum Judged {
    Own,
    /// Of this one.
    Copy(u64),
    /// Perhaps of this one, which changed.
    Changed(u64),
    /// Not to be told yet.
    Later,
    /// It cannot be read.
    Refused(SourceError),
}
