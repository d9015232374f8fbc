use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    StructArray,
};
use arrow_schema::{DataType, Field};

use super::{Applied, BadRow, Transform, TransformOptions};
use crate::{ColumnsErrorKind, Schema};

/// Five flights, with NULLs in every column that may have them.
fn flights() -> RecordBatch {
    let schema = Schema::parse_ddl(
        "id BIGINT NOT NULL, Carrier TEXT, delay INT, fare DECIMAL(12,2), note TEXT, \
         place STRUCT<lat DOUBLE, lon DOUBLE>, tags BIGINT[]",
    )
    .expect("valid");
    let fare = Decimal128Array::from(vec![Some(10_050), None, Some(99), Some(-1), Some(999_999_999_999)])
        .with_precision_and_scale(12, 2)
        .expect("fits");
    let DataType::Struct(place) = schema.arrow().field(5).data_type().clone() else { panic!("a struct") };
    let lat = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(3.0), Some(4.0), Some(5.0)])) as ArrayRef;
    let lon = Arc::new(Float64Array::from(vec![0.0, 1.0, 2.0, 3.0, 4.0])) as ArrayRef;
    let mut tags = ListBuilder::new(Int64Builder::new());
    for items in [Some(vec![1, 2]), None, Some(vec![]), Some(vec![7]), Some(vec![8, 9])] {
        tags.append_option(items.map(|i| i.into_iter().map(Some).collect::<Vec<_>>()));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5])),
        Arc::new(StringArray::from(vec![Some("UA"), Some("O'Hare"), None, Some("DL"), Some("\"q\"")])),
        Arc::new(Int32Array::from(vec![Some(0), Some(-3), None, Some(20), Some(i32::MAX)])),
        Arc::new(fare),
        Arc::new(StringArray::from(vec![Some("12"), Some("x"), Some(""), None, Some("300")])),
        Arc::new(StructArray::new(place, vec![lat, lon], None)),
        Arc::new(tags.finish()),
    ];
    RecordBatch::try_new(Arc::clone(schema.arrow()), columns).expect("columns of one length")
}

/// Options as a pipeline file has them; tables in the order of their names.
fn options(text: &str) -> TransformOptions {
    let table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    let string = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let list = |key: &str| match table.get(key) {
        Some(value) => value.as_array().expect("a list").iter().map(string).collect(),
        None => Vec::new(),
    };
    let pairs = |key: &str| match table.get(key) {
        Some(value) => value.as_table().expect("a table").iter().map(|(k, v)| (k.clone(), string(v))).collect(),
        None => Vec::new(),
    };
    TransformOptions {
        rename: pairs("rename"),
        cast: pairs("cast"),
        add: pairs("add"),
        filter: table.get("filter").map(string),
        select: list("select"),
        drop: list("drop"),
    }
}

fn transform(toml: &str) -> Transform {
    let schema = Schema::new(flights().schema());
    Transform::new(&options(toml), &schema).unwrap_or_else(|e| panic!("{toml}: {e}"))
}

/// Applies a transform to the flights, and checks that the columns are those that were promised.
fn applied(toml: &str) -> Applied {
    let transform = transform(toml);
    let applied = transform.apply(&flights()).expect("the columns fit");
    assert_eq!(applied.batch.schema(), *transform.output().arrow());
    let rows = applied.batch.num_rows() + applied.filtered as usize + applied.bad.len();
    assert_eq!(rows, flights().num_rows(), "rows in = rows out + filtered + bad");
    applied
}

fn refused(toml: &str) -> String {
    let schema = Schema::new(flights().schema());
    let Err(error) = Transform::new(&options(toml), &schema) else { panic!("{toml} is not refused") };
    assert_eq!(error.kind, ColumnsErrorKind::BadOption, "{toml}");
    error.message
}

fn ids(applied: &Applied) -> Vec<i64> {
    applied.batch["id"].as_primitive::<Int64Type>().values().to_vec()
}

