use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("a promise that was not given", Call::Prepare, Expect::Trap)
}
