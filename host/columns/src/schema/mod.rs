//! Which columns rows have.

pub(crate) mod ddl;
mod infer;

pub(crate) use ddl::TypeName;

use arrow_schema::SchemaRef;

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
}
