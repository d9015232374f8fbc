use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("instantiating it never ends", Call::Instantiate, Expect::Refused("cpu time"))
}
