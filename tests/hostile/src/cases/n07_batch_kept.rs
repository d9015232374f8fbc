use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("a loan that is not given back", Call::Write, Expect::Trap)
}
