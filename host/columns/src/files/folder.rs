//! Folders by column values: `carrier={carrier}/month={month}`.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Schema};
use arrow_select::take::take_record_batch;

use crate::schema::{TypeName, unknown_column};
use crate::{ColumnsError, Result};

/// Folders within folders.
const MAX_SEGMENTS: usize = 8;
/// Bytes of one folder's name.
const MAX_SEGMENT_BYTES: usize = 128;
/// Bytes of a whole path of folders.
pub(crate) const MAX_FOLDER_BYTES: usize = 512;
/// What stands for NULL, and as in Hive for the empty string.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Into which folder a row goes. Written as `carrier={carrier}/month={month}/`; a slash at the end may be left out.
///
/// Values are written as in CSV and escaped as Hive does: what cannot stand in a name is `%` and two hexadecimal digits
/// of each byte. NULL and the empty string are `__HIVE_DEFAULT_PARTITION__`. A name that would begin with `_` or `.` has
/// that character escaped as well, since readers pass over such names. A name of more than 128 bytes is cut and
/// ends in `~` and a hash of the whole, so that a long value never holds up a pipeline; the columns themselves stay in
/// the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderTemplate {
    text: String,
    segments: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Column(String),
}

impl FromStr for FolderTemplate {
    type Err = ColumnsError;

    fn from_str(text: &str) -> Result<FolderTemplate> {
        let bad = |what: &str| {
            ColumnsError::bad_option(format!(
                "folder `{}` {what}; expected something like `carrier={{carrier}}/month={{month}}/`",
                text.escape_debug()
            ))
        };
        let path = text.strip_suffix('/').unwrap_or(text);
        let segments: Vec<Vec<Piece>> =
            path.split('/').map(|segment| parse_segment(segment).map_err(bad)).collect::<Result<_>>()?;
        if segments.len() > MAX_SEGMENTS {
            return Err(bad("has more than 8 levels"));
        }
        if !segments.iter().flatten().any(|piece| matches!(piece, Piece::Column(_))) {
            return Err(bad("names no column in braces"));
        }
        Ok(FolderTemplate { text: text.to_owned(), segments })
    }
}

impl fmt::Display for FolderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_segment(segment: &str) -> Result<Vec<Piece>, &'static str> {
    if segment.is_empty() {
        return Err("has an empty level");
    }
    if segment.starts_with(['_', '.']) {
        return Err("has a level that begins with `_` or `.`, which readers pass over");
    }
    let mut pieces = Vec::new();
    let mut rest = segment;
    let mut text_bytes = 0;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('{') {
            let (name, behind) = behind.split_once('}').ok_or("has a `{` without its `}`")?;
            if name.is_empty() || name.contains('{') {
                return Err("has braces without a column's name");
            }
            pieces.push(Piece::Column(name.to_owned()));
            rest = behind;
        } else {
            let (text, behind) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            if text.contains(|c: char| must_be_escaped(c) && c != '=') {
                return Err("holds a character that cannot stand in a folder's name");
            }
            text_bytes += text.len();
            pieces.push(Piece::Text(text.to_owned()));
            rest = behind;
        }
    }
    if text_bytes > MAX_SEGMENT_BYTES / 2 {
        return Err("has a level with more than 64 bytes of plain text");
    }
    Ok(pieces)
}

impl FolderTemplate {
    /// The columns it names, each once, in the order in which they appear.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = Vec::new();
        for piece in self.segments.iter().flatten() {
            if let Piece::Column(name) = piece
                && !columns.contains(&name.as_str())
            {
                columns.push(name);
            }
        }
        columns
    }

    /// Whether rows of this schema can be put into folders.
    ///
    /// # Errors
    /// `BadOption`: a column is missing, or its values have no short text.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        for name in self.columns() {
            let Some((_, field)) = schema.column_with_name(name) else {
                return Err(ColumnsError::bad_option(format!(
                    "folder `{}`: {}",
                    self.text,
                    unknown_column(name, schema.fields())
                )));
            };
            if !is_short(field.data_type()) {
                return Err(ColumnsError::bad_option(format!(
                    "folder `{}` names column `{name}` of type {}: expected text, a number, a date, a time or a boolean",
                    self.text,
                    TypeName(field.data_type())
                )));
            }
        }
        Ok(())
    }

    /// The rows by folder, folders in the order of their first rows, rows of each in their own order.
    pub(crate) fn split(&self, batch: &RecordBatch) -> Result<Vec<(Arc<str>, RecordBatch)>> {
        let (folders, of_row) = self.folders(batch)?;
        if folders.len() == 1 {
            return Ok(folders.into_iter().map(|folder| (folder, batch.clone())).collect());
        }
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); folders.len()];
        for (row, &folder) in of_row.iter().enumerate() {
            rows[folder].push(row as u32);
        }
        folders.into_iter().zip(rows).map(|(folder, rows)| Ok((folder, pick(batch, rows)?))).collect()
    }

    /// All folders in the order of their first rows, and for each row which of them.
    fn folders(&self, batch: &RecordBatch) -> Result<(Vec<Arc<str>>, Vec<usize>)> {
        let columns = self.columns();
        let ids: Vec<Values> = columns.iter().map(|name| Values::of(batch, name)).collect::<Result<_>>()?;
        let mut folders: Vec<Arc<str>> = Vec::new();
        // Distinct values can have one folder: NULL and the empty string.
        let mut by_name: HashMap<Arc<str>, usize> = HashMap::new();
        let mut by_key: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut of_row = Vec::with_capacity(batch.num_rows());
        let mut key = Vec::with_capacity(ids.len());
        let mut last: Option<(Vec<u32>, usize)> = None;
        for row in 0..batch.num_rows() {
            key.clear();
            key.extend(ids.iter().map(|values| values.of_row[row]));
            if let Some((known, folder)) = &last
                && *known == key
            {
                of_row.push(*folder);
                continue;
            }
            let folder = match by_key.get(&key) {
                Some(&folder) => folder,
                None => {
                    let name = self.name(&columns, &ids, &key);
                    let folder = *by_name.entry(name.clone()).or_insert_with(|| {
                        folders.push(name);
                        folders.len() - 1
                    });
                    by_key.insert(key.clone(), folder);
                    folder
                }
            };
            of_row.push(folder);
            last = Some((key.clone(), folder));
        }
        Ok((folders, of_row))
    }

    fn name(&self, columns: &[&str], ids: &[Values], key: &[u32]) -> Arc<str> {
        let value = |name: &str| {
            let index = columns.iter().position(|column| *column == name)?;
            ids[index].texts.get(key[index] as usize)?.as_deref()
        };
        let mut folder = String::new();
        for segment in &self.segments {
            if !folder.is_empty() {
                folder.push('/');
            }
            let mut name = String::new();
            for piece in segment {
                match piece {
                    Piece::Text(text) => name.push_str(text),
                    Piece::Column(column) => match value(column) {
                        None | Some("") => name.push_str(NULL),
                        Some(text) => escape(text, &mut name),
                    },
                }
            }
            folder.push_str(&safe(name, self.segments.len()));
        }
        folder.into()
    }
}

