//! What the commands say. Nobody may be listening any more, as behind `| head`; that is no reason to panic.

use std::fmt::Display;
use std::io::Write as _;

/// For people.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// For who asked.
pub(crate) fn print(line: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
