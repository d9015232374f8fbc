//! Pipeline files: one TOML file per pipeline.
//!
//! [`load`] reads a file and checks all that can be known from the text alone; what needs plugins, sources or state is
//! checked by [`crate::assemble`] and [`crate::validate`]. Every key with its default is listed in [`tables`].

mod budgets;
mod directories;
mod error;
mod host;
mod host_tables;
mod network;
mod places;
mod reader;
mod reference;
mod sections;
mod services;
mod tables;
mod units;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_protocol::guarantee::Delivery;
use tidegate_protocol::ids::{PipelineId, SinkId, SourceId};
use tidegate_wasm::SecretRef;

pub use error::{ConfigError, Problem};
pub use host::{HostFile, HostSection, Isolation, TenantSection, load_host, parse_host};
pub use host_tables::ALL as HOST_TABLES;
pub use network::{TcpSection, TrustSection, WrittenPath};
pub use places::Places;
pub use reader::{Absent, Key, Shape, Table};
pub use reference::{host_reference, reference};
pub use services::{AuthSection, HttpSection};
pub use tables::ALL as TABLES;
pub use tidegate_columns::added::AddedColumn;
pub use tidegate_columns::decode::UnknownFields;
pub use tidegate_wasm::Limits;
pub use units::show_duration;

pub(crate) use directories::real;
pub(crate) use places::{of_sink, of_source};
pub(crate) use reader::suggest;

/// Name of the sink that `[dead-letter]` makes.
pub const DEAD_LETTER: &str = "dead-letter";

/// Longest file that is read, in bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// A pipeline as its file describes it: checked, with defaults filled in and paths made independent of the working
/// directory.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineFile {
    /// The file it was read from; for text from elsewhere, the name given to it.
    pub path: PathBuf,
    /// It sends the dead letters of the pipeline in that file again, with a state of its own.
    pub replays: bool,
    /// What relative paths are relative to.
    pub base: PathBuf,
    /// `[pipeline]`
    pub pipeline: PipelineSection,
    /// `[checkpoint]`
    pub checkpoint: CheckpointSection,
    /// `[sources.*]`; never empty.
    pub sources: BTreeMap<SourceId, SourceSection>,
    /// `[sinks.*]`, without the dead-letter sink; never empty.
    pub sinks: BTreeMap<SinkId, SinkSection>,
    /// `[dead-letter]`
    pub dead_letter: Option<SinkSection>,
    /// In no file: where the rows of a replay were put, with what is known of each.
    pub takes: Option<PathBuf>,
    /// Where everything stands in the file.
    pub places: Places,
}

impl PipelineFile {
    /// All sinks with their ids, the dead-letter sink last.
    pub fn all_sinks(&self) -> impl Iterator<Item = (SinkId, &SinkSection, bool)> {
        let named = self.sinks.iter().map(|(id, sink)| (id.clone(), sink, false));
        named.chain(self.dead_letter.iter().map(|sink| (dead_letter_id(), sink, true)))
    }
}

/// The id of the sink that `[dead-letter]` makes.
pub fn dead_letter_id() -> SinkId {
    SinkId::new(DEAD_LETTER).expect("the constant follows the rule for names")
}

/// `[pipeline]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineSection {
    /// Stable name.
    pub name: PipelineId,
    /// State directory.
    pub state: PathBuf,
    /// What must be guaranteed.
    pub guarantee: Delivery,
    /// Whose budgets its plugins share.
    pub tenant: String,
}

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSection {
    /// Between two barriers.
    pub interval: Duration,
    /// Between a seal and the next barrier, at least.
    pub min_pause: Duration,
    /// Sealed epochs per sink that may wait for their commit.
    pub max_waiting: u32,
    /// Checkpoints kept.
    pub retain_count: u32,
    /// Younger ones are kept, too.
    pub retain_age: Option<Duration>,
    /// Tries before a person must decide.
    pub commit_tries: u32,
    /// Alarm when work waits and nothing was committed for so long; zero: never.
    pub alarm_after: Duration,
}

/// `[sources.NAME]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSection {
    /// What it reads.
    pub kind: SourceKind,
    /// How many tasks; `None` = as many as there are partitions, at most 4.
    pub tasks: Option<u32>,
    /// Rows per second over all tasks.
    pub rate: Option<u64>,
}

/// What happens when rows that were not read cannot be found any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLostRows {
    /// The pipeline stops.
    Stop,
    /// A warning tells what is lost, and it goes on.
    Warn,
}

