//! Builds the reference plugins for `wasm32-wasip2` and hands them to `builtin.rs`.

#[path = "build/guest.rs"]
mod guest;

use std::env;
use std::path::PathBuf;

/// Package, name of its artefact, name as `builtin:<name>`.
const GUESTS: [(&str, &str, &str); 1] = [("tidegate-sink-files", "tidegate_sink_files", "files")];

fn main() {
    if let Err(message) = build() {
        eprintln!("{message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = here.ancestors().nth(2).ok_or("host/wasm is not two folders below the workspace")?.to_owned();
    let out = PathBuf::from(variable("OUT_DIR")?);
    for path in ["wit", "guests/sdk", "guests/files", "Cargo.lock", "Cargo.toml", "rust-toolchain.toml"] {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/guest.rs");

    guest::ensure_target(&root)?;
    let target_dir = guest::target_dir(&out);
    for (package, artefact, name) in GUESTS {
        let built = guest::compile(&root, &target_dir, package, artefact)?;
        let kept = out.join(format!("{name}.wasm"));
        std::fs::copy(&built, &kept).map_err(|e| format!("the guest {name} left no {}: {e}", built.display()))?;
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("cargo did not set {name}"))
}
