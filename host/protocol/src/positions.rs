//! Where the partitions of a source stand: a map that may have very many entries of which few change at a time.
//!
//! What moved lately stays in the seal's record. When that has become much, it is put aside as a sorted **layer** that
//! never changes again, and layers of like size are merged. So a checkpoint writes what moved, each position is written
//! again about as often as the number of positions doubles, and whatever did not change is shared: between a checkpoint
//! and the next one in memory, and on the disk, where a layer lies beside the log in **pages** named by their content.
//!
//! A page that was read from a record is a name only, until somebody reads its content and hands it over.

mod layers;
mod page;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use page::{Page, PageError};

use crate::record::StateChunk;
use layers::Layer;

/// What moved stays in the record up to so many bytes …
const RECENT_SMALL: usize = 16 << 10;
/// … or twice what one epoch moves, but never more than this: putting aside what moves again at once gains nothing.
const RECENT_LARGE: usize = 256 << 10;

/// Positions by partition. Cloning it is cheap, whatever its size.
///
/// Equal means: written alike. The same entries in other layers are not equal.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Positions {
    /// Newer than all layers.
    recent: Arc<BTreeMap<String, String>>,
    /// Oldest first, each about twice as large as the next one or more. What is found in a later one counts.
    layers: Vec<Layer>,
}

/// The content of some pages has not been read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotLoaded {
    /// How many.
    pub pages: usize,
}

impl fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages of positions have not been read yet", self.pages)
    }
}

impl std::error::Error for NotLoaded {}

impl Positions {
    /// No positions.
    pub fn new() -> Self {
        Self::default()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty() && self.layers.is_empty()
    }

    /// Everything that is known, for reading.
    ///
    /// # Errors
    /// Not all pages are there; read what [`Self::missing`] names first.
    pub fn entries(&self) -> Result<Entries<'_>, NotLoaded> {
        match self.missing().count() {
            0 => Ok(Entries { positions: self }),
            pages => Err(NotLoaded { pages }),
        }
    }

    /// These positions with those of `moved` in place of what they were. What `moved` does not name keeps its place; a
    /// partition whose position is empty now is forgotten.
    #[must_use]
    pub fn advanced(&self, moved: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut recent = BTreeMap::clone(&self.recent);
        let mut moved_bytes = 0;
        for (partition, position) in moved {
            moved_bytes += page::entry_bytes(&partition, &position);
            if position.is_empty() && self.layers.is_empty() {
                recent.remove(&partition);
            } else {
                // An empty position hides those in older layers, until it is merged into the oldest.
                recent.insert(partition, position);
            }
        }
        let limit = moved_bytes.saturating_mul(2).clamp(RECENT_SMALL, RECENT_LARGE);
        let bytes: usize = recent.iter().map(|(partition, position)| page::entry_bytes(partition, position)).sum();
        let mut layers = self.layers.clone();
        if bytes > limit {
            layers::put_aside(&mut layers, &recent);
            recent.clear();
        }
        Self { recent: Arc::new(recent), layers }
    }

    /// All pages beside the log.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.layers.iter().flat_map(Layer::pages)
    }

    /// Pages whose content has not been read.
    pub fn missing(&self) -> impl Iterator<Item = &Page> {
        self.pages().filter(|page| !page.is_loaded())
    }

    /// Names of all pages beside the log.
    pub fn chunks(&self) -> impl Iterator<Item = &StateChunk> {
        self.pages().map(Page::name)
    }

    /// Uses the pages of `other` wherever they are the same: what was read once is not read again.
    pub fn share(&mut self, other: &Positions) {
        if self.missing().next().is_none() {
            return;
        }
        let known: BTreeMap<&StateChunk, &Arc<Page>> =
            other.layers.iter().flat_map(Layer::shared).map(|page| (page.name(), page)).collect();
        for layer in &mut self.layers {
            layer.replace(|page| known.get(page.name()).map(|known| Arc::clone(known)));
        }
    }

    /// Keeps the names of the pages and drops their content, as far as nobody else holds it.
    pub fn unload(&mut self) {
        self.layers.iter_mut().for_each(Layer::unload);
    }
}

impl FromIterator<(String, String)> for Positions {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(entries: T) -> Self {
        Self::default().advanced(entries)
    }
}

impl From<BTreeMap<String, String>> for Positions {
    fn from(entries: BTreeMap<String, String>) -> Self {
        entries.into_iter().collect()
    }
}

impl<const N: usize> From<[(String, String); N]> for Positions {
    fn from(entries: [(String, String); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layers.is_empty() {
            return self.recent.fmt(f);
        }
        f.debug_struct("Positions").field("recent", &self.recent).field("layers", &self.layers).finish()
    }
}

/// [`Positions`] of which every page is there.
#[derive(Debug, Clone, Copy)]
pub struct Entries<'a> {
    positions: &'a Positions,
}

impl<'a> Entries<'a> {
    /// Where a partition stands.
    pub fn get(&self, partition: &str) -> Option<&'a str> {
        let recent = self.positions.recent.get(partition).map(String::as_str);
        let found = recent.or_else(|| self.positions.layers.iter().rev().find_map(|layer| layer.get(partition)));
        found.filter(|position| !position.is_empty())
    }

    /// All of them, sorted by partition.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let recent = self.positions.recent.iter().map(|(partition, position)| (&**partition, &**position));
        layers::merged(&self.positions.layers, recent).filter(|(_, position)| !position.is_empty())
    }

    /// How many. Looks at each of them.
    pub fn count(&self) -> usize {
        if self.positions.layers.is_empty() { self.positions.recent.len() } else { self.iter().count() }
    }
}

#[cfg(test)]
mod tests;
