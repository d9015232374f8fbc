//! Failures that sinks of this kind had in the field, each as a scenario with its number. What makes it impossible here is
//! named in a line of the test; taken out, the test fails by what a user would see: rows lost, rows twice, something
//! destroyed that was still needed, or silence where a person had to be told.
//!
//! `entries.txt` lists all of them, with those that wait for an engine's adapter; a test compares it with this binary.

mod errors;
mod fencing;
mod hand;
mod identity;
mod lifetime;
mod list;
mod ordering;
mod rehearsed;
mod scene;
mod sources;
mod wrapped;
