use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("files of the host, by names of resources", Call::Prepare, Expect::Harmless).pipeline(Ends::Finishes)
}
