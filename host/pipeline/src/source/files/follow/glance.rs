//! Glances: between two looks, only at the few files that grew lately. A log that is written to all the time is read soon
//! after each line, however many other files there are.
//!
//! A glance sees growth and nothing else. Whatever else became of a file is for the next look to tell.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::generation::{Generation, Place};
use super::look::Seen;
use super::registry::Registry;

/// Files that are glanced at, at most.
const WARM_KEPT: usize = 64;
/// How long after it grew.
const WARM_FOR: Duration = Duration::from_secs(10);

/// Files that grew lately, the last one last.
#[derive(Default)]
pub(super) struct Warm {
    files: VecDeque<(u64, Instant)>,
}

/// A file as it was when it was chosen.
pub(super) struct Chosen {
    number: u64,
    name: String,
    path: PathBuf,
}

impl Chosen {
    /// What is there now.
    pub(super) fn seen(self) -> Option<(u64, Seen)> {
        let seen = Seen::at(&self.name, &self.path).ok().flatten()?;
        Some((self.number, seen))
    }
}

impl Registry {
    /// Something was read of this file.
    pub(super) fn warm(&mut self, number: u64, now: Instant) {
        let files = &mut self.warm.files;
        files.retain(|(other, _)| *other != number);
        files.push_back((number, now));
        if files.len() > WARM_KEPT {
            files.pop_front();
        }
    }

    pub(super) fn is_warm(&self) -> bool {
        !self.warm.files.is_empty()
    }

    /// Files of which everything was read.
    pub(super) fn choose(&mut self, now: Instant) -> Vec<Chosen> {
        let generations = &self.generations;
        self.warm.files.retain(|(number, since)| generations.contains_key(number) && now - *since < WARM_FOR);
        let numbers = self.warm.files.iter().map(|(number, _)| *number);
        let dry = numbers.filter_map(|number| Some((number, generations.get(&number).filter(|file| is_dry(file))?)));
        dry.map(|(number, file)| Chosen { number, name: file.name().to_owned(), path: file.path.clone() }).collect()
    }

    /// Of these files something was seen since.
    pub(super) fn grow(&mut self, seen: Vec<(u64, Seen)>) {
        for (number, seen) in seen {
            let file = self.generations.get_mut(&number);
            let Some(file) = file.filter(|file| is_dry(file) && file.is(&seen.id) && file.path == seen.path) else {
                continue;
            };
            if seen.size > file.size.max(file.most) {
                (file.size, file.modified) = (seen.size, seen.modified);
                self.ready[file.task].push_back(number);
            }
        }
    }
}

/// It is known, and there is nothing to be done about it.
fn is_dry(file: &Generation) -> bool {
    let settled = file.place == Place::Here && file.verified && file.held.is_none() && file.refused == 0;
    settled && file.position.line > 0 && !file.reading && !file.has_more() && !file.shrank()
}
