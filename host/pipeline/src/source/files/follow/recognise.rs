//! What a look at the directories tells of the files that are known, and of new ones.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::copies;
use super::generation::{Generation, Place};
use super::look::{self, Age, Look, Paths, Seen};
use super::names;
use super::registry::{Registry, SEARCHES};
use super::strangers::Strangers;
use super::{Moment, OnLostRows};
use crate::source::SourceError;

/// Looks in a row that may have missed files, until what they did not find is taken for lost.
const INCOMPLETE_TOLD: u32 = 40;

/// What one look has shown so far.
#[derive(Default)]
pub(super) struct Round {
    /// The first look of all: what happened before is not known.
    pub(super) opening: bool,
    /// Not found by inode under names that patterns match.
    absent: Vec<u64>,
    /// Shorter than what was read of them, or something else.
    pub(super) shrunk: Vec<u64>,
    /// Still have what was read of them, but not all that was seen behind it.
    pub(super) cut: Vec<u64>,
    /// Gone, and read to their end as far as that was seen.
    ended: Vec<String>,
    /// Of which it is not known yet what became of them. Of files of their logs of which nothing was read none is read
    /// before: it may be the one in which they go on.
    pub(super) unsettled: HashSet<PathBuf>,
    /// Those of them that were found under no name.
    missing: HashSet<u64>,
    pub(super) problems: Vec<SourceError>,
    /// Logs of which a file was rotated.
    pub(super) logs: BTreeSet<String>,
    /// The newest file under the path each had before.
    before: HashMap<PathBuf, u64>,
    folders: BTreeSet<PathBuf>,
    /// Files that were rotated when the last look was done, and when each was created.
    rotated: HashMap<u64, Option<u64>>,
    /// Logs that were copied and truncated before anything was read of them, by name: their files, and how old their copies
    /// are at most.
    pub(super) truncated: HashMap<String, (u64, Age)>,
    /// Files may have been missed around: they were renamed all the time.
    pub(super) incomplete: bool,
}

impl Round {
    /// Something happened to this file, so that it pays to look around.
    fn happened(&mut self, number: u64, generation: &Generation, path: PathBuf) {
        self.logs.insert(generation.log().to_owned());
        self.folders.extend(path.parent().map(Path::to_owned));
        self.folders.extend(generation.path.parent().map(Path::to_owned));
        self.before.insert(path, number);
    }
}

impl Registry {
    /// Works in what is in the directories now.
    ///
    /// # Errors
    /// Rows are lost, and the options do not say to go on; or a file is compressed.
    pub(super) fn work_in(&mut self, look: Look, opening: bool) -> Result<(), SourceError> {
        self.looks += 1;
        self.searches.set(SEARCHES);
        if let Some(packed) = look.files.iter().find(|seen| names::is_compressed(&seen.name)) {
            return Err(super::compressed(&packed.name));
        }
        let matched = look.paths();
        let rotated = self.unclear.take().unwrap_or_else(|| self.rotated());
        let mut round = Round { opening, rotated, problems: look.problems, ..Round::default() };
        self.refuse(&mut round)?;
        let mut strangers = Strangers::new(look.files);
        self.recognise(&mut strangers, &mut round);
        let mut strangers = strangers.sort();
        self.expect_rotations(&strangers, &mut round);
        self.check_rotated(&mut round);
        if !round.folders.is_empty() {
            let around = look::neighbours(&self.base, &round.folders);
            around.files.into_iter().for_each(|seen| strangers.add(seen));
            round.problems.extend(around.problems);
            round.incomplete = !around.complete;
            self.moments.tell(Moment::ListedAround);
            strangers.refresh(&round.logs);
            self.refuse(&mut round)?;
            self.drop_known(&mut strangers, &round.absent);
            self.find_missing(&mut strangers, &mut round)?;
            self.find_copies(&mut strangers, &mut round)?;
            self.find_rotated_between(&mut strangers, &matched, &round);
        }
        self.judge_round(&mut round);
        self.take_in(strangers, &matched, &round);
        self.let_go(&matched);
        self.make_ready(&round.unsettled);
        tell_ended(&round.ended);
        self.tell(round.problems);
        Ok(())
    }

