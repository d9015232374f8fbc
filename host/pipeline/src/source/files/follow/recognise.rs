//! What a look at the directories tells of the files that are known, and of new ones.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::OnLostRows;
use super::generation::{Generation, Place};
use super::look::{self, Look, Seen};
use super::names;
use super::registry::Registry;
use crate::source::SourceError;
use crate::source::files::position::{HEAD, open_file, read_at, read_tail};
use crate::source::window::digest;

/// Files that nobody has yet, while a look is worked in.
#[derive(Default)]
struct Strangers {
    files: Vec<Option<Seen>>,
    by_inode: HashMap<u64, Vec<usize>>,
    by_path: HashMap<PathBuf, usize>,
}

impl Strangers {
    fn add(&mut self, seen: Seen) {
        self.by_inode.entry(seen.id.ino).or_default().push(self.files.len());
        self.by_path.insert(seen.path.clone(), self.files.len());
        self.files.push(Some(seen));
    }

    /// The file that this generation is.
    fn take_same(&mut self, generation: &Generation) -> Option<Seen> {
        let inode = generation.position.file?.ino;
        let same = |index: &&usize| self.files[**index].as_ref().is_some_and(|seen| generation.is(&seen.id));
        let index = self.by_inode.get(&inode)?.iter().find(same).copied()?;
        self.files[index].take()
    }

    fn at(&self, path: &Path) -> Option<&Seen> {
        self.files[*self.by_path.get(path)?].as_ref()
    }

    fn take_at(&mut self, path: &Path) -> Option<Seen> {
        self.files[*self.by_path.get(path)?].take()
    }

    fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.files.iter().flatten()
    }
}

/// What one look has shown so far.
#[derive(Default)]
struct Round {
    /// Not found by inode under names that patterns match.
    absent: Vec<u64>,
    /// Shorter than what was read of them, or something else.
    shrunk: Vec<u64>,
    /// Logs of which a file was rotated.
    logs: BTreeSet<String>,
    /// The newest file under the path each had before.
    before: HashMap<PathBuf, u64>,
    folders: BTreeSet<PathBuf>,
}

impl Round {
    /// Something happened to this file, so that it pays to look around.
    fn happened(&mut self, number: u64, generation: &Generation, path: PathBuf) {
        self.logs.insert(log_of(generation));
        self.folders.extend(path.parent().map(Path::to_owned));
        self.folders.extend(generation.path.parent().map(Path::to_owned));
        self.before.insert(path, number);
    }
}

/// The name under which this file, or the one that had its name first, was found.
fn log_of(generation: &Generation) -> String {
    let label = &*generation.label;
    match label.rsplit_once('#') {
        Some((log, number)) if number.parse::<u64>().is_ok() => log.to_owned(),
        _ => label.to_owned(),
    }
}

impl Registry {
    /// Works in what is in the directories now.
    ///
    /// # Errors
    /// Rows are lost, and the options do not say to go on; or a file is compressed.
    pub(super) fn work_in(&mut self, look: Look, opening: bool) -> Result<(), SourceError> {
        self.looks += 1;
        self.tell(look.problems, opening)?;
        if let Some(packed) = look.files.iter().find(|seen| names::is_compressed(&seen.name)) {
            return Err(super::compressed(&packed.name));
        }
        let matched: HashSet<PathBuf> = look.files.iter().map(|seen| seen.path.clone()).collect();
        let mut strangers = Strangers::default();
        look.files.into_iter().for_each(|seen| strangers.add(seen));
        let mut round = Round::default();
        self.recognise(&mut strangers, &mut round, opening);
        self.expect_rotations(&strangers, &mut round);
        self.check_rotated(&mut round);
        if !round.folders.is_empty() {
            let around = look::neighbours(&self.base, &round.folders);
            let around = around.into_iter().filter(|seen| !matched.contains(&seen.path));
            around.for_each(|seen| strangers.add(seen));
            self.drop_known(&mut strangers, &round.absent);
            self.find_missing(&mut strangers, &mut round, opening)?;
            self.find_copies(&mut strangers, &mut round, opening)?;
            self.find_rotated_between(&mut strangers, &matched, &round.logs);
        }
        self.take_in(strangers, &matched, &round);
        self.let_go(&matched);
        self.make_ready();
        Ok(())
    }

