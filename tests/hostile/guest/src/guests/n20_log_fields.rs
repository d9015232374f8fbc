//! A line of log with two thousand fields.

use tidegate_sdk::{Ctx, Error, Position};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn observe(&self, ctx: &Ctx) -> Result<Position, Error> {
        let fields = vec![("name".to_owned(), "value".to_owned()); 2_000];
        ctx.log(tidegate_sdk::Level::Info, "many", &fields);
        crate::position("")
    }
}
