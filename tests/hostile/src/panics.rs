//! Counts panics of the host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static FIRST: Mutex<String> = Mutex::new(String::new());

/// From now on every panic of this process is counted, caught or not.
pub(crate) fn count_all() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        COUNT.fetch_add(1, Ordering::SeqCst);
        let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_empty() {
            *first = panic.to_string();
        }
        drop(first);
        before(panic);
    }));
}

/// How many there were, and the first of them.
pub(crate) fn counted() -> (usize, String) {
    (COUNT.load(Ordering::SeqCst), FIRST.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Takes back a panic that was meant; answers with how many there had been.
pub(crate) fn forget_one() -> usize {
    COUNT.fetch_sub(1, Ordering::SeqCst)
}
