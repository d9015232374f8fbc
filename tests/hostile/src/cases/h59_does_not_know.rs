use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("an outcome that is in doubt", Call::Commit, Expect::Harmless).pipeline(Ends::Finishes)
}
