use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the host's memory, by the size of an answer", Call::Prepare, Expect::Budget("bytes handed to the host"))
}
