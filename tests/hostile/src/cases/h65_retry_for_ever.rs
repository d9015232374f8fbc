use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("tries without end", Call::Commit, Expect::Harmless)
}