/// The kinds of sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceKind {
    /// Files.
    Files {
        /// As written, relative to [`PipelineFile::base`].
        paths: Vec<String>,
        /// How rows are laid out.
        rows: RowFormat,
        /// How files are compressed.
        compression: Compression,
        /// Read on as files grow and new ones appear.
        follow: bool,
        /// What happens when rows of a followed file cannot be found any more.
        on_lost_rows: OnLostRows,
    },
    /// Made from a seed.
    Generate {
        /// The seed.
        seed: u64,
        /// How many; `None` = endless.
        rows: Option<u64>,
        /// Over how many partitions.
        partitions: u32,
        /// Shortest and longest row in bytes; `None` = the source's own default.
        row_bytes: Option<(u32, u32)>,
        /// How many different keys.
        keys: u64,
    },
    /// Standard input.
    Stdin {
        /// How rows are laid out.
        rows: RowFormat,
    },
}

impl SourceKind {
    /// As written in the file.
    pub fn name(&self) -> &'static str {
        match self {
            SourceKind::Files { .. } => "files",
            SourceKind::Generate { .. } => "generate",
            SourceKind::Stdin { .. } => "stdin",
        }
    }

    /// How rows are laid out, where that is asked.
    pub fn rows(&self) -> Option<&RowFormat> {
        match self {
            SourceKind::Files { rows, .. } | SourceKind::Stdin { rows } => Some(rows),
            SourceKind::Generate { .. } => None,
        }
    }
}

/// How a source's rows are laid out, and what happens to those that are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFormat {
    /// The format.
    pub format: Format,
    /// Longest line in bytes.
    pub max_line: u64,
    /// What happens to a bad row.
    pub on_bad_row: OnBadRow,
    /// The columns; `None` = inferred where anything needs them.
    pub schema: Option<SchemaSection>,
    /// What a field that the schema does not have amounts to.
    pub unknown_fields: UnknownFields,
}

/// Where a source's schema comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaSection {
    /// From a sample at the first start, and from the checkpoint later.
    Infer,
    /// Columns as SQL.
    Declared(String),
}

/// Formats of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// One JSON value per line.
    JsonLines,
    /// Comma-separated.
    Csv(CsvSection),
    /// Opaque lines.
    Raw,
    /// Parquet files.
    Parquet,
}

impl Format {
    /// As written in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Format::JsonLines => "json-lines",
            Format::Csv(_) => "csv",
            Format::Raw => "raw",
            Format::Parquet => "parquet",
        }
    }
}

/// `[sources.NAME.csv]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvSection {
    /// The first row names the columns.
    pub header: bool,
    /// Between fields.
    pub delimiter: u8,
    /// Around fields.
    pub quote: u8,
    /// Names, when there is no header.
    pub columns: Option<Vec<String>>,
}

/// How files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// By the first bytes of each file.
    Auto,
    /// Not at all.
    None,
    /// gzip, also of several members.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// As written in the file.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Auto => "auto",
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}

/// What happens to a row that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadRow {
    /// The pipeline stops.
    Stop,
    /// It goes to `[dead-letter]` with file, line and reason.
    DeadLetter,
}

/// `[sinks.NAME]` and `[dead-letter]`
#[derive(Debug, Clone, PartialEq)]
pub struct SinkSection {
    /// The plugin.
    pub plugin: PluginRef,
    /// How rows are handed to it; `None` = the best that both sides know.
    pub format: Option<SinkFormat>,
    /// Columns to add, in order.
    pub columns: Vec<AddedColumn>,
    /// The host writes whole files; always there with [`SinkFormat::Parquet`].
    pub files: Option<FilesSection>,
    /// Which rows and columns go on.
    pub transform: Option<TransformSection>,
    /// How many writers.
    pub subtasks: u32,
    /// How rows are dealt to them.
    pub route: Route,
    /// Which sources' rows it takes; never empty. Empty for the dead-letter sink.
    pub sources: Vec<SourceId>,
    /// Granted directories by the plugin's name for them.
    pub dirs: BTreeMap<String, DirGrant>,
    /// Granted places in the network by the plugin's name for them.
    pub tcp: BTreeMap<String, TcpSection>,
    /// Granted services by the plugin's name for them.
    pub http: BTreeMap<String, HttpSection>,
    /// The plugin's own configuration.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// Secrets by the plugin's name for them.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Budgets.
    pub limits: Limits,
}

/// Where a plugin comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginRef {
    /// Part of the product.
    Builtin(String),
    /// A component file.
    File(PathBuf),
}

impl std::fmt::Display for PluginRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PluginRef::Builtin(name) => write!(f, "builtin:{name}"),
            PluginRef::File(path) => path.display().fmt(f),
        }
    }
}

/// How rows are handed to a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkFormat {
    /// One JSON value per line.
    JsonLines,
    /// Comma-separated without a header.
    Csv,
    /// Opaque lines.
    Raw,
    /// Arrow IPC streams.
    ArrowStream,
    /// Parquet files.
    Parquet,
}

impl SinkFormat {
    /// As written in the file.
    pub fn name(self) -> &'static str {
        match self {
            SinkFormat::JsonLines => "json-lines",
            SinkFormat::Csv => "csv",
            SinkFormat::Raw => "raw",
            SinkFormat::ArrowStream => "arrow-stream",
            SinkFormat::Parquet => "parquet",
        }
    }
}

