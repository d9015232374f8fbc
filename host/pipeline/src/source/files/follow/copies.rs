//! Finds what was read of a file in another one: a copy, or the file under another name on another disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;

use super::generation::{Generation, Place};
use super::look::Seen;
use super::names;
use super::recognise::Round;
use super::registry::Registry;
use super::strangers::Strangers;
use crate::source::SourceError;
use crate::source::files::position::{HEAD, read_at, read_tail};
use crate::source::window::digest;

/// A file in which what was read of another one was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Copied {
    /// Nobody had it.
    Stranger(usize),
    /// It is known, and nothing was read of it.
    Untouched(u64),
}

impl Registry {
    /// Files that have less in them than was read, or something else: were they copied before?
    pub(super) fn find_copies(&mut self, strangers: &mut Strangers, round: &mut Round) -> Result<(), SourceError> {
        let shrunk = std::mem::take(&mut round.shrunk);
        let mut found = self.find_old(&shrunk, strangers, round);
        if found.len() < shrunk.len() {
            // Renaming under way may hide a file from a look.
            self.list_again(strangers, round);
            found = self.find_old(&shrunk, strangers, round);
        }
        for number in shrunk {
            let Some(generation) = self.generations.get(&number) else { continue };
            let path = generation.path.clone();
            if round.unsettled.contains(&path) {
                continue;
            }
            let copied = found.remove(&number);
            match copied.and_then(|copy| self.take_copy(copy, strangers)) {
                Some(copy) => {
                    let (name, task) = (generation_name(self, number), self.task_of(number));
                    // Renamed, perhaps, since it was listed.
                    let now = self.generations.get(&number).and_then(|generation| self.find(generation).ok().flatten());
                    self.go_on(number, &copy)?;
                    let known = |seen: &Seen| {
                        self.generations.values().any(|other| other.place == Place::Here && other.is(&seen.id))
                    };
                    if let Some(seen) = now.filter(|seen| !known(seen)) {
                        let label = self.label(&name, task);
                        let mut new = Generation::of(label, task, &seen);
                        new.after = Some(number);
                        self.add(new);
                    }
                }
                // Renamed in this moment: the next look tells.
                None if copied.is_some() || self.may_be_missed(round) => drop(round.unsettled.insert(path)),
                None => self.start_again(number, round.opening)?,
            }
        }
        self.are_cut(strangers, round)
    }

    fn task_of(&self, number: u64) -> usize {
        self.generations.get(&number).map_or(0, |generation| generation.task)
    }

