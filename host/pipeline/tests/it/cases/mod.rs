mod commits;
mod dead_letter;
mod hostile;
mod operators;
mod runs;
mod storm;
