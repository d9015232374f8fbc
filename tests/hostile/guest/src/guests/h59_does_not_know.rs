//! Commits, and says that it does not know; asked again, it says that it had been done.

use tidegate_sdk::{Committable, Ctx, Error, Outcome};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn commit(&self, ctx: &Ctx, parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        let outcome = if ctx.attempt == 1 { Outcome::Unknown } else { Outcome::AlreadyCommitted };
        Ok(vec![outcome; parts.len()])
    }
}
