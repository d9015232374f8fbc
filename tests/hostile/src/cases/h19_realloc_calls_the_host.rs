use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("re-entrance of the host out of realloc", Call::Open, Expect::Trap)
}
