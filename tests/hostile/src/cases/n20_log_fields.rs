use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the log, by fields", Call::Observe, Expect::Harmless).checked(|seen| {
        let most = seen.lines.iter().map(|line| line.fields.len()).max().unwrap_or(0);
        if most <= 16 { Ok(()) } else { Err(format!("a line has {most} fields")) }
    })
}
