//! Files that nobody has yet, while a look is worked in.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::generation::Generation;
use super::look::{self, Seen};
use super::names;

/// See the module. Each file is there once, whatever its names.
#[derive(Default)]
pub(super) struct Strangers {
    pub(super) files: Vec<Option<Seen>>,
    /// Of each of them the device, and the next one with the same inode on another device.
    places: Vec<(u64, Option<usize>)>,
    /// The first one with an inode.
    by_inode: HashMap<u64, usize>,
    /// Not made before somebody asks.
    by_path: Option<HashMap<PathBuf, usize>>,
}

impl Strangers {
    pub(super) fn new(files: Vec<Seen>) -> Self {
        let mut strangers = Self::default();
        strangers.files.reserve(files.len());
        strangers.places.reserve(files.len());
        strangers.by_inode.reserve(files.len());
        files.into_iter().for_each(|seen| strangers.add(seen));
        strangers
    }

    pub(super) fn add(&mut self, seen: Seen) {
        let index = self.files.len();
        let mut last = None;
        let mut same = self.by_inode.get(&seen.id.ino).copied();
        while let Some(at) = same {
            if self.places[at].0 == seen.id.dev {
                return self.join(at, seen);
            }
            (last, same) = (Some(at), self.places[at].1);
        }
        match last {
            Some(last) => self.places[last].1 = Some(index),
            None => drop(self.by_inode.insert(seen.id.ino, index)),
        }
        if let Some(by_path) = &mut self.by_path {
            by_path.extend(paths(&seen).map(|path| (path.clone(), index)));
        }
        self.places.push((seen.id.dev, None));
        self.files.push(Some(seen));
    }

    /// The names found first count; of what somebody has taken, no other name is of interest.
    fn join(&mut self, index: usize, seen: Seen) {
        if let Some(first) = &mut self.files[index] {
            if let Some(by_path) = &mut self.by_path {
                by_path.insert(seen.path.clone(), index);
            }
            first.also.push((seen.name, seen.path));
        }
    }

    /// Those that are left come in order, the oldest first.
    pub(super) fn sort(self) -> Self {
        let mut left: Vec<Seen> = self.files.into_iter().flatten().collect();
        look::sort(&mut left);
        Self::new(left)
    }

    /// Looks again at those that are named like a log: what was seen of the others since may have happened before what is
    /// known of them.
    pub(super) fn refresh(&mut self, logs: &BTreeSet<String>) {
        for seen in self.files.iter_mut().flatten() {
            if logs.contains(&seen.name) || names::origins(&seen.name).any(|log| logs.contains(&log)) {
                seen.refresh();
            }
        }
    }

    /// It is nobody's any more. As it is now.
    pub(super) fn take(&mut self, index: usize) -> Option<Seen> {
        let mut seen = self.files[index].take()?;
        seen.refresh();
        Some(seen)
    }

    /// The file that this generation is, under the name that it has if that is still one of its names.
    pub(super) fn take_same(&mut self, generation: &Generation) -> Option<Seen> {
        let mut same = self.by_inode.get(&generation.position.file?.ino).copied();
        while let Some(index) =
            same.filter(|index| !self.files[*index].as_ref().is_some_and(|seen| generation.is(&seen.id)))
        {
            same = self.places[index].1;
        }
        let mut seen = self.files[same?].take()?;
        seen.call(generation.name());
        Some(seen)
    }

    fn index_at(&mut self, path: &Path) -> Option<usize> {
        let by_path = self.by_path.get_or_insert_with(|| {
            let files = self.files.iter().enumerate().filter_map(|(index, seen)| Some((index, seen.as_ref()?)));
            files.flat_map(|(index, seen)| paths(seen).map(move |path| (path.clone(), index))).collect()
        });
        by_path.get(path).copied()
    }

    pub(super) fn at(&mut self, path: &Path) -> Option<&Seen> {
        let index = self.index_at(path)?;
        self.files[index].as_ref()
    }

    pub(super) fn take_at(&mut self, path: &Path) -> Option<Seen> {
        let index = self.index_at(path)?;
        self.files[index].take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.files.iter().flatten()
    }
}

fn paths(seen: &Seen) -> impl Iterator<Item = &PathBuf> {
    seen.also.iter().map(|(_, path)| path).chain([&seen.path])
}
