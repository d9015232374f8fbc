use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("a part of somebody else", Call::Prepare, Expect::Harmless)
}
