//! Adds to a counter for ever: each call costs the host more than the guest.

use tidegate_sdk::{Batch, Ctx, Error, Reject};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn write(&self, ctx: &Ctx, _: &Batch) -> Result<Vec<Reject>, Error> {
        loop {
            ctx.counter_add("calls", &[], 1);
        }
    }
}
