//! Promises what has expired before it was promised.

use tidegate_sdk::{Ctx, Error, Prepared};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn prepare(&self, _: &Ctx, mut good: Prepared) -> Result<Prepared, Error> {
        good.committable.expires_at = Some(1);
        Ok(good)
    }
}