fn texts(applied: &Applied, column: &str) -> Vec<Option<String>> {
    applied.batch[column].as_string::<i32>().iter().map(|v| v.map(str::to_owned)).collect()
}

fn some(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|v| Some((*v).to_owned())).collect()
}

#[test]
fn no_options_change_nothing() {
    assert!(options("").is_empty());
    let applied = applied("");
    assert_eq!((applied.batch, applied.filtered, applied.bad), (flights(), 0, vec![]));
}

#[test]
fn columns_are_renamed_at_the_same_time() {
    let transform = transform("rename = { id = 'delay', delay = 'id', note = 'Ω \"x\"' }");
    assert_eq!(
        transform.output().to_string(),
        "delay BIGINT NOT NULL, Carrier TEXT, id INT, fare DECIMAL(12,2), \"Ω \"\"x\"\"\" TEXT, \
         place STRUCT<lat DOUBLE, lon DOUBLE>, tags BIGINT[]"
    );
}

#[test]
fn a_filter_keeps_what_is_true() {
    assert_eq!(ids(&applied("filter = 'delay > 0'")), [4, 5]);
    assert_eq!(ids(&applied("filter = 'NOT delay > 0'")), [1, 2], "NULL is neither true nor false");
    assert_eq!(ids(&applied("filter = 'delay IS NULL'")), [3]);
    assert_eq!(ids(&applied("filter = 'delay IS DISTINCT FROM 0'")), [2, 3, 4, 5]);
    assert_eq!(ids(&applied("filter = 'delay > 0 OR TRUE'")), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&applied("filter = 'delay IN (0, 20, NULL)'")), [1, 4]);
    assert_eq!(ids(&applied("filter = 'delay NOT IN (0, 20, NULL)'")), [0; 0]);
    assert_eq!(ids(&applied("filter = 'CAST(NULL AS BOOLEAN)'")), [0; 0]);
    assert_eq!(ids(&applied("filter = \"fare BETWEEN 0.98 AND 100.50\"")), [1, 3]);
    assert_eq!(ids(&applied("filter = \"place.lat >= 3 AND place['lon'] < 4\"")), [3, 4]);
    assert_eq!(ids(&applied("filter = \"tags[1] = 7 OR array_length(tags) = 2\"")), [1, 4, 5]);
    let none = applied("filter = 'false'");
    assert_eq!((none.batch.num_rows(), none.filtered), (0, 5));
}

#[test]
fn texts_with_quotes_are_compared_as_they_are() {
    assert_eq!(ids(&applied("filter = \"Carrier = 'O''Hare'\"")), [2]);
    assert_eq!(ids(&applied("filter = \"\\\"Carrier\\\" = '\\\"q\\\"'\"")), [5]);
    assert_eq!(ids(&applied("filter = \"Carrier LIKE '_A'\"")), [1]);
    assert_eq!(ids(&applied("filter = \"carrier IN ('ua', 'dl')\"\nrename = { Carrier = 'carrier' }")), [0; 0]);
}

#[test]
fn columns_are_selected_in_their_order_with_names() {
    let applied = applied("select = ['Carrier', 'id AS Id', \"coalesce(Carrier, '?') || '-' || id AS key\"]");
    let names: Vec<_> = applied.batch.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["Carrier", "Id", "key"]);
    assert_eq!(texts(&applied, "key"), some(&["UA-1", "O'Hare-2", "?-3", "DL-4", "\"q\"-5"]));
}

#[test]
fn a_star_is_all_columns() {
    let transform = transform("select = ['*', 'delay * 60 AS seconds']");
    assert_eq!(transform.output().arrow().fields().len(), 8);
    assert!(refused("select = ['*', 'id']").contains("two columns would have the name id"));
}

#[test]
fn columns_are_dropped() {
    let transform = transform("drop = ['note', 'place', 'tags', 'fare']");
    assert_eq!(transform.output().to_string(), "id BIGINT NOT NULL, Carrier TEXT, delay INT");
    assert!(refused("drop = ['id']\nselect = ['id']").contains("no column would be left"));
}

