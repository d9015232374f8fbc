use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("what the host has", Call::Observe, Expect::Harmless).checked(|seen| match seen.token().as_str() {
        "env=0 args=0 stdin=0 root=true here=true tcp=true" => Ok(()),
        other => Err(format!("it found {other}")),
    })
}
