use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("lifting of an enum that there is not", Call::Write, Expect::Trap)
}
