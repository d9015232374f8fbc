use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("polling what is ready at once", Call::Write, Expect::Budget("host calls")).crowds()
}
