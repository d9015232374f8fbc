//! What the host does with rows before a sink's plugin gets them: transform, added columns, encoding, whole files.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidegate_columns::added::{AddedColumns, Stamp};
use tidegate_columns::encode::encode;
use tidegate_columns::files::{FileFormat, FileOptions, FileWriter, check_same_columns};
use tidegate_columns::rows::{ColumnBatch, Rows};
use tidegate_columns::transform::{BadRow, Transform};
use tidegate_columns::{ColumnsError, ColumnsErrorKind, Schema};
use tidegate_protocol::ids::SourceId;
use tidegate_protocol::plugin::{Batch, Encoding, Reject};

use crate::spec::{Route, SinkShape};

/// The code of letters whose row could not be transformed; they hold the row as it came.
pub(crate) const NOT_TRANSFORMED: &str = "transform";

/// Shapes the rows of one participant.
pub(crate) struct Shaper {
    encoding: Encoding,
    /// One for each schema that rows come with. None: rows come as bytes.
    ways: Vec<Way>,
    files: Option<FileWriter>,
}

/// From rows as they come to rows as they go on.
struct Way {
    input: Schema,
    transform: Option<Transform>,
    added: AddedColumns,
}

/// Rows for the plugin.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) batch: Batch,
    /// The same rows as columns, if the plugin may still reject some.
    pub(crate) columns: Option<RecordBatch>,
}

/// What became of some rows.
#[derive(Debug, Default)]
pub(crate) struct Shaped {
    pub(crate) staged: Vec<Staged>,
    /// Rows that the filter left out.
    pub(crate) filtered: u64,
    /// Rows that could not be transformed, and their bytes.
    pub(crate) bad: Vec<(Reject, Bytes)>,
}

impl Shaper {
    /// For one of so many participants, and rows of these sources; none of them if they come as bytes.
    ///
    /// # Errors
    /// The rows cannot be shaped or routed so; the message names the source.
    pub(crate) fn new(
        shape: &SinkShape,
        encoding: Encoding,
        route: &Route,
        participants: u32,
        schemas: &[(SourceId, Schema)],
    ) -> Result<Self, ColumnsError> {
        if schemas.is_empty() && (shape.transform.is_some() || !shape.added.is_empty()) {
            return Err(ColumnsError::bad_option(
                "`transform` and `columns` need rows with columns, and these come as bytes",
            ));
        }
        let mut ways: Vec<Way> = Vec::new();
        let mut first: Option<(&SourceId, Schema)> = None;
        for (source, schema) in schemas {
            let named = |error: ColumnsError| {
                ColumnsError::new(error.kind, format!("rows of source `{source}`: {}", error.message))
            };
            if let Route::Key(field) = route {
                let routed = |error: ColumnsError| ColumnsError { message: format!("`route.key`: {error}"), ..error };
                schema.require_column(field).map_err(routed).map_err(named)?;
            }
            let (way, output) = Way::new(shape, schema).map_err(named)?;
            try_encoding(shape, encoding, &output).map_err(named)?;
            match &first {
                // Written one after the other without names.
                Some((other, columns)) if shape.files.is_some() || encoding == Encoding::Csv => {
                    check_same_columns((other.as_str(), columns), (source.as_str(), &output))?;
                }
                Some(_) => {}
                None => first = Some((source, output)),
            }
            ways.push(way);
        }
        let columns = first.as_ref().map(|(_, columns)| columns);
        let files = shape.files.clone().map(|options| FileWriter::new(options.shared_by(participants), columns));
        let files = files.transpose()?;
        Ok(Self { encoding, ways, files })
    }

    /// Whether shaping takes more than handing on.
    pub(crate) fn works(&self) -> bool {
        !self.ways.is_empty() || self.files.is_some()
    }

    /// Whether the part should end soon, since it can have only so many files.
    pub(crate) fn crowded(&self) -> bool {
        self.files.as_ref().is_some_and(FileWriter::crowded)
    }

