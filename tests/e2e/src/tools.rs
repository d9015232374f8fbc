//! Tools that a test needs beyond cargo. A missing one is told by name, with the command that installs it; where
//! everything must run (`TIDEGATE_REQUIRE_ALL=1`), it is a failure.

use std::io::Write as _;
use std::process::Command;

use crate::clock;

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Shows a process another clock.
    Faketime,
    /// Runs a process as another user.
    Setpriv,
    /// The right to mount a file system, which root has in most places.
    Mount,
    /// Being root, for changing the user.
    Root,
}

impl Tool {
    fn there(self) -> bool {
        let answers = |program: &str, argument: &str| {
            Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success())
        };
        match self {
            Tool::Faketime => clock::library().is_some(),
            Tool::Setpriv => answers("setpriv", "--version"),
            Tool::Mount => Tool::Root.there() && can_mount(),
            // SAFETY: `geteuid` takes nothing and cannot fail.
            Tool::Root => unsafe { libc::geteuid() == 0 },
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Tool::Faketime => "apt-get install -y faketime",
            Tool::Setpriv => "apt-get install -y util-linux",
            Tool::Mount => "sudo --preserve-env=PATH cargo test --workspace (with the right to mount a tmpfs)",
            Tool::Root => "sudo --preserve-env=PATH cargo test --workspace",
        }
    }
}

fn can_mount() -> bool {
    let Ok(folder) = tempfile::tempdir() else { return false };
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(folder.path()).output();
    let mounted = mounted.is_ok_and(|output| output.status.success());
    if mounted {
        let _ = Command::new("umount").arg(folder.path()).output();
    }
    mounted
}

/// Whether the test `name` has to be left out because a tool is missing. Says so on standard error, past the test
/// runner's capture.
///
/// # Panics
/// When a tool is missing and `TIDEGATE_REQUIRE_ALL` is set.
#[must_use]
pub fn left_out(name: &str, needs: &[Tool]) -> bool {
    let Some(missing) = needs.iter().find(|tool| !tool.there()) else { return false };
    let remedy = missing.remedy();
    let required = std::env::var_os("TIDEGATE_REQUIRE_ALL").is_some_and(|value| value != "0");
    assert!(!required, "`{name}` needs {missing:?}, and TIDEGATE_REQUIRE_ALL is set; install: {remedy}");
    let _ = writeln!(std::io::stderr(), "\nleft out: `{name}` needs {missing:?}; install: {remedy}");
    true
}
