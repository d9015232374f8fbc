use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the sum of rows", Call::Prepare, Expect::Harmless)
}
