use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("a bool that is neither", Call::Describe, Expect::Harmless).pipeline(Ends::Finishes).checked(|seen| {
        let staging = seen.description.as_ref().is_some_and(|description| description.abilities.staging);
        if staging { Ok(()) } else { Err("whatever is not zero is true".to_owned()) }
    })
}
