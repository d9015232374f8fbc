use tidegate_protocol::plugin::Call;

use crate::case::{Case, Expect};

pub(super) fn case() -> Case {
    Case::new("whoever reads the log", Call::Observe, Expect::Harmless).checked(|seen| {
        let bad = |line: &&tidegate_wasm::LogLine| {
            line.message.len() > 4096 || line.message.contains(['\n', '\r', '\x1b', '\0', '\u{202e}'])
        };
        match (seen.lines.is_empty(), seen.lines.iter().find(bad)) {
            (false, None) => Ok(()),
            (true, _) => Err("nothing was logged".to_owned()),
            (false, Some(line)) => Err(format!("a line that deceives: {line:?}")),
        }
    })
}
