//! One module per command. Each returns the exit code, or the failure to print.

pub(crate) mod archive;
pub(crate) mod checkpoint;
pub(crate) mod dead_letter;
pub(crate) mod ledger;
pub(crate) mod orphans;
pub(crate) mod plugin;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod savepoint;
pub(crate) mod shell;
pub(crate) mod validate;

use std::future::Future;
use std::path::{Path, PathBuf};

use tidegate_server::config::{self, HostFile, PipelineFile};
use tidegate_server::{Host, Isolation, ServerError};

use crate::args::HostArgs;
use crate::exit::Exit;
use crate::output::{Failure, say};

/// What a command comes to.
pub(crate) type Outcome = Result<Exit, Failure>;

/// Reads the pipeline file.
pub(crate) fn load(path: &Path) -> Result<PipelineFile, Failure> {
    config::load(path).map_err(|error| ServerError::from(error).into())
}

/// Starts the engine with the user's compile cache; without, where it cannot be used. The budgets are those of the host file
/// that was given or that the environment names.
pub(crate) fn host(args: &HostArgs) -> Result<Host, Failure> {
    host_in(args, Isolation::Shared)
}

/// As [`host`], with plugins in a process of their own also where the host file does not ask for that.
pub(crate) fn host_in(args: &HostArgs, isolation: Isolation) -> Result<Host, Failure> {
    let named = args.host_file.clone().or_else(|| std::env::var_os(HOST_FILE).map(PathBuf::from));
    // Set and empty is not set.
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let file = named.map(|path| config::load_host(&path).map_err(ServerError::from)).transpose()?;
    start(file.as_ref(), isolation)
}

/// As [`host`], where no pipeline is run.
pub(crate) fn plain_host() -> Result<Host, Failure> {
    start(None, Isolation::Shared)
}

fn start(file: Option<&HostFile>, isolation: Isolation) -> Result<Host, Failure> {
    if let Some(dir) = cache_dir() {
        match Host::isolated(Some(dir), file, isolation) {
            Ok(host) => return Ok(host),
            Err(error) => say(&format!("warning: {error}; compiled plugins are not kept")),
        }
    }
    Ok(Host::isolated(None, file, isolation)?)
}

/// Names the host file where no option does.
const HOST_FILE: &str = "TIDEGATE_HOST";

fn cache_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("TIDEGATE_CACHE_DIR")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|dir| dir.join("tidegate")))
        .or_else(|| absolute("HOME").map(|dir| dir.join(".cache").join("tidegate")))
}

/// Waits for calls of plugins.
pub(crate) fn wait<T>(answer: impl Future<Output = Result<T, ServerError>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot start threads: {error}")))?;
    Ok(runtime.block_on(answer)?)
}

/// Says that a pipeline has no state yet.
pub(crate) fn no_state(file: &PipelineFile) -> String {
    format!("pipeline `{}` has no state in {} yet", file.pipeline.name, file.pipeline.state.display())
}
