use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("a call that only waits", Call::Write, Expect::Timeout).limited(|limits| limits.call_time = std::time::Duration::from_secs(1))
}
