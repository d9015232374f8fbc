use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("somebody else's handle", Call::Write, Expect::Trap)
}
