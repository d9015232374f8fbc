//! Every table and key of a pipeline file: shape, default, meaning. The reader and the reference text use these.

use super::reader::{Absent, Absent::*, Key, Shape, Shape::*, Table};

const SECOND: u64 = 1_000;
pub(super) const DAY: u64 = 86_400 * SECOND;
const MIB: u64 = 1 << 20;

/// Most tasks of a source and most subtasks of a sink.
pub(crate) const MOST_TASKS: u64 = 256;

pub(crate) const fn key(name: &'static str, shape: Shape, absent: Absent, about: &'static str) -> Key {
    Key { name, shape, absent, about }
}

/// The top level.
pub(crate) const TOP: Table = Table {
    path: "",
    about: "one file describes one pipeline",
    keys: &[
        key("pipeline", Table, Required, "name, state directory and guarantee"),
        key("checkpoint", Table, Means("all defaults"), "when epochs are cut and how long checkpoints are kept"),
        key("sources", Table, Required, "where rows come from, one table per source"),
        key("sinks", Table, Required, "where rows go, one table per sink"),
        key("dead-letter", Table, Means("bad rows stop the pipeline"), "a sink for rows that cannot be used"),
    ],
};

/// `[pipeline]`.
pub(crate) const PIPELINE: Table = Table {
    path: "pipeline",
    about: "what the pipeline is called, where its state lives and what it must guarantee",
    keys: &[
        key("name", Text, Required, "the stable name of the pipeline; its state belongs to it"),
        key("state", Path, Required, "the directory of the log and the checkpoints, on a local disk"),
        key(
            "guarantee",
            OneOf(&["exactly-once", "at-least-once", "at-most-once", "best-effort"]),
            Default("exactly-once"),
            "the pipeline does not start when less than this can be promised",
        ),
        key(
            "tenant",
            Text,
            Default("default"),
            "whose budgets its plugins share; a tenant of the host file, where one is given with --host",
        ),
    ],
};

/// `[checkpoint]`.
pub(crate) const CHECKPOINT: Table = Table {
    path: "checkpoint",
    about: "when epochs are cut and how long checkpoints are kept",
    keys: &[
        key("interval", Duration(1, DAY), Default("1s"), "time between two barriers"),
        key("min-pause", Duration(0, DAY), Default("0s"), "least time between a seal and the next barrier"),
        key("max-waiting", Integer(1, 1_000), Default("4"), "sealed epochs that may wait for a sink's commit"),
        key("retain-count", Integer(1, 100_000), Default("10"), "checkpoints that are kept"),
        key("retain-age", Duration(0, 3_650 * DAY), Means("by count alone"), "younger checkpoints are kept, too"),
        key("commit-tries", Integer(1, 1_000_000), Default("10"), "tries of a commit before a person must decide"),
        key("alarm-after", Duration(0, DAY), Default("1m"), "alarm when nothing was committed for so long; 0s: never"),
    ],
};

const TASKS: Key = key(
    "tasks",
    Integer(1, MOST_TASKS),
    Means("as many as there are partitions, at most 4"),
    "how many tasks read the source at the same time",
);
const RATE: Key =
    key("rate", Integer(1, 1_000_000_000), Means("as fast as it goes"), "most rows per second, over all tasks");
const FORMAT: Key = key("format", OneOf(FORMATS), Required, "how rows are laid out");
const SCHEMA: Key = key(
    "schema",
    Text,
    Means("inferred from a sample where columns are needed, and kept in the checkpoints"),
    "columns as SQL, such as \"year INT NOT NULL, tags TEXT[]\", or \"infer\"; rows then travel as typed columns",
);
const STDIN_SCHEMA: Key = key(
    "schema",
    Text,
    Means("lines are handed on as they are; where columns are needed it is required, since nothing is inferred here"),
    "columns as SQL, such as \"year INT NOT NULL, tags TEXT[]\"; rows then travel as typed columns",
);
const UNKNOWN_FIELDS: Key = key(
    "unknown-fields",
    OneOf(&["bad-row", "drop"]),
    Default("bad-row"),
    "what a field that the schema does not have amounts to: a bad row, or nothing",
);
const MAX_LINE: Key = key("max-line", Size(1, 256 * MIB), Default("1MiB"), "longest line; a longer one is a bad row");
const ON_BAD_ROW: Key = key(
    "on-bad-row",
    OneOf(&["stop", "dead-letter"]),
    Default("stop"),
    "what happens to a row that cannot be read: stop the pipeline, or hand it to [dead-letter]",
);
const KIND: Key = key("kind", OneOf(SOURCE_KINDS), Required, "what the source reads");
const CSV: Key = key("csv", Table, Means("the defaults of its keys"), "details of the format csv");

