//! The sandbox from outside: through `Runtime`, `Admitted` and the plugin trait.

mod admission;
mod advisories;
mod budgets;
mod disk;
mod faults;
mod files;
mod hostile;
mod http;
mod network;
mod process;
mod support;
