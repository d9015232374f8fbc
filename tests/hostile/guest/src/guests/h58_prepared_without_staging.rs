//! Promises more rows than it was given.

use tidegate_sdk::{Ctx, Error, Prepared};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn prepare(&self, _: &Ctx, mut good: Prepared) -> Result<Prepared, Error> {
        good.rows += 1_000_000;
        good.committable.rows = good.rows;
        Ok(good)
    }
}