/// Formats of sources that are read line by line.
pub(crate) const FORMATS: &[&str] = &["json-lines", "csv", "raw"];
/// Formats of files that are read.
pub(crate) const FILE_FORMATS: &[&str] = &["json-lines", "csv", "raw", "parquet"];
/// Kinds of sources.
pub(crate) const SOURCE_KINDS: &[&str] = &["files", "generate", "stdin"];

/// `[sources.NAME]` with kind `files`.
pub(crate) const FILES: Table = Table {
    path: "sources.NAME",
    about: "kind = \"files\": rows of files; every file is a partition",
    keys: &[
        KIND,
        key("paths", Texts, Required, "paths and globs of the files to read, relative to this file"),
        key("format", OneOf(FILE_FORMATS), Required, "how rows are laid out"),
        SCHEMA,
        UNKNOWN_FIELDS,
        key(
            "follow",
            Boolean,
            Default("false"),
            "read on as files grow, appear and are rotated (renamed, or copied and truncated), until the pipeline is \
             stopped; rotated files and copies are found in the same directory, also under names that no pattern matches; \
             content tells copies, so rows that repeat the ones before are not told apart; see `Following files` in \
             operating.md",
        ),
        key(
            "on-lost-rows",
            OneOf(&["stop", "warn"]),
            Default("stop"),
            "only with follow: what to do if rows were lost, or may be because it happened while nobody looked: a file is gone \
             before its end was read, or was truncated and no copy is found; stop ends the pipeline, warn tells it and \
             goes on without them",
        ),
        TASKS,
        key(
            "compression",
            OneOf(&["auto", "none", "gzip", "zstd"]),
            Default("auto"),
            "how the files are compressed; auto looks at the first bytes",
        ),
        MAX_LINE,
        ON_BAD_ROW,
        RATE,
        CSV,
    ],
};

/// `[sources.NAME]` with kind `generate`.
pub(crate) const GENERATE: Table = Table {
    path: "sources.NAME",
    about: "kind = \"generate\": JSON objects made from a seed, the same ones every time; they have no columns, so no `transform`, \
            no `columns` and no Parquet",
    keys: &[
        KIND,
        key("seed", Integer(0, u64::MAX), Default("0"), "rows depend on nothing but the seed and their number"),
        key("rows", Integer(0, u64::MAX), Means("endless"), "how many rows, over all partitions"),
        key("partitions", Integer(1, 4096), Default("1"), "over how many partitions they are spread"),
        key(
            "row-bytes",
            Other("a number of bytes, or two, [LEAST, MOST]"),
            Means("from 120 to 200"),
            "how long rows are, newline included",
        ),
        key("keys", Integer(1, u64::MAX), Default("1000"), "how many different keys the rows have"),
        TASKS,
        RATE,
    ],
};

/// `[sources.NAME]` with kind `stdin`.
pub(crate) const STDIN: Table = Table {
    path: "sources.NAME",
    about: "kind = \"stdin\": lines of standard input; cannot be read again after a failure",
    keys: &[KIND, FORMAT, STDIN_SCHEMA, UNKNOWN_FIELDS, MAX_LINE, ON_BAD_ROW, CSV],
};

/// `[sources.NAME.csv]`.
pub(crate) const CSV_OPTIONS: Table = Table {
    path: "sources.NAME.csv",
    about: "details of the format csv",
    keys: &[
        key("header", Boolean, Default("true"), "the first row of every file names the columns"),
        key("delimiter", Character, Default(","), "what stands between two fields"),
        key("quote", Character, Default("\""), "what encloses fields that hold delimiters or line ends"),
        key("columns", Texts, Means("taken from the header"), "names of the columns, with header = false"),
    ],
};

