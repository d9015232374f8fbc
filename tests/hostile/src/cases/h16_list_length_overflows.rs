use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("lifting of a list whose size overflows", Call::Write, Expect::Trap)
}