/// `[sinks.NAME.files]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesSection {
    /// How files are compressed; `None` = zstd within Parquet, not at all otherwise. Never [`Compression::Auto`].
    pub compression: Option<Compression>,
    /// How hard.
    pub level: Option<u32>,
    /// Folders from columns.
    pub folder: Option<String>,
    /// Bytes at which a file is ended.
    pub roll_size: u64,
    /// Files that one subtask writes at the same time.
    pub max_open_files: u32,
}

/// `[sinks.NAME.transform]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransformSection {
    /// SQL condition.
    pub filter: Option<String>,
    /// Column and SQL type, in the order of the file.
    pub cast: Vec<(String, String)>,
    /// Name and SQL expression, in the order of the file.
    pub add: Vec<(String, String)>,
    /// SQL expressions.
    pub select: Option<Vec<String>>,
    /// Columns.
    pub drop: Vec<String>,
    /// Old and new name, in the order of the file.
    pub rename: Vec<(String, String)>,
}

/// How rows are dealt to a sink's writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// In turn.
    RoundRobin,
    /// Equal values of this field meet the same writer.
    Key(String),
}

/// A granted directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGrant {
    /// As written; goes into the seal, so that a pipeline can move together with its state.
    pub written: String,
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of all files in it; `None`: by the sink's limits.
    pub quota: Option<u64>,
    /// Files and folders in it; `None`: by the sink's limits.
    pub max_files: Option<u64>,
    /// It must not share a volume with the state directory.
    pub own_volume: bool,
}

/// Where a secret's value is found when it is needed. Never the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In an environment variable.
    Env(String),
    /// In a file.
    File {
        /// As written.
        written: String,
        /// Where it is.
        path: PathBuf,
    },
}

impl SecretSource {
    /// For the sandbox.
    pub(crate) fn reference(&self) -> SecretRef {
        match self {
            SecretSource::Env(name) => SecretRef::Env(name.clone()),
            SecretSource::File { path, .. } => SecretRef::File(path.clone()),
        }
    }

    /// As written; goes into the seal.
    pub(crate) fn bound(&self) -> serde_json::Value {
        match self {
            SecretSource::Env(name) => serde_json::json!({"env": name}),
            SecretSource::File { written, .. } => serde_json::json!({"file": written}),
        }
    }
}

/// Reads and checks a pipeline file.
///
/// # Errors
/// Everything that is wrong with it, with place and hints.
pub fn load(path: &Path) -> Result<PipelineFile, ConfigError> {
    let text = read_text(path, "pipeline file", "tidegate run pipeline.toml")?;
    let fail = |problem| ConfigError { file: path.to_owned(), problems: vec![problem], unreadable: true };
    let absolute = std::path::absolute(path).map_err(|e| fail(Problem::of_file(e.to_string())))?;
    let base = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    parse(&text, path, &base)
}

/// The text of a file that a person wrote. `what` it should be, and a command that names one.
fn read_text(path: &Path, what: &str, command: &str) -> Result<String, ConfigError> {
    let fail = |unreadable, problem| ConfigError { file: path.to_owned(), problems: vec![problem], unreadable };
    let text = read(path, what, command).map_err(|problem| fail(true, problem))?;
    String::from_utf8(text).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count() + 1;
        let problem = Problem::of_file(format!("line {line} is not UTF-8")).hint("save the file as UTF-8 text");
        fail(false, problem)
    })
}

fn read(path: &Path, what: &str, command: &str) -> Result<Vec<u8>, Problem> {
    use std::io::Read;
    let cannot = |error: std::io::Error| {
        let problem = Problem::of_file(format!("cannot read the {what}: {error}"));
        match error.kind() {
            std::io::ErrorKind::NotFound => problem.hint(format!("give the path of a {what}, as in `{command}`")),
            std::io::ErrorKind::PermissionDenied => problem.hint("make the file readable for this user"),
            _ => problem,
        }
    };
    if path.is_dir() {
        return Err(Problem::of_file(format!("this is a directory, expected a {what}")));
    }
    let file = tidegate_wasm::open_file(path).map_err(cannot)?;
    let mut text = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut text).map_err(cannot)?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(Problem::of_file(format!("longer than {LONGEST_FILE} bytes; this is no {what}")));
    }
    Ok(text)
}

/// Checks a pipeline file given as text. `name` stands for it in messages; relative paths are relative to `base`.
///
/// # Errors
/// Everything that is wrong with it, with place and hints.
pub fn parse(text: &str, name: &Path, base: &Path) -> Result<PipelineFile, ConfigError> {
    sections::read(text, name, base).map_err(|problems| ConfigError {
        file: name.to_owned(),
        problems,
        unreadable: false,
    })
}
