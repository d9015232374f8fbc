use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("whoever reads its schema", Call::Describe, Expect::Refused("schema"))
}
