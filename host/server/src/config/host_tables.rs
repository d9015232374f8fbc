//! Every table and key of a host file: shape, default, meaning.

use super::reader::{Absent, Absent::*, Shape::*, Table};
use super::tables::key;

const SECOND: u64 = 1_000;
const DAY: u64 = 86_400 * SECOND;
const MIB: u64 = 1 << 20;

const SHARE: Absent = Means("an equal share of what [host] has left, among the tenants that do not say it");

/// The top level.
pub(crate) const TOP: Table = Table {
    path: "",
    about: "one file describes what a process gives to the plugins of its tenants",
    keys: &[
        key("host", Table, Means("all defaults"), "what there is for all tenants together"),
        key("tenants", Table, Required, "who shares it, one table per tenant"),
    ],
};

/// `[host]`.
pub(crate) const HOST: Table = Table {
    path: "host",
    about: "what there is for all plugins together; the budgets of all tenants must fit into it",
    keys: &[
        key(
            "memory",
            Size(MIB, 1 << 50),
            Means("three quarters of the machine's, or of what its control group allows"),
            "linear memories and tables of all plugins",
        ),
        key("instances", Integer(1, 100_000), Default("2000"), "instances of plugins at once; each has a thread"),
        key("connections", Integer(1, 1_000_000), Default("4000"), "connections of all plugins at once"),
        key(
            "cpu-millis",
            Integer(1, 10_000_000),
            Means("three quarters of the processors"),
            "processor time of all plugins, in thousandths of one processor",
        ),
        key("stack", Size(64 << 10, 16 * MIB), Default("1MiB"), "stack of every instance's own code"),
        key("compile-memory", Size(64 * MIB, 1 << 40), Default("3GiB"), "address space for compiling one plugin"),
        key("compile-cpu-time", Duration(SECOND, DAY), Default("5m"), "processor time for compiling one plugin"),
        key("compile-time", Duration(SECOND, DAY), Default("5m"), "wall-clock time for compiling one plugin"),
        key("compile-code", Size(MIB, 1 << 40), Default("512MiB"), "compiled code of one plugin"),
        key("compile-workers", Integer(1, 1000), Default("2"), "plugins that are compiled at the same time"),
        key("compile-queue", Integer(0, 100_000), Default("64"), "plugins that wait for being compiled"),
        key(
            "confinement",
            OneOf(&["required", "if-possible"]),
            Default("required"),
            "what happens where the kernel denies a part of what confines child processes: nothing starts, or a warning",
        ),
    ],
};

/// `[tenants.NAME]`.
pub(crate) const TENANT: Table = Table {
    path: "tenants.NAME",
    about: "what the plugins of all pipelines of one tenant may use together",
    keys: &[
        key("memory", Size(MIB, 1 << 50), SHARE, "linear memories and tables of all instances"),
        key("instances", Integer(1, 100_000), SHARE, "instances at once"),
        key("connections", Integer(1, 1_000_000), SHARE, "connections at once"),
        key(
            "cpu-millis",
            Integer(1, 10_000_000),
            SHARE,
            "processor time, in thousandths of one processor; who has spent it waits, and is not ended",
        ),
        key("log-lines", Integer(0, 1_000_000_000), Default("5000"), "log lines per minute; further ones are dropped"),
        key("log-bytes", Size(0, 1024 * MIB), Default("5MiB"), "log bytes per minute; further lines are dropped"),
        key("metric-series", Integer(0, 1_000_000), Default("2000"), "series of metrics; further ones are dropped"),
        key("bytes-up", Size(0, 1 << 60), Default("1TiB"), "bytes sent to the network per minute"),
        key("bytes-down", Size(0, 1 << 60), Default("64GiB"), "bytes received from the network per minute"),
        key("flushes", Integer(1, 10_000_000), Default("10000"), "flushes to disk per second"),
        key(
            "isolation",
            OneOf(&["shared", "process"]),
            Default("shared"),
            "where its plugins run: in the process of all, or in a child process of their own",
        ),
    ],
};

/// All tables of a host file, for a reference text.
pub const ALL: &[Table] = &[TOP, HOST, TENANT];
