//! Errors of this crate. A call that fails is a [`CallFault`] instead.

use std::fmt;
use std::path::PathBuf;

use tidegate_protocol::plugin::CallFault;

use crate::caps::Excess;

/// The host's own part failed.
#[derive(Debug)]
pub enum WasmError {
    /// wasmtime does not run here.
    Engine {
        /// Why.
        detail: String,
    },
    /// The compile cache cannot be used.
    Cache {
        /// Which file or directory.
        path: PathBuf,
        /// What is wrong and how to mend it.
        detail: String,
    },
    /// The plugin needs more than the sink's limits give it.
    Budget {
        /// The sink.
        sink: String,
        /// What it needs and what it may have.
        detail: String,
    },
    /// The child processes in which plugins are compiled cannot be used.
    Worker {
        /// What is wrong and how to mend it.
        detail: String,
    },
    /// It is not known that no child process of an earlier run is left.
    Lease {
        /// The file that tells.
        path: PathBuf,
        /// What is wrong and how to mend it.
        detail: String,
    },
    /// A grant does not fit.
    Grant {
        /// The sink it was meant for.
        sink: String,
        /// What is wrong and how to mend it.
        detail: String,
    },
}

impl fmt::Display for WasmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WasmError::Engine { detail } => write!(f, "the WebAssembly engine cannot start: {detail}"),
            WasmError::Cache { path, detail } => write!(f, "compile cache {}: {detail}", path.display()),
            WasmError::Worker { detail } => f.write_str(detail),
            WasmError::Lease { path, detail } => write!(f, "{}: {detail}", path.display()),
            WasmError::Grant { sink, detail } | WasmError::Budget { sink, detail } => {
                write!(f, "sink `{sink}`: {detail}")
            }
        }
    }
}

impl std::error::Error for WasmError {}

/// Why a file is not accepted as a plugin. Up to [`AdmitError::Describe`] nothing of it has run.
#[derive(Debug)]
pub enum AdmitError {
    /// Too large to be looked at.
    TooLarge {
        /// Its name.
        plugin: String,
        /// Its size in bytes.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// It consists of too much of something, whatever its size.
    TooIntricate {
        /// Its name.
        plugin: String,
        /// Of what, and how much is allowed.
        excess: Excess,
    },
    /// Not a WebAssembly component.
    NotAComponent {
        /// Its name.
        plugin: String,
        /// What it is instead, and how to get a component.
        detail: String,
    },
    /// A component that is not a sink plugin, or one of another interface version.
    Interface {
        /// Its name.
        plugin: String,
        /// The version it was built for; `None` if it exports no `tidegate:sink` interface.
        found: Option<String>,
        /// The version this host speaks.
        expected: &'static str,
        /// More, for a person.
        detail: String,
    },
    /// It imports what no host of this version has.
    Imports {
        /// Its name.
        plugin: String,
        /// The imports that are not on the list.
        unknown: Vec<String>,
    },
    /// An import or export has another type than the interface says.
    Type {
        /// Its name.
        plugin: String,
        /// Which, and how it differs.
        detail: String,
    },
    /// It uses WebAssembly proposals that are switched off.
    Proposals {
        /// Its name.
        plugin: String,
        /// Which ones it does not do without.
        proposals: Vec<String>,
        /// Where the first of them is met.
        detail: String,
    },
    /// It is invalid, or wasmtime does not support something that it uses.
    Compile {
        /// Its name.
        plugin: String,
        /// Why.
        detail: String,
    },
    /// Compiling it takes more than is allowed. Other plugins are not affected.
    CompileLimit {
        /// Its name.
        plugin: String,
        /// What it took more of.
        detail: String,
        /// The key of the host file under which more can be allowed.
        key: &'static str,
    },
    /// The compiler broke down over it. Other plugins are not affected.
    Compiler {
        /// Its name.
        plugin: String,
        /// How.
        detail: String,
    },
    /// The host failed to have it compiled; the plugin may be well.
    Worker {
        /// Its name.
        plugin: String,
        /// What is wrong and how to mend it.
        detail: String,
    },
    /// So many plugins wait for being compiled that this one was not let in. Try again later.
    Busy {
        /// Its name.
        plugin: String,
        /// How many wait.
        waiting: usize,
    },
    /// It cannot say what it is.
    Describe(Box<CallFault>),
    /// It begins with more, or says that it needs more, than it may have.
    Budget {
        /// Its name.
        plugin: String,
        /// The budget's key in the operator's configuration.
        budget: &'static str,
        /// What it needs and what it may have, with units.
        detail: String,
    },
    /// What it says of itself makes no sense.
    Description {
        /// Its name.
        plugin: String,
        /// What is wrong.
        detail: String,
    },
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdmitError::TooLarge { plugin, bytes, max } => {
                write!(f, "{plugin} has {bytes} bytes; a plugin may have at most {max}")
            }
            AdmitError::TooIntricate { plugin, excess } => write!(f, "{plugin} has {excess}"),
            AdmitError::NotAComponent { plugin, detail } => {
                write!(f, "{plugin} is not a WebAssembly component: {detail}")
            }
            AdmitError::Interface { plugin, found: Some(found), expected, detail } => write!(
                f,
                "{plugin} was built for tidegate:sink@{found}; this host speaks tidegate:sink@{expected}: {detail}"
            ),
            AdmitError::Interface { plugin, found: None, expected, detail } => {
                write!(f, "{plugin} is not a sink plugin of tidegate:sink@{expected}: {detail}")
            }
            AdmitError::Imports { plugin, unknown } => {
                write!(f, "{plugin} imports what this host does not have: {}", unknown.join(", "))
            }
            AdmitError::Type { plugin, detail } => {
                write!(f, "{plugin} does not fit the interface tidegate:sink: {detail}")
            }
            AdmitError::Compile { plugin, detail } => write!(f, "{plugin} cannot be compiled: {detail}"),
            AdmitError::Proposals { plugin, proposals, detail } => write!(
                f,
                "{plugin} uses what is switched off in this host: {}; build it without ({detail})",
                proposals.join(", ")
            ),
            AdmitError::CompileLimit { plugin, detail, key } => {
                write!(
                    f,
                    "{plugin} takes too much to compile: {detail}; `{key}` under [host] in the host file allows more"
                )
            }
            AdmitError::Compiler { plugin, detail } => {
                write!(f, "the compiler broke down over {plugin}: {detail}; nothing else is affected")
            }
            AdmitError::Worker { plugin, detail } => write!(f, "{plugin} cannot be compiled: {detail}"),
            AdmitError::Busy { plugin, waiting } => {
                write!(
                    f,
                    "{plugin} cannot be compiled now: {waiting} plugins are waiting for their turn; try again later"
                )
            }
            AdmitError::Describe(fault) => write!(f, "the plugin cannot say what it is: {fault}"),
            AdmitError::Budget { plugin, detail, .. } => write!(f, "{plugin} needs more than it may have: {detail}"),
            AdmitError::Description { plugin, detail } => {
                write!(f, "{plugin} describes itself in a way that makes no sense: {detail}")
            }
        }
    }
}

impl std::error::Error for AdmitError {}
