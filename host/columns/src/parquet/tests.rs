//! Files of other programs under `tests/data`, and damaged ones. `tests/data/README.md` says how they were made.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};

use super::ParquetFile;
use crate::ColumnsErrorKind;
use crate::rows::ColumnBatch;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn all(file: &ParquetFile, from: u64, max_bytes: usize) -> Vec<RecordBatch> {
    let mut reader = file.read_from(from, max_bytes);
    let mut batches = Vec::new();
    let mut next = from;
    while let Some(found) = reader.next_batch().expect("reads") {
        assert_eq!(found.first_row, next);
        next += found.batch.num_rows() as u64;
        assert_eq!(reader.position(), next);
        batches.push(found.batch);
    }
    assert_eq!(next, file.rows().max(from));
    batches
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).unwrap_or_else(|| panic!("column {column}"));
    let options = FormatOptions::new().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column.as_ref(), &options).expect("has text");
    (0..column.len()).map(|row| formatter.value(row).to_string()).collect()
}

#[test]
fn files_of_pyarrow_are_read_with_equal_values() {
    for name in ["pyarrow-int96.parquet", "pyarrow-v2.parquet"] {
        let file = ParquetFile::open(&data(name)).expect("opens");
        assert_eq!(file.rows(), 4);
        let batches = all(&file, 0, 1 << 20);
        assert_eq!(batches.len(), 1);
        let batch = &batches[0];
        assert_eq!(batch.schema_ref(), file.schema().arrow());
        let at = batch.column_by_name("at").expect("at").as_primitive::<TimestampMicrosecondType>();
        assert_eq!((at.value(0), at.is_null(1)), (1_357_017_420_123_456, true), "{name}");
        assert_eq!((at.value(2), at.value(3)), (253_402_300_799_999_999, -62_135_596_800_000_000), "{name}");
        assert_eq!(texts(batch, "price"), ["1.50", "-99999999999999999999999999999999999.99", "NULL", "0.01"]);
        assert_eq!(texts(batch, "small"), ["1.5", "NULL", "-9999.9", "0.0"]);
        let big = batch.column_by_name("big").expect("big").as_primitive::<Int64Type>();
        assert_eq!((big.value(0), big.value(1), big.is_null(2)), (i64::MAX, i64::MIN, true));
        let unsigned = batch.column_by_name("unsigned").expect("unsigned").as_primitive::<UInt64Type>();
        assert_eq!(unsigned.value(0), u64::MAX);
        assert_eq!(texts(batch, "tags"), ["[a, b]", "[]", "NULL", "[NULL, c]"]);
        assert_eq!(texts(batch, "place")[0], "{lat: 1.5, names: [x]}");
        assert_eq!(texts(batch, "place")[1..3], ["NULL", "{lat: NULL, names: NULL}"]);
        assert_eq!(texts(batch, "map"), ["{k: 1}", "{}", "NULL", "{a: NULL, b: 2}"]);
        let zone = batch.column_by_name("zone").expect("zone");
        assert!(matches!(zone.data_type(), DataType::Timestamp(_, Some(_))), "{name}: an instant");
        assert_eq!(texts(batch, "word"), ["a", "b", "a", "NULL"]);
        assert_eq!(texts(batch, "day"), ["2013-01-01", "NULL", "0001-01-01", "9999-12-31"]);
        let types = |column: &str| file.schema().arrow().field_with_name(column).expect("there").data_type().clone();
        assert_eq!((types("word"), types("large"), types("raw")), (DataType::Utf8, DataType::Utf8, DataType::Binary));
    }
}

