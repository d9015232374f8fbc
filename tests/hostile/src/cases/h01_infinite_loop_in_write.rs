use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("write never returns", Call::Write, Expect::Budget("cpu time")).crowds()
}
