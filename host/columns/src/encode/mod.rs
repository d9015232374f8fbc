//! Columns to text, or to an Arrow stream. What is written is read back as the same values by [`crate::decode`].
//!
//! Written here rather than taken from arrow-json and arrow-csv because of speed, and because numbers, instants and
//! floats without a number must come back exactly as they were.

mod csv;
mod json;
mod text;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidegate_protocol::plugin::Encoding;

use crate::{ColumnsError, Result};

pub(crate) use csv::header as csv_header;

/// Rows in an encoding: JSON lines with every column and explicit nulls, CSV after RFC 4180 without a header, or one
/// Arrow IPC stream.
///
/// # Errors
/// A column has a type that the encoding has no form for, which the message names; or the encoding is not one of rows.
pub fn encode(batch: &RecordBatch, encoding: Encoding) -> Result<Bytes> {
    match encoding {
        Encoding::JsonLines => json::lines(batch).map(Bytes::from),
        Encoding::Csv => csv::records(batch).map(Bytes::from),
        Encoding::ArrowStream => arrow_stream(batch),
        Encoding::Raw | Encoding::Files => {
            Err(ColumnsError::unsupported(format!("typed rows have no form as `{encoding}`; choose json-lines or csv")))
        }
    }
}

fn arrow_stream(batch: &RecordBatch) -> Result<Bytes> {
    let failed = |error| ColumnsError::unsupported(format!("rows do not fit an Arrow stream: {error}"));
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).map_err(failed)?;
    writer.write(batch).map_err(failed)?;
    writer.finish().map_err(failed)?;
    writer.into_inner().map(Bytes::from).map_err(failed)
}

#[cfg(test)]
mod tests;
