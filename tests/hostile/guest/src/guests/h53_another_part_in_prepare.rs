//! Promises for a part of somebody else.

use tidegate_sdk::{Ctx, Error, Prepared};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn prepare(&self, _: &Ctx, mut good: Prepared) -> Result<Prepared, Error> {
        good.committable.part.epoch += 1;
        good.committable.part.short = "tg-aaaaaaaa-1".to_owned();
        good.committable.part.full = "another/part".to_owned();
        Ok(good)
    }
}
