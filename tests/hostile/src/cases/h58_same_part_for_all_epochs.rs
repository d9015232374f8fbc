use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the second epoch, by the promise of the first", Call::Prepare, Expect::Harmless).slowly(400)
}