/// The distinct values of a column as text, and which of them each row has.
struct Values {
    texts: Vec<Option<String>>,
    of_row: Vec<u32>,
}

impl Values {
    fn of(batch: &RecordBatch, name: &str) -> Result<Values> {
        let column = batch
            .column_by_name(name)
            .ok_or_else(|| ColumnsError::internal(format!("rows without the folder's column `{name}`")))?;
        let floating = column.data_type().is_floating();
        let options = FormatOptions::new();
        let formatter =
            ArrayFormatter::try_new(column.as_ref(), &options).map_err(|error| not_text(name, &error.to_string()))?;
        let mut values = Values { texts: Vec::new(), of_row: Vec::with_capacity(column.len()) };
        let mut known: HashMap<Option<String>, u32> = HashMap::new();
        let mut text = String::new();
        let mut last: Option<u32> = None;
        for row in 0..column.len() {
            let found = if column.is_null(row) {
                None
            } else {
                text.clear();
                write!(text, "{}", formatter.value(row)).map_err(|_| not_text(name, "it has no text"))?;
                // The two zeros of floating point are equal.
                Some(if floating && text == "-0.0" { "0.0" } else { text.as_str() })
            };
            let same = last.filter(|&id| values.texts[id as usize].as_deref() == found);
            let id = match same {
                Some(id) => id,
                None => {
                    let owned = found.map(str::to_owned);
                    let next = values.texts.len() as u32;
                    *known.entry(owned).or_insert_with_key(|key| {
                        values.texts.push(key.clone());
                        next
                    })
                }
            };
            values.of_row.push(id);
            last = Some(id);
        }
        Ok(values)
    }
}

fn not_text(name: &str, detail: &str) -> ColumnsError {
    ColumnsError::bad_value(format!("column `{name}` holds a value that cannot name a folder: {detail}"))
}

fn pick(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch> {
    let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else { return Ok(batch.slice(0, 0)) };
    if (last - first) as usize + 1 == rows.len() {
        return Ok(batch.slice(first as usize, rows.len()));
    }
    take_record_batch(batch, &UInt32Array::from(rows))
        .map_err(|error| ColumnsError::internal(format!("rows could not be picked by folder: {error}")))
}

fn is_short(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_short(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Boolean | DataType::Date32 | DataType::Date64 => true,
        DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(_, _) => true,
        other => other.is_numeric(),
    }
}

/// What Hive escapes, and every other control character.
fn must_be_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '"' | '#' | '%' | '\'' | '*' | '/' | ':' | '=' | '?' | '\\' | '{' | '}' | '[' | ']' | '^')
}

fn escape(text: &str, into: &mut String) {
    for c in text.chars() {
        if must_be_escaped(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(into, "%{byte:02X}");
            }
        } else {
            into.push(c);
        }
    }
}

/// A name that readers do not pass over, and that is not too long.
fn safe(mut name: String, segments: usize) -> String {
    let first = match name.as_bytes().first() {
        Some(b'_') => "%5F",
        Some(b'.') => "%2E",
        _ => "",
    };
    if !first.is_empty() {
        name.replace_range(..1, first);
    }
    // So that all segments with their slashes stay below the limit of the path.
    let limit = MAX_SEGMENT_BYTES.min(MAX_FOLDER_BYTES / segments - 1);
    if name.len() > limit {
        let ending = format!("~{:016x}", hash(name.as_bytes()));
        let cut = (0..=limit - ending.len()).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        name.truncate(cut);
        name.push_str(&ending);
    }
    name
}

/// FNV-1a: the same for ever, since folders are compared across runs.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
