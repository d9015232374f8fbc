//! Rejects a row that there is not.

use tidegate_sdk::{Batch, Ctx, Error, Reject};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn write(&self, _: &Ctx, _: &Batch) -> Result<Vec<Reject>, Error> {
        Ok(vec![Reject { row: u64::MAX, code: "x".into(), message: "x".into() }])
    }
}
