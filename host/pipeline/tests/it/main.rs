//! The driver against a destination in memory, with paused time.

mod count;

mod cases;
