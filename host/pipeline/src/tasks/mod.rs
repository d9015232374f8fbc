//! The tasks of a run. Each owns its state, talks through channels only, and ends when a channel closes.

pub(crate) mod actor;
pub(crate) mod growth;
pub(crate) mod operator;
pub(crate) mod shaper;
pub(crate) mod sink;
pub(crate) mod source;
