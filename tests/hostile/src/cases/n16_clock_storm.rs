use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the host's time, by cheap calls", Call::Write, Expect::Budget("host calls"))
}
