use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("a handle that is given back twice", Call::Write, Expect::Trap)
}
