//! Rows of one schema as rows of another, where no value changes: for files that were written one after the other, and
//! for schemas that replace each other.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{DataType, Field, Fields, TimeUnit};

use crate::schema::TypeName;
use crate::{ColumnsError, Result, Schema};

/// Brings rows of one schema into another, column by column, by name.
#[derive(Debug, Clone)]
pub struct Fit {
    to: Schema,
    /// For every column of `to`, its place in the rows; `None`: it is not there and becomes NULL.
    from: Vec<Option<usize>>,
    same: bool,
}

impl Fit {
    /// From rows with the columns `from` to those of `to`. Columns that `to` does not have are left out if `drop` is
    /// true.
    ///
    /// # Errors
    /// `BadSchema`: a column is missing and cannot be NULL, is one too many, or has values of a type that cannot become
    /// the other one without changing. The message names the column.
    pub fn new(from: &Schema, to: &Schema, drop: bool) -> Result<Self> {
        let (have, want) = (from.arrow(), to.arrow());
        let mut places = Vec::with_capacity(want.fields().len());
        for field in want.fields() {
            let place = have.fields().iter().position(|other| other.name() == field.name());
            match place {
                Some(place) => check_column(&have.fields()[place], field)?,
                None if field.is_nullable() => {}
                None => {
                    return Err(ColumnsError::bad_schema(format!(
                        "the column `{}` is not there, and the schema says NOT NULL",
                        field.name()
                    )));
                }
            }
            places.push(place);
        }
        let extra = have.fields().iter().find(|field| want.field_with_name(field.name()).is_err());
        if let Some(extra) = extra.filter(|_| !drop) {
            return Err(ColumnsError::bad_schema(format!(
                "the schema does not have the column `{}`; declare it in `schema`, or write unknown-fields = \"drop\"",
                extra.name()
            )));
        }
        let same = have.fields() == want.fields();
        Ok(Self { to: to.clone(), from: places, same })
    }

    /// The same rows in the other schema.
    ///
    /// # Errors
    /// `BadValue`: a value does not fit its type, or is NULL where there may be none. The message names the column.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.same {
            return Ok(batch.clone());
        }
        let rows = batch.num_rows();
        let fields = self.to.arrow().fields();
        let columns = fields.iter().zip(&self.from).map(|(field, place)| match place {
            Some(place) => convert(batch.column(*place), field),
            None => Ok(new_null_array(field.data_type(), rows)),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(self.to.arrow()), columns, &options)
            .map_err(|error| ColumnsError::bad_value(error.to_string()))
    }
}

fn convert(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let converted = if column.data_type() == field.data_type() {
        Arc::clone(column)
    } else {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(column, field.data_type(), &options)
            .map_err(|error| ColumnsError::bad_value(format!("column `{}`: {error}", field.name())))?
    };
    if !field.is_nullable() && converted.null_count() > 0 {
        return Err(ColumnsError::bad_value(format!(
            "column `{}` has NULL, and the schema says NOT NULL",
            field.name()
        )));
    }
    Ok(converted)
}

fn check_column(from: &Field, to: &Field) -> Result<()> {
    let (have, want) = (from.data_type(), to.data_type());
    if keeps(have, want, true) && (have == want || can_cast_types(have, want)) {
        return Ok(());
    }
    Err(ColumnsError::bad_schema(format!(
        "the column `{}` is {}, and the schema says {}; its values would not stay the same",
        to.name(),
        TypeName(have),
        TypeName(want)
    )))
}

/// Whether a schema may take the place of another: every value that the old one allows, the new one allows too.
///
/// # Errors
/// `BadSchema`: it may not; names the column.
pub fn check_successor(old: &Schema, new: &Schema) -> Result<()> {
    for field in new.arrow().fields() {
        let Ok(before) = old.arrow().field_with_name(field.name()) else { continue };
        let (have, want) = (before.data_type(), field.data_type());
        if !keeps(have, want, false) {
            return Err(ColumnsError::bad_schema(format!(
                "the column `{}` was {} and is declared {} now, which does not hold every value of before; set it back or \
                 to a wider type, and `cast` it in the `transform` of a sink, or give the source another name to begin anew",
                field.name(),
                TypeName(have),
                TypeName(want)
            )));
        }
    }
    Ok(())
}

