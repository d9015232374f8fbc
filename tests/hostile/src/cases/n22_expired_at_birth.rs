use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("an epoch that is sealed too late", Call::Prepare, Expect::Harmless).pipeline(Ends::Waits)
}
