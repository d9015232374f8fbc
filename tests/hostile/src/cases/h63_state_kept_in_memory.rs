use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("a commit after a crash", Call::Commit, Expect::Error).pipeline(Ends::Waits)
}
