use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("whoever reads its name", Call::Describe, Expect::Refused("safe\\u{202e}exe"))
}