    /// Where files may have been missed, the next look has to find them too.
    fn judge_round(&mut self, round: &mut Round) {
        self.incomplete = if round.incomplete { self.incomplete + 1 } else { 0 };
        if self.incomplete == INCOMPLETE_TOLD {
            let folders: Vec<_> = round.folders.iter().map(|folder| folder.display().to_string()).collect();
            tracing::warn!(
                "in {}: files are renamed faster than they can be listed; what is missing there is taken for lost",
                folders.join(", ")
            );
        }
        if round.incomplete {
            self.unclear = Some(std::mem::take(&mut round.rotated));
        }
    }

    /// Whether what was not found may yet be: it was only missed.
    pub(super) fn may_be_missed(&self, round: &Round) -> bool {
        round.incomplete && self.incomplete < INCOMPLETE_TOLD
    }

    /// Files that are not under the name of their log. All that were rotated before them are known, or were.
    fn rotated(&self) -> HashMap<u64, Option<u64>> {
        let rotated = self.generations.iter().filter(|(_, generation)| !generation.is_current());
        rotated.map(|(number, generation)| (*number, generation.age().0)).collect()
    }

    /// What cannot be looked at is an error at the start.
    fn refuse(&self, round: &mut Round) -> Result<(), SourceError> {
        match round.opening && !round.problems.is_empty() {
            true => Err(round.problems.swap_remove(0)),
            false => Ok(()),
        }
    }

    /// Files that are known are found again by their inode, wherever they are.
    fn recognise(&mut self, strangers: &mut Strangers, round: &mut Round) {
        for (&number, generation) in &mut self.generations {
            if generation.place == Place::Gone {
                continue;
            }
            let listed = strangers.take_same(generation);
            generation.listed = listed.is_some();
            let seen = match listed.map_or_else(|| generation.seen(), |seen| Ok(Some(seen))) {
                Ok(seen) => seen,
                Err(error) => {
                    // Neither there nor not there, as far as is known.
                    round.unsettled.insert(generation.path.clone());
                    round.problems.push(SourceError::Io { path: generation.path.clone(), error });
                    continue;
                }
            };
            let Some(seen) = seen else {
                round.absent.push(number);
                round.happened(number, generation, generation.path.clone());
                continue;
            };
            // It may have grown, and been read, since it was looked at.
            let mut seen = seen;
            if seen.size < generation.most && !seen.refresh() {
                round.unsettled.insert(generation.path.clone());
                continue;
            }
            // Where it grew, it is checked when it is read, unless that takes longer than a look.
            let touched =
                generation.modified != seen.modified && (seen.size <= generation.dry || generation.has_more());
            if let Some(before) = generation.found(&seen) {
                round.happened(number, generation, before);
            }
            if std::mem::take(&mut generation.fresh) && generation.is_later() {
                round.happened(number, generation, generation.path.clone());
            }
            let shorter = generation.size < generation.most;
            let known = (generation.verified && !touched && !shorter) || check(generation, &seen);
            if generation.shrank() {
                generation.call_back();
                round.shrunk.push(number);
                round.happened(number, generation, generation.path.clone());
            } else if shorter && known {
                round.cut.push(number);
                round.happened(number, generation, generation.path.clone());
            }
        }
        self.drop_known(strangers, &round.absent);
    }

    /// Other names of files that were found: each is read once.
    fn drop_known(&self, strangers: &mut Strangers, absent: &[u64]) {
        if strangers.iter().next().is_none() {
            return;
        }
        let absent: HashSet<u64> = absent.iter().copied().collect();
        for (number, generation) in &self.generations {
            if generation.place == Place::Here && !absent.contains(number) {
                while strangers.take_same(generation).is_some() {}
            }
        }
    }

    /// A new file under the name of a log: there may have been others before it. One under a name that rotation makes of
    /// it: it may be a copy.
    fn expect_rotations(&self, strangers: &Strangers, round: &mut Round) {
        let mut new: HashMap<&str, &Seen> = HashMap::new();
        let mut origins: HashSet<String> = HashSet::new();
        for seen in strangers.iter() {
            new.insert(&seen.name, seen);
            origins.extend(names::origins(&seen.name));
        }
        if new.is_empty() {
            return;
        }
        for (&number, generation) in &self.generations {
            let log = generation.log();
            if let Some(seen) = new.get(log) {
                round.folders.extend(seen.path.parent().map(Path::to_owned));
                round.before.insert(seen.path.clone(), number);
                round.logs.insert(log.to_owned());
            } else if origins.contains(log) {
                round.logs.insert(log.to_owned());
            }
        }
    }