#[test]
fn constants_and_expressions_are_added() {
    let applied = applied(
        "[add]\nsource = \"'it''s'\"\nversion = 3\nrate = 0.5\nlive = true\nempty = 'CAST(NULL AS DATE)'\nnext = 'id + 1'",
    );
    assert_eq!(
        Schema::new(applied.batch.schema()).to_string().split_once("tags BIGINT[], ").expect("they are last").1,
        "empty DATE, live BOOLEAN NOT NULL, next BIGINT NOT NULL, rate DECIMAL(1,1) NOT NULL, source TEXT NOT NULL, \
         version BIGINT NOT NULL"
    );
    assert_eq!(texts(&applied, "source"), some(&["it's"; 5]));
    assert_eq!(applied.batch["live"].as_ref(), &BooleanArray::from(vec![true; 5]));
    assert_eq!(applied.batch["empty"].null_count(), 5);
    assert_eq!(applied.batch["next"].as_ref(), &Int64Array::from(vec![2, 3, 4, 5, 6]));
}

#[test]
fn steps_come_in_their_order_whatever_the_order_in_the_file() {
    let applied = applied(
        "drop = ['flag']\n\
         select = ['id', 'upper(line) AS line', 'flag']\n\
         filter = 'flag AND minutes IS NOT NULL'\n\
         add = { flag = 'minutes < 100' }\n\
         cast = { minutes = 'BIGINT' }\n\
         rename = { delay = 'minutes', Carrier = 'line' }",
    );
    assert_eq!(ids(&applied), [1, 2, 4]);
    assert_eq!(texts(&applied, "line"), some(&["UA", "O'HARE", "DL"]));
    assert_eq!(applied.batch.num_columns(), 2);
}

#[test]
fn a_cast_that_does_not_fit_is_a_bad_row() {
    let result = applied("cast = { note = 'INT' }");
    let reason = |text: &str| format!("cast.note: Cast error: Cannot cast string '{text}' to value of Int32 type");
    assert_eq!(result.bad, [BadRow { row: 1, reason: reason("x") }, BadRow { row: 2, reason: reason("") }]);
    assert_eq!(ids(&result), [1, 4, 5]);
    assert_eq!(result.batch["note"].as_ref(), &Int32Array::from(vec![Some(12), None, Some(300)]));

    let small = applied("cast = { note = 'TINYINT' }");
    assert_eq!(ids(&small), [1, 4]);
    assert!(small.bad[2].reason.contains("300"), "{:?}", small.bad);
    assert_eq!(ids(&applied("cast = { delay = 'SMALLINT' }")), [1, 2, 3, 4]);
    assert_eq!(ids(&applied("cast = { delay = 'INT UNSIGNED' }")), [1, 3, 4, 5]);
}

