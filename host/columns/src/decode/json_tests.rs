use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field};

use super::*;

fn schema(ddl: &str) -> Schema {
    Schema::parse_ddl(ddl).unwrap_or_else(|error| panic!("{ddl}: {error}"))
}

fn decode(ddl: &str, lines: &str) -> Decoded {
    decode_bytes(ddl, lines.as_bytes())
}

fn decode_bytes(ddl: &str, lines: &[u8]) -> Decoded {
    let mut decoder = JsonDecoder::new(&schema(ddl), UnknownFields::BadRow).expect("types that are decoded");
    let decoded = decoder.decode(lines).expect("a decoded batch");
    let not_blank = lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    assert_eq!(decoded.batch.num_rows() + decoded.bad.len(), not_blank, "every line is a row or bad");
    decoded
}

/// The reason why the only line is bad.
fn refused(ddl: &str, line: &str) -> String {
    let decoded = decode(ddl, line);
    assert_eq!((decoded.batch.num_rows(), decoded.bad.len()), (0, 1), "{ddl}: {line}: {:?}", decoded.batch);
    assert_eq!(decoded.bad[0].bytes, 0..line.len());
    decoded.bad[0].reason.clone()
}

/// The only row.
fn accepted(ddl: &str, line: &str) -> RecordBatch {
    let decoded = decode(ddl, line);
    assert_eq!(decoded.bad, [], "{line}");
    decoded.batch
}

#[test]
fn rows_become_columns_and_missing_fields_null() {
    let decoded = decode(
        "a BIGINT, b TEXT, c BOOLEAN",
        "{\"a\":1,\"b\":\"x\",\"c\":true}\n\n  \t\r\n{\"c\":false,\"a\":-2}\r\n{ \"b\" : null , \"a\" : 3 }",
    );
    assert_eq!((decoded.lines, decoded.bad.len()), (5, 0));
    let [a, b, c] = decoded.batch.columns() else { panic!("three columns") };
    assert_eq!(a.as_primitive::<Int64Type>().values(), &[1, -2, 3]);
    assert_eq!(b.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("x"), None, None]);
    assert_eq!(c.as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(false), None]);
    assert_eq!(decode("a BIGINT", "").lines, 0);
    assert_eq!(decode("a BIGINT", "{}\n").batch.num_rows(), 1);
}

#[test]
fn a_bad_line_takes_no_good_one_with_it() {
    let good = "{\"a\":1,\"t\":[1,2],\"s\":{\"x\":\"y\"}}";
    for bad in [
        "{\"a\":2,\"t\":[3,4],\"s\":{\"x\":\"z\"}",
        "{\"a\":2,\"t\":[3,\"4\"]}",
        "{\"s\":{\"x\":\"z\",\"y\":1}}",
        "{\"s\":{\"x\":\"z\\ud800\"}}",
        "{\"a\":2}{\"a\":3}",
        "{\"a\":2} x",
        "{\"t\":[1,2,3],\"a\":1.5}",
        "[1]",
        "nonsense",
        "{\"a\":1,}",
        "{,\"a\":1}",
        "{\"t\":[1,,2]}",
        "{\"t\":[1,]}",
        "{\"a\":01}",
        "{\"a\":1",
        "{\"a\" 1}",
        "{'a':1}",
        "{\"a\":NaN}",
        "{\"a\":+1}",
        "{\"a\":tru}",
        "\u{feff}{\"a\":1}",
    ] {
        let decoded =
            decode("a BIGINT, t BIGINT[], s STRUCT<x TEXT>", &format!("{good}\n{bad}\n{good}\n{bad}\n{good}"));
        assert_eq!(decoded.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [1, 3], "{bad}");
        let start = good.len() + 1;
        assert_eq!(decoded.bad[0].bytes, start..start + bad.len());
        let expected = accepted("a BIGINT, t BIGINT[], s STRUCT<x TEXT>", good);
        for row in 0..3 {
            assert_eq!(decoded.batch.slice(row, 1), expected, "{bad}");
        }
    }
}

#[test]
fn a_line_is_a_value_and_a_value_is_a_line() {
    // Some readers take these as two rows in one line, or one row in two lines.
    assert!(refused("a BIGINT", "{\"a\":1} {\"a\":2}").contains("the end of the line"));
    let decoded = decode("a TEXT", "{\"a\":\"x\ny\"}");
    assert_eq!((decoded.batch.num_rows(), decoded.bad.len()), (0, 2));
    assert_eq!(decode("a BIGINT", "{\"a\":\n1}").bad.len(), 2);
}

