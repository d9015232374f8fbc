//! Typed rows as lines.

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidegate_protocol::plugin::Encoding;

use crate::{ColumnsError, Result};

pub(crate) fn encode(batch: &RecordBatch, encoding: Encoding) -> Result<Bytes> {
    let mut out = Vec::new();
    let failed =
        |error: arrow_schema::ArrowError| ColumnsError::bad_value(format!("rows could not be encoded: {error}"));
    match encoding {
        Encoding::Csv => {
            let mut writer = arrow_csv::WriterBuilder::new().with_header(false).build(&mut out);
            writer.write(batch).map_err(failed)?;
        }
        _ => {
            let mut writer = arrow_json::WriterBuilder::new()
                .with_explicit_nulls(true)
                .build::<_, arrow_json::writer::LineDelimited>(&mut out);
            writer.write(batch).map_err(failed)?;
            writer.finish().map_err(failed)?;
        }
    }
    Ok(out.into())
}
