use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("all memory that it can get, and no trap", Call::Write, Expect::Stopped)
}