#[test]
fn the_first_batch_of_large_rows_takes_no_more_than_it_may() {
    let schema = Arc::new(ArrowSchema::new(vec![
        Field::new("small", DataType::Utf8, false),
        Field::new("large", DataType::Utf8, false),
    ]));
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let mut writer = parquet::arrow::ArrowWriter::try_new(file.as_file_mut(), schema.clone(), None).expect("begins");
    // Small rows in one group, large ones in the next.
    for (length, rows) in [(1, 20_000), (100_000, 100)] {
        let small = StringArray::from_iter_values((0..rows).map(|row| row.to_string()));
        let large = StringArray::from_iter_values((0..rows).map(|row| format!("{row}{}", "x".repeat(length))));
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(small), Arc::new(large)]).expect("fits");
        writer.write(&batch).expect("writes");
        writer.flush().expect("ends a group");
    }
    writer.close().expect("ends");
    let parquet = ParquetFile::open(file.path()).expect("opens");
    for from in [0, 20_000] {
        let mut reader = parquet.read_from(from, 1 << 20);
        while let Some(read) = reader.next_batch().expect("reads") {
            // All that it holds on to, not its own rows alone.
            let bytes = read.batch.get_array_memory_size();
            assert!(bytes < 4 << 20, "{bytes} bytes in {} rows from {}", read.batch.num_rows(), read.first_row);
        }
    }
    // What is not read does not count.
    let mut reader = parquet.only(|name| name == "small").read_from(20_000, 1 << 20);
    assert_eq!(reader.next_batch().expect("reads").map(|read| read.batch.num_rows()), Some(100));
}

#[test]
fn some_columns_are_read_alone_with_the_same_values() {
    for name in ["pyarrow-int96.parquet", "pyarrow-v2.parquet", "polars-groups.parquet"] {
        let file = ParquetFile::open(&data(name)).expect("opens");
        let names: Vec<String> = file.schema().arrow().fields().iter().map(|field| field.name().clone()).collect();
        let whole = all(&file, 0, 1 << 20).remove(0);
        let choices = [&names[..], &names[..1], &names[names.len() / 2..], &["price".to_owned(), "at".to_owned()], &[]];
        for choice in choices {
            let some = file.only(|name| choice.iter().any(|kept| kept == name));
            let read = all(&some, 0, 1 << 20).remove(0);
            assert_eq!(read.schema_ref(), some.schema().arrow());
            assert_eq!(read.num_rows(), whole.num_rows());
            assert_eq!(read.num_columns(), names.iter().filter(|name| choice.contains(name)).count(), "{name}");
            for (field, column) in some.schema().arrow().fields().iter().zip(read.columns()) {
                assert_eq!(Some(column), whole.column_by_name(field.name()), "{name}, {}", field.name());
            }
            // Of these again some, from a later row.
            let fewer = some.only(|name| name != names[0]);
            let read = fewer.read_from(2, 1 << 20).next_batch().expect("reads").expect("rows").batch;
            assert_eq!(
                read.num_columns(),
                choice.iter().filter(|name| **name != names[0]).filter(|name| names.contains(name)).count()
            );
        }
    }
}

#[test]
fn int96_with_nanoseconds_is_told_of_the_columns_that_are_read() {
    let file = ParquetFile::open(&data("pyarrow-int96-nanos.parquet")).expect("opens");
    assert!(file.only(|name| name == "at").read_from(0, 1000).next_batch().is_err());
    let others = file.only(|name| name != "at").read_from(0, 1000).next_batch().expect("no nanoseconds");
    assert_eq!(others.map(|read| read.batch.num_rows() as u64), Some(file.rows()));
}

#[test]
fn int96_with_nanoseconds_is_refused_instead_of_cut() {
    let file = ParquetFile::open(&data("pyarrow-int96-nanos.parquet")).expect("opens");
    let error = file.read_from(0, 1000).next_batch().expect_err("a nanosecond");
    assert_eq!(error.kind, ColumnsErrorKind::Unsupported);
    assert!(error.message.contains("`at`") && error.message.contains("pyarrow-int96-nanos"), "{error}");
}

