//! Commits only what its own instance has prepared.

use tidegate_sdk::{Committable, Ctx, Error, Outcome, Prepared};

static PREPARED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn prepare(&self, _: &Ctx, good: Prepared) -> Result<Prepared, Error> {
        PREPARED.store(true, std::sync::atomic::Ordering::SeqCst);
        Ok(good)
    }
    fn commit(&self, _: &Ctx, parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        match PREPARED.load(std::sync::atomic::Ordering::SeqCst) {
            true => Ok(vec![Outcome::Committed; parts.len()]),
            false => Err(Error::permanent("forgotten", "another instance prepared this")),
        }
    }
}
