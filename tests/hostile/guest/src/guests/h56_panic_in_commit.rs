//! Panics when it should publish.

use tidegate_sdk::{Committable, Ctx, Error, Outcome};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn commit(&self, _: &Ctx, _: &[Committable]) -> Result<Vec<Outcome>, Error> {
        panic!("nobody expects this")
    }
}
