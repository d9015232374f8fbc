//! End-to-end tests against the real binary: one module per feature.

mod bad_input;
mod dead_letters;
mod edits;
mod finished;
mod follow;
mod given_up;
mod killed;
mod log_damage;
mod lost_state;
mod moving;
mod orphans;
mod places;
mod quarantine;
mod readers;
mod rescale;
mod savepoints;
mod secrets;
mod sources;
mod stopping;
mod two_sinks;
mod typed;