#[test]
fn every_row_may_be_bad() {
    let result = applied("add = { x = '1 / (id - id)' }");
    assert_eq!(result.bad.iter().map(|b| b.row).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(result.bad[0].reason.starts_with("add.x: ") && result.bad[0].reason.contains("ivide by zero"));
    assert_eq!(result.batch.num_rows(), 0);
}

#[test]
fn conditions_guard_what_they_stand_before_row_by_row() {
    assert_eq!(ids(&applied("filter = 'delay <> 0 AND 100 / delay < 10'")), [2, 4, 5]);
    assert!(applied("filter = 'delay <> 0 AND 100 / delay < 10'").bad.is_empty());
    let guarded = applied("select = ['id', 'CASE WHEN delay = 0 THEN -1 ELSE 100 / delay END AS x']");
    assert_eq!(guarded.batch["x"].as_primitive::<Int64Type>().values()[0], -1);
    assert!(guarded.bad.is_empty(), "{:?}", guarded.bad);
}

#[test]
fn a_row_that_is_filtered_out_is_not_selected_from() {
    let result = applied("filter = 'delay <> 0'\nselect = ['id', '100 / delay AS x']");
    assert_eq!((ids(&result), result.filtered, result.bad), (vec![2, 4, 5], 2, vec![]));
}

#[test]
fn integers_do_not_wrap_around() {
    let result = applied("add = { x = 'delay + CAST(1 AS INT)' }");
    assert_eq!(result.bad.len(), 1);
    assert_eq!(result.bad[0].row, 4);
    assert!(result.bad[0].reason.contains("verflow"), "{}", result.bad[0].reason);
    assert_eq!(applied("add = { x = 'delay * delay * delay * delay * delay' }").bad[0].row, 4);
    assert_eq!(applied("add = { x = '-(-delay - CAST(1 AS INT))' }").bad[0].row, 4, "-(-2147483648)");
    assert!(refused("add = { x = '9223372036854775807 + 1' }").contains("verflow"));
    assert!(refused("filter = 'id > 1 / 0'").contains("ivide by zero"));
}

#[test]
fn decimals_are_exact() {
    let sum = applied("add = { gross = 'fare * 1.19' }\nfilter = 'id IN (1, 3, 4)'");
    assert_eq!(sum.batch["gross"].data_type(), &DataType::Decimal128(16, 4));
    assert_eq!(sum.batch["gross"].as_primitive::<Decimal128Type>().values(), &[1_195_950, 11_781, -119]);
    let cast = applied("cast = { fare = 'DECIMAL(6, 1)' }");
    assert_eq!(cast.bad.iter().map(|b| b.row).collect::<Vec<_>>(), [4], "{:?}", cast.bad);
    let fares = cast.batch["fare"].as_primitive::<Decimal128Type>();
    assert_eq!((fares.value(0), fares.is_null(1), fares.value(2), fares.value(3)), (1005, true, 10, 0));
    let doubled = applied("cast = { fare = 'DECIMAL(38, 26)' }\nadd = { x = 'fare + fare' }\nfilter = 'id <> 5'");
    assert_eq!(doubled.batch["x"].as_primitive::<Decimal128Type>().value(2), 198 * 10_i128.pow(24));
}

#[test]
fn a_decimal_sum_beyond_its_digits_is_a_bad_row() {
    let schema = Schema::parse_ddl("a DECIMAL(38,0)").expect("valid");
    let values = Decimal128Array::from(vec![1, 9 * 10_i128.pow(37)]).with_precision_and_scale(38, 0).expect("fits");
    let batch = RecordBatch::try_new(Arc::clone(schema.arrow()), vec![Arc::new(values)]).expect("one column");
    let transform = Transform::new(&options("select = ['a + a AS b']"), &schema).expect("valid");
    let applied = transform.apply(&batch).expect("the columns fit");
    assert_eq!(applied.bad.len(), 1, "{applied:?}");
    assert_eq!(applied.bad[0].row, 1);
    assert_eq!(applied.batch["b"].as_primitive::<Decimal128Type>().values(), &[2]);
}

#[test]
fn times_are_read_in_utc_and_taken_apart() {
    let result = applied(
        "[add]\nat = \"CAST('2026-03-29T02:30:00' AS TIMESTAMP WITH TIME ZONE)\"\nday = \"DATE '2026-03-29'\"\n\
         [rename]\n",
    );
    assert_eq!(
        result.batch["at"].data_type(),
        &DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, Some("UTC".into()))
    );
    let parts = applied("select = ['id', \"extract(year FROM DATE '2026-03-29') AS y\"]");
    assert_eq!(parts.batch["y"].as_primitive::<Int32Type>().value(0), 2026);
}

#[test]
fn an_empty_batch_stays_empty_with_the_new_columns() {
    let transform = transform("cast = { note = 'INT' }\nselect = ['note', '1 / delay AS x']\nfilter = 'delay > 0'");
    let applied = transform.apply(&flights().slice(0, 0)).expect("the columns fit");
    assert_eq!(applied.batch, RecordBatch::new_empty(Arc::clone(transform.output().arrow())));
    assert_eq!((applied.filtered, applied.bad), (0, vec![]));
}