    /// Where what was read of these files is now. Those of which that cannot be told yet are unsettled.
    pub(super) fn find_old(
        &self,
        wanted: &[u64],
        strangers: &mut Strangers,
        round: &mut Round,
    ) -> HashMap<u64, Copied> {
        if wanted.is_empty() {
            return HashMap::new();
        }
        // What is known of the wanted ones is older than this: a copy of them is whole by now.
        strangers.refresh(&round.logs);
        let untouched = self
            .generations
            .iter()
            .filter(|(number, generation)| generation.is_untouched() && !wanted.contains(number));
        let mut elsewhere = Vec::new();
        let untouched: Vec<(Copied, Seen)> = untouched
            .filter_map(|(number, generation)| match self.find(generation) {
                Ok(Some(seen)) => Some((Copied::Untouched(*number), seen)),
                // Renamed in this moment, or gone.
                _ => {
                    elsewhere.push(generation);
                    None
                }
            })
            .collect();
        let files = strangers.files.iter().enumerate();
        let files = files.filter_map(|(index, seen)| Some((Copied::Stranger(index), seen.as_ref()?)));
        let files: Vec<(Copied, &Seen)> = files.chain(untouched.iter().map(|(copied, seen)| (*copied, seen))).collect();
        let mut unreadable = Vec::new();
        let whole = self.find_content(wanted, files.iter().map(|(_, seen)| Some(*seen)), &mut unreadable);
        let mut found: HashMap<u64, Copied> =
            whole.into_iter().map(|(number, index)| (number, files[index].0)).collect();
        for number in wanted {
            let Some(generation) = self.generations.get(number).filter(|_| !found.contains_key(number)) else {
                continue;
            };
            if elsewhere.iter().any(|copy| copy.held == Some(*number) || belongs(generation, copy.name())) {
                // It may be the copy: the next look tells.
                round.unsettled.insert(generation.path.clone());
                continue;
            }
            let unread = unreadable.iter().find(|(index, _)| belongs(generation, &files[*index].1.name));
            if let Some((index, error)) = unread {
                round.unsettled.insert(generation.path.clone());
                // Renamed in this moment, or gone: the next look tells.
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Other) {
                    let error = io::Error::new(error.kind(), error.to_string());
                    round.problems.push(SourceError::Io { path: files[*index].1.path.clone(), error });
                }
            } else if let Some(short) = self.find_short(*number, generation, &files, &found) {
                found.insert(*number, short);
            }
        }
        found
    }

    /// A copy that was made before all that was read was written.
    fn find_short(
        &self,
        number: u64,
        generation: &Generation,
        files: &[(Copied, &Seen)],
        found: &HashMap<u64, Copied>,
    ) -> Option<Copied> {
        let free = |copied: &Copied| !found.values().any(|other| other == copied);
        let held = |copied: &Copied| {
            matches!(copied, Copied::Untouched(copy)
                if self.generations.get(copy).is_some_and(|copy| copy.held == Some(number)))
        };
        let likely = |seen: &Seen| generation.shrank() && belongs(generation, &seen.name);
        // Of one that was known to be a copy it does not matter what was written to it since; but where nothing was read,
        // each file begins with it.
        let short = |copied: &Copied, seen: &Seen| match held(copied) {
            true => generation.position.line > 0 && seen.size > 0 && generation.begins(seen).unwrap_or(false),
            false => likely(seen) && generation.outgrew(seen).unwrap_or(false),
        };
        // Something else was written to it since.
        let mixed = |seen: &Seen| likely(seen) && generation.shares(seen).unwrap_or(false);
        let newest = |is: &dyn Fn(&Copied, &Seen) -> bool| {
            let these = files.iter().filter(|(copied, seen)| free(copied) && is(copied, seen));
            these.max_by_key(|(_, seen)| seen.modified).map(|(copied, _)| *copied)
        };
        newest(&short).or_else(|| newest(&|_, seen| mixed(seen)))
    }

    /// It is nobody's any more.
    pub(super) fn take_copy(&mut self, copied: Copied, strangers: &mut Strangers) -> Option<Seen> {
        match copied {
            Copied::Stranger(index) => strangers.take(index),
            Copied::Untouched(number) => {
                let seen = self.find(self.generations.get(&number)?).ok().flatten()?;
                self.forget(number);
                Some(seen)
            }
        }
    }

    /// A file goes on in another one, which has all that was read of it, or at least a part.
    pub(super) fn go_on(&mut self, number: u64, copy: &Seen) -> Result<(), SourceError> {
        let Some(generation) = self.generations.get(&number) else { return Ok(()) };
        let lost = generation.unread_behind(copy);
        let whole = generation.fits(copy).unwrap_or(copy.size >= generation.position.offset);
        // It has something else behind a part of what was read, and where that begins nobody knows.
        let mixed = !whole && !generation.outgrew(copy).unwrap_or(true);
        if lost > 0 || mixed {
            let cut = cut_off(generation, lost, Some(copy.name.clone()));
            self.lose(cut, true)?;
        }
        let Some(generation) = self.generations.get_mut(&number) else { return Ok(()) };
        tracing::info!("{} was copied to {}, or moved there; that is read to its end", generation.name(), copy.name);
        if whole {
            generation.go_on_in(copy);
            return Ok(());
        }
        let failed = |error| SourceError::Io { path: copy.path.clone(), error };
        generation.go_on_behind(copy).map_err(failed)
    }

    /// There is no copy of a file that has not in it what was read.
    fn start_again(&mut self, number: u64, opening: bool) -> Result<(), SourceError> {
        let Some(generation) = self.generations.get(&number) else { return Ok(()) };
        if generation.position.line == 0 {
            self.generations.get_mut(&number).into_iter().for_each(Generation::start_again);
            return Ok(());
        }
        let unread = generation.unread_before();
        let unseen = (opening || !generation.verified) && !generation.was_renamed();
        let left = left_of(generation).map_err(|error| SourceError::Io { path: generation.path.clone(), error })?;
        let Some(left) = left else {
            self.lose(cut_off(generation, unread, None), unread > 0 || unseen)?;
            self.generations.get_mut(&number).into_iter().for_each(Generation::start_again);
            return Ok(());
        };
        let headed = SourceError::Headed {
            partition: generation.label.to_string(),
            name: generation.name().to_owned(),
            line: generation.position.line,
            unread,
            known: left.line,
            all: left.all,
        };
        self.lose(headed, unread > 0 || unseen || !left.all)?;
        let Some(generation) = self.generations.get_mut(&number) else { return Ok(()) };
        let path = left.seen.path.clone();
        let gone_on = generation.go_on_at(&left.seen, &left.file, (left.offset, left.line));
        gone_on.map_err(|error| SourceError::Io { path, error })
    }

    /// Files that were shortened behind what was read of them. A torn line may be taken back, a whole one may not.
    fn are_cut(&mut self, strangers: &mut Strangers, round: &mut Round) -> Result<(), SourceError> {
        for number in std::mem::take(&mut round.cut) {
            let Some(generation) = self.generations.get(&number) else { continue };
            let copied = match generation.position.line {
                0 => self.unread_copy(generation, strangers),
                _ => Some(false),
            };
            let Some(copied) = copied else {
                // Renamed in this moment: the next look tells.
                round.unsettled.insert(generation.path.clone());
                continue;
            };
            if let Some(age) = generation.oldest_copy().filter(|_| copied && generation.is_current()) {
                round.truncated.insert(generation.log().to_owned(), (number, age));
            }
            if generation.most > generation.dry && !copied {
                let lost = generation.most - generation.size;
                self.lose(cut_off(generation, lost, None), true)?;
            }
            let Some(generation) = self.generations.get_mut(&number) else { continue };
            generation.call_back();
            (generation.most, generation.before) = (generation.size, 0);
            generation.dry = generation.position.offset;
            generation.position.modified = Some(generation.modified);
            // The next run must not miss again what was found elsewhere.
            generation.position.size = generation.position.size.min(generation.size);
            generation.moved = true;
        }
        Ok(())
    }

    /// Whether there may be a copy of a file of which nothing was read: its name and its age tell. `None` if that cannot be
    /// told now.
    fn unread_copy(&self, generation: &Generation, strangers: &mut Strangers) -> Option<bool> {
        let oldest = generation.oldest_copy();
        let is_copy = |seen: &Seen| seen.size >= generation.most && oldest.is_some_and(|oldest| seen.is_since(oldest));
        let mut unknown = false;
        for seen in strangers.files.iter_mut().flatten().filter(|seen| belongs(generation, &seen.name)) {
            match seen.refresh() {
                true if is_copy(seen) => return Some(true),
                true => {}
                false => unknown = true,
            }
        }
        for other in self.generations.values() {
            if !other.is_untouched() || std::ptr::eq(other, generation) || !belongs(generation, other.name()) {
                continue;
            }
            match self.find(other) {
                Ok(Some(seen)) if seen.size >= generation.most => return Some(true),
                Ok(Some(_)) => {}
                _ => unknown = true,
            }
        }
        (!unknown).then_some(false)
    }

    /// Which of the files has all that was read of each of the wanted ones, and which could not be read.
    pub(super) fn find_content<'a>(
        &self,
        wanted: &[u64],
        files: impl Iterator<Item = Option<&'a Seen>>,
        unreadable: &mut Vec<(usize, io::Error)>,
    ) -> HashMap<u64, usize> {
        let mut found = HashMap::new();
        let mut searched = 0;
        let mut heads: BTreeMap<u64, HashMap<&str, Vec<u64>>> = BTreeMap::new();
        for (number, generation) in wanted.iter().filter_map(|number| Some((*number, self.generations.get(number)?))) {
            let position = &generation.position;
            if position.line > 0 {
                heads.entry(position.head_len).or_default().entry(&position.head).or_default().push(number);
                searched += 1;
            }
        }
        // There may be very many other files, and each has to be opened: those that are named as a copy would be come first.
        let logs: HashSet<&str> =
            wanted.iter().filter_map(|number| Some(self.generations.get(number)?.log())).collect();
        let named = |seen: &Seen| {
            logs.contains(&seen.name[..]) || names::origins(&seen.name).any(|log| logs.contains(&log[..]))
        };
        let files = files.enumerate().filter_map(|(index, seen)| Some((index, seen?)));
        let (likely, others): (Vec<_>, Vec<_>) = files.partition(|(_, seen)| named(seen));
        for (index, seen) in likely.into_iter().chain(others) {
            if found.len() == searched {
                break;
            }
            let opened = seen.open().and_then(|(file, size)| Ok((read_at(&file, 0, HEAD)?, file, size)));
            let (head, file, size) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    unreadable.push((index, error));
                    continue;
                }
            };
            let lengths = heads.iter().take_while(|(length, _)| **length <= head.len() as u64);
            let alike =
                lengths.filter_map(|(length, heads)| heads.get(&digest(&head[..*length as usize])[..])).flatten();
            let same = alike.copied().find(|number| {
                !found.contains_key(number)
                    && self.generations.get(number).is_some_and(|generation| {
                        tells(generation, seen)
                            && size >= generation.position.offset
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
}

fn generation_name(registry: &Registry, number: u64) -> String {
    registry.generations.get(&number).map_or_else(String::new, |generation| generation.name().to_owned())
}

fn cut_off(generation: &Generation, unread: u64, copy: Option<String>) -> SourceError {
    SourceError::CutOff {
        partition: generation.label.to_string(),
        name: generation.name().to_owned(),
        line: generation.position.line,
        unread,
        copy,
    }
}

/// What is left of a file at its beginning.
struct Left {
    seen: Seen,
    file: File,
    /// Where the last of the lines ends that are left.
    offset: u64,
    line: u64,
    /// Nothing behind it was read.
    all: bool,
}

/// Rows that were read of a file and are still at its beginning. A header, which every file has, is none.
fn left_of(generation: &Generation) -> io::Result<Option<Left>> {
    let Some(seen) = generation.seen()? else { return Ok(None) };
    let (file, size) = match seen.open() {
        Ok(opened) => opened,
        // For the next look to tell.
        Err(_) => return Ok(None),
    };
    let (common, all) = generation.common(&file, size)?;
    let lines = memchr::memchr_iter(b'\n', &common).count();
    let offset = memchr::memrchr(b'\n', &common).map_or(0, |last| last as u64 + 1);
    let rows = lines.saturating_sub(usize::from(generation.header.is_some()));
    let is_left = rows > 0 || (common.len() == HEAD && generation.position.offset > size);
    Ok(is_left.then_some(Left { seen, file, offset, line: lines as u64, all }))
}

/// Whether the name says that it is the file, or was made out of it: a name that rotation makes of the log's.
fn belongs(generation: &Generation, other: &str) -> bool {
    let (name, log) = (generation.name(), generation.log());
    other == name || other == log || names::origins(other).any(|origin| origin == name || origin == log)
}

/// Whether content that is the same tells that it is the same file: a single line, as a header is, does not, unless the
/// name tells too.
pub(super) fn tells(generation: &Generation, seen: &Seen) -> bool {
    generation.position.line > 1 || belongs(generation, &seen.name)
}
