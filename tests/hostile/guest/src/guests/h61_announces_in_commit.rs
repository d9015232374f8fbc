//! Announces resources where only a writer may.

use tidegate_sdk::{Committable, Ctx, Error, External, Outcome};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn commit(&self, ctx: &Ctx, parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        let resource = External { kind: "upload".to_owned(), name: "late".to_owned(), expires_at: None };
        if ctx.resource_intent(&resource).is_ok() {
            return Ok(vec![Outcome::Never; parts.len()]);
        }
        Ok(vec![Outcome::Committed; parts.len()])
    }
}
