//! The driver against a destination in memory, with paused time.

mod cases;
mod count;
mod destination;
mod lines;
mod support;
