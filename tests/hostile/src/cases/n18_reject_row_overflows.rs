use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("arithmetic with row numbers", Call::Write, Expect::Harmless)
}
