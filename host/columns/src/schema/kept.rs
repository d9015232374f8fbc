//! What a checkpoint keeps of the columns of a source: what the next run's columns have to fit.

use std::collections::BTreeSet;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use serde_json::{Value, json};

use super::Schema;
use crate::fit::check_successor;
use crate::{ColumnsError, Result};

/// Stands between the columns and what else is known of them. No column list goes on like this: JSON has its line ends
/// escaped, and nothing of a column list ends in `}`.
const REMARK: &str = "\n-- ";

/// What a checkpoint keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// The columns that its rows have.
    Columns(KeptColumns),
    /// The names of columns, in order, that its records have without saying so.
    Names(Vec<String>),
}

impl Kept {
    /// Reads [`KeptColumns::to_text`], or that of names.
    ///
    /// # Errors
    /// It is none.
    pub fn from_text(text: &str) -> Result<Self> {
        let (columns, remark) = match text.rsplit_once(REMARK) {
            Some((columns, remark)) => match serde_json::from_str::<Value>(remark) {
                Ok(remark @ Value::Object(_)) => (columns, remark),
                _ => (text, Value::Null),
            },
            None => (text, Value::Null),
        };
        let texts = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).map_err(unreadable);
        if let Some(names) = remark.get("names") {
            return texts(names).map(Kept::Names);
        }
        let unset = remark.get("unset").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let unset = unset.iter().map(texts).collect::<Result<_>>()?;
        Ok(Kept::Columns(KeptColumns { schema: Schema::parse_ddl(columns)?, unset }))
    }

    /// The columns, where they have types.
    pub fn into_columns(self) -> Option<KeptColumns> {
        match self {
            Kept::Columns(columns) => Some(columns),
            Kept::Names(_) => None,
        }
    }

    /// The text of names that stands in checkpoints.
    pub fn names_to_text(names: &[String]) -> String {
        format!("{REMARK}{}", json!({ "names": names }))
    }
}

fn unreadable(error: serde_json::Error) -> ColumnsError {
    ColumnsError::bad_schema(format!("what is known of the columns cannot be read: {error}"))
}

/// Columns, and which of them never had a value. Such a one may get any other type: no row was ever of the type that it
/// had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptColumns {
    schema: Schema,
    /// Columns, and fields and items within them, that were only NULL so far, as paths: an item of a list is the step
    /// `[]`.
    unset: BTreeSet<Vec<String>>,
}

impl KeptColumns {
    /// Columns that take the place of those kept before, if there were any: what is new has had no value.
    ///
    /// # Errors
    /// `BadSchema`: a value of before may not fit; names the column.
    pub fn after(before: Option<&KeptColumns>, schema: Schema) -> Result<Self> {
        let mut unset = BTreeSet::new();
        for field in schema.arrow().fields() {
            paths(field, &mut Vec::new(), &mut unset);
        }
        if let Some(before) = before {
            check_successor(&before.known(), &schema)?;
            let mut had = BTreeSet::new();
            for field in before.schema.arrow().fields() {
                paths(field, &mut Vec::new(), &mut had);
            }
            unset.retain(|path| !had.contains(path) || before.unset.contains(path));
        }
        Ok(Self { schema, unset })
    }

    /// The columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Notes which columns have values in these rows; true if that is news. Rows with other columns tell nothing.
    pub fn see(&mut self, rows: &RecordBatch) -> bool {
        let before = self.unset.len();
        self.unset.retain(|path| match path.split_first() {
            Some((column, rest)) => !rows.column_by_name(column).is_some_and(|column| has_value(column, rest)),
            None => false,
        });
        self.unset.len() < before
    }

    /// Whether every column has had a value.
    pub fn all_set(&self) -> bool {
        self.unset.is_empty()
    }

    /// The columns, and what is within them, that were only NULL so far.
    pub fn unset_columns(&self) -> Vec<String> {
        self.unset.iter().map(|path| path.join(".")).collect()
    }

    /// The columns that were only NULL so far and are texts, for messages: nobody may have meant texts.
    pub fn unset_texts(&self) -> Vec<String> {
        let is_text = |path: &&Vec<String>| {
            let (column, rest) = path.split_first()?;
            let mut kind = self.schema.arrow().field_with_name(column).ok()?.data_type();
            for step in rest {
                kind = match kind {
                    DataType::List(item) => item.data_type(),
                    DataType::Struct(fields) => fields.find(step)?.1.data_type(),
                    _ => return None,
                };
            }
            kind.is_string().then_some(())
        };
        self.unset.iter().filter(|path| is_text(path).is_some()).map(|path| path.join(".")).collect()
    }

    /// The text that stands in checkpoints: the column list, and behind it what never had a value.
    pub fn to_text(&self) -> String {
        let columns = self.schema.to_text();
        if self.unset.is_empty() { columns } else { format!("{columns}{REMARK}{}", json!({ "unset": self.unset })) }
    }

    /// The columns as far as values bind them to their types.
    fn known(&self) -> Schema {
        let fields = self.schema.arrow().fields().iter();
        let known: Vec<Field> = fields.map(|field| self.known_field(field, &mut Vec::new())).collect();
        Schema::new(ArrowSchema::new(known).into())
    }

    fn known_field(&self, field: &Field, path: &mut Vec<String>) -> Field {
        path.push(field.name().clone());
        let kind = self.known_type(field.data_type(), path);
        path.pop();
        field.clone().with_data_type(kind)
    }

