//! Makes the table of guests from the files in `src/guests`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let folder = here.join("src/guests");
    println!("cargo:rerun-if-changed={}", folder.display());
    let names = fs::read_dir(&folder).expect("the guests' folder is there").filter_map(|entry| {
        let path = entry.ok()?.path();
        path.extension().is_some_and(|e| e == "rs").then(|| path.file_stem()?.to_str().map(str::to_owned))?
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    let mut table = String::new();
    for name in &names {
        let path = folder.join(format!("{name}.rs"));
        writeln!(table, "#[path = {path:?}]\nmod {name};").expect("a string takes everything");
    }
    table.push_str("pub(crate) fn find(name: &str) -> Option<&'static dyn Guest> {\n    match name {\n");
    for name in &names {
        writeln!(table, "        {name:?} => Some(&{name}::Attack),").expect("a string takes everything");
    }
    table.push_str("        _ => None,\n    }\n}\n");
    fs::write(out.join("guests.rs"), table).expect("cargo's folder can be written");
}
