//! Taking turns.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A number of places, and a bounded queue before them.
#[derive(Debug)]
pub(crate) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
    queue: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: usize,
}

/// A place. Dropped, it is free again.
#[derive(Debug)]
pub(crate) struct Slot<'a>(&'a Slots);

impl Slots {
    pub(crate) fn new(places: usize, queue: usize) -> Self {
        Self { state: Mutex::new(State { free: places.max(1), waiting: 0 }), freed: Condvar::new(), queue }
    }

    /// Waits for a place. Fails at once, with the length of the queue, when it is full.
    pub(crate) fn take(&self) -> Result<Slot<'_>, usize> {
        let mut state = self.lock();
        if state.free == 0 {
            if state.waiting >= self.queue {
                return Err(state.waiting);
            }
            state.waiting += 1;
            while state.free == 0 {
                state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting -= 1;
        }
        state.free -= 1;
        Ok(Slot(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.lock().free += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_a_freed_place_is_taken_by_who_waits() {
        let slots = Slots::new(1, 1);
        let first = slots.take().unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| slots.take().map(drop));
            while slots.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(slots.take().unwrap_err(), 1);
            drop(first);
            second.join().unwrap().unwrap();
        });
        slots.take().unwrap();
    }
}
