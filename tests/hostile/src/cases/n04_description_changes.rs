use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("what the host decided by its description", Call::Describe, Expect::Harmless).pipeline(Ends::Finishes)
}
