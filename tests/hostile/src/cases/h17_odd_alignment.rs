use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("text of the host, by an address that is not aligned", Call::Write, Expect::Trap)
}
