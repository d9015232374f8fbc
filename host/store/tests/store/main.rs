//! What the store promises, tested from outside.

mod allocation;
mod crash;
mod damage;
mod faults;
mod folders;
mod format_md;
mod formats;
mod memory;
mod pages;
mod real;
mod reclaim;
mod sectors;
mod support;
mod wire;
