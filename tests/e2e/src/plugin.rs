//! Plugins that only tests need, built when they are needed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The component of `tidegate-test-talkative`.
///
/// # Panics
/// It does not build.
pub fn talkative() -> &'static Path {
    static COMPONENT: OnceLock<PathBuf> = OnceLock::new();
    COMPONENT.get_or_init(|| {
        let target = crate::binary::target_directory().join("e2e-plugins");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--release",
                "--package",
                "tidegate-test-talkative",
                "--target",
                "wasm32-wasip2",
            ])
            .arg("--target-dir")
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the plugin does not build: is the target there? rustup target add wasm32-wasip2");
        target.join("wasm32-wasip2/release/tidegate_test_talkative.wasm")
    })
}
