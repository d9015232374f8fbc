/// What a transform does with rows, as the `transform` section of a sink says it.
///
/// The steps are applied in the order of the fields here, whatever their order in the file; each sees the columns
/// as the steps before it left them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransformOptions {
    /// Old names of columns with their new ones, all at the same time.
    pub rename: Vec<(String, String)>,
    /// Columns with the SQL type that they get, in their place.
    pub cast: Vec<(String, String)>,
    /// New columns with a SQL expression each, behind the others. They do not see each other. A constant is an
    /// expression, too; a constant text stands in single quotes.
    pub add: Vec<(String, String)>,
    /// A SQL condition: rows for which it is false or NULL are left out.
    pub filter: Option<String>,
    /// SQL expressions that become the columns: a column's name, `expression AS name`, or `*` for all columns.
    /// Empty: all columns stay.
    pub select: Vec<String>,
    /// Columns that are left out.
    pub drop: Vec<String>,
}

impl TransformOptions {
    /// Whether rows pass unchanged.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
