//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Also after a panic of whoever held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
