//! Which columns rows have.

pub(crate) mod ddl;
mod infer;
mod kept;

pub(crate) use ddl::{Name, TypeName};
pub use kept::{Kept, KeptColumns};

use arrow_schema::{Fields, SchemaRef};

use crate::{ColumnsError, Result};

/// The columns of typed rows: an Arrow schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema(SchemaRef);

impl Schema {
    /// A schema of Arrow.
    pub fn new(schema: SchemaRef) -> Self {
        Self(schema)
    }

    /// As Arrow has it.
    pub fn arrow(&self) -> &SchemaRef {
        &self.0
    }

    /// Refuses a name that no column has.
    ///
    /// # Errors
    /// `BadOption`; names the nearest column.
    pub fn require_column(&self, name: &str) -> Result<()> {
        match self.0.column_with_name(name) {
            Some(_) => Ok(()),
            None => Err(ColumnsError::bad_option(unknown_column(name, self.0.fields()))),
        }
    }
}

/// The words for a column that does not exist.
pub(crate) fn unknown_column(name: &str, columns: &Fields) -> String {
    let nearest = columns.iter().map(|field| field.name()).min_by_key(|column| {
        let exact = strsim::damerau_levenshtein(name, column);
        // Another case is the likeliest slip.
        (strsim::damerau_levenshtein(&name.to_lowercase(), &column.to_lowercase()), exact)
    });
    let hint = match nearest {
        Some(column) => format!("the nearest is {}", Name(column)),
        None => "there are no columns".to_owned(),
    };
    format!("column {} does not exist; {hint}", Name(name))
}
