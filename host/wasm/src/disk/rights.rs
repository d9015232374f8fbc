//! What a role may do in a directory.
//!
//! | | reads | creates | writes | renames | links | removes |
//! |---|---|---|---|---|---|---|
//! | writer | everything | yes | its own | its own, over nothing | – | its own |
//! | committer | everything | yes | its own | everything | everything | everything |
//! | janitor | everything | – | – | – | – | everything |
//!
//! A file or folder is an instance's own if this instance made it. So nobody writes to what another instance staged: a
//! fresh writer not to the work of one that was killed, a committer not to what was prepared. A file that was linked, or
//! renamed by somebody else, is published: nobody writes to it again.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidegate_protocol::plugin::Role;

use super::identity::FileId;

/// So many of the files that an instance made it may still open again for writing, or remove.
const MAX_OWN: usize = 64 << 10;

/// What a role may do with names, beside reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rights {
    pub(crate) create: bool,
    pub(crate) link: bool,
    pub(crate) rename_others: bool,
    pub(crate) remove_others: bool,
}

impl Rights {
    pub(crate) fn of(role: Role) -> Self {
        match role {
            Role::Writer => Self { create: true, ..Self::default() },
            Role::Committer => Self { create: true, link: true, rename_others: true, remove_others: true },
            Role::Janitor => Self { remove_others: true, ..Self::default() },
        }
    }
}

/// The files and folders that an instance made: the newest of them, so that a long life costs no more memory. Shared with
/// the accounts of the directories, which take away what was published.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    ids: HashSet<FileId>,
    oldest_first: VecDeque<FileId>,
}

impl Own {
    pub(crate) fn add(&self, id: FileId) {
        let mut known = self.known();
        if !known.ids.insert(id) {
            return;
        }
        known.oldest_first.push_back(id);
        if known.oldest_first.len() > MAX_OWN
            && let Some(oldest) = known.oldest_first.pop_front()
        {
            known.ids.remove(&oldest);
        }
    }

    pub(crate) fn has(&self, id: FileId) -> bool {
        self.known().ids.contains(&id)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everybody who may own something in a directory.
#[derive(Default)]
pub(crate) struct Owners(Vec<Weak<Mutex<Known>>>);

impl Owners {
    pub(crate) fn add(&mut self, own: &Own) {
        self.0.retain(|owner| owner.strong_count() > 0);
        self.0.push(Arc::downgrade(&own.0));
    }

    /// From now on it is nobody's.
    pub(crate) fn disown(&self, id: FileId) {
        for owner in self.0.iter().filter_map(Weak::upgrade) {
            Own(owner).known().ids.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let id = super::super::identity::of(std::fs::File::open(dir.path()).unwrap()).unwrap().id;
        let (own, mut owners) = (Own::default(), Owners::default());
        owners.add(&own);
        own.add(id);
        assert!(own.has(id));
        owners.disown(id);
        assert!(!own.has(id));
    }
}
