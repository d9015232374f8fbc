use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("arguments that overlap", Call::Prepare, Expect::Malformed)
}
