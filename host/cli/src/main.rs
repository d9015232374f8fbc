//! The `tidegate` command.
//!
//! Data goes to standard output, talk to standard error; errors are one line what happened and `hint:` lines how to mend
//! it; exit codes are in [`exit::Exit`].

mod allocator;
mod args;
mod commands;
mod exit;
mod output;
mod progress;
mod words;

use std::process::ExitCode;

use args::{Cli, Command, ConfigCommand, DeadLetterCommand};
use exit::Exit;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    tidegate_server::run_if_asked();
    allocator::few_arenas();
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are data and no failure.
            if error.use_stderr() {
                let _ = error.print();
                return Exit::Usage.into();
            }
            output::noted(error.print());
            return output::judge(Exit::Done).into();
        }
    };
    start_log();
    let exit = match dispatch(&cli) {
        Ok(exit) => exit,
        Err(failure) => {
            failure.lines().iter().for_each(|line| output::say(line));
            if cli.command.json() {
                // The lines of `run` are a stream; what ends it has the same name however it ends.
                match &cli.command {
                    Command::Run(_) | Command::DeadLetter(_) => output::print_json_line(&failure.json("end")),
                    _ => output::print_json(&failure.json("error")),
                }
            }
            failure.exit
        }
    };
    output::judge(exit).into()
}

fn dispatch(cli: &Cli) -> commands::Outcome {
    match &cli.command {
        Command::Run(args) => commands::run::run(args),
        Command::Validate(args) => commands::validate::run(args),
        Command::Config(ConfigCommand::Reference(args)) => {
            let text = match args.host {
                true => tidegate_server::config::host_reference(),
                false => tidegate_server::config::reference(),
            };
            output::print(&text);
            Ok(Exit::Done)
        }
        Command::Plugin(command) => commands::plugin::run(command),
        Command::Checkpoint(command) => commands::checkpoint::run(command),
        Command::Savepoint(command) => commands::savepoint::run(command),
        Command::Ledger(args) => commands::ledger::run(args),
        Command::Orphans(command) => commands::orphans::run(command),
        Command::Resolve(args) => commands::resolve::run(args),
        Command::DeadLetter(DeadLetterCommand::Replay(args)) => commands::dead_letter::replay(args),
        Command::Completions(args) => commands::shell::completions(args),
        Command::Man(args) => commands::shell::man(args),
    }
}

/// What is logged unless `TIDEGATE_LOG` says otherwise. Warnings of driver and runs are told as notices already.
const LOGGED: &str = "warn,tidegate_pipeline::driver=error,tidegate_pipeline::run=error";

/// Log lines above `TIDEGATE_LOG` go to standard error.
fn start_log() {
    let filter = std::env::var("TIDEGATE_LOG").ok().and_then(|text| EnvFilter::try_new(text).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(LOGGED));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(ansi)
        .with_target(false)
        .without_time()
        .log_internal_errors(false)
        .with_writer(|| output::Talk);
    // Fails only where a log was set up before, and there is none.
    let _ = log.try_init();
}
