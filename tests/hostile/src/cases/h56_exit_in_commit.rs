use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("a commit that ends well without an answer", Call::Commit, Expect::Trap)
}