/// `[sinks.NAME]` and `[dead-letter]`.
pub(crate) const SINK: Table = Table {
    path: "sinks.NAME",
    about: "a destination and the plugin that writes it",
    keys: &[
        key("plugin", Text, Required, "\"builtin:NAME\", or the path of a .wasm file"),
        key(
            "format",
            OneOf(SINK_FORMATS),
            Means("the best one that both sides know"),
            "how rows are laid out when the plugin gets them; parquet, or any with a table `files`, as whole files",
        ),
        key(
            "columns",
            Texts,
            Means("none"),
            "columns to add: \"_epoch\", \"_part\" and \"_emitted_at\", or some of them",
        ),
        key(
            "files",
            Table,
            Means("the plugin gets rows, unless format is parquet"),
            "whole files, written by the host",
        ),
        key("transform", Table, Means("rows go on as they are"), "which rows and columns go on, and under which names"),
        key("subtasks", Integer(1, MOST_TASKS), Default("1"), "how many writers work at the same time"),
        key(
            "route",
            Other("\"round-robin\" or { key = \"FIELD\" }"),
            Default("round-robin"),
            "how rows are dealt to the writers; with a key, equal keys meet the same writer",
        ),
        key("sources", Texts, Means("all sources"), "which sources' rows it takes"),
        key("dirs", Table, Means("none"), "directories the plugin may use, by the plugin's name for them"),
        key("tcp", Table, Means("none"), "places the plugin may connect to, by the plugin's name for them"),
        key("http", Table, Means("none"), "services the plugin may send requests to, by the plugin's name for them"),
        key("config", Table, Means("empty"), "the plugin's own configuration"),
        key("secrets", Table, Means("none"), "secrets the plugin may read, by reference"),
        key("limits", Table, Means("the defaults of its keys"), "what the plugin may use up"),
    ],
};

/// Formats of sinks.
pub(crate) const SINK_FORMATS: &[&str] = &["json-lines", "csv", "raw", "arrow-stream", "parquet"];
/// Columns that can be added.
pub(crate) const COLUMNS: &[&str] = &["_epoch", "_part", "_emitted_at"];

/// `[sinks.NAME.files]`.
pub(crate) const FILES_OPTIONS: Table = Table {
    path: "sinks.NAME.files",
    about: "the host writes whole files, and the plugin stores them; ended with every epoch",
    keys: &[
        key(
            "compression",
            OneOf(&["none", "gzip", "zstd"]),
            Means("zstd within parquet files, none for others"),
            "how files are compressed; parquet compresses its pages",
        ),
        key(
            "level",
            Integer(1, 19),
            Means("gzip 6, zstd 3, within parquet 1"),
            "how hard to compress: gzip 1 to 9, zstd 1 to 19",
        ),
        key(
            "folder",
            Text,
            Means("no folders"),
            "folders from columns, such as \"carrier={carrier}/month={month}/\"; equal values share a folder",
        ),
        key("roll-size", Size(64 << 10, 1 << 40), Default("128MiB"), "a file that has this many bytes is ended"),
        key(
            "max-open-files",
            Integer(1, 1024),
            Default("64"),
            "files that are written at the same time by one subtask",
        ),
    ],
};

/// `[sinks.NAME.transform]`.
pub(crate) const TRANSFORM: Table = Table {
    path: "sinks.NAME.transform",
    about: "applied in this order: rename, cast, add, filter, select, drop; expressions are SQL over one row",
    keys: &[
        key("rename", Table, Means("none"), "new names of columns, old = \"new\""),
        key("cast", Table, Means("none"), "new types of columns, column = \"SQL type\""),
        key("add", Table, Means("none"), "new columns, name = \"SQL expression\", a number, true or false"),
        key("filter", Text, Means("all rows"), "rows for which this is true go on, such as \"dep_delay > 15\""),
        key(
            "select",
            Texts,
            Means("all columns"),
            "columns and expressions that go on, such as \"lower(dest) AS dest\"",
        ),
        key("drop", Texts, Means("none"), "columns that do not go on"),
    ],
};

