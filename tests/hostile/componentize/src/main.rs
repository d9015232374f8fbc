//! `componentize WIT OUT IN…`: makes a sink plugin of each file of WAT, and `well_behaved.wasm` of nothing.

mod raw;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [wit, out, files @ ..] = arguments.as_slice() else {
        eprintln!("usage: componentize WIT OUT IN…");
        return ExitCode::from(2);
    };
    let (wit, out) = (Path::new(wit), Path::new(out));
    let mut made = component(wit, &out.join("well_behaved.wasm"), "");
    for file in files.iter().map(Path::new) {
        let read = fs::read_to_string(file).map_err(|e| e.to_string());
        let name = Path::new(file.file_name().unwrap_or_default()).with_extension("wasm");
        let one = read.and_then(|fields| component(wit, &out.join(name), &fields));
        made = made.and(one.map_err(|e| format!("{}: {e}", file.display())));
    }
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn component(wit: &Path, path: &Path, fields: &str) -> Result<(), String> {
    fs::write(path, raw::component(wit, fields)?).map_err(|e| format!("{}: {e}", path.display()))
}