    /// Where something was rotated, a file may have been truncated and grown again beyond where it was left.
    fn check_rotated(&mut self, round: &mut Round) {
        for generation in self.generations.values().filter(|generation| generation.held.is_some()) {
            round.logs.extend(names::origins(generation.name()));
        }
        if round.logs.is_empty() {
            return;
        }
        for (&number, generation) in &mut self.generations {
            let there = generation.place == Place::Here && !generation.shrank() && generation.position.line > 0;
            if !there || !round.logs.contains(generation.log()) {
                continue;
            }
            let Ok(Some(seen)) = generation.seen() else { continue };
            check(generation, &seen);
            if generation.changed {
                generation.call_back();
                round.shrunk.push(number);
                round.happened(number, generation, generation.path.clone());
            }
        }
    }

    /// Files that are under no name that a pattern matches.
    fn find_missing(&mut self, strangers: &mut Strangers, round: &mut Round) -> Result<(), SourceError> {
        let mut nowhere = Vec::new();
        for number in std::mem::take(&mut round.absent) {
            let Some(generation) = self.generations.get_mut(&number) else { continue };
            if let Some(seen) = strangers.take_same(generation) {
                recognised(number, generation, &seen, round);
            } else if generation.handle.is_some() {
                look_through_handle(generation, strangers)?;
            } else if generation.reading {
                // It is being opened: the next look knows more.
                round.unsettled.insert(generation.path.clone());
                round.missing.insert(number);
            } else if strangers.at(&generation.path).is_some_and(|seen| could_be(generation, seen)) {
                let seen = strangers.take_at(&generation.path);
                seen.into_iter().for_each(|seen| generation.go_on_in(&seen));
            } else {
                nowhere.push(number);
            }
        }
        self.look_again(&mut nowhere, strangers, round);
        let mut found = self.find_old(&nowhere, strangers, round);
        // Found at an earlier look, when it was not settled yet what has become of the file before.
        let new = self.generations.values().filter(|generation| generation.is_untouched());
        let new: HashSet<PathBuf> = match nowhere.is_empty() {
            true => HashSet::new(),
            false => new.map(|generation| generation.path.clone()).collect(),
        };
        let new = |path: &PathBuf, own: &Generation| !own.is_untouched() && new.contains(path);
        for number in nowhere {
            let Some(generation) = self.generations.get(&number) else { continue };
            if round.unsettled.contains(&generation.path) {
                round.missing.insert(number);
                continue;
            }
            let generation_path = generation.path.clone();
            let taken = strangers.at(&generation_path).is_some() || new(&generation_path, generation);
            let copied = found.remove(&number);
            match copied.and_then(|copy| self.take_copy(copy, strangers)) {
                Some(copy) => self.go_on(number, &copy)?,
                None if copied.is_some() || self.may_be_missed(round) => {
                    round.unsettled.insert(generation_path);
                    round.missing.insert(number);
                }
                None => self.is_gone(number, taken, round)?,
            }
        }
        Ok(())
    }

    pub(super) fn list_again(&self, strangers: &mut Strangers, round: &mut Round) {
        let around = look::neighbours(&self.base, &round.folders);
        round.incomplete |= !around.complete;
        around.files.into_iter().for_each(|seen| strangers.add(seen));
        self.drop_known(strangers, &round.absent);
    }

    /// Renaming under way may hide a file from a look.
    fn look_again(&mut self, nowhere: &mut Vec<u64>, strangers: &mut Strangers, round: &mut Round) {
        if nowhere.is_empty() {
            return;
        }
        self.list_again(strangers, round);
        nowhere.retain(|number| {
            let Some(generation) = self.generations.get_mut(number) else { return false };
            let Some(seen) = strangers.take_same(generation) else { return true };
            recognised(*number, generation, &seen, round);
            false
        });
    }

    /// A file is nowhere. That is fine if it was read to its end.
    fn is_gone(&mut self, number: u64, name_taken: bool, round: &mut Round) -> Result<(), SourceError> {
        let Some(generation) = self.generations.get_mut(&number) else { return Ok(()) };
        // The look at which it was missed first may have told nothing: another file could not be opened.
        let unwatched = generation.unwatched;
        let unread = generation.unread_at_last();
        let finished = unread == 0 && (!name_taken || generation.was_renamed() || !unwatched);
        if generation.position.done || finished || generation.most == 0 {
            if !generation.position.done && (unwatched || !generation.was_renamed()) {
                round.ended.push(format!("{} (line {})", generation.name(), generation.position.line));
            }
            self.remember(number);
            return Ok(());
        }
        let lost = SourceError::Gone {
            partition: generation.label.to_string(),
            name: generation.name().to_owned(),
            line: generation.position.line,
            unread,
            name_taken,
        };
        self.lose(lost, true)?;
        self.remember(number);
        Ok(())
    }