    fn known_type(&self, kind: &DataType, path: &mut Vec<String>) -> DataType {
        if self.unset.contains(path) {
            return DataType::Null;
        }
        match kind {
            DataType::List(item) => {
                path.push(ITEM.to_owned());
                let of = self.known_type(item.data_type(), path);
                path.pop();
                DataType::List(item.as_ref().clone().with_data_type(of).into())
            }
            DataType::Struct(fields) => {
                DataType::Struct(fields.iter().map(|field| self.known_field(field, path)).collect())
            }
            other => other.clone(),
        }
    }
}

/// The step of a path into a list.
const ITEM: &str = "[]";

fn paths(field: &Field, path: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    path.push(field.name().clone());
    paths_of(field.data_type(), path, found);
    path.pop();
}

fn paths_of(kind: &DataType, path: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    found.insert(path.clone());
    match kind {
        DataType::List(item) => {
            path.push(ITEM.to_owned());
            paths_of(item.data_type(), path, found);
            path.pop();
        }
        DataType::Struct(fields) => fields.iter().for_each(|field| paths(field, path, found)),
        _ => {}
    }
}

/// Whether there is a value at the end of a path. Values under a parent that is NULL count as well, which is no harm.
fn has_value(array: &ArrayRef, path: &[String]) -> bool {
    let Some((step, rest)) = path.split_first() else {
        return array.logical_null_count() < array.len();
    };
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_any().downcast_ref::<arrow_array::ListArray>();
            list.is_some_and(|list| has_value(list.values(), rest))
        }
        DataType::Struct(_) => {
            let fields = array.as_any().downcast_ref::<arrow_array::StructArray>();
            fields.and_then(|fields| fields.column_by_name(step)).is_some_and(|field| has_value(field, rest))
        }
        // Of another type than the path was made for: nothing is known, so nothing is promised.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{JsonDecoder, UnknownFields};

    fn schema(text: &str) -> Schema {
        Schema::parse_ddl(text).expect(text)
    }

    fn seen(columns: &str, rows: &str) -> KeptColumns {
        let mut kept = KeptColumns::after(None, schema(columns)).expect("nothing before it");
        let mut decoder = JsonDecoder::new(&schema(columns), UnknownFields::BadRow).expect("a decoder");
        let decoded = decoder.decode(rows.as_bytes()).expect("rows");
        assert!(decoded.bad.is_empty(), "{:?}", decoded.bad);
        kept.see(&decoded.batch);
        kept
    }

    fn again(kept: &KeptColumns) -> KeptColumns {
        let read = Kept::from_text(&kept.to_text()).expect("it was written so");
        read.into_columns().expect("columns")
    }

    #[test]
    fn a_column_without_values_gets_any_type_and_one_with_values_does_not() {
        let columns = "id BIGINT, n TEXT, o STRUCT<a BIGINT, b TEXT>, l TEXT[]";
        let kept = seen(columns, "{\"id\":1,\"o\":{\"a\":1},\"l\":[]}\n{\"id\":2}\n");
        assert_eq!(kept.unset_texts(), ["l.[]", "n", "o.b"]);
        let kept = again(&kept);
        for allowed in ["n BIGINT", "n STRUCT<x DATE>", "o STRUCT<a BIGINT, b DATE>", "l DOUBLE[]", "n TEXT[]"] {
            KeptColumns::after(Some(&kept), schema(allowed)).expect(allowed);
        }
        for refused in ["id TEXT", "o STRUCT<a TEXT, b TEXT>", "o BIGINT", "l TEXT"] {
            let error = KeptColumns::after(Some(&kept), schema(refused)).expect_err(refused);
            assert!(error.message.contains("another name"), "{error}");
        }
    }

    #[test]
    fn what_had_a_value_once_stays_so_over_other_schemas() {
        let kept = again(&seen("n TEXT, m TEXT", "{\"m\":\"x\"}\n"));
        let mut kept = KeptColumns::after(Some(&kept), schema("n BIGINT, m TEXT, new DATE")).expect("n had none");
        assert_eq!(kept.to_text(), "n BIGINT, m TEXT, new DATE\n-- {\"unset\":[[\"n\"],[\"new\"]]}");
        let five = seen("n BIGINT", "{\"n\":5}\n");
        assert!(five.all_set() && five.to_text() == "n BIGINT");
        let rows = RecordBatch::try_from_iter([(
            "n",
            std::sync::Arc::new(arrow_array::Int64Array::from(vec![None, Some(5)])) as ArrayRef,
        )]);
        assert!(kept.see(&rows.expect("one column")));
        KeptColumns::after(Some(&again(&kept)), schema("n TEXT")).expect_err("it had a number");
        // Checkpoints of before say nothing: all of their columns had values.
        let old = Kept::from_text("n TEXT").expect("columns").into_columns().expect("columns");
        KeptColumns::after(Some(&old), schema("n BIGINT")).expect_err("it may have had texts");
    }

    #[test]
    fn names_of_all_kinds_are_read_as_they_were_written() {
        for odd in ["\n-- {\"names\":[]}", "\n-- {}", "a\"b", "}", "-- x"] {
            let quoted = format!("\"{}\" TEXT", odd.replace('"', "\"\""));
            let kept = KeptColumns::after(None, schema(&quoted)).expect("nothing before it");
            assert_eq!(again(&kept), kept, "{odd:?}");
            let set = KeptColumns { unset: BTreeSet::new(), ..kept };
            assert_eq!(again(&set), set, "{odd:?}");
            let names = vec![odd.to_owned(), String::new()];
            assert_eq!(Kept::from_text(&Kept::names_to_text(&names)), Ok(Kept::Names(names)));
        }
        Kept::from_text("a TEXT\n-- {\"unset\":[1]}").expect_err("no path");
    }
}
