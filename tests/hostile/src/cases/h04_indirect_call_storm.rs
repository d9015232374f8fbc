use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("indirect calls and jumps without end", Call::Write, Expect::Budget("cpu time"))
}