#[test]
fn a_position_is_a_row_number_and_every_one_can_be_gone_on_from() {
    let file = ParquetFile::open(&data("polars-groups.parquet")).expect("opens");
    assert_eq!(file.rows(), 1200);
    let whole = all(&file, 0, 1 << 20);
    let numbers: Vec<i64> =
        whole.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
    assert_eq!(numbers, (0..1200).collect::<Vec<_>>());
    assert_eq!(texts(&whole[0], "group")[..3], ["g0", "g1", "g2"]);
    assert_eq!(texts(&whole[0], "nested")[1], "{a: [1, 2]}");
    for from in [0, 1, 255, 299, 300, 301, 599, 899, 900, 1199, 1200, 5000] {
        for max_bytes in [1, 2000, 1 << 20] {
            let max_bytes = if from < 1100 { max_bytes.max(2000) } else { max_bytes };
            let batches = all(&file, from, max_bytes);
            let first = batches.first().map(|batch| batch.column(0).as_primitive::<Int64Type>().value(0));
            assert_eq!(first, (from < 1200).then_some(from as i64));
            for batch in batches {
                let bytes = ColumnBatch::new(batch.clone()).bytes();
                // Of nested columns the size of a slice is not known exactly.
                assert!(bytes <= max_bytes * 4 || batch.num_rows() == 1, "{} rows, {bytes} bytes", batch.num_rows());
            }
        }
    }
}

#[test]
fn batches_stay_small_where_small_pages_hold_large_values() {
    let schema = Arc::new(ArrowSchema::new(vec![Field::new("text", DataType::Utf8, false)]));
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let mut writer = parquet::arrow::ArrowWriter::try_new(file.as_file_mut(), schema.clone(), None).expect("begins");
    for length in [1, 20_000] {
        let text = "x".repeat(length);
        let column = StringArray::from_iter_values((0..10_000).map(|_| text.as_str()));
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(column)]).expect("fits");
        writer.write(&batch).expect("writes");
    }
    writer.close().expect("ends");
    let parquet = ParquetFile::open(file.path()).expect("opens");
    let mut reader = parquet.read_from(0, 1 << 20);
    let mut rows = 0;
    while let Some(found) = reader.next_batch().expect("reads") {
        let bytes = ColumnBatch::new(found.batch.clone()).bytes();
        assert!(bytes <= 3 << 20, "{bytes}");
        rows += found.batch.num_rows();
    }
    assert_eq!(rows, 20_000);
}

#[test]
fn what_is_no_whole_plain_parquet_file_is_told_by_name() {
    let says = |bytes: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(bytes).expect("writes");
        let error = ParquetFile::open(file.path()).err().expect("refused");
        assert!(error.message.contains(&file.path().display().to_string()), "{error}");
        (error.kind, error.message)
    };
    let whole = std::fs::read(data("pyarrow-v2.parquet")).expect("there");
    for (bytes, kind, part) in [
        (&b""[..], ColumnsErrorKind::BadValue, "not a Parquet file"),
        (b"{\"a\":1}\n", ColumnsErrorKind::BadValue, "not a Parquet file"),
        (b"PAR1", ColumnsErrorKind::BadValue, "cut short"),
        (b"PAR1\0\0PAR1", ColumnsErrorKind::BadValue, "cut short"),
        (&whole[..whole.len() - 1], ColumnsErrorKind::BadValue, "cut short"),
        (&whole[..whole.len() / 2], ColumnsErrorKind::BadValue, "cut short"),
        (b"PAR1\xff\xff\xff\x7fPAR1", ColumnsErrorKind::BadValue, "longer than the file"),
        (b"PAR1\0\0\0\0PAR1", ColumnsErrorKind::BadValue, "damaged"),
    ] {
        let (found, message) = says(bytes);
        assert!(found == kind && message.contains(part), "{found:?}: {message}");
    }
    for name in ["pyarrow-encrypted.parquet", "pyarrow-encrypted-columns.parquet"] {
        let error = ParquetFile::open(&data(name)).err().expect("refused");
        assert_eq!(error.kind, ColumnsErrorKind::Unsupported, "{error}");
        assert!(error.message.contains("encrypted"), "{error}");
    }
    assert_eq!(ParquetFile::open(&data("none.parquet")).err().expect("refused").kind, ColumnsErrorKind::Io);
}

