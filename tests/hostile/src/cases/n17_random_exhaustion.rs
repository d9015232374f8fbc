use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("random numbers", Call::Write, Expect::Budget("random bytes per call")).limited(|limits| limits.random_total = 4 << 20)
}
