use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("a handle that is not its any more", Call::Write, Expect::Trap)
}
