//! Files that nobody has yet, while a look is worked in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::generation::Generation;
use super::look::Seen;

/// See the module. Each file is there once, whatever its names.
#[derive(Default)]
pub(super) struct Strangers {
    pub(super) files: Vec<Option<Seen>>,
    by_inode: HashMap<u64, Vec<usize>>,
    by_id: HashMap<(u64, u64), usize>,
    by_path: HashMap<PathBuf, usize>,
}

impl Strangers {
    pub(super) fn add(&mut self, seen: Seen) {
        if let Some(&index) = self.by_id.get(&(seen.id.dev, seen.id.ino)) {
            // The names found first count; of what somebody has taken, no other name is of interest.
            if let Some(first) = &mut self.files[index] {
                self.by_path.insert(seen.path.clone(), index);
                first.also.push((seen.name, seen.path));
            }
            return;
        }
        let index = self.files.len();
        self.by_inode.entry(seen.id.ino).or_default().push(index);
        self.by_id.insert((seen.id.dev, seen.id.ino), index);
        let also = seen.also.iter().map(|(_, path)| path);
        self.by_path.extend(also.chain([&seen.path]).map(|path| (path.clone(), index)));
        self.files.push(Some(seen));
    }

    /// Looks at them again: what was seen of the others since may have happened before what is known of them.
    pub(super) fn refresh(&mut self) {
        for seen in self.files.iter_mut().flatten() {
            seen.refresh();
        }
    }

    /// The file that this generation is, under the name that it has if that is still one of its names.
    pub(super) fn take_same(&mut self, generation: &Generation) -> Option<Seen> {
        let inode = generation.position.file?.ino;
        let same = |index: &&usize| self.files[**index].as_ref().is_some_and(|seen| generation.is(&seen.id));
        let index = self.by_inode.get(&inode)?.iter().find(same).copied()?;
        let mut seen = self.files[index].take()?;
        seen.call(generation.name());
        Some(seen)
    }

    pub(super) fn at(&self, path: &Path) -> Option<&Seen> {
        self.files[*self.by_path.get(path)?].as_ref()
    }

    pub(super) fn take_at(&mut self, path: &Path) -> Option<Seen> {
        self.files[*self.by_path.get(path)?].take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.files.iter().flatten()
    }
}
