//! Commits the first epoch and breaks off in the second, whenever it is asked.

use tidegate_sdk::{Committable, Ctx, Error, Outcome};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn commit(&self, _: &Ctx, parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        assert!(!parts.iter().any(|part| [2, 7].contains(&part.part.epoch)), "not this one");
        Ok(vec![Outcome::Committed; parts.len()])
    }
}
