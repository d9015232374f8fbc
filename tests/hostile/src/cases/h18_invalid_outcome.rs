use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("lifting of an outcome that there is not", Call::Commit, Expect::Trap)
}
