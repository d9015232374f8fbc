//! The resource ledger: what exists outside, and who names it.

use std::collections::BTreeMap;

use crate::ids::{EpochRef, SinkId, Slot};
use crate::plugin::External;

/// Who names a resource. While anybody does, it is not released (P5).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A retained checkpoint.
    Checkpoint(EpochRef),
    /// A sealed epoch whose commit has no end yet: it was, or may have been, sent.
    Commit(EpochRef),
    /// A savepoint.
    Savepoint(String),
    /// An announcement that no seal has taken over and nobody has given back.
    Intent(u64),
}

/// Identity of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// At which sink.
    pub sink: SinkId,
    /// The plugin's word for its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl ResourceKey {
    /// The identity of `resource` at `sink`.
    pub fn of(sink: &SinkId, resource: &External) -> Self {
        Self { sink: sink.clone(), kind: resource.kind.clone(), name: resource.name.clone() }
    }
}

/// What is known of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResourceEntry {
    /// As announced last.
    pub external: External,
    /// Everybody who names it, with the Unix milliseconds of the record that says so. Empty: to be released.
    pub holders: BTreeMap<Holder, u64>,
}

impl ResourceEntry {
    /// Unix milliseconds of the oldest record that still names it.
    pub fn since(&self) -> Option<u64> {
        self.holders.values().copied().min()
    }
}

/// All resources that exist outside as far as the log tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    live: BTreeMap<ResourceKey, ResourceEntry>,
    released: BTreeMap<ResourceKey, Slot>,
}

impl Ledger {
    /// Everything that exists, with those who name it.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceKey, &ResourceEntry)> {
        self.live.iter()
    }

    /// One resource, if it exists.
    pub fn get(&self, key: &ResourceKey) -> Option<&ResourceEntry> {
        self.live.get(key)
    }

    /// Whether it was released, as far as the log still tells.
    pub fn was_released(&self, key: &ResourceKey) -> bool {
        self.released.contains_key(key)
    }

    /// What nobody names any more, at one sink.
    pub fn releasable(&self, sink: &SinkId) -> Vec<External> {
        let unheld = self.live.iter().filter(|(key, entry)| key.sink == *sink && entry.holders.is_empty());
        unheld.map(|(_, entry)| entry.external.clone()).collect()
    }

    /// What has no name yet can be told from nothing else, so it is no entry; its announcement stands for it.
    pub(super) fn hold(&mut self, key: ResourceKey, external: &External, holder: Holder, since: u64) {
        if key.name.is_empty() {
            return;
        }
        let entry = self
            .live
            .entry(key)
            .or_insert_with(|| ResourceEntry { external: external.clone(), holders: BTreeMap::new() });
        entry.external = external.clone();
        entry.holders.insert(holder, since);
    }

    pub(super) fn drop_holder(&mut self, key: &ResourceKey, holder: &Holder) {
        if let Some(entry) = self.live.get_mut(key) {
            entry.holders.remove(holder);
        }
    }

    pub(super) fn release(&mut self, key: ResourceKey, slot: Slot) {
        if key.name.is_empty() {
            return;
        }
        self.live.remove(&key);
        self.released.insert(key, slot);
    }

    pub(super) fn remove(&mut self, key: &ResourceKey) {
        self.live.remove(key);
    }

    pub(super) fn forget_released(&mut self, gone: impl Fn(Slot) -> bool) {
        self.released.retain(|_, slot| !gone(*slot));
    }
}
