//! Builds the guests in Rust, and makes the table of all guests and their cases: a guest file without a case, or a case
//! without a guest, does not compile.

#[path = "../../host/wasm/build/guest.rs"]
mod guest;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    if let Err(message) = build() {
        eprintln!("{message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = here.ancestors().nth(2).ok_or("tests/hostile is not two folders below the workspace")?.to_owned();
    let out = PathBuf::from(variable("OUT_DIR")?);
    for path in ["wit", "guests/sdk", "Cargo.lock", "Cargo.toml", "rust-toolchain.toml", "host/wasm/build/guest.rs"] {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    for path in ["build.rs", "guest", "wat", "src/cases", "componentize/src", "componentize/Cargo.lock"] {
        println!("cargo:rerun-if-changed={path}");
    }
    guest::ensure_target(&root)?;
    let target_dir = guest::target_dir(&out);
    let built = guest::compile(&root, &target_dir, "tidegate-hostile-guest", "tidegate_hostile_guest")?;
    fs::copy(&built, out.join("guest.wasm")).map_err(|e| format!("the guest left no {}: {e}", built.display()))?;

    components(&here, &root, &target_dir, &out)?;
    let mut guests = BTreeMap::new();
    for name in names(&here.join("guest/src/guests"), "rs")? {
        guests.insert(name, "Source::Rust".to_owned());
    }
    for name in names(&here.join("wat"), "wat")? {
        let source = format!("Source::Wat(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.wasm\")))");
        if guests.insert(name.clone(), source).is_some() {
            return Err(format!("`{name}` is a guest in Rust and one in WAT; each name stands for one"));
        }
    }
    let cases = names(&here.join("src/cases"), "rs")?;
    if let Some(alone) = cases.iter().find(|name| !guests.contains_key(*name)) {
        return Err(format!("the case `{alone}` has no guest: write guest/src/guests/{alone}.rs or wat/{alone}.wat"));
    }
    if let Some(alone) = guests.keys().find(|name| !cases.contains(name)) {
        return Err(format!(
            "the guest `{alone}` has no case: write src/cases/{alone}.rs, which says what must come of it"
        ));
    }
    let wrote = |name: &str, text: String| fs::write(out.join(name), text).map_err(|e| format!("{name}: {e}"));
    wrote("table.rs", table(&here, &guests))?;
    wrote("tests.rs", tests(&guests))
}

/// Makes the components of the WAT, with a program that is built as guests are: by a cargo of its own.
fn components(here: &Path, root: &Path, target_dir: &Path, out: &Path) -> Result<(), String> {
    let manifest = here.join("componentize/Cargo.toml");
    let mut cargo = guest::cargo();
    cargo.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    cargo.arg("--target-dir").arg(target_dir.join("componentize"));
    cargo.arg("--").arg(root.join("wit/0.1")).arg(out).current_dir(here);
    let names = names(&here.join("wat"), "wat")?;
    cargo.args(names.iter().map(|name| here.join("wat").join(format!("{name}.wat"))));
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the guests in WAT do not become components; why stands above".to_owned()),
        Err(e) => Err(format!("cargo cannot be started for the guests in WAT: {e}")),
    }
}

fn table(here: &Path, guests: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for name in guests.keys() {
        let path = here.join("src/cases").join(format!("{name}.rs"));
        let _ = writeln!(text, "#[path = {path:?}]\nmod {name};");
    }
    text.push_str("/// All of them, by name.\npub static GUESTS: &[Guest] = &[\n");
    for (name, source) in guests {
        let _ = writeln!(text, "    Guest {{ name: {name:?}, source: {source}, case: {name}::case }},");
    }
    text.push_str("];\n");
    text
}

fn tests(guests: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for name in guests.keys() {
        let _ = writeln!(text, "#[test]\nfn {name}() {{\n    judged({name:?});\n}}");
    }
    text
}

fn names(folder: &Path, extension: &str) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.extension().is_some_and(|found| found == extension)
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("cargo did not set {name}"))
}
