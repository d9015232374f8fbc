//! `tidegate completions` and `tidegate man`: made from the command line's own description.

use clap::{Command, CommandFactory as _};

use super::Outcome;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Exit;
use crate::output::{Failure, print, say};

/// What is shown of the command line: options that are hidden are left out, which not every generator does.
fn visible(command: &Command) -> Command {
    // Names live as long as the process, which ends when the script or the pages are written.
    let name: &'static str = command.get_name().to_owned().leak();
    // All pages are headed by the version; only the command itself takes `--version`.
    let mut shown = Command::new(name).disable_help_subcommand(true).version(env!("CARGO_PKG_VERSION"));
    if command.get_version().is_none() {
        shown = shown.disable_version_flag(true);
    }
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(help) = command.get_after_help() {
        shown = shown.after_help(help.clone());
    }
    shown
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).map(visible))
}

pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(&Cli::command()), "tidegate", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}

pub(crate) fn man(args: &ManArgs) -> Outcome {
    let cannot = |error: std::io::Error| {
        let mut failure = Failure::new(Exit::Failed, format!("cannot write to {}: {error}", args.out.display()));
        failure.messages[0].1.push("give a directory that can be written".to_owned());
        failure
    };
    std::fs::create_dir_all(&args.out).map_err(cannot)?;
    clap_mangen::generate_to(visible(&Cli::command()), &args.out).map_err(cannot)?;
    say(&format!("wrote the pages to {}; try: man {}", args.out.display(), args.out.join("tidegate.1").display()));
    Ok(Exit::Done)
}