#[test]
fn bad_rows_are_found_in_large_batches() {
    let schema = Schema::parse_ddl("n BIGINT").expect("valid");
    let rows = 5000;
    let values = Int64Array::from_iter_values(0..rows);
    let batch = RecordBatch::try_new(Arc::clone(schema.arrow()), vec![Arc::new(values)]).expect("one column");
    let transform = Transform::new(&options("select = ['n', '1 / (n % 701 - 700) AS x']"), &schema).expect("valid");
    let applied = transform.apply(&batch).expect("the columns fit");
    assert_eq!(applied.bad.iter().map(|b| b.row).collect::<Vec<_>>(), [700, 1401, 2102, 2803, 3504, 4205, 4906]);
    let expected: Vec<i64> = (0..rows).filter(|n| n % 701 != 700).collect();
    assert_eq!(applied.batch["n"].as_primitive::<Int64Type>().values(), &expected[..]);
}

#[test]
fn a_batch_with_other_columns_is_a_mistake() {
    let other = flights().project(&[0, 1]).expect("two columns");
    let error = transform("filter = 'id > 1'").apply(&other).expect_err("other columns");
    assert_eq!(error.kind, ColumnsErrorKind::Internal);
    assert!(error.message.contains("id BIGINT NOT NULL, Carrier TEXT"), "{}", error.message);
}

#[test]
fn a_column_that_does_not_exist_is_told_with_the_nearest() {
    for (toml, parts) in [
        ("filter = \"carrier = 'UA'\"", &["filter", "column carrier", "nearest is Carrier", "carrier = 'UA'"][..]),
        ("filter = 'Carrier = \"UA\"'", &["column UA", "single quotes: 'UA'"]),
        ("select = ['dealy']", &["select", "column dealy", "nearest is delay"]),
        ("select = ['dealy + 1 AS x']", &["select", "column dealy", "nearest is delay"]),
        ("add = { x = 'idd' }", &["add.x", "column idd", "nearest is id", "in: idd"]),
        ("drop = ['Note']", &["drop", "column Note", "nearest is note"]),
        ("rename = { Fare = 'x' }", &["rename", "column Fare", "nearest is fare"]),
        ("cast = { Fare = 'INT' }", &["cast", "column Fare", "nearest is fare"]),
        ("drop = ['delay']\nrename = { delay = 'wait' }", &["drop", "column delay"]),
        ("filter = 'place.latt > 1'", &["filter", "latt"]),
    ] {
        let message = refused(toml);
        for part in parts {
            assert!(message.contains(part), "{toml}: {message} lacks {part}");
        }
    }
}

#[test]
fn what_needs_more_than_one_row_or_changes_each_time_is_refused() {
    for (expression, part) in [
        ("sum(delay)", "aggregate"),
        ("COUNT(*)", "aggregate"),
        ("max(delay) OVER ()", "window function"),
        ("row_number() OVER (ORDER BY id)", "window function"),
        ("delay ^ 2", "power(a, b)"),
        ("(SELECT 1)", "subquery"),
        ("delay IN (SELECT 1)", "subquery"),
        ("EXISTS (SELECT 1)", "subquery"),
        ("random()", "random() gives another value each time"),
        ("now()", "now() gives another value each time"),
        ("current_timestamp", "gives another value each time"),
        ("CURRENT_DATE", "gives another value each time"),
        ("uuid()", "uuid() gives another value each time"),
        ("coalesce(delay, now())", "gives another value each time"),
        ("version()", "version"),
        ("delay + $1", "parameter"),
        ("@x", "x"),
        ("array_transform(tags, v -> v + 1)", "no function array_transform"),
        ("repeat(note, delay)", "second argument"),
        ("lpad(note, 1000000, 'x')", "second argument"),
        ("generate_series(1, id)", "generate_series"),
    ] {
        let message = refused(&format!("add = {{ x = {expression:?} }}"));
        assert!(message.contains(part), "{expression}: {message} lacks {part}");
        assert!(message.contains("add.x"), "{expression}: {message}");
    }
    assert_eq!(texts(&applied("add = { x = \"lpad(note, 4, '0')\" }"), "x")[0].as_deref(), Some("0012"));
}

