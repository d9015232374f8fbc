use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("sealed epochs that pile up", Call::Commit, Expect::Budget("cpu time")).slowly(400)
}
