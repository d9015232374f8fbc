mod commits;
mod dead_letter;
mod operators;
mod runs;
mod support;
