//! What the store promises, tested from outside.

mod real;
mod support;
