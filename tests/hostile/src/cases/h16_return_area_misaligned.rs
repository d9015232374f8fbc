use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("lifting of an answer, by an area that is not aligned", Call::Write, Expect::Trap)
}
