//! The crash sweep: every effect of small pipelines is disturbed in every way that applies, until nothing is left to
//! disturb; after each the pipeline recovers without further faults, and every promise is judged.
//!
//! [`effect`] says what can be disturbed and how, [`modes`] what applies where, [`scenario`] which pipelines there are.
//! [`director`] counts the effects of one process, [`tap`] is where they pass. [`execution`] does one disturbance with its
//! recovery, [`images`] builds what a power cut may leave, [`points`] recognises failure points in what happened
//! ([`trace`], [`view`]), and [`sweeping`] goes through it all.

mod bench;
mod command;
mod damage;
mod director;
mod effect;
mod execution;
mod images;
mod modes;
mod points;
mod process;
mod scenario;
mod sweeping;
mod tap;
mod trace;
mod view;

pub use command::command;
