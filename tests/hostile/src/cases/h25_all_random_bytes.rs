use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the host's memory, by random bytes", Call::Write, Expect::Budget("random bytes"))
}