/// The columns that hold the rows of both: of the wider type, and nullable where one of them has NULL or no such column.
///
/// # Errors
/// `BadSchema`: neither type holds the values of the other. Names the column and the types.
pub fn join(one: &Schema, other: &Schema) -> Result<Schema> {
    let (ones, others) = (one.arrow().fields(), other.arrow().fields());
    let of = |fields: &Fields, name: &str| fields.iter().find(|field| field.name() == name).cloned();
    let mut joined = Vec::with_capacity(ones.len());
    for field in ones {
        joined.push(match of(others, field.name()) {
            Some(same) => join_column(field, &same)?,
            None => field.as_ref().clone().with_nullable(true),
        });
    }
    let more = others.iter().filter(|field| of(ones, field.name()).is_none());
    joined.extend(more.map(|field| field.as_ref().clone().with_nullable(true)));
    Ok(Schema::new(Arc::new(arrow_schema::Schema::new(joined))))
}

fn join_column(one: &Field, other: &Field) -> Result<Field> {
    let (a, b) = (one.data_type(), other.data_type());
    let wider = if keeps(b, a, false) {
        a
    } else if keeps(a, b, false) {
        b
    } else {
        return Err(ColumnsError::bad_schema(format!(
            "the column `{}` is {} here and {} there, and neither holds every value of the other",
            one.name(),
            TypeName(a),
            TypeName(b)
        )));
    };
    Ok(Field::new(one.name(), wider.clone(), one.is_nullable() || other.is_nullable()))
}

/// Whether values stay what they are. With `checked`, also where some may not fit, which is found value by value.
fn keeps(from: &DataType, to: &DataType, checked: bool) -> bool {
    use DataType::*;
    if from == to || *from == Null {
        return true;
    }
    match (from, to) {
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View)
        | (Binary | LargeBinary | BinaryView | FixedSizeBinary(_), Binary | LargeBinary | BinaryView) => true,
        (Float16, Float32 | Float64) | (Float32, Float64) => true,
        (Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32, Float64) => true,
        (Int8 | Int16 | UInt8 | UInt16, Float32) => true,
        (a, b) if a.is_integer() && b.is_integer() => {
            let ((a_signed, a_bits), (b_signed, b_bits)) = (integer(a), integer(b));
            checked || (a_signed == b_signed && a_bits <= b_bits) || (!a_signed && b_signed && a_bits < b_bits)
        }
        (a, Decimal128(p, s) | Decimal256(p, s)) if a.is_integer() => {
            let digits = match integer(a).1 {
                8 => 3,
                16 => 5,
                32 => 10,
                _ => 20,
            };
            *s >= 0 && (checked || i16::from(*p) - i16::from(*s) >= digits)
        }
        (
            Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) | Decimal256(p, s),
            Decimal128(q, t) | Decimal256(q, t),
        ) => t >= s && (checked || i16::from(*q) - i16::from(*t) >= i16::from(*p) - i16::from(*s)),
        (Timestamp(a, from), Timestamp(b, to)) => from.is_some() == to.is_some() && rank(a) <= rank(b),
        (Date32, Date64) => true,
        (List(a) | LargeList(a) | FixedSizeList(a, _), List(b) | LargeList(b)) => {
            (a.is_nullable() <= b.is_nullable()) && keeps(a.data_type(), b.data_type(), checked)
        }
        (Struct(a), Struct(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| {
                    a.name() == b.name()
                        && a.is_nullable() <= b.is_nullable()
                        && keeps(a.data_type(), b.data_type(), checked)
                })
        }
        (Dictionary(_, value), to) => keeps(value, to, checked),
        _ => false,
    }
}

fn integer(kind: &DataType) -> (bool, u8) {
    match kind {
        DataType::Int8 => (true, 8),
        DataType::Int16 => (true, 16),
        DataType::Int32 => (true, 32),
        DataType::Int64 => (true, 64),
        DataType::UInt8 => (false, 8),
        DataType::UInt16 => (false, 16),
        DataType::UInt32 => (false, 32),
        _ => (false, 64),
    }
}

