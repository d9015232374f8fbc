use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("text of the host, by UTF-16 that is no text", Call::Write, Expect::Trap)
}
