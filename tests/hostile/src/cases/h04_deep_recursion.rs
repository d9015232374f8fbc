use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the stack of the host", Call::Write, Expect::Budget("stack"))
}