    /// Rows are lost, or may be. Where that is certain, or nobody looked while it happened, the options say what to do.
    pub(super) fn lose(&self, lost: SourceError, serious: bool) -> Result<(), SourceError> {
        if serious && self.options.on_lost_rows == OnLostRows::Stop {
            return Err(lost);
        }
        tracing::warn!("{lost}");
        Ok(())
    }

    /// Several rotations between two looks leave files that never were seen under a name that a pattern matches: such as
    /// came after the last one that had been rotated when the last look was done. Those that were found since tell only
    /// where there was none, and of them the oldest: one before the others may have been missed.
    fn find_rotated_between(&mut self, strangers: &mut Strangers, matched: &Paths, round: &Round) {
        let mut newest: HashMap<String, (u64, Age)> = HashMap::new();
        let mut measure = |number: u64, log: &str, age: Age, older: bool| {
            let last = newest.entry(log.to_owned()).or_insert((number, age));
            if (age < last.1 && older) || (age > last.1 && !older) {
                *last = (number, age);
            }
        };
        // Under the log's own name, and not missed there.
        let is_current =
            |number: &u64, generation: &Generation| generation.is_current() && !round.missing.contains(number);
        let (before, since): (Vec<_>, Vec<_>) = self
            .generations
            .iter()
            // What is under the log's own name now comes last, and is no measure.
            .filter(|(number, generation)| !is_current(number, generation) && round.logs.contains(generation.log()))
            .partition(|(number, _)| round.rotated.contains_key(number));
        for (number, generation) in &before {
            let born = round.rotated.get(*number).copied().flatten();
            measure(**number, generation.log(), (born, generation.age().1), false);
        }
        let measured: HashSet<&str> = before.iter().map(|(_, generation)| generation.log()).collect();
        for (number, generation) in since.into_iter().filter(|(_, generation)| !measured.contains(generation.log())) {
            measure(*number, generation.log(), generation.age(), true);
        }
        // Where none is known to have been rotated, only a copy can be missed.
        let mut copied: HashMap<&str, u64> = HashMap::new();
        for (log, (number, age)) in &round.truncated {
            if !newest.contains_key(log) {
                copied.insert(log, *number);
                newest.insert(log.clone(), (*number, *age));
            }
        }
        // The oldest comes first.
        let mut by_age: Vec<usize> = (0..strangers.files.len()).collect();
        by_age.sort_by_key(|index| strangers.files[*index].as_ref().map(Seen::age));
        for index in by_age {
            let Some(seen) = strangers.files[index].as_ref().filter(|seen| !matched.contains(&seen.path)) else {
                continue;
            };
            let log =
                names::origins(&seen.name).find(|log| newest.contains_key(log) && names::is_rotated(&seen.name, log));
            let Some((log, (before, age))) = log.and_then(|log| newest.get(&log).map(|before| (log.clone(), *before)))
            else {
                continue;
            };
            // Older ones were read, and forgotten since; or were there before anything was.
            let original = copied.get(&log[..]).copied();
            let is_new = match original {
                Some(original) if original == before => seen.is_since(age),
                _ => seen.age() >= age,
            };
            let Some(generation) = self.generations.get(&before).filter(|_| is_new) else {
                continue;
            };
            let age = seen.age();
            let (task, Some(seen)) = (generation.task, strangers.files[index].take()) else { continue };
            tracing::info!("{} was rotated out of {log} before it was seen there; it is read too", seen.name);
            let label = self.label(&log, task);
            let mut new = Generation::of(label, task, &seen);
            new.after = Some(before).filter(|before| original != Some(*before));
            let number = self.add(new);
            if let Some(original) = original.and_then(|original| self.generations.get_mut(&original)) {
                original.after = Some(number);
            }
            newest.insert(log, (number, age));
        }
    }

