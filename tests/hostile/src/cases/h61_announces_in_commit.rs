use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("the ledger, from a committer", Call::Commit, Expect::Harmless).pipeline(Ends::Finishes).checked(|seen| {
        if seen.intents.is_empty() { Ok(()) } else { Err(format!("it announced {:?}", seen.intents)) }
    })
}
