use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("what runs after the answer", Call::Write, Expect::Budget("cpu time"))
}
