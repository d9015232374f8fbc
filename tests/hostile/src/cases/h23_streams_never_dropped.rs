use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the table of streams", Call::Write, Expect::Budget("handles"))
}
