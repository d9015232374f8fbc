use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("memory, before the first call", Call::Instantiate, Expect::Refused("memory"))
}
