//! Text to columns. Values are taken exactly as they are written, or their line is bad.

mod column;
mod csv;
pub(crate) mod cursor;
mod json;
mod names;
pub(crate) mod number;

use std::ops::Range;

use arrow_array::RecordBatch;

pub use csv::{CsvDecoder, CsvDialect, record_length};
pub use json::JsonDecoder;

use crate::{ColumnsError, Result};

/// Bytes that are decoded at once at most. What a batch holds is counted in 32 bits, and no value is longer than its
/// text.
pub const LONGEST_INPUT: usize = 1 << 30;

/// What was decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The good rows, in order.
    pub batch: RecordBatch,
    /// The others, in order.
    pub bad: Vec<BadLine>,
    /// Lines or records of the input, blank lines of JSON among them.
    pub lines: usize,
    /// Bytes of the input that they take.
    pub read: usize,
}

/// A line or record that is not a row of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Which, from 0, within the input of the call.
    pub line: usize,
    /// Where it is in the input, without its line end.
    pub bytes: Range<usize>,
    /// What is wrong with it and how to mend it, for a person. Bounded.
    pub reason: String,
}

/// What becomes of fields that the schema does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownFields {
    /// Their row is bad.
    #[default]
    BadRow,
    /// They are left out.
    Drop,
}

impl UnknownFields {
    /// Its name in pipeline files.
    pub fn name(self) -> &'static str {
        match self {
            UnknownFields::BadRow => "bad-row",
            UnknownFields::Drop => "drop",
        }
    }
}

fn check_length(input: &[u8]) -> Result<()> {
    if input.len() <= LONGEST_INPUT {
        return Ok(());
    }
    let length = input.len();
    Err(ColumnsError::unsupported(format!("{length} bytes at once; at most {LONGEST_INPUT} are decoded")))
}
