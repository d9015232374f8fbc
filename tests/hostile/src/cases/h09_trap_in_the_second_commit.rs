use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("an epoch that was sealed", Call::Commit, Expect::Trap).slowly(400)
}