#[test]
fn other_mistakes_are_told_with_the_option() {
    for (toml, parts) in [
        ("filter = ''", &["filter", "empty"][..]),
        ("filter = 'delay'", &["filter", "condition", "INT"]),
        ("filter = 'delay >'", &["filter", "delay >"]),
        ("filter = 'delay > 0 delay'", &["filter", "behind"]),
        ("filter = 'delay > 0; drop'", &["filter", "behind"]),
        ("filter = 'delay > 0 AS x'", &["filter", "AS x"]),
        ("filter = 'tags > 1'", &["filter"]),
        ("filter = 'uper(note) = 1'", &["filter", "upper"]),
        ("select = ['id + 1']", &["select", "AS name"]),
        ("select = ['id', 'delay AS id']", &["select", "two columns", "id"]),
        ("rename = { id = 'delay' }", &["rename", "two columns", "delay"]),
        ("rename = { id = '' }", &["rename", "empty"]),
        ("add = { id = 1 }", &["add.id", "there already"]),
        ("add = { x = 'NULL' }", &["add.x", "CAST(NULL AS TEXT)"]),
        ("add = { x = \"INTERVAL '1 day'\" }", &["add.x", "cast it"]),
        ("cast = { note = 'MONEY' }", &["cast.note", "MONEY", "BIGINT"]),
        ("cast = { tags = 'DATE' }", &["cast.tags", "BIGINT[]", "DATE"]),
        ("add = { x = 'CAST(note AS MONEY)' }", &["add.x", "MONEY"]),
        ("add = { x = \"CAST('a' AS INT)\" }", &["add.x", "'a'"]),
    ] {
        let message = refused(toml);
        for part in parts {
            assert!(message.contains(part), "{toml}: {message} lacks {part}");
        }
    }
}

#[test]
fn long_chains_have_an_end_and_do_not_overflow_the_stack() {
    let chain = |n: usize| format!("filter = \"{}\"", vec!["id + delay <> 7"; n].join(" AND "));
    assert_eq!(ids(&applied(&chain(200))), [1, 2, 4, 5]);
    assert!(refused(&chain(600)).contains("nested"));
    assert!(refused(&format!("filter = '{}id > 0{}'", "(".repeat(500), ")".repeat(500))).contains("nested"));
    assert!(refused(&chain(10_000)).contains("bytes long"));
}

#[test]
fn columns_are_added_in_the_order_of_the_options_and_named_once() {
    let add = ["z", "a", "m"].map(|name| (name.to_owned(), "id".to_owned())).to_vec();
    let schema = Schema::parse_ddl("id BIGINT").expect("valid");
    let options = TransformOptions { add, ..TransformOptions::default() };
    let transform = Transform::new(&options, &schema).expect("valid");
    assert_eq!(transform.output().to_string(), "id BIGINT, z BIGINT, a BIGINT, m BIGINT");
    let twice = vec![("x".to_owned(), "1".to_owned()); 2];
    let options = TransformOptions { add: twice.clone(), ..TransformOptions::default() };
    assert!(Transform::new(&options, &schema).is_err_and(|e| e.message.contains("two columns")));
    let rename = vec![("id".to_owned(), "a".to_owned()), ("id".to_owned(), "b".to_owned())];
    let options = TransformOptions { rename, ..TransformOptions::default() };
    assert!(Transform::new(&options, &schema).is_err_and(|e| e.message.contains("two new names")));
}

