use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("the memory of metrics", Call::Write, Expect::Harmless).pipeline(Ends::Finishes).checked(|seen| {
        let series: std::collections::BTreeSet<_> = seen.samples.iter().map(|s| (&s.name, &s.labels)).collect();
        if series.len() <= 201 { Ok(()) } else { Err(format!("{} series", series.len())) }
    })
}
