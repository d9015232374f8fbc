use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("committables that no version can finish", Call::Prepare, Expect::Harmless)
}
