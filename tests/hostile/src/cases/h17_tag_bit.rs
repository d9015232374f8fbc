use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the tag bit of compact strings", Call::Write, Expect::Trap)
}
