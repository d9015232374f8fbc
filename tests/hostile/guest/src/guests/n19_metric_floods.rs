//! Ever new names, and labels of a mebibyte.

use tidegate_sdk::{Batch, Ctx, Error, Reject};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn write(&self, ctx: &Ctx, _: &Batch) -> Result<Vec<Reject>, Error> {
        let long = "l".repeat(100_000);
        for n in 0..5_000 {
            ctx.counter_add(&format!("name_{n}"), &[(format!("label_{n}"), long.clone())], 1);
        }
        Ok(Vec::new())
    }
}