fn rank(unit: &TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, Float64Array, Int32Array, Int64Array, StringArray};

    use super::*;

    fn schema(text: &str) -> Schema {
        Schema::parse_ddl(text).expect(text)
    }

    fn batch(text: &str, columns: Vec<ArrayRef>) -> RecordBatch {
        RecordBatch::try_new(Arc::clone(schema(text).arrow()), columns).expect(text)
    }

    #[test]
    fn columns_are_found_by_name_widened_and_filled_with_null() {
        let rows = batch(
            "b TEXT, a INT",
            vec![Arc::new(StringArray::from(vec!["x", "y"])), Arc::new(Int32Array::from(vec![Some(1), None]))],
        );
        let fit = Fit::new(&schema("b TEXT, a INT"), &schema("a BIGINT, b TEXT, c DOUBLE"), false).unwrap();
        let out = fit.apply(&rows).unwrap();
        let a = out.column(0).as_any().downcast_ref::<Int64Array>().expect("BIGINT");
        assert_eq!((a.value(0), a.is_null(1)), (1, true));
        let c = out.column(2).as_any().downcast_ref::<Float64Array>().expect("DOUBLE");
        assert_eq!(c.null_count(), 2);
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error_and_never_another_value() {
        let rows = batch("a BIGINT", vec![Arc::new(Int64Array::from(vec![1 << 40]))]);
        let fit = Fit::new(&schema("a BIGINT"), &schema("a INT"), false).unwrap();
        assert!(fit.apply(&rows).unwrap_err().message.contains("`a`"));
        assert!(Fit::new(&schema("a DOUBLE"), &schema("a INT"), false).is_err());
        assert!(Fit::new(&schema("a DECIMAL(10,3)"), &schema("a DECIMAL(10,2)"), false).is_err());
        let null = batch("a BIGINT", vec![Arc::new(Int64Array::from(vec![None]))]);
        let fit = Fit::new(&schema("a BIGINT"), &schema("a BIGINT NOT NULL"), false).unwrap();
        assert!(fit.apply(&null).unwrap_err().message.contains("NOT NULL"));
    }

    #[test]
    fn columns_too_many_or_missing_are_named() {
        let (two, one) = (schema("a INT, b INT"), schema("a INT"));
        assert!(Fit::new(&two, &one, false).unwrap_err().message.contains("`b`"));
        assert!(Fit::new(&two, &one, true).is_ok());
        assert!(Fit::new(&one, &schema("a INT, b INT NOT NULL"), true).unwrap_err().message.contains("`b`"));
    }

    #[test]
    fn two_schemas_become_one_that_holds_the_rows_of_both() {
        let one = schema("a INT NOT NULL, b TEXT NOT NULL, d DECIMAL(5,1), x DOUBLE");
        let other = schema("c DATE NOT NULL, d DECIMAL(9,3), a BIGINT NOT NULL, x REAL");
        let joined = join(&one, &other).unwrap();
        assert_eq!(joined, schema("a BIGINT NOT NULL, b TEXT, d DECIMAL(9,3), x DOUBLE, c DATE"));
        for part in [one, other] {
            assert!(Fit::new(&part, &joined, false).is_ok());
        }
        let error = join(&schema("a INT, t TEXT"), &schema("t BIGINT")).unwrap_err();
        assert!(error.message.contains("`t` is TEXT here and BIGINT there"), "{error}");
        assert!(join(&schema("u BIGINT UNSIGNED"), &schema("u BIGINT")).is_err());
    }

    #[test]
    fn a_schema_is_replaced_by_a_wider_one_only() {
        let old = schema("a INT, d DECIMAL(10,2), t TEXT");
        assert_eq!(check_successor(&old, &schema("a BIGINT, d DECIMAL(12,3), n TEXT")), Ok(()));
        for (text, column) in [("a SMALLINT", "`a`"), ("t INT", "`t`"), ("d DECIMAL(10,3)", "`d`")] {
            assert!(check_successor(&old, &schema(text)).unwrap_err().message.contains(column), "{text}");
        }
    }
}
