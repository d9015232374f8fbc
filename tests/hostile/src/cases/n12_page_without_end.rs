use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("whoever looks for orphans", Call::ListOrphans, Expect::Harmless)
}
