//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tidegate_server::{MismatchPolicy, Moment, SinkId};

use crate::exit::AFTER_HELP;

/// A sink runtime for data streams: what a pipeline writes becomes visible only when the checkpoint that covers it is
/// durable, and then exactly once.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline until its input ends or it is asked to stop
    ///
    /// Ctrl-C or SIGTERM stops it with a sealed and committed epoch; a second Ctrl-C leaves at once and loses nothing.
    Run(Box<RunArgs>),
    /// Check a pipeline file, its plugins and grants, its state and what has changed since the last run; changes nothing
    ///
    /// The destinations are not asked without `--connect`. Ends with 3 when a run would be refused, with 5 when an epoch is
    /// blocked.
    Validate(ValidateArgs),
    /// What can be written in a pipeline file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at sink plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Look at the checkpoints of a pipeline, and carry them to another host
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Keep checkpoints under a name, for as long as you want; also while the pipeline runs
    #[command(subcommand)]
    Savepoint(SavepointCommand),
    /// List what exists at the destinations on the pipeline's behalf, and who still needs it
    Ledger(FileArgs),
    /// Find what is staged at the destinations and no record explains, and give it back
    #[command(subcommand)]
    Orphans(OrphansCommand),
    /// Decide about an epoch that is blocked, while the pipeline is not running
    Resolve(ResolveArgs),
    /// Do something with the rows that could not be read or were not taken
    #[command(subcommand)]
    DeadLetter(DeadLetterCommand),
    /// Print completions for a shell
    ///
    /// For bash, for example: tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
    Completions(CompletionsArgs),
    /// Write the man pages, one per command
    Man(ManArgs),
}

