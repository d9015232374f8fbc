use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("who got which outcome", Call::Commit, Expect::Harmless)
}
