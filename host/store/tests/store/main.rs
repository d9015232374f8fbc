//! What the store promises, tested from outside.

mod allocation;
mod crash;
mod damage;
mod faults;
mod format_md;
mod formats;
mod memory;
mod pages;
mod real;
mod reclaim;
mod support;
mod wire;
