use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("the log, by lines", Call::Write, Expect::Budget("host calls")).checked(|seen| match seen.lines.len() {
        1..=51 => Ok(()),
        many => Err(format!("{many} lines of 50, and a word that there were more")),
    }).crowds()
}