    /// Files that were not known.
    fn take_in(&mut self, strangers: Strangers, matched: &Paths, round: &Round) {
        let mut new: Vec<Seen> =
            strangers.files.into_iter().flatten().filter(|seen| matched.contains(&seen.path)).collect();
        if new.is_empty() {
            return;
        }
        self.come_back(&mut new);
        let mut unread = vec![0u64; self.tasks];
        let mut by_log: HashMap<String, usize> = HashMap::new();
        for generation in self.generations.values() {
            by_log.insert(generation.log().to_owned(), generation.task);
            unread[generation.task] += 1 + generation.size.saturating_sub(generation.position.offset);
        }
        for seen in new {
            let before = round.before.get(&seen.path).map(|before| self.last_behind(*before));
            let task = before.and_then(|before| self.generations.get(&before)).map(|before| before.task);
            // What rotation made of a log stays with it: of a copy and its original one task tells.
            let task = task.or_else(|| names::origins(&seen.name).find_map(|origin| by_log.get(&origin).copied()));
            let task = task.or_else(|| (0..self.tasks).min_by_key(|&task| unread[task])).unwrap_or(0);
            by_log.entry(seen.name.clone()).or_insert(task);
            unread[task] += 1 + seen.size;
            let label = self.label(&seen.name, task);
            let mut generation = Generation::of(label, task, &seen);
            generation.after = before;
            self.add(generation);
        }
    }

    /// The last of the files that have to be read behind this one.
    fn last_behind(&self, number: u64) -> u64 {
        let mut last = number;
        for (&later, generation) in self.generations.range(number..) {
            if generation.after == Some(last) {
                last = later;
            }
        }
        last
    }

    /// Files that were gone and are there again go on where they were.
    fn come_back(&mut self, new: &mut Vec<Seen>) {
        let gone: Vec<u64> = self.gone.iter().copied().collect();
        if gone.is_empty() {
            return;
        }
        let found = self.find_content(&gone, new.iter().map(Some), &mut Vec::new());
        let mut back = HashSet::new();
        for (number, index) in found {
            if let Some(generation) = self.generations.get_mut(&number) {
                generation.go_on_in(&new[index]);
                back.insert(index);
            }
            self.gone.retain(|gone| *gone != number);
        }
        let mut index = 0;
        new.retain(|_| {
            index += 1;
            !back.contains(&(index - 1))
        });
    }
}

/// A file that was missed is found under another name.
fn recognised(number: u64, generation: &mut Generation, seen: &Seen, round: &mut Round) {
    generation.found(seen);
    let shorter = generation.size < generation.most;
    let known = (generation.verified && !shorter) || check(generation, seen);
    if generation.shrank() {
        generation.call_back();
        round.shrunk.push(number);
    } else if shorter && known {
        round.cut.push(number);
    }
}

/// Whether what was read of a file is still there. Not known, if it cannot be read now: that is found out, and told,
/// when there is something to read. Tells whether it is known.
fn check(generation: &mut Generation, seen: &Seen) -> bool {
    if generation.position.line == 0 {
        generation.verified = true;
        return true;
    }
    let Ok(fits) = generation.fits(seen) else { return false };
    generation.changed |= !fits;
    generation.verified |= fits;
    if fits {
        generation.most = generation.most.max(seen.size);
    }
    true
}

fn tell_ended(ended: &[String]) {
    if ended.is_empty() {
        return;
    }
    let first = ended.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
    tracing::warn!(
        files = ended.len(),
        "deleted, or out of reach, while nobody looked: {first}. What was seen of them was read to its end; rows that were \
         appended between the last look and then, if any, are lost"
    );
}

/// A file that has lost its name, and is still open.
fn look_through_handle(generation: &mut Generation, strangers: &mut Strangers) -> Result<(), SourceError> {
    let Some(handle) = &generation.handle else { return Ok(()) };
    let data = handle.metadata().map_err(|error| SourceError::Io { path: generation.path.clone(), error })?;
    // Written anew under its name, with all that was there before.
    let rewritten =
        |seen: &Seen| data.nlink() == 0 && seen.size >= data.len() && generation.fits(seen).unwrap_or(false);
    if strangers.at(&generation.path).is_some_and(rewritten) {
        let seen = strangers.take_at(&generation.path);
        seen.into_iter().for_each(|seen| generation.go_on_in(&seen));
        return Ok(());
    }
    let looks = match generation.place {
        Place::Away(looks) if data.len() == generation.size => looks + 1,
        _ => 0,
    };
    (generation.place, generation.size) = (Place::Away(looks), data.len());
    Ok(())
}

/// Whether all that was read of a file stands in another one.
fn could_be(generation: &Generation, seen: &Seen) -> bool {
    copies::tells(generation, seen) && generation.fits(seen).unwrap_or(false)
}
