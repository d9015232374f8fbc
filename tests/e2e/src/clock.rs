//! Showing a process another clock, with libfaketime.
//!
//! The library is preloaded without its program `faketime`: both name what they share by their process id, under
//! `/dev/shm`, and leave it behind when they are killed. The program refuses to start on a name that an earlier process
//! with its number left, and process ids come round again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes way for the process's own number, becomes the program, and keeps the number.
const START: &str = "rm -f /dev/shm/faketime_shm_$$ /dev/shm/sem.faketime_sem_$$; \
                     LD_PRELOAD=$1 FAKETIME=$2; export LD_PRELOAD FAKETIME; shift 2; exec \"$@\"";

/// A clock that is off.
#[derive(Debug)]
pub struct Clock {
    offset: &'static str,
}

impl Clock {
    /// One that is this far from the real one, as libfaketime writes it: `-2h`, `+400d`.
    pub fn off_by(offset: &'static str) -> Self {
        Self { offset }
    }

    /// The same command, run under this clock.
    ///
    /// # Panics
    /// libfaketime is not installed.
    pub fn shown_to(&self, command: &Command) -> Command {
        let library = library().expect("a test that needs libfaketime asks for it first");
        let mut shown = Command::new("sh");
        shown.args(["-c", START, "sh"]).arg(library).arg(self.offset);
        shown.arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            shown.current_dir(folder);
        }
        shown
    }
}

/// The library for programs with threads, where packages put it.
pub(crate) fn library() -> Option<PathBuf> {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    ["/usr/lib", "/usr/lib64", "/usr/local/lib"]
        .iter()
        .flat_map(|root| [Path::new(root).join(&machine), PathBuf::from(root)])
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}
