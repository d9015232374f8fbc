use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("lifting of an answer that overlaps itself", Call::Write, Expect::Stopped)
}
