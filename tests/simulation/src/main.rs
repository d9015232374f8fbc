//! The programs of the proof that run on the simulation. See `README.md`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let done = match given.split_first() {
        Some((name, rest)) if name == "simulate" => tidegate_simulation::simulate::command(rest),
        Some((name, rest)) if name == "sweep" => tidegate_simulation::sweep::command(rest),
        _ => Err("name what to run: `simulate` or `sweep`".to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr().lock(), "error: {why}");
            ExitCode::from(2)
        }
    }
}
