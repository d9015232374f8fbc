//! Promises the first epoch again and again.

use tidegate_sdk::{Ctx, Error, Prepared};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn prepare(&self, _: &Ctx, mut good: Prepared) -> Result<Prepared, Error> {
        if good.committable.part.epoch > 1 {
            good.committable.part.epoch = 1;
        }
        Ok(good)
    }
}
