//! Child processes: what they are confined by, and what happens to the host when one fails.

mod compile;
mod confined;
mod deaths;
mod made;
#[path = "../program/processes.rs"]
mod processes;

/// The program whose `main` calls `run_if_asked`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate-test-worker");
