//! The end of a host, at any instant: from then on nothing that it does has any effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Kills one host. Clones kill the same one.
#[derive(Debug, Clone, Default)]
pub struct Crash(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    dead: AtomicBool,
    told: Notify,
}

impl Crash {
    /// A host that lives.
    pub fn new() -> Self {
        Self::default()
    }

    /// It dies now.
    pub fn now(&self) {
        self.0.dead.store(true, Ordering::SeqCst);
        self.0.told.notify_waiters();
        self.0.told.notify_one();
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }

    /// Returns when it dies.
    pub async fn died(&self) {
        while !self.is_dead() {
            self.0.told.notified().await;
        }
    }

    /// A dead host gets no answers.
    pub async fn hang_if_dead(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}
