//! An error of a mebibyte with the secret, format strings, markup and JSON.

use tidegate_sdk::{Committable, Ctx, Error, Outcome};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn commit(&self, ctx: &Ctx, _: &[Committable]) -> Result<Vec<Outcome>, Error> {
        let secret = ctx.secret("token")?.reveal();
        let rest = "%s%n{}{:?}<script>\"}\n{\"level\":\"error\"} ".repeat(20_000);
        Err(Error::permanent(format!("code-{secret}"), format!("{secret} {rest}")))
    }
}
