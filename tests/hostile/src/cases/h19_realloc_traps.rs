use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("lowering that breaks off", Call::Open, Expect::Trap)
}
