//! Pipelines as a library: pipeline files, what they promise, running them, and looking into their state.
//!
//! Nothing here prints. See `examples/embed` for a pipeline in a few lines.

mod canonical;
pub mod config;
mod schema;