/// `[sinks.NAME.limits]`.
pub(crate) const LIMITS: Table = Table {
    path: "sinks.NAME.limits",
    about: "what one instance of the plugin may use up; whoever goes beyond is ended, unless it says otherwise",
    keys: &[
        key("memory", Size(MIB, 4096 * MIB), Default("256MiB"), "all linear memories and tables together"),
        key("table-entries", Integer(1, 10_000_000), Default("200000"), "entries of all tables together"),
        key("core-instances", Integer(1, 1000), Default("64"), "core modules that the component instantiates"),
        key("memories", Integer(1, 1000), Default("16"), "linear memories of the component"),
        key("tables", Integer(1, 1000), Default("32"), "tables of the component"),
        key("call-time", Duration(1, DAY), Default("60s"), "wall-clock time of one call, waiting included"),
        key(
            "cpu-time",
            Duration(1, DAY),
            Means("half of call-time, at least 30s"),
            "processor time of one call, in the plugin and in the host on its behalf; looked at every 10ms",
        ),
        key(
            "checkpoint-cpu-time",
            Duration(1, DAY),
            Default("10m"),
            "processor time of a writer from one epoch's beginning to the next one's",
        ),
        key("host-calls", Integer(1, 1_000_000_000_000), Default("1000000"), "calls into the host during one call"),
        key(
            "transfer",
            Size(4 << 10, 1024 * MIB),
            Default("32MiB"),
            "what is handed over in one go: arguments or result of one call, a batch, all states that a writer is opened with",
        ),
        key("handles", Integer(1, 1_000_000), Default("4096"), "streams, files, sockets and the like at once"),
        key("random", Size(64, 1024 * MIB), Default("64KiB"), "random bytes per request"),
        key("random-total", Size(64, 1 << 40), Default("16MiB"), "random bytes of all requests during one call"),
        key(
            "log-lines",
            Integer(0, 1_000_000_000),
            Default("1000"),
            "log lines per minute of all instances of the sink; further ones are dropped",
        ),
        key(
            "log-bytes",
            Size(0, 1024 * MIB),
            Default("1MiB"),
            "log bytes per minute of all instances of the sink; further lines are dropped",
        ),
        key("metric-names", Integer(0, 100_000), Default("100"), "names of metrics; further ones are dropped"),
        key(
            "metric-series",
            Integer(0, 1_000_000),
            Default("200"),
            "series of metrics, which are names with labels; further ones are dropped",
        ),
        key("committable", Size(1 << 10, 64 * MIB), Default("1MiB"), "what prepare answers for one part; it is sealed"),
        key("state", Size(1 << 10, 64 * MIB), Default("1MiB"), "state of one writer; it is sealed"),
        key("message", Size(64, 64 << 10), Default("4KiB"), "text of one error or log line; the rest is cut off"),
        key("connections", Integer(0, 10_000), Default("64"), "connections at once, HTTP requests included"),
        key("requests", Integer(0, 1_000_000_000), Default("10000"), "connections and requests begun during one call"),
        key("lookups", Integer(0, 1_000_000_000), Default("1000"), "name lookups during one call"),
        key("bytes-up", Size(0, 1 << 60), Default("16GiB"), "bytes sent to the network during one call"),
        key("bytes-down", Size(0, 1 << 60), Default("1GiB"), "bytes received from the network during one call"),
        key("header-bytes", Size(4 << 10, 64 * MIB), Default("4MiB"), "HTTP header fields that are held at once"),
        key(
            "disk-bytes",
            Size(0, 1 << 60),
            Default("1TiB"),
            "bytes in one granted directory that has no quota of its own",
        ),
        key(
            "disk-files",
            Integer(0, 1_000_000_000_000),
            Default("10000000"),
            "files and folders in one granted directory that has no quota of its own",
        ),
        key("flushes", Integer(1, 1_000_000), Default("1000"), "flushes to disk per second"),
    ],
};

/// `{ key = … }` of a route.
pub(crate) const ROUTE: Table = Table {
    path: "sinks.NAME.route",
    about: "rows with equal values of this field meet the same writer",
    keys: &[key("key", Text, Required, "the field's name")],
};

/// `{ path = … }` of a directory.
pub(crate) const DIR: Table = Table {
    path: "sinks.NAME.dirs.NAME",
    about: "a directory that the plugin may use; a path in quotes instead of the table means the path alone",
    keys: &[
        key("path", Path, Required, "where it is; made if missing"),
        key("quota", Size(4 << 10, 1 << 60), Means("1TiB"), "bytes of all files in it together, whoever wrote them"),
        key("max-files", Integer(1, 1_000_000_000), Means("10000000"), "files and folders in it"),
        key("own-volume", Boolean, Default("false"), "refuse to start where it shares a volume with the state"),
    ],
};

/// `{ env = … }` or `{ file = … }` of a secret.
pub(crate) const SECRET: Table = Table {
    path: "sinks.NAME.secrets.NAME",
    about: "where a secret's value is found; exactly one of the keys",
    keys: &[
        key("env", Text, Means("see file"), "name of an environment variable"),
        key("file", Path, Means("see env"), "a file; one newline at its end does not count"),
    ],
};

/// All tables of a pipeline file, for a reference text.
pub const ALL: &[Table] = &[
    TOP,
    PIPELINE,
    CHECKPOINT,
    FILES,
    GENERATE,
    STDIN,
    CSV_OPTIONS,
    SINK,
    FILES_OPTIONS,
    TRANSFORM,
    ROUTE,
    DIR,
    SECRET,
    super::network::TCP,
    super::services::HTTP,
    super::services::AUTH,
    super::services::BASIC,
    super::services::SIGV4,
    LIMITS,
];