    /// Files that are known are found again by their inode, wherever they are.
    fn recognise(&mut self, strangers: &mut Strangers, round: &mut Round, opening: bool) {
        for (&number, generation) in &mut self.generations {
            if generation.place == Place::Gone {
                continue;
            }
            let here = || generation.seen().filter(|seen| generation.is(&seen.id));
            let Some(seen) = strangers.take_same(generation).or_else(here) else {
                round.absent.push(number);
                round.happened(number, generation, generation.path.clone());
                continue;
            };
            let before = generation.path.clone();
            if generation.found(&seen) {
                round.happened(number, generation, before);
            }
            // Later it is checked when it is read; at the start nothing else is known.
            if opening {
                generation.changed = generation.position.line > 0 && !generation.fits(&seen);
            }
            if generation.shrank() && !generation.reading {
                round.shrunk.push(number);
                round.happened(number, generation, generation.path.clone());
            }
        }
        self.drop_known(strangers, &round.absent);
    }

    /// Other names of files that were found: each is read once.
    fn drop_known(&self, strangers: &mut Strangers, absent: &[u64]) {
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
            let log = log_of(generation);
            if let Some(seen) = new.get(&log[..]) {
                round.folders.extend(seen.path.parent().map(Path::to_owned));
                round.before.insert(seen.path.clone(), number);
                round.logs.insert(log);
            } else if origins.contains(&log) {
                round.logs.insert(log);
            }
        }
    }

    /// Where something was rotated, a file may have been truncated and grown again beyond where it was left.
    fn check_rotated(&mut self, round: &mut Round) {
        for generation in self.generations.values().filter(|generation| generation.held) {
            round.logs.extend(names::origins(generation.name()));
        }
        for (&number, generation) in &mut self.generations {
            let idle = generation.place == Place::Here && !generation.reading && !generation.shrank();
            if !idle || generation.position.line == 0 || !round.logs.contains(&log_of(generation)) {
                continue;
            }
            let Some(seen) = generation.seen().filter(|seen| generation.is(&seen.id)) else { continue };
            if !generation.fits(&seen) {
                generation.changed = true;
                round.shrunk.push(number);
                round.happened(number, generation, generation.path.clone());
            }
        }
    }

    /// Files that are under no name that a pattern matches.
    fn find_missing(&mut self, strangers: &mut Strangers, round: &mut Round, opening: bool) -> Result<(), SourceError> {
        let mut nowhere = Vec::new();
        for number in std::mem::take(&mut round.absent) {
            let Some(generation) = self.generations.get_mut(&number) else { continue };
            if generation.reading {
                continue;
            }
            if let Some(seen) = strangers.take_same(generation) {
                generation.found(&seen);
                generation.changed |= opening && generation.position.line > 0 && !generation.fits(&seen);
                if generation.shrank() {
                    round.shrunk.push(number);
                }
            } else if generation.handle.is_some() {
                look_through_handle(generation, strangers)?;
            } else if strangers.at(&generation.path).is_some_and(|seen| could_be(generation, seen)) {
                let seen = strangers.take_at(&generation.path);
                seen.into_iter().for_each(|seen| generation.go_on_in(&seen));
            } else {
                nowhere.push(number);
            }
        }
        let mut found = self.find_content(&nowhere, strangers.files.iter().map(Option::as_ref));
        for number in nowhere {
            let seen = found.remove(&number).and_then(|index| strangers.files[index].take());
            match (seen, self.generations.get_mut(&number)) {
                (Some(seen), Some(generation)) => generation.go_on_in(&seen),
                (None, Some(generation)) => {
                    let taken = strangers.at(&generation.path).is_some();
                    self.is_gone(number, taken, opening)?;
                }
                (_, None) => {}
            }
        }
        Ok(())
    }

    /// Which of the files has all that was read of each of the wanted ones.
    fn find_content<'a>(&self, wanted: &[u64], files: impl Iterator<Item = Option<&'a Seen>>) -> HashMap<u64, usize> {
        let mut found = HashMap::new();
        let mut heads: BTreeMap<u64, HashMap<&str, Vec<u64>>> = BTreeMap::new();
        for (number, generation) in wanted.iter().filter_map(|number| Some((*number, self.generations.get(number)?))) {
            let position = &generation.position;
            if position.line > 0 {
                heads.entry(position.head_len).or_default().entry(&position.head).or_default().push(number);
            }
        }
        for (index, seen) in files.enumerate() {
            let Some(seen) = seen.filter(|seen| seen.size > 0 && found.len() < wanted.len()) else { continue };
            let Some((file, head)) = open_with_head(seen) else { continue };
            let lengths = heads.iter().take_while(|(length, _)| **length <= head.len() as u64);
            let alike =
                lengths.filter_map(|(length, heads)| heads.get(&digest(&head[..*length as usize])[..])).flatten();
            let same = alike.copied().find(|number| {
                !found.contains_key(number)
                    && self.generations.get(number).is_some_and(|generation| {
                        tells(generation, seen)
                            && seen.size >= generation.position.offset
                            && read_tail(&file, generation.position.offset)
                                .is_ok_and(|tail| digest(&tail) == generation.position.tail)
                    })
            });
            if let Some(number) = same {
                found.insert(number, index);
            }
        }
        found
    }

    /// A file is nowhere. That is fine if it was read to its end.
    fn is_gone(&mut self, number: u64, name_taken: bool, opening: bool) -> Result<(), SourceError> {
        let Some(generation) = self.generations.get_mut(&number) else { return Ok(()) };
        let finished = generation.at_end() && (!name_taken || generation.was_renamed() || !opening);
        if generation.position.done || finished || generation.position.size.max(generation.size) == 0 {
            if name_taken && !generation.was_renamed() && !generation.position.done {
                tracing::warn!(
                    "{}: another file took its name between two looks, and it is not there any more; it was read up \
                     to line {}, and what was written behind that is lost",
                    generation.name(),
                    generation.position.line
                );
            }
            self.remember(number);
            return Ok(());
        }
        let error = SourceError::Gone {
            partition: generation.label.to_string(),
            name: generation.name().to_owned(),
            line: generation.position.line,
            unread: generation.size.max(generation.position.size).saturating_sub(generation.position.offset),
            name_taken,
        };
        match self.options.on_lost_rows {
            OnLostRows::Stop => Err(error),
            OnLostRows::Warn => {
                tracing::warn!("{error}");
                self.remember(number);
                Ok(())
            }
        }
    }

    /// Files that have less in them than was read, or something else: were they copied before?
    fn find_copies(&mut self, strangers: &mut Strangers, round: &mut Round, opening: bool) -> Result<(), SourceError> {
        let shrunk = std::mem::take(&mut round.shrunk);
        if shrunk.is_empty() {
            return Ok(());
        }
        let mut found = self.find_content(&shrunk, strangers.files.iter().map(Option::as_ref));
        // A copy may be known as a file of which nothing was read.
        let unread = self.generations.iter().filter(|(number, generation)| {
            let untouched = generation.position.offset == 0 && !generation.reading && generation.place == Place::Here;
            untouched && !shrunk.contains(number)
        });
        let unread: Vec<(u64, Option<Seen>)> = unread
            .map(|(number, generation)| (*number, generation.seen().filter(|seen| generation.is(&seen.id))))
            .collect();
        let left: Vec<u64> = shrunk.iter().copied().filter(|number| !found.contains_key(number)).collect();
        let mut among_unread = self.find_content(&left, unread.iter().map(|(_, seen)| seen.as_ref()));
        for number in shrunk {
            let copy = match (found.remove(&number), among_unread.remove(&number)) {
                (Some(index), _) => strangers.files[index].take(),
                (None, Some(index)) => {
                    self.forget(unread[index].0);
                    unread[index].1.clone()
                }
                (None, None) => None,
            };
            let now = self.generations.get(&number).and_then(Generation::seen);
            match copy {
                Some(copy) => self.go_on_in_copy(number, &copy, now),
                None => self.start_again(number, opening)?,
            }
        }
        Ok(())
    }

    fn go_on_in_copy(&mut self, number: u64, copy: &Seen, now: Option<Seen>) {
        let Some(generation) = self.generations.get_mut(&number) else { return };
        tracing::info!(
            "{} was copied to {} and written anew; the copy is read to its end first",
            generation.name(),
            copy.name
        );
        let (task, name) = (generation.task, generation.name().to_owned());
        generation.go_on_in(copy);
        if let Some(seen) = now {
            let label = self.label(&name);
            let mut new = Generation::of(label, task, &seen);
            new.after = Some(number);
            self.add(new);
        }
    }

    fn start_again(&mut self, number: u64, opening: bool) -> Result<(), SourceError> {
        let policy = self.options.on_lost_rows;
        let Some(generation) = self.generations.get_mut(&number) else { return Ok(()) };
        if generation.position.line > 0 {
            let lost = SourceError::CutOff {
                partition: generation.label.to_string(),
                name: generation.name().to_owned(),
                line: generation.position.line,
            };
            if opening && policy == OnLostRows::Stop {
                return Err(lost);
            }
            tracing::warn!("{lost}");
        }
        generation.start_again();
        Ok(())
    }

    /// Several rotations between two looks leave files that never were seen under a name that a pattern matches.
    fn find_rotated_between(&mut self, strangers: &mut Strangers, matched: &HashSet<PathBuf>, logs: &BTreeSet<String>) {
        let mut newest: HashMap<String, u64> = HashMap::new();
        for (number, generation) in &self.generations {
            let log = log_of(generation);
            // What is under the log's own name now comes last, and is no measure.
            if logs.contains(&log) && generation.name() != log {
                newest.insert(log, *number);
            }
        }
        // By time: the oldest comes first.
        for index in 0..strangers.files.len() {
            let Some(seen) = strangers.files[index].as_ref().filter(|seen| !matched.contains(&seen.path)) else {
                continue;
            };
            let log =
                names::origins(&seen.name).find(|log| newest.contains_key(log) && names::is_rotated(&seen.name, log));
            let Some((log, before)) = log.and_then(|log| newest.get(&log).map(|before| (log.clone(), *before))) else {
                continue;
            };
            let Some(generation) = self.generations.get(&before).filter(|before| seen.modified >= before.modified)
            else {
                continue;
            };
            let (task, Some(seen)) = (generation.task, strangers.files[index].take()) else { continue };
            tracing::info!("{} was rotated out of {log} before it was seen there; it is read too", seen.name);
            let label = self.label(&log);
            let mut new = Generation::of(label, task, &seen);
            new.after = Some(before);
            let number = self.add(new);
            newest.insert(log, number);
        }
    }

    /// Files that were not known.
    fn take_in(&mut self, strangers: Strangers, matched: &HashSet<PathBuf>, round: &Round) {
        let mut new: Vec<Seen> =
            strangers.files.into_iter().flatten().filter(|seen| matched.contains(&seen.path)).collect();
        if new.is_empty() {
            return;
        }
        self.come_back(&mut new);
        let mut unread = vec![0u64; self.tasks];
        for generation in self.generations.values() {
            unread[generation.task] += 1 + generation.size.saturating_sub(generation.position.offset);
        }
        for seen in new {
            let before = round.before.get(&seen.path).map(|before| self.last_behind(*before));
            let task = before.and_then(|before| self.generations.get(&before)).map(|before| before.task);
            let task = task.or_else(|| (0..self.tasks).min_by_key(|&task| unread[task])).unwrap_or(0);
            unread[task] += 1 + seen.size;
            let label = self.label(&seen.name);
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
        let found = self.find_content(&gone, new.iter().map(Some));
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

/// A file that has lost its name, and is still open.
fn look_through_handle(generation: &mut Generation, strangers: &mut Strangers) -> Result<(), SourceError> {
    let Some(handle) = &generation.handle else { return Ok(()) };
    let data = handle.metadata().map_err(|error| SourceError::Io { path: generation.path.clone(), error })?;
    // Written anew under its name, with all that was there before.
    let rewritten = |seen: &Seen| data.nlink() == 0 && seen.size >= data.len() && generation.fits(seen);
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

fn open_with_head(seen: &Seen) -> Option<(File, Vec<u8>)> {
    let (file, _) = open_file(&seen.path).ok()?;
    let head = read_at(&file, 0, HEAD).ok()?;
    Some((file, head))
}

/// Whether content that is the same tells that it is the same file: a single line, as a header is, does not, unless the
/// name tells too.
fn tells(generation: &Generation, seen: &Seen) -> bool {
    generation.position.line > 1
        || seen.name == generation.name()
        || names::origins(&seen.name).any(|origin| origin == generation.name())
}

/// Whether all that was read of a file stands in another one.
fn could_be(generation: &Generation, seen: &Seen) -> bool {
    tells(generation, seen) && generation.fits(seen)
}
