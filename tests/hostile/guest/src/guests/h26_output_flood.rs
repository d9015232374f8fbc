//! Prints without end.

use tidegate_sdk::{Batch, Ctx, Error, Reject};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn write(&self, _: &Ctx, _: &Batch) -> Result<Vec<Reject>, Error> {
        loop {
            println!("line");
        }
    }
}