/// Reads all of a file that may be damaged: rows or an error, never a panic, and never more rows than it says.
fn read_damaged(bytes: &[u8]) -> bool {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("writes");
    let parquet = match ParquetFile::open(file.path()) {
        Ok(parquet) => parquet,
        Err(error) => {
            assert_ne!(error.kind, ColumnsErrorKind::Internal, "{error}");
            return false;
        }
    };
    let mut reader = parquet.read_from(0, 1 << 20);
    let mut rows = 0;
    loop {
        match reader.next_batch() {
            Ok(Some(found)) => rows += found.batch.num_rows() as u64,
            Ok(None) => {
                assert_eq!(rows, parquet.rows());
                return true;
            }
            Err(error) => {
                assert_ne!(error.kind, ColumnsErrorKind::Internal, "{error}");
                assert!(reader.next_batch().is_err(), "a reader that failed stays so");
                return false;
            }
        }
    }
}

#[test]
fn no_damage_of_a_file_is_a_panic() {
    let mut refused = 0;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    for name in ["pyarrow-int96.parquet", "pyarrow-v2.parquet"] {
        let whole = std::fs::read(data(name)).expect("there");
        for _ in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 3 {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            refused += usize::from(!read_damaged(&bytes));
        }
    }
    assert!(refused > 200, "{refused} of 800 were noticed");
}

mod footers {
    use crate::parquet::footer::{Footer, check};

    /// A field's header: delta and type.
    fn field(delta: u8, kind: u8) -> u8 {
        delta << 4 | kind
    }

    #[test]
    fn footers_of_other_programs_pass() {
        for name in ["pyarrow-int96.parquet", "pyarrow-v2.parquet", "polars-groups.parquet"] {
            let bytes = std::fs::read(super::data(name)).expect("there");
            let end = bytes.len() - 8;
            let length = u32::from_le_bytes(bytes[end..end + 4].try_into().expect("4 bytes")) as usize;
            assert_eq!(check(&bytes[end - length..end]), Ok(Footer { encrypted: false }), "{name}");
            assert!((0..length).all(|cut| check(&bytes[end - length..end - length + cut]).is_err()), "{name}: cut");
        }
    }

    #[test]
    fn counts_that_cannot_be_and_deep_nesting_are_refused() {
        // field 4: a list of 2^31-1 structures, and nothing behind it
        let count = [field(4, 9), 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07];
        assert!(check(&count).expect_err("too many").contains("more than it has bytes"));
        // a structure within a structure within …
        let deep = vec![field(1, 12); 10_000];
        assert!(check(&deep).expect_err("too deep").contains("too deep"));
        // a list within a list within …
        let deep: Vec<u8> = [field(1, 9)].into_iter().chain(vec![0x19; 10_000]).collect();
        assert!(check(&deep).expect_err("too deep").contains("too deep"));
        // a text of 2^63 bytes
        let text = [field(1, 8), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(check(&text).is_err());
        assert!(check(&[field(1, 6), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]).is_err());
        assert!(check(&[field(1, 14), 0]).is_err());
        assert!(check(&[]).is_err());
    }

    /// A footer with a schema whose elements have so many children.
    fn schema(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![field(2, 9)];
        bytes.extend(if children.len() < 15 {
            vec![(children.len() as u8) << 4 | 12]
        } else {
            vec![0xfc, children.len() as u8 & 0x7f | 0x80, (children.len() >> 7) as u8]
        });
        for count in children {
            // field 5, an i32 in zigzag
            bytes.extend([field(5, 5), count << 1, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn groups_of_a_schema_have_as_many_children_as_they_say() {
        assert!(check(&schema(&[2, 0, 0])).is_ok());
        assert!(check(&schema(&[2, 1, 0, 0])).is_ok());
        assert!(check(&schema(&[2, 0])).is_err());
        assert!(check(&schema(&[1, 0, 0])).is_err());
        assert!(check(&schema(&[60])).is_err());
        let chain = |depth: usize| {
            let mut children = vec![1; depth];
            children.push(0);
            schema(&children)
        };
        assert!(check(&chain(60)).is_ok());
        assert!(check(&chain(70)).expect_err("too deep").contains("nested too deep"));
    }
}
