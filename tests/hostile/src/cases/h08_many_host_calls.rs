use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("many tiny calls into the host", Call::Write, Expect::Budget("host calls")).crowds()
}
