use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the memory of metrics", Call::Write, Expect::Stopped).checked(|seen| {
        let series: std::collections::BTreeSet<_> = seen.samples.iter().map(|s| (&s.name, &s.labels)).collect();
        if series.len() <= 201 { Ok(()) } else { Err(format!("{} series", series.len())) }
    })
}
