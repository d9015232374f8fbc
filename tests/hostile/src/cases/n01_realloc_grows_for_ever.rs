use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("memory, while arguments are lowered", Call::Open, Expect::Budget("memory"))
}