impl Command {
    /// Whether data is to be JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Command::Run(args) => args.output.json,
            Command::Validate(args) => args.output.json,
            Command::Ledger(args) => args.output.json,
            Command::Config(ConfigCommand::Reference(_)) => false,
            Command::Plugin(PluginCommand::Inspect(args)) => args.output.json,
            Command::Plugin(PluginCommand::Quarantine(args)) => args.output.json,
            Command::Checkpoint(CheckpointCommand::List(args) | CheckpointCommand::Verify(args)) => args.output.json,
            Command::Checkpoint(CheckpointCommand::Show(args)) => args.output.json,
            Command::Checkpoint(CheckpointCommand::Export(args)) => args.output.json,
            Command::Checkpoint(CheckpointCommand::Import(args)) => args.output.json,
            Command::Savepoint(SavepointCommand::Create(args) | SavepointCommand::Forget(args)) => args.output.json,
            Command::Savepoint(SavepointCommand::List(args)) => args.output.json,
            Command::Orphans(OrphansCommand::List(args)) => args.output.json,
            Command::Orphans(OrphansCommand::Abandon(args)) => args.output.json,
            Command::Resolve(args) => args.output.json,
            Command::DeadLetter(DeadLetterCommand::Replay(args)) => args.output.json,
            Command::Completions(_) | Command::Man(_) => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every table and key with type, default and meaning, as comments of a TOML file
    Reference(ReferenceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {
    /// Of host files instead of pipeline files
    #[arg(long)]
    pub(crate) host: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Say what a plugin is, what it asks for and whether this version can run it
    Inspect(InspectArgs),
    /// List the plugins of a running pipeline that failed so often that no instance of them is made
    ///
    /// After a while one instance is tried; another file of the plugin is free at once. A quarantine ends with the process.
    Quarantine(QuarantineArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// End it, and forget the faults
    #[arg(long)]
    pub(crate) lift: bool,
    /// Of this sink's plugin only
    #[arg(long, value_name = "SINK", requires = "lift")]
    pub(crate) sink: Option<SinkId>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// List the checkpoints, newest last
    List(FileArgs),
    /// Show one checkpoint: positions, parts and what became of them
    Show(ShowArgs),
    /// Read every record and every piece of state, and check them against each other
    Verify(FileArgs),
    /// Write the state of a pipeline that is not running into one file, to go on with on another host
    ///
    /// Only a state that verifies is exported. The destinations' data is not in it: the other host must reach them.
    Export(ExportArgs),
    /// Make the state of a pipeline from a file that `export` has written
    ///
    /// The state directory must be absent or empty. Everything is checked before anything is created.
    Import(ImportArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SavepointCommand {
    /// Make a savepoint: of a running pipeline an epoch is cut for it, else it is the newest checkpoint
    ///
    /// Returns when it is durable. `tidegate run FILE --from NAME` goes back to it.
    Create(SavepointArgs),
    /// List the savepoints
    List(FileArgs),
    /// Give a savepoint up: its checkpoint is kept as long as any other
    Forget(SavepointArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum OrphansCommand {
    /// List what is staged and no retained record explains, how old it is and why it can be given back or not
    List(OrphansArgs),
    /// Give back what carries our name and an older run's, and no retained record names
    ///
    /// Only while the pipeline is not running. Doing it again changes nothing more.
    Abandon(AbandonArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SavepointArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The savepoint's name: 1 to 40 characters of a-z, 0-9 and `-`, starting with a letter
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// How long to wait for a running pipeline; then the request is withdrawn
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OrphansArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AbandonArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// At this sink only
    #[arg(long, value_name = "SINK")]
    pub(crate) sink: Option<SinkId>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The file to write, as in `flights.tar.zst`; must not be there yet
    #[arg(long, value_name = "ARCHIVE")]
    pub(crate) to: PathBuf,
    /// The state that is left behind refuses to run, so that two hosts do not both go on with it
    #[arg(long = "move")]
    pub(crate) moving: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The file that `export` has written
    #[arg(long, value_name = "ARCHIVE")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory to write the pages to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// Send dead letters again to where they failed: each once, however often this is started
    ///
    /// Rows that a source could not read go through its format to the sinks that take it, rows that a sink did not take
    /// to that sink. Rows that fail again become new letters. The pipeline itself may run meanwhile. To mend letters,
    /// copy their directory, edit the copy, and name it with --from. A letter is known by its `id`, which is sent once
    /// from whatever copy: leave it as it is.
    Replay(Box<ReplayArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Read the letters in this directory instead of that of the dead-letter sink
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
    /// How progress is shown on standard error
    #[arg(long, value_enum, default_value_t = ProgressKind::Auto, value_name = "HOW")]
    pub(crate) progress: ProgressKind,
    /// Where plugins run
    ///
    /// In a process of their own they cannot take the host along, whatever they do to the engine. Each batch then passes
    /// a socket.
    #[arg(long, value_enum, default_value_t = IsolationKind::Shared, value_name = "WHERE")]
    pub(crate) isolation: IsolationKind,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// For tests: stand still when this moment is reached for the Nth time
    #[arg(long, hide = true, value_name = "MOMENT[:N]", value_parser = hold_at)]
    pub(crate) hold_at: Option<(Moment, u64)>,
}

impl ReplayArgs {
    /// How the replay is run.
    pub(crate) fn run(&self) -> RunArgs {
        RunArgs {
            file: self.file.clone(),
            host: self.host.clone(),
            from: None,
            accept: Vec::new(),
            decision_id: None,
            by: None,
            progress: self.progress,
            isolation: self.isolation,
            output: self.output,
            hold_at: self.hold_at,
            lose_commit_answers: None,
        }
    }
}

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Whose budgets count.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostArgs {
    /// The host file: what the process gives to the plugins of its tenants (`tidegate config reference --host`); without it,
    /// the file that TIDEGATE_HOST names, if any
    #[arg(long = "host", value_name = "HOST.toml")]
    pub(crate) host_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Ask the destinations, too: whether they can be reached and written to; changes nothing there
    #[arg(long)]
    pub(crate) connect: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A component file, or `builtin:NAME`
    #[arg(value_name = "FILE.wasm")]
    pub(crate) plugin: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// An epoch's number or a savepoint's name; the newest checkpoint if absent
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Go back to this savepoint or epoch, once
    #[arg(long, value_name = "SAVEPOINT|EPOCH")]
    pub(crate) from: Option<String>,
    /// Go on although the destination of this sink is not where the log says it should be
    #[arg(long, value_name = "SINK=POLICY", value_parser = accept, long_help = ACCEPT_HELP)]
    pub(crate) accept: Vec<(SinkId, MismatchPolicy)>,
    /// Id of this decision in the log; the same id does nothing a second time
    ///
    /// Without it the id is made from the request, so that a service that starts again does not go back twice.
    #[arg(long, value_name = "ID", value_parser = plain_text)]
    pub(crate) decision_id: Option<String>,
    /// Who decides, for the log; the user's name if absent
    #[arg(long, value_name = "WHO", value_parser = plain_text)]
    pub(crate) by: Option<String>,
    /// How progress is shown on standard error
    #[arg(long, value_enum, default_value_t = ProgressKind::Auto, value_name = "HOW")]
    pub(crate) progress: ProgressKind,
    /// Where plugins run
    ///
    /// In a process of their own they cannot take the host along, whatever they do to the engine. Each batch then passes
    /// a socket.
    #[arg(long, value_enum, default_value_t = IsolationKind::Shared, value_name = "WHERE")]
    pub(crate) isolation: IsolationKind,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// For tests: stand still when this moment is reached for the Nth time
    #[arg(long, hide = true, value_name = "MOMENT[:N]", value_parser = hold_at)]
    pub(crate) hold_at: Option<(Moment, u64)>,
    /// For tests: lose the answer of every Nth commit
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) lose_commit_answers: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationKind {
    /// In this process
    Shared,
    /// In a confined child process
    Process,
}

impl From<IsolationKind> for tidegate_server::Isolation {
    fn from(kind: IsolationKind) -> Self {
        match kind {
            IsolationKind::Shared => Self::Shared,
            IsolationKind::Process => Self::Process,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressKind {
    /// Live on a terminal, else a line every few seconds
    Auto,
    /// A line every few seconds
    Plain,
    /// None
    None,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The epoch is one of the replay of the pipeline's dead letters
    #[arg(long)]
    pub(crate) replay: bool,
    /// The sink at which the epoch is blocked
    #[arg(long, value_name = "SINK")]
    pub(crate) sink: SinkId,
    /// The epoch's number
    #[arg(long, value_name = "N")]
    pub(crate) epoch: u64,
    /// What to do with it
    #[arg(long, value_enum, value_name = "CHOICE")]
    pub(crate) choice: ResolveChoice,
    /// Who decides, for the log
    #[arg(long, value_name = "WHO", value_parser = plain_text)]
    pub(crate) by: String,
    /// Id of the decision in the log; made from the request if absent
    #[arg(long, value_name = "ID", value_parser = plain_text)]
    pub(crate) decision_id: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResolveChoice {
    /// Send the same commit again
    Retry,
    /// Give up the epoch's rows at this sink; they will never be there
    GiveUp,
}

const ACCEPT_HELP: &str = "\
Go on although the destination of this sink is not where the log says it should be. POLICY is one of
  accept-duplicates        ahead or foreign: go on behind what is there; rows may be there twice
  accept-loss              behind: go on from the log; rows that the destination lost are not sent again
  replay-from-destination  behind, and its checkpoint is kept: go back to it and send again";

const POLICIES: [(&str, MismatchPolicy); 3] = [
    ("accept-duplicates", MismatchPolicy::AcceptDuplicates),
    ("accept-loss", MismatchPolicy::AcceptLoss),
    ("replay-from-destination", MismatchPolicy::ReplayFromDestination),
];

fn accept(text: &str) -> Result<(SinkId, MismatchPolicy), String> {
    let expected = "expected SINK=accept-duplicates, SINK=accept-loss or SINK=replay-from-destination";
    let (sink, policy) = text.split_once('=').ok_or(expected)?;
    let sink = SinkId::new(sink).map_err(|error| error.to_string())?;
    let policy = POLICIES.iter().find(|(name, _)| *name == policy).ok_or(expected)?.1;
    Ok((sink, policy))
}

fn hold_at(text: &str) -> Result<(Moment, u64), String> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let moment = Moment::parse(name).ok_or_else(|| {
        let names: Vec<_> = Moment::ALL.iter().map(|moment| moment.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })?;
    let count: u64 = count.parse().ok().filter(|count| *count > 0).ok_or("the count is a whole number from 1")?;
    Ok((moment, count))
}

fn span(text: &str) -> Result<Duration, String> {
    let expected = "expected a time such as 500ms, 10s or 5m";
    let (number, millis) = [("ms", 1), ("s", 1_000), ("m", 60_000)]
        .iter()
        .find_map(|(unit, millis)| Some((text.strip_suffix(unit)?.parse::<u64>().ok()?, *millis)))
        .ok_or(expected)?;
    let longest = Duration::from_secs(3600);
    let span = Duration::from_millis(number.checked_mul(millis).ok_or(expected)?);
    if span > longest { Err("at most 60m".to_owned()) } else { Ok(span) }
}

/// Words that go into the log: not empty, one line, not endless.
fn plain_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        return Err("expected one line of at most 200 bytes that is not empty".into());
    }
    Ok(text.to_owned())
}

/// Reads the command line. Arguments that are not UTF-8 are errors, except paths.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(arguments)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use clap::CommandFactory;

    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_tells_exit_codes_and_hides_options_for_tests() {
        let error = read("tidegate --help").unwrap_err();
        assert!(error.to_string().contains("Exit codes:") && error.to_string().contains("tidegate config reference"));
        let run = read("tidegate run --help").unwrap_err().to_string();
        assert!(!run.contains("hold-at") && run.contains("--accept"));
    }

    #[test]
    fn run_takes_policies_and_test_options() {
        let cli = read("tidegate run p.toml --accept out=accept-loss --hold-at sealed:3 --by me").unwrap();
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.accept, [(SinkId::new("out").unwrap(), MismatchPolicy::AcceptLoss)]);
        assert_eq!(run.hold_at, Some((Moment::Sealed, 3)));
        for wrong in ["--accept out", "--accept out=x", "--accept Out=accept-loss", "--hold-at x", "--hold-at open:0"] {
            assert_eq!(read(&format!("tidegate run p.toml {wrong}")).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn arguments_that_are_not_utf8_are_paths_or_errors() {
        let bad = OsString::from_vec(b"p\xff.toml".to_vec());
        assert!(parse(["tidegate".into(), "validate".into(), bad.clone()].into_iter()).is_ok());
        let error = parse(["tidegate".into(), "run".into(), "p.toml".into(), "--by".into(), bad].into_iter());
        assert_eq!(error.unwrap_err().exit_code(), 2);
    }
}
