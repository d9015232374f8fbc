use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("admission, by a description that never comes", Call::Describe, Expect::Refused("cpu time"))
}
