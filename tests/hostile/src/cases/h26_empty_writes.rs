use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the queue of standard output, by empty writes", Call::Write, Expect::Budget("host calls")).crowds()
}