#[test]
fn types_of_other_layouts_pass_unchanged_and_compute_to_plain_ones() {
    let schema = Schema::new(Arc::new(arrow_schema::Schema::new(vec![Field::new("t", DataType::LargeUtf8, true)])));
    let transform = Transform::new(&options("add = { u = 'upper(t)' }"), &schema).expect("valid");
    assert_eq!(transform.output().arrow().field(0).data_type(), &DataType::LargeUtf8);
    assert_eq!(transform.output().arrow().field(1).data_type(), &DataType::Utf8);
    let values = Arc::new(arrow_array::LargeStringArray::from(vec!["a", "ß"]));
    let batch = RecordBatch::try_new(Arc::clone(schema.arrow()), vec![values]).expect("one column");
    assert_eq!(texts(&transform.apply(&batch).expect("fits"), "u"), some(&["A", "SS"]));
}

#[test]
fn a_number_too_large_for_its_type_is_a_bad_row_and_an_infinity_that_went_in_stays() {
    let numbers: arrow_array::ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![1.5, 1e300, f64::INFINITY]));
    let words: arrow_array::ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["2.5", "1e400", "Infinity"]));
    let batch = RecordBatch::try_from_iter([("n", numbers), ("w", words)]).unwrap();
    for toml in ["cast = { n = \"REAL\" }", "add = { m = \"n * 1e30 * 1e30\" }", "cast = { w = \"DOUBLE\" }"] {
        let transform = Transform::new(&options(toml), &Schema::new(batch.schema())).unwrap();
        let applied = transform.apply(&batch).unwrap();
        assert_eq!(applied.batch.num_rows(), 2, "{toml}");
        assert!(applied.bad[0].row == 1 && applied.bad[0].reason.contains("too large"), "{toml}: {:?}", applied.bad);
    }
}

#[test]
fn a_number_with_an_exponent_is_a_double_and_one_without_is_as_it_is_written() {
    let applied =
        applied("filter = 'id < 1e308 AND -1e308 < id'\n[add]\na = '1e308'\nb = '-2.5E-3'\nc = '0.1'\nd = 'id * 1e3'");
    let schema = Schema::new(applied.batch.schema()).to_string();
    assert!(
        schema.ends_with("a DOUBLE NOT NULL, b DOUBLE NOT NULL, c DECIMAL(1,1) NOT NULL, d DOUBLE NOT NULL"),
        "{schema}"
    );
    let double = |name: &str| {
        let column = applied.batch.column_by_name(name).expect(name);
        column.as_primitive::<arrow_array::types::Float64Type>().values().to_vec()
    };
    assert_eq!((applied.batch.num_rows(), double("a")[0], double("b")[4]), (5, 1e308, -2.5e-3));
    assert_eq!(double("d"), [1e3, 2e3, 3e3, 4e3, 5e3]);
    assert!(refused("filter = 'id < 1e400'").contains("1e400 is beyond what DOUBLE holds"));
}

#[test]
fn an_item_of_a_list_that_fails_takes_no_other_row_with_it() {
    let mut tags = ListBuilder::new(Int64Builder::new());
    for items in [Some(vec![1, 9_999_999_999]), Some(vec![1]), Some(vec![2]), None, Some(vec![])] {
        tags.append_option(items.map(|items| items.into_iter().map(Some).collect::<Vec<_>>()));
    }
    let tags: ArrayRef = Arc::new(tags.finish());
    let batch = RecordBatch::try_from_iter([("t", tags)]).unwrap();
    let transform = Transform::new(&options("cast = { t = \"INT[]\" }"), &Schema::new(batch.schema())).unwrap();
    let applied = transform.apply(&batch).unwrap();
    assert_eq!(applied.batch.num_rows(), 4);
    assert_eq!(applied.bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [0]);
}

#[test]
fn texts_are_cut_by_the_function_that_everybody_looks_for_first() {
    let applied = applied("select = [\"substr(Carrier, 1, 1) AS a\", \"substring(note FROM 1 FOR 2) AS b\"]");
    assert_eq!(texts(&applied, "a")[0], Some("U".to_owned()));
    assert_eq!(texts(&applied, "b")[4], Some("30".to_owned()));
}
