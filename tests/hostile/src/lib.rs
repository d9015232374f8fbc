//! Hostile plugins, and what must come of each.
//!
//! ```text
//! guest/src/guests/NAME.rs   a guest in Rust ─┐            ┌─ src/cases/NAME.rs: what it attacks, how that must end
//! wat/NAME.wat               a guest in WAT  ─┴─ a Guest ──┘
//! componentize/              makes sinks of the WAT, run by the build script
//! ```
//!
//! [`judge()`] runs one of them, best in a process of its own: call by call through the plugin trait, as one tenant,
//! while a neighbour of another tenant writes and commits; and then as the sink of a real pipeline, whose log is judged
//! afterwards. The build makes the table [`GUESTS`] of the files, and a test of each.

mod case;
mod crowd;
mod idle;
mod judge;
mod kept;
pub mod memory;
pub mod neighbour;
mod panics;
mod pipeline;
mod spy;
mod stage;

pub use case::{Case, Check, Ends, Expect, Guest, Instead, Seen, Source, limits};
pub use crowd::{Latencies, latencies};
pub use idle::{Idle, idle};
pub use judge::{Verdict, judge};
pub use kept::Kept;
pub use stage::{Doing, Stage};

mod cases {
    //! The table that the build makes.

    use crate::case::{Guest, Source};

    include!(concat!(env!("OUT_DIR"), "/table.rs"));
}

pub use cases::GUESTS;

/// The guest of this name.
pub fn find(name: &str) -> Option<&'static Guest> {
    GUESTS.iter().find(|guest| guest.name == name)
}