    /// Shapes rows.
    ///
    /// # Errors
    /// They cannot be encoded; the part is lost.
    pub(crate) fn shape(&mut self, rows: Rows, stamp: &Stamp) -> Result<Shaped, ColumnsError> {
        let columns = match rows {
            Rows::Columns(columns) => columns.batch,
            Rows::Encoded(batch) => {
                let staged = match &mut self.files {
                    None => vec![Staged { batch, columns: None }],
                    Some(files) => stored(files.write(&Rows::Encoded(batch))?),
                };
                return Ok(Shaped { staged, ..Shaped::default() });
            }
        };
        let way = self.ways.iter().find(|way| {
            let input = way.input.arrow();
            Arc::ptr_eq(input, columns.schema_ref()) || input.fields() == columns.schema_ref().fields()
        });
        let Some(way) = way else {
            return Err(ColumnsError::internal("rows with columns that no source has"));
        };
        let (columns, filtered, bad) = way.apply(columns, stamp)?;
        let staged = match &mut self.files {
            _ if columns.num_rows() == 0 => Vec::new(),
            Some(files) => stored(files.write(&Rows::Columns(ColumnBatch::new(columns)))?),
            None => vec![staged(columns, self.encoding)?],
        };
        Ok(Shaped { staged, filtered, bad })
    }

    /// Ends all files of the part: their last pieces.
    ///
    /// # Errors
    /// They cannot be encoded; the part is lost.
    pub(crate) fn finish(&mut self) -> Result<Vec<Staged>, ColumnsError> {
        self.files.as_mut().map_or(Ok(Vec::new()), |files| files.finish().map(stored))
    }
}

impl Way {
    fn new(shape: &SinkShape, schema: &Schema) -> Result<(Self, Schema), ColumnsError> {
        let transform = shape.transform.as_ref().map(|options| Transform::new(options, schema)).transpose()?;
        let shaped = transform.as_ref().map_or(schema, Transform::output);
        let added = AddedColumns::new(&shape.added, shaped)?;
        let output = added.output(shaped);
        Ok((Self { input: schema.clone(), transform, added }, output))
    }

    #[expect(clippy::type_complexity, reason = "taken apart at once")]
    fn apply(
        &self,
        rows: RecordBatch,
        stamp: &Stamp,
    ) -> Result<(RecordBatch, u64, Vec<(Reject, Bytes)>), ColumnsError> {
        let Some(transform) = &self.transform else {
            return Ok((self.added.apply(&rows, stamp)?, 0, Vec::new()));
        };
        let applied = transform.apply(&rows)?;
        let letter = |bad: BadRow| {
            let reject = Reject { row: bad.row as u64, code: NOT_TRANSFORMED.to_owned(), message: bad.reason };
            Ok((reject, encode(&rows.slice(bad.row, 1), Encoding::JsonLines)?))
        };
        let bad = applied.bad.into_iter().map(letter).collect::<Result<_, ColumnsError>>()?;
        Ok((self.added.apply(&applied.batch, stamp)?, applied.filtered, bad))
    }
}

/// Rows as columns, for a plugin that takes them encoded.
///
/// # Errors
/// The encoding has no form for them.
pub(crate) fn staged(columns: RecordBatch, encoding: Encoding) -> Result<Staged, ColumnsError> {
    let batch = Batch::new(encode(&columns, encoding)?, columns.num_rows() as u64, encoding);
    Ok(Staged { batch, columns: Some(columns) })
}

fn stored(chunks: Vec<Batch>) -> Vec<Staged> {
    chunks.into_iter().map(|batch| Staged { batch, columns: None }).collect()
}

/// Finds out now which columns the encoding has no form for. Files find out themselves.
fn try_encoding(shape: &SinkShape, encoding: Encoding, columns: &Schema) -> Result<(), ColumnsError> {
    let format = match encoding {
        _ if shape.files.is_some() => return Ok(()),
        Encoding::JsonLines => FileFormat::JsonLines,
        Encoding::Csv => FileFormat::Csv,
        Encoding::ArrowStream => FileFormat::ArrowStream,
        Encoding::Raw | Encoding::Files => {
            let message = format!("typed rows have no form as `{encoding}`");
            return Err(ColumnsError::new(ColumnsErrorKind::BadOption, message));
        }
    };
    FileWriter::new(FileOptions::new(format), Some(columns)).map(drop)
}
