use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("text of the host, by bytes that are no text", Call::Write, Expect::Trap)
}
