//! Simulated destinations behind the production [`Plugin`] trait.
//!
//! A [`Destination`] behaves as its [`Kind`] says, keeps an honest [`journal`] of all that was done to it, and hands out
//! plugins whose calls a [`Script`] may spoil.

pub mod journal;
mod kind;
pub mod mischief;
mod plugin;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_protocol::ids::PartId;
use tidegate_protocol::plugin::Plugin;

pub use journal::{Did, Entry, Journal};
pub use kind::{Kind, Planted};
pub use mischief::{Act, Script};
use plugin::SimPlugin;
use store::Store;

use crate::crash::Crash;
use crate::world::World;

/// Which rows a plugin does not take; rows say in their field `x` to which of these they belong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rejects {
    /// Rows with `"x":"w"`, one by one in `write`.
    pub in_write: bool,
    /// Rows with `"x":"p"`, in `prepare`.
    pub in_prepare: bool,
    /// Batches that hold a row with `"x":"b"`.
    pub batches: bool,
}

/// A destination; clones are the same one.
#[derive(Debug, Clone)]
pub struct Destination {
    store: Arc<Mutex<Store>>,
    script: Script,
    world: World,
    rejects: Rejects,
}

impl Destination {
    /// An empty one.
    pub fn new(world: &World, name: &str, kind: Kind) -> Self {
        let store = Arc::new(Mutex::new(Store::new(name, kind, world.clone())));
        Self { store, script: Script::default(), world: world.clone(), rejects: Rejects::default() }
    }

    /// The same destination in another world, as it stands. What is planned for its calls is left out.
    #[must_use]
    pub fn fork(&self, world: &World) -> Self {
        let store = Arc::new(Mutex::new(self.lock().fork(world)));
        Self { store, script: Script::default(), world: world.clone(), rejects: self.rejects }
    }

    /// Somebody answered for it what is not so: what hosts believe of these parts is wrong from here on.
    pub fn lied(&self, parts: &[PartId], how: &str) {
        self.lock().write_down(None, Did::Lied { parts: parts.to_vec(), how: how.to_owned() });
    }

    /// What is prepared for a part is gone, and nobody knows.
    pub fn lose(&self, part: &PartId) {
        self.lock().held.lose(part);
    }

    /// The same, with rows that it does not take.
    #[must_use]
    pub fn rejecting(mut self, rejects: Rejects) -> Self {
        self.rejects = rejects;
        self
    }

    /// Which rows it does not take.
    pub fn rejects(&self) -> Rejects {
        self.rejects
    }

    /// A plugin for one host: its calls have no effect any more once that host is dead.
    pub fn plugin(&self, host: &Crash) -> Arc<dyn Plugin> {
        Arc::new(SimPlugin::new(self.clone(), host.clone()))
    }

    /// How calls misbehave.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// How it behaves.
    pub fn kind(&self) -> Kind {
        self.lock().kind.clone()
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.lock().name.clone()
    }

    /// Everything that was done to it.
    pub fn journal(&self) -> Journal {
        self.lock().journal.clone()
    }

    /// What a reader sees: the short name of each part that was made visible, in order, with its rows.
    pub fn visible(&self) -> Vec<(String, Vec<Bytes>)> {
        self.lock().visible()
    }

    /// Short names of what is prepared and not committed.
    pub fn staged(&self) -> Vec<String> {
        self.lock().staged()
    }

    /// Whether a person who looks finds this part committed.
    pub fn shows_committed(&self, short: &str) -> bool {
        let store = self.lock();
        store.has_marker(short) || (store.kind.staging && store.visible().iter().any(|(other, _)| other == short))
    }

    /// Keeps a copy of everything, to go back to.
    pub fn back_up(&self) {
        self.lock().back_up();
    }

    /// Restores the newest backup; false if there is none.
    pub fn go_back(&self) -> bool {
        self.lock().go_back()
    }

    /// A program that knows nothing of Tidegate writes to it.
    pub fn foreign_write(&self) {
        self.lock().foreign_write();
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // Nothing panics while it is held.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
