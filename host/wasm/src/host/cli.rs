//! What of a command line's surroundings is asked for: there is nothing, and asking counts as an attempt at what was not
//! granted. Many languages' runtimes ask when they start.

use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime_wasi::p2::bindings::cli::{environment, stdin};
use wasmtime_wasi::p2::{DynInputStream, pipe};

use super::State;

const ENVIRONMENT: &str = "wasi:cli/environment";
const STDIN: &str = "wasi:cli/stdin";

/// Links both, in place of wasmtime's.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    environment::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    stdin::add_to_linker::<_, HasSelf<State>>(linker, State::counted)
}

impl environment::Host for State {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        self.disk.count_denied(ENVIRONMENT);
        Ok(Vec::new())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        self.disk.count_denied(ENVIRONMENT);
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        self.disk.count_denied(ENVIRONMENT);
        Ok(None)
    }
}

impl stdin::Host for State {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        self.disk.count_denied(STDIN);
        let nothing: DynInputStream = Box::new(pipe::ClosedInputStream);
        Ok(self.table.push(nothing)?)
    }
}
