mod commits;
mod dead_letter;
mod faults;
mod hostile;
mod operators;
mod runs;
mod storm;
