//! Finding the binary under test: beside the test program, built when it is missing or older than its sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The `tidegate` binary of this build.
///
/// # Panics
/// When it cannot be built: no test can say anything then.
pub fn tidegate() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let profile = profile_directory();
        let binary = profile.join("tidegate");
        if stale(&binary) {
            build(&profile);
        }
        assert!(binary.is_file(), "cargo left no `{}`", binary.display());
        binary
    })
}

/// `target/debug` or `target/release`: the test program lies in its `deps`.
fn profile_directory() -> PathBuf {
    let me = std::env::current_exe().expect("a running program has a path");
    let deps = me.parent().expect("a program lies in a directory");
    deps.parent().expect("`deps` lies in the profile's directory").to_owned()
}

/// The target directory: the profile's lies in it.
pub(crate) fn target_directory() -> PathBuf {
    profile_directory().parent().expect("a profile's directory lies in the target directory").to_owned()
}

/// Whether the binary is missing, or older than a source that cargo says it was made from.
fn stale(binary: &Path) -> bool {
    let Some(built) = modified(binary) else { return true };
    let Ok(sources) = std::fs::read_to_string(binary.with_extension("d")) else { return true };
    let Some((_, sources)) = sources.split_once(": ") else { return true };
    sources.split_whitespace().any(|source| modified(Path::new(source)).is_none_or(|changed| changed > built))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn build(profile: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "tidegate-cli"]);
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    command.arg("--target-dir").arg(target_directory()).current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = command.status().expect("cargo can be started");
    assert!(status.success(), "`cargo build --package tidegate-cli` failed");
}
