//! What the end-to-end tests share: finding the real binary, running it, and reading what it left behind.
//!
//! Nothing here links the product: it is judged as a person meets it, by its command line and its directories. The tests
//! of typed rows read binary files back with `tidegate-columns`.

mod binary;
mod clock;
mod plugin;
mod process;
mod scene;
mod tools;

pub use binary::tidegate;
pub use clock::Clock;
pub use plugin::talkative;
pub use process::{Ended, Running, pause, until};
pub use scene::{Scene, lines, numbered, sorted};
pub use tools::{Tool, left_out};
