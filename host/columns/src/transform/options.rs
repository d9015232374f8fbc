use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a transform does with rows, as the `transform` section of a sink says it.
///
/// The steps are applied in the order of the fields here, whatever their order in the file; each sees the columns
/// as the steps before it left them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransformOptions {
    /// Old names of columns with their new ones, all at the same time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rename: BTreeMap<String, String>,
    /// Columns with the SQL type that they get, in their place.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cast: BTreeMap<String, String>,
    /// New columns, behind the others, in the order of their names. They do not see each other.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add: BTreeMap<String, Added>,
    /// A SQL condition: rows for which it is false or NULL are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// SQL expressions that become the columns: a column's name, `expression AS name`, or `*` for all columns.
    /// Empty: all columns stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<String>,
    /// Columns that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<String>,
}

impl TransformOptions {
    /// Whether rows pass unchanged.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The value of an added column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a SQL expression, a number, true or false")]
pub enum Added {
    /// A constant.
    Boolean(bool),
    /// A constant, `BIGINT`.
    Integer(i64),
    /// A constant, `DOUBLE`.
    Float(f64),
    /// A SQL expression; a constant text stands in single quotes in it.
    Expression(String),
}