#[test]
fn whole_numbers_keep_64_bits_and_are_never_rounded_or_wrapped() {
    let i64s = accepted("a BIGINT", "{\"a\":-9223372036854775808}");
    assert_eq!(i64s.column(0).as_primitive::<Int64Type>().value(0), i64::MIN);
    for value in ["9007199254740993", "9223372036854775807", "1.0", "9007199254740993.00", "12e1", "-0", "1000e-3"] {
        accepted("a BIGINT", &format!("{{\"a\":{value}}}"));
    }
    for (data_type, fits, too_large, too_small) in [
        ("TINYINT", "127", "128", "-129"),
        ("SMALLINT", "-32768", "32768", "-32769"),
        ("INT", "2147483647", "2147483648", "-2147483649"),
        ("BIGINT", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
        ("TINYINT UNSIGNED", "255", "256", "-1"),
        ("SMALLINT UNSIGNED", "65535", "65536", "-1"),
        ("INT UNSIGNED", "4294967295", "4294967296", "-1"),
        ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551616", "-1"),
        ("BIGINT", "0", "1e400", "-1e30"),
    ] {
        let ddl = format!("a {data_type}");
        accepted(&ddl, &format!("{{\"a\":{fits}}}"));
        for value in [too_large, too_small] {
            let reason = refused(&ddl, &format!("{{\"a\":{value}}}"));
            assert!(reason.contains("`a`") && reason.contains(value) && reason.contains(data_type), "{reason}");
        }
    }
    assert!(refused("a BIGINT", "{\"a\":1.5}").contains("whole number"));
    assert!(refused("a BIGINT", "{\"a\":1e-1}").contains("whole number"));
    assert!(refused("a BIGINT UNSIGNED", "{\"a\":99999999999999999999999}").contains("larger type"));
}

#[test]
fn decimals_keep_every_digit_or_their_line_is_bad() {
    let value = |ddl: &str, text: &str| {
        accepted(ddl, &format!("{{\"a\":{text}}}")).column(0).as_primitive::<Decimal128Type>().value(0)
    };
    assert_eq!(value("a DECIMAL(12,2)", "12.50"), 1250);
    assert_eq!(value("a DECIMAL(12,2)", "12.5"), 1250);
    assert_eq!(value("a DECIMAL(12,2)", "-0.010"), -1);
    assert_eq!(value("a DECIMAL(38,0)", "99999999999999999999999999999999999999"), 10i128.pow(38) - 1);
    assert_eq!(value("a DECIMAL(20,10)", "0.1000000001"), 1_000_000_001);
    assert!(refused("a DECIMAL(12,2)", "{\"a\":12.345}").contains("decimal places"));
    assert!(refused("a DECIMAL(4,2)", "{\"a\":100}").contains("larger type"));
    assert!(refused("a DECIMAL(12,2)", "{\"a\":\"12.50\"}").contains("found a string"));
    accepted("a DECIMAL(60,3)", "{\"a\":123456789012345678901234567890123456789012345.125}");
    assert!(refused("a DECIMAL(39,3)", "{\"a\":123456789012345678901234567890123456789012345.125}").contains("larger"));
}

#[test]
fn doubles_that_would_be_rounded_are_bad_lines() {
    let value = |text: &str| {
        accepted("a DOUBLE", &format!("{{\"a\":{text}}}")).column(0).as_primitive::<Float64Type>().value(0)
    };
    assert_eq!(value("0.1"), 0.1);
    assert_eq!(value("1e22"), 1e22);
    assert_eq!(value("-73.97789001464844"), -73.97789001464844);
    assert!(value("\"NaN\"").is_nan());
    assert_eq!(value("\"-Infinity\""), f64::NEG_INFINITY);
    assert!(refused("a DOUBLE", "{\"a\":9007199254740993}").contains("rounded"));
    assert!(refused("a DOUBLE", "{\"a\":0.12345678901234567890123}").contains("DECIMAL"));
    assert!(refused("a DOUBLE", "{\"a\":1e400}").contains("outside"));
    assert!(refused("a DOUBLE", "{\"a\":1e-400}").contains("rounded"));
    assert!(refused("a DOUBLE", "{\"a\":\"1.5\"}").contains("found a string"));
    assert!(refused("a REAL", "{\"a\":16777217}").contains("rounded"));
}

#[test]
fn values_of_another_kind_are_not_converted() {
    for (data_type, values) in [
        ("BIGINT", &["\"1\"", "true", "[1]", "{}", "\"\""][..]),
        ("DOUBLE", &["\"1\"", "false", "[]", "\"nan\"", "\"Infinity2\""]),
        ("TEXT", &["1", "true", "[\"a\"]", "{\"a\":1}"]),
        ("BOOLEAN", &["0", "1", "\"true\"", "[]"]),
        ("BIGINT[]", &["1", "\"[1]\"", "{}", "[\"1\"]", "[[1]]"]),
        ("STRUCT<x BIGINT>", &["1", "[1]", "\"{}\"", "{\"x\":\"1\"}"]),
        ("TIMESTAMP", &["0", "1357034400", "true", "[]", "\"now\"", "\"2013-01-01\""]),
        ("DATE", &["15706", "\"2013-02-30\"", "\"2013-01-01T00:00:00\""]),
        ("TIME", &["0", "\"25:00:00\"", "\"10:00\"", "\"10:00:00.1234567\""]),
        ("BYTEA", &["1", "\"abc\"", "\"xy\"", "[1]"]),
    ] {
        for value in values {
            let reason = refused(&format!("a {data_type}"), &format!("{{\"a\":{value}}}"));
            assert!(reason.contains("field `a"), "{reason}");
        }
    }
    assert_eq!(refused("a BIGINT", "{\"a\":\"12\"}"), "field `a`: expected BIGINT, found a string: \"12\"");
}

#[test]
fn unknown_fields_are_bad_lines_or_dropped_as_asked() {
    let reason = refused("a BIGINT", "{\"a\":1,\"b\":2}");
    assert!(reason.contains("`b`") && reason.contains("unknown-fields"), "{reason}");
    assert!(refused("s STRUCT<x BIGINT>", "{\"s\":{\"x\":1,\"y\":2}}").contains("`s.y`"));
    let mut decoder = JsonDecoder::new(&schema("a BIGINT, s STRUCT<x BIGINT>"), UnknownFields::Drop).expect("types");
    let lines = "{\"b\":[1,{\"c\":\"\\\"\"}],\"a\":1,\"s\":{\"y\":null,\"x\":3},\"b\":2}\n{\"a\":2,\"b\":[1,]}\n";
    let decoded = decoder.decode(lines.as_bytes()).expect("a batch");
    assert_eq!(decoded.batch.num_rows(), 1);
    assert_eq!(decoded.bad[0].line, 1, "what is dropped has to be valid all the same");
    let deep = format!("{{\"b\":{}}}", "[".repeat(1_000_000));
    assert_eq!(decoder.decode(deep.as_bytes()).expect("a batch").bad.len(), 1);
}

#[test]
fn repeated_keys_are_bad_lines_however_they_are_written() {
    for line in ["{\"a\":1,\"a\":1}", "{\"a\":1,\"\\u0061\":2}", "{\"a\":null,\"a\":2}", "{\"s\":{\"x\":1,\"x\":2}}"] {
        assert!(refused("a BIGINT, s STRUCT<x BIGINT>", line).contains("twice"), "{line}");
    }
}

#[test]
fn names_are_compared_decoded() {
    let batch = accepted("\"é\" BIGINT, \"a\"\"b\" BIGINT, \"\\n\" BIGINT", r#"{"a\"b":2,"\u00e9":1,"\\n":3}"#);
    let values: Vec<i64> = batch.columns().iter().map(|column| column.as_primitive::<Int64Type>().value(0)).collect();
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn not_null_holds_for_null_and_for_missing_fields() {
    assert!(refused("a BIGINT NOT NULL, b BIGINT", "{\"b\":1}").contains("`a`: is missing"));
    assert!(refused("a BIGINT NOT NULL", "{\"a\":null}").contains("NOT NULL"));
    assert!(refused("a BIGINT NOT NULL", "{}").contains("NOT NULL"));
    let inner = DataType::Struct(vec![Field::new("x", DataType::Int64, false)].into());
    let nested = Schema::new(Arc::new(arrow_schema::Schema::new(vec![Field::new("s", inner, true)])));
    let mut decoder = JsonDecoder::new(&nested, UnknownFields::BadRow).expect("types");
    let decoded = decoder.decode(b"{\"s\":{\"x\":1}}\n{\"s\":null}\n{}\n{\"s\":{}}\n").expect("a batch");
    assert_eq!((decoded.batch.num_rows(), decoded.bad.len(), decoded.bad[0].line), (3, 1, 3));
    assert!(decoded.bad[0].reason.contains("`s.x`"), "{}", decoded.bad[0].reason);
}

#[test]
fn instants_keep_their_point_in_time() {
    let zoned = "a TIMESTAMP WITH TIME ZONE";
    let value = |ddl: &str, text: &str| {
        accepted(ddl, &format!("{{\"a\":\"{text}\"}}")).column(0).as_primitive::<TimestampMicrosecondType>().value(0)
    };
    assert_eq!(value(zoned, "2013-01-01T10:00:00Z"), 1_357_034_400_000_000);
    assert_eq!(value(zoned, "2013-01-01T12:00:00.000001+02:00"), 1_357_034_400_000_001);
    assert_eq!(value("a TIMESTAMP", "2013-01-01 10:00:00.5"), 1_357_034_400_500_000);
    let refuses = |ddl: &str, text: &str| refused(ddl, &format!("{{\"a\":\"{text}\"}}"));
    assert!(refuses(zoned, "2013-01-01T10:00:00.0000001Z").contains("TIMESTAMP(9)"));
    assert!(refuses("a TIMESTAMP(9)", "2300-01-01T00:00:00").contains("TIMESTAMP(6)"));
    assert!(refuses("a TIMESTAMP(0)", "2013-01-01T10:00:00.5").contains("decimal places"));
    assert!(refuses(zoned, "2013-01-01T10:00:00").contains("declare TIMESTAMP for"));
    assert!(refuses("a TIMESTAMP", "2013-01-01T10:00:00Z").contains("WITH TIME ZONE"));
    assert!(refuses(zoned, "2016-12-31T23:59:60Z").contains("RFC 3339"));
}

#[test]
fn bytes_that_are_not_utf8_spoil_their_own_line_only() {
    let decoded =
        decode_bytes("a TEXT", b"{\"a\":\"\xc3\xa9\"}\n{\"a\":\"\xff\"}\n{\"a\":\"x\"}\n{\"\xc3\":1}\n{\"a\":\"\xc3\n");
    assert_eq!(decoded.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [1, 3, 4]);
    assert!(decoded.bad[0].reason.contains("UTF-8 at byte 6"), "{}", decoded.bad[0].reason);
    assert_eq!(decoded.batch.column(0).as_string::<i32>().value(0), "é");
    assert!(refused("a TEXT", "{\"a\":\"\\ud800\"}").contains("surrogate"));
    assert!(refused("a TEXT", "{\"a\":\"\u{1}\"}").contains("control"));
    assert_eq!(accepted("a TEXT", r#"{"a":"\ud83d\ude00\u0000"}"#).column(0).as_string::<i32>().value(0), "😀\0");
}

#[test]
fn input_that_is_all_bad_or_nested_without_end_costs_no_more_than_its_length() {
    let lines = "x\n".repeat(200_000);
    let decoded = decode("a BIGINT", &lines);
    assert_eq!((decoded.bad.len(), decoded.batch.num_rows()), (200_000, 0));
    let half = "{\"a\":1}\n{\"a\":\"1\"}\n".repeat(20_000);
    let decoded = decode("a BIGINT", &half);
    assert_eq!((decoded.bad.len(), decoded.batch.num_rows()), (20_000, 20_000));
    assert_eq!(decoded.batch.column(0).null_count(), 0);
    for open in ["[", "{\"a\":", "{\"a\":[", "[{\"a\":"] {
        refused("a BIGINT", &open.repeat(300_000));
        refused("a STRUCT<a STRUCT<a BIGINT[]>>", &open.repeat(300_000));
    }
    let long = refused("a BIGINT", &format!("{{\"{}\":1}}", "n".repeat(1_000_000)));
    assert!(long.len() < 400, "{}", long.len());
    let long = refused("a DATE", &format!("{{\"a\":\"{}\"}}", "n".repeat(1_000_000)));
    assert!(long.len() < 400, "{}", long.len());
    let long = refused("a DOUBLE", &format!("{{\"a\":0.{}}}", "1".repeat(1_000_000)));
    assert!(long.len() < 400, "{}", long.len());
}

#[test]
fn lists_and_structs_lie_in_one_another() {
    let ddl = "a STRUCT<l BIGINT[], s STRUCT<t TEXT>>[]";
    let batch = accepted(ddl, r#"{"a":[{"l":[1,null,3],"s":{"t":"x"}},null,{"s":null,"l":[]},{}]}"#);
    let items = batch.column(0).as_list::<i32>().value(0);
    let items = items.as_struct();
    assert_eq!((items.len(), items.null_count()), (4, 1));
    let lists = items.column(0).as_list::<i32>();
    assert_eq!(
        lists.iter().map(|list| list.map(|list| list.len())).collect::<Vec<_>>(),
        [Some(3), None, Some(0), None]
    );
    assert!(refused(ddl, r#"{"a":[{"l":[1,"2"]}]}"#).contains("`a[].l[]`"));
}

#[test]
fn types_without_a_text_form_are_refused_by_name() {
    let field = Field::new("d", DataType::Duration(arrow_schema::TimeUnit::Second), true);
    let schema = Schema::new(Arc::new(arrow_schema::Schema::new(vec![field])));
    let error = JsonDecoder::new(&schema, UnknownFields::BadRow).expect_err("not decoded");
    assert!(error.message.contains("`d`"), "{error}");
}
