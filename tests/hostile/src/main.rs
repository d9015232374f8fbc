//! Runs one guest in a process of its own and prints the verdict as a line of JSON: `tidegate-hostile judge NAME`.
//! `tidegate-hostile list` prints the names, and with `list crowds` of those that take what neighbours need;
//! `idle INSTANCES TENANTS` what idle instances cost;
//! `crowd NAME` and `crowd NAME unbounded` print latencies of a neighbour.

#![allow(clippy::print_stdout, reason = "its only output")]

use std::process::ExitCode;

use tidegate_hostile::{GUESTS, Guest, find, idle, judge, latencies};

fn main() -> ExitCode {
    tidegate_wasm::worker::run_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(lines) => {
            println!("{lines}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<String, String> {
    match words {
        ["list"] => Ok(names(|_| true)),
        ["list", "crowds"] => Ok(names(|guest| (guest.case)().crowds)),
        ["crowd", name] => line(&latencies(known(name)?, true)?),
        ["crowd", name, "unbounded"] => line(&latencies(known(name)?, false)?),
        ["judge", name] => line(&judge(known(name)?)?),
        ["idle", instances, tenants] => {
            let number = |word: &str| word.parse().map_err(|_| format!("`{word}` is no number"));
            line(&idle(number(instances)?, number(tenants)?)?)
        }
        _ => {
            Err("usage: tidegate-hostile list [crowds] | judge NAME | crowd NAME [unbounded] | idle INSTANCES TENANTS"
                .to_owned())
        }
    }
}

fn names(wanted: impl Fn(&Guest) -> bool) -> String {
    let names: Vec<&str> = GUESTS.iter().filter(|guest| wanted(guest)).map(|guest| guest.name).collect();
    names.join("\n")
}

fn known(name: &str) -> Result<&'static Guest, String> {
    find(name).ok_or_else(|| format!("no guest `{name}`; `list` names them"))
}

fn line(said: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(said).map_err(|e| e.to_string())
}
