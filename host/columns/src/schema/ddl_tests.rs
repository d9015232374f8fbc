use arrow_schema::{DataType, Field, Fields, TimeUnit};

use super::{Name, TypeName, parse_type};
use crate::{ColumnsErrorKind, Schema};

fn parsed(text: &str) -> Vec<Field> {
    let schema = Schema::parse_ddl(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    schema.arrow().fields().iter().map(|f| f.as_ref().clone()).collect()
}

fn refused(text: &str) -> String {
    let error = Schema::parse_ddl(text).expect_err(text);
    assert_eq!(error.kind, ColumnsErrorKind::BadSchema, "{text}");
    error.message
}

fn struct_of(fields: Vec<Field>) -> DataType {
    DataType::Struct(Fields::from(fields))
}

#[test]
fn every_type_is_read() {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let cases = [
        ("BOOLEAN", DataType::Boolean),
        ("bool", DataType::Boolean),
        ("TINYINT", DataType::Int8),
        ("SMALLINT", DataType::Int16),
        ("INT", DataType::Int32),
        ("integer", DataType::Int32),
        ("BIGINT", DataType::Int64),
        ("TINYINT UNSIGNED", DataType::UInt8),
        ("SMALLINT UNSIGNED", DataType::UInt16),
        ("INT UNSIGNED", DataType::UInt32),
        ("BIGINT UNSIGNED", DataType::UInt64),
        ("REAL", DataType::Float32),
        ("DOUBLE", DataType::Float64),
        ("double precision", DataType::Float64),
        ("DECIMAL(12,2)", DataType::Decimal128(12, 2)),
        ("NUMERIC(5)", DataType::Decimal128(5, 0)),
        ("DECIMAL(38,38)", DataType::Decimal128(38, 38)),
        ("DECIMAL(39,2)", DataType::Decimal256(39, 2)),
        ("VARCHAR", DataType::Utf8),
        ("TEXT", DataType::Utf8),
        ("STRING", DataType::Utf8),
        ("BYTEA", DataType::Binary),
        ("BINARY", DataType::Binary),
        ("DATE", DataType::Date32),
        ("TIME", DataType::Time64(TimeUnit::Microsecond)),
        ("TIME(3)", DataType::Time32(TimeUnit::Millisecond)),
        ("TIMESTAMP", micros(None)),
        ("TIMESTAMP WITHOUT TIME ZONE", micros(None)),
        ("TIMESTAMP(9)", DataType::Timestamp(TimeUnit::Nanosecond, None)),
        ("TIMESTAMP WITH TIME ZONE", micros(Some("UTC"))),
        ("TIMESTAMPTZ", micros(Some("UTC"))),
        ("BIGINT[]", DataType::new_list(DataType::Int64, true)),
        ("ARRAY<TEXT>", DataType::new_list(DataType::Utf8, true)),
        ("ARRAY<ARRAY<INT>>", DataType::new_list(DataType::new_list(DataType::Int32, true), true)),
        (
            "STRUCT<a INT, b TEXT>[]",
            DataType::new_list(
                struct_of(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)]),
                true,
            ),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_type(text).as_ref(), Ok(&expected), "{text}");
        let field = parsed(&format!("c {text} NOT NULL"));
        assert_eq!(field, [Field::new("c", expected.clone(), false)], "{text}");
        let written = TypeName(&expected).to_string();
        assert_eq!(parse_type(&written), Ok(expected), "{text} written as {written}");
    }
}

#[test]
fn a_schema_is_written_as_it_is_read() {
    let text = "year INT NOT NULL, amount DECIMAL(12,2), \"the \"\"tags\"\"\" BIGINT[], \
                place STRUCT<lat DOUBLE, \"l on\" STRUCT<x INT[]>>, at TIMESTAMP WITH TIME ZONE, \
                \"1st\" TIMESTAMP(3), Select TEXT, date DATE, u BIGINT UNSIGNED NOT NULL";
    let schema = Schema::parse_ddl(text).expect("valid");
    assert_eq!(schema.to_string(), text);
    assert_eq!(Schema::parse_ddl(&schema.to_string()), Ok(schema));
}

#[test]
fn names_keep_their_case_and_lines_may_end_with_a_comma() {
    let fields = parsed("Id BIGINT, -- the key\n ID TEXT NULL,\n");
    assert_eq!(fields, [Field::new("Id", DataType::Int64, true), Field::new("ID", DataType::Utf8, true)]);
}

#[test]
fn what_is_wrong_is_told_with_its_column() {
    for (text, parts) in [
        ("", &["no columns"][..]),
        ("a", &["column a", "BIGINT"]),
        ("a INT, b MONEY", &["column b", "MONEY", "DECIMAL(precision, scale)"]),
        ("a INT b TEXT", &["column a", "comma"]),
        ("a INT, a TEXT", &["column a is there twice"]),
        ("a INT PRIMARY KEY", &["column a", "PRIMARY", "NOT NULL"]),
        ("a DECIMAL", &["column a", "DECIMAL(12, 2)"]),
        ("a DECIMAL(77,2)", &["column a", "76"]),
        ("a DECIMAL(5,6)", &["column a", "scale"]),
        ("a DECIMAL(5,-2)", &["column a", "scale"]),
        ("a VARCHAR(20)", &["column a", "TEXT"]),
        ("a INT[3]", &["column a", "INT[]"]),
        ("a TIMESTAMP(4)", &["column a", "0, 3, 6 or 9"]),
        ("a STRUCT", &["column a", "STRUCT<name T"]),
        ("a STRUCT<x INT, x TEXT>", &["column a", "field x", "twice"]),
        ("a STRUCT<x HSTORE>", &["column a", "field x", "HSTORE", "BIGINT"]),
        ("a DOUBLE UNSIGNED", &["column a", "DOUBLE UNSIGNED"]),
        ("\"\" INT", &["empty name"]),
        ("a 'INT'", &["column a"]),
        ("a INT; b INT", &["column a"]),
        ("a ARRAY<INT", &["column a"]),
    ] {
        let message = refused(text);
        for part in parts {
            assert!(message.contains(part), "{text}: {message} lacks {part}");
        }
    }
}

#[test]
fn nesting_and_length_have_an_end() {
    let deep = format!("a {}INT{}", "ARRAY<".repeat(2000), ">".repeat(2000));
    assert!(refused(&deep).contains("nested"), "{}", refused(&deep));
    let brackets = format!("a INT{}", "[]".repeat(2000));
    assert!(refused(&brackets).contains("brackets"));
    assert!(refused(&"a".repeat(300_000)).contains("bytes long"));
}

#[test]
fn only_plain_names_go_without_quotes() {
    for (name, written) in
        [("a_1", "a_1"), ("Änne", "\"Änne\""), ("", "\"\""), ("1a", "\"1a\""), ("a\"b", "\"a\"\"b\"")]
    {
        assert_eq!(Name(name).to_string(), written);
    }
}

#[test]
fn lists_may_have_very_many_columns_but_a_type_only_so_many_within_it() {
    let wide = (0..3000).map(|n| format!("column_{n} STRUCT<a BIGINT, b TEXT[]>")).collect::<Vec<_>>().join(", ");
    assert_eq!(Schema::parse_ddl(&wide).expect("wide").arrow().fields().len(), 3000);
    let deep = format!("a {}BIGINT{}", "STRUCT<x ".repeat(100), ">".repeat(100));
    assert!(Schema::parse_ddl(&deep).is_err());
}
