//! Announces resources whose names climb out of every folder.

use tidegate_sdk::{Ctx, Error, External, Prepared};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn prepare(&self, _: &Ctx, mut good: Prepared) -> Result<Prepared, Error> {
        let name = "../../../etc/passwd\0/../x".to_owned();
        good.resources.push(External { kind: "../kind".to_owned(), name, expires_at: Some(u64::MAX) });
        Ok(good)
    }
}
