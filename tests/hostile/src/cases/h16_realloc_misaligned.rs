use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("lowering of arguments, by a pointer that is not aligned", Call::Open, Expect::Trap)
}
