//! Simulated destinations, plugins and disks around the real pipeline: everything that a run meets, in memory and from
//! a seed.

#![allow(missing_docs)]

pub mod destination;
pub mod lines;
pub mod support;
