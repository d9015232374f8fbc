use tidegate_protocol::plugin::Call;

use crate::case::{Case, Ends, Expect};

pub(super) fn case() -> Case {
    Case::new("whoever reads an error", Call::Commit, Expect::Error).pipeline(Ends::Waits).checked(|seen| {
        let error = seen.fault.as_ref().and_then(|fault| fault.error()).ok_or("no error")?;
        let bounded = error.message.len() <= 8192 && error.code.len() <= 512;
        let safe = !error.message.contains('\n') && error.message.contains("<secret token>");
        if bounded && safe { Ok(()) } else { Err(format!("it was shown as {:.300}", error.message)) }
    })
}
