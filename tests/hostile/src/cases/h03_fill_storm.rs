use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("bandwidth of memory with few instructions", Call::Write, Expect::Budget("cpu time")).crowds()
}
