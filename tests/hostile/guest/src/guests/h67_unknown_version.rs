//! Prepares with a version that it does not say it can commit.

use tidegate_sdk::{Ctx, Error, Prepared};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn prepare(&self, _: &Ctx, mut good: Prepared) -> Result<Prepared, Error> {
        good.committable.version = 99;
        Ok(good)
    }
}
