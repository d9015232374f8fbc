//! Building guests, shared by the build script and by tests that need guests of their own.
//!
//! The guests are built by a cargo of their own, with a target directory of its own: the outer build holds a lock on
//! its directory while this runs. What configures the outer build (flags, wrappers such as clippy's, profiles,
//! coverage) must not reach the guests, so that everybody gets the same component.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-wasip2";

/// `<target>/guests`, shared by all profiles of the outer build. Where the layout is another one: in `OUT_DIR`.
pub(crate) fn target_dir(out: &Path) -> PathBuf {
    let is_build_folder = out.ancestors().nth(2).and_then(Path::file_name).is_some_and(|name| name == "build");
    match out.ancestors().nth(4) {
        Some(target) if is_build_folder && !target.as_os_str().is_empty() => target.join("guests"),
        _ => out.join("guests"),
    }
}

pub(crate) fn ensure_target(root: &Path) -> Result<(), String> {
    if has_target(root) {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", TARGET]).current_dir(root);
    let added = rustup.status().is_ok_and(|status| status.success());
    if added && has_target(root) {
        return Ok(());
    }
    Err(format!(
        "building the plugins needs the standard library for {TARGET}: install it with `rustup target add {TARGET}`, \
         or with your distribution's package for that target."
    ))
}

fn has_target(root: &Path) -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).current_dir(root).output();
    asked.is_ok_and(|answer| {
        answer.status.success() && Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_dir()
    })
}

/// A cargo that the outer build does not configure.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(configures_the_outer_build) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Builds one guest and says where its component is.
pub(crate) fn compile(root: &Path, target_dir: &Path, package: &str, artefact: &str) -> Result<PathBuf, String> {
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--locked", "--target", TARGET, "--manifest-path"]);
    cargo.arg(root.join("Cargo.toml")).arg("--target-dir").arg(target_dir);
    cargo.args(["--package", package]);
    // Paths of this machine would otherwise stand in the guests' panic messages, and change their digests.
    let mut flags = vec![format!("--remap-path-prefix={}=tidegate", root.display())];
    if let Some(home) =
        env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|h| h.join(".cargo")))
    {
        flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    cargo.current_dir(root);
    match cargo.status() {
        Ok(status) if status.success() => Ok(target_dir.join(TARGET).join("release").join(format!("{artefact}.wasm"))),
        Ok(_) => Err(format!("the guest {package} does not build; its errors stand above.")),
        Err(e) => Err(format!("cargo cannot be started for the guest {package}: {e}")),
    }
}

/// Whether a variable comes from the outer build, or speaks of it. Where cargo finds crates stays.
fn configures_the_outer_build(name: &str) -> bool {
    const KEPT: [&str; 8] = [
        "CARGO_HOME",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "RUSTUP_",
    ];
    const DROPPED: [&str; 6] = ["CARGO_", "__CARGO", "RUSTC", "RUSTFLAGS", "RUSTDOC", "CLIPPY_"];
    const DROPPED_EXACTLY: [&str; 8] =
        ["LLVM_PROFILE_FILE", "TARGET", "HOST", "OPT_LEVEL", "PROFILE", "DEBUG", "NUM_JOBS", "OUT_DIR"];
    !KEPT.iter().any(|kept| name.starts_with(kept))
        && (DROPPED.iter().any(|dropped| name.starts_with(dropped)) || DROPPED_EXACTLY.contains(&name))
}
