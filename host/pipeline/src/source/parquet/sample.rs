//! The columns of Parquet files, as their footers name them.

use tidegate_columns::fit::{self, Fit};
use tidegate_columns::parquet::ParquetFile;
use tidegate_columns::{ColumnsError, Schema};

use super::position::explain;
use crate::source::SourceError;
use crate::source::files::discover::Found;
use crate::source::files::position::open_file;

/// Files that are looked at.
const SAMPLED: usize = 16;

/// The columns that hold the rows of the first files.
///
/// # Errors
/// A file cannot be read, two have columns that do not go together, or a column list cannot name them.
pub(super) fn schema(found: &Found) -> Result<Schema, SourceError> {
    let mut seen: Vec<(&str, Schema)> = Vec::new();
    let mut joined: Option<Schema> = None;
    for (name, path) in found.iter().take(SAMPLED) {
        let io = |error| SourceError::Io { path: path.clone(), error };
        let (file, _) = open_file(path).map_err(io)?;
        let file = ParquetFile::of(file, name).map_err(|error| explain(name, path, error))?;
        let columns = file.schema().clone();
        joined = Some(match joined {
            None => columns.clone(),
            Some(so_far) => fit::join(&so_far, &columns).map_err(|error| apart(&seen, name, &columns, error))?,
        });
        seen.push((name, columns));
    }
    let joined = joined.ok_or_else(|| not_taken("there is no file"))?;
    // As a checkpoint holds it: a list of columns with the types that have a name there.
    let listed = Schema::from_text(&joined.to_text()).map_err(|error| not_taken(&unnamed(&joined, error)))?;
    for (name, columns) in &seen {
        Fit::new(columns, &listed, false).map_err(|error| not_taken(&format!("{name}: {}", error.message)))?;
    }
    Ok(listed)
}

/// Names the two files that have a column in different types.
fn apart(seen: &[(&str, Schema)], name: &str, columns: &Schema, error: ColumnsError) -> SourceError {
    let pair = seen.iter().find_map(|(other, before)| Some((other, fit::join(before, columns).err()?)));
    // A type is always that of one file, unless what differs lies deeper within it.
    let (other, error) = pair.unwrap_or((&"the files before it", error));
    not_taken(&format!("of {other} and {name}: {}", error.message))
}

/// Says which column cannot stand in a column list.
fn unnamed(joined: &Schema, error: ColumnsError) -> String {
    let alone = |column: usize| joined.arrow().project(&[column]).ok().map(|alone| Schema::new(alone.into()));
    let fields = joined.arrow().fields().iter().enumerate();
    let mut unnamed =
        fields.filter(|(column, _)| alone(*column).is_some_and(|alone| Schema::from_text(&alone.to_text()).is_err()));
    match unnamed.next() {
        Some((_, field)) => format!(
            "the column `{}` has a type that no column list can name ({}); leave it out with unknown-fields = \"drop\"",
            field.name(),
            field.data_type()
        ),
        None => error.message,
    }
}

fn not_taken(why: &str) -> SourceError {
    let expected =
        format!("the columns cannot be taken from the files: {why}; declare `schema` with the columns that are wanted");
    SourceError::Configuration { key: "schema", expected }
}
