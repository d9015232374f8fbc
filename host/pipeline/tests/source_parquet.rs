//! Parquet files as a source: every row once from any position, values unchanged, files that are not what they were.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use source_support::*;
use tempfile::tempdir;
use tidegate_columns::Schema;
use tidegate_columns::decode::{JsonDecoder, UnknownFields};
use tidegate_columns::encode::encode;
use tidegate_columns::files::{FileFormat, FileOptions, FileWriter};
use tidegate_columns::rows::{ColumnBatch, Rows};
use tidegate_pipeline::source::parquet::{ParquetOptions, ParquetSource};
use tidegate_pipeline::source::{BadRow, ColumnsPlan, Read, Reader, Source, SourceError};
use tidegate_protocol::plugin::Encoding;
use tidegate_protocol::record::SourceCut;

const KINDS: &str = "id BIGINT NOT NULL, big BIGINT UNSIGNED, price DECIMAL(38,2), at TIMESTAMP WITH TIME ZONE, \
                     local TIMESTAMP(9), day DATE, word TEXT, raw BYTEA, tags TEXT[], \
                     place STRUCT<lat DOUBLE, names TEXT[]>, deep STRUCT<n BIGINT>[][], ok BOOLEAN";

/// A row of every kind of value; every third one has NULLs.
fn kinds_row(id: usize) -> String {
    match id % 3 {
        0 => format!("{{\"id\":{id}}}"),
        1 => format!(
            "{{\"id\":{id},\"big\":18446744073709551615,\"price\":-{id}99999999999999999999999999999999.99,\
             \"at\":\"2013-01-01T05:17:0{}.123456Z\",\"local\":\"1969-12-31T23:59:59.999999999\",\"day\":\"0001-01-01\",\
             \"word\":\"é☃\\n\\u0000\",\"raw\":null,\"tags\":[],\"place\":{{\"lat\":-0.0,\"names\":null}},\
             \"deep\":[[{{\"n\":{id}}}],[]],\"ok\":true}}",
            id % 10
        ),
        _ => format!(
            "{{\"id\":{id},\"big\":0,\"price\":0.01,\"at\":\"9999-12-31T23:59:59.999999Z\",\"word\":\"\",\
             \"tags\":[null,\"{}\"],\"place\":{{\"lat\":null,\"names\":[null,\"n\"]}},\"deep\":[null,[{{\"n\":null}},null]],\
             \"ok\":false}}",
            "x".repeat(id)
        ),
    }
}

fn kinds(ids: std::ops::Range<usize>) -> RecordBatch {
    rows(KINDS, &ids.map(|id| kinds_row(id) + "\n").collect::<String>())
}

fn schema(text: &str) -> Schema {
    Schema::parse_ddl(text).expect(text)
}

fn rows(columns: &str, lines: &str) -> RecordBatch {
    let mut decoder = JsonDecoder::new(&schema(columns), UnknownFields::BadRow).expect("a schema of text");
    let decoded = decoder.decode(lines.as_bytes()).expect("not too long");
    assert_eq!(decoded.bad, []);
    decoded.batch
}

/// `{"n":0}` and so on, in a type of one's choice.
fn numbers(kind: &str, numbers: impl Iterator<Item = i64>) -> RecordBatch {
    rows(&format!("n {kind}"), &numbers.map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>())
}

/// A Parquet file of these rows.
fn parquet(rows: &RecordBatch) -> Vec<u8> {
    let mut options = FileOptions::new(FileFormat::Parquet);
    // Small row groups.
    options.memory_bytes = 30_000;
    let mut writer = FileWriter::new(options, Some(&Schema::new(rows.schema()))).expect("Parquet holds it");
    let mut pieces = Vec::new();
    for at in (0..rows.num_rows()).step_by(50) {
        let part = ColumnBatch::new(rows.clone()).slice(at, 50);
        pieces.extend(writer.write(&Rows::Columns(part)).expect("written"));
    }
    pieces.extend(writer.finish().expect("ended"));
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
    assert!(bytes.ends_with(b"PAR1"));
    bytes
}

/// A Parquet file with one column `BIGINT` and no rows, which other programs write; its footer is made by hand.
fn without_rows(column: &str) -> Vec<u8> {
    let mut footer = vec![0x15, 2, 0x19, 0x2c];
    footer.extend([&b"\x48\x06schema\x15\x02\0\x15\x04\x25\x02\x18"[..], &[column.len() as u8]].concat());
    footer.extend([column.as_bytes(), &[0, 0x16, 0, 0x19, 0x0c, 0]].concat());
    [b"PAR1", &footer[..], &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let bytes = encode(batch, Encoding::JsonLines).expect("has text");
    String::from_utf8(bytes.to_vec()).expect("JSON").lines().map(str::to_owned).collect()
}

fn of_other_programs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../columns/tests/data").join(name)
}

fn source(dir: &Path, pattern: &str) -> ParquetSource {
    let mut options = ParquetOptions::new(dir, vec![pattern.to_owned()]);
    // So that it is known whose rows a batch has.
    options.files_per_batch = 1;
    ParquetSource::new(options).expect("good options")
}

fn plan(columns: &str, unknown: UnknownFields) -> ColumnsPlan {
    ColumnsPlan { schema: schema(columns), unknown, inferred: false }
}

/// Everything that a source gave.
#[derive(Debug, Default)]
struct Got {
    rows: BTreeMap<String, Vec<RecordBatch>>,
    bad: Vec<BadRow>,
    positions: BTreeMap<String, String>,
    /// Positions, rows of each partition and bad rows so far, after each batch.
    cuts: Vec<(SourceCut, BTreeMap<String, usize>, usize)>,
    largest: usize,
}

impl Got {
    fn cut(&self) -> SourceCut {
        cut(&self.positions)
    }

    fn counts(&self) -> BTreeMap<String, usize> {
        let count = |batches: &Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum();
        self.rows.iter().map(|(partition, batches)| (partition.clone(), count(batches))).collect()
    }

    fn total(&self) -> usize {
        self.counts().values().sum()
    }

    fn of(&self, partition: &str) -> RecordBatch {
        let batches = self.rows.get(partition).unwrap_or_else(|| panic!("no rows of {partition}"));
        ColumnBatch::join(batches).expect("of one schema")
    }

    fn lines(&self, partition: &str) -> Vec<String> {
        self.rows.get(partition).into_iter().flatten().flat_map(lines).collect()
    }
}

async fn drain_columns(readers: &mut [Box<dyn Reader>], max_bytes: usize) -> Result<Got, SourceError> {
    let mut got = Got::default();
    for reader in readers.iter() {
        got.positions.extend(reader.initial_positions());
    }
    for reader in readers {
        loop {
            let batch = match reader.next(max_bytes).await? {
                Read::End => break,
                Read::Idle => continue,
                Read::Rows(batch) => batch,
            };
            assert!(batch.bytes.is_empty() && !batch.positions.is_empty());
            assert_eq!(batch.columns.as_ref().map_or(0, |columns| columns.num_rows() as u64), batch.rows);
            got.largest = got.largest.max(batch.bad.len());
            let last = batch.positions.last().expect("not empty").0.clone();
            if let Some(columns) = batch.columns {
                got.rows.entry(last).or_default().push(columns);
            }
            got.bad.extend(batch.bad);
            got.positions.extend(batch.positions);
            got.cuts.push((got.cut(), got.counts(), got.bad.len()));
        }
        assert_eq!(reader.next(1).await.expect("an end stays"), Read::End);
    }
    got.bad.sort_by(|a, b| (&a.partition, a.line).cmp(&(&b.partition, b.line)));
    Ok(got)
}

fn read(
    source: &ParquetSource,
    plan: &ColumnsPlan,
    restored: Option<&SourceCut>,
    tasks: u32,
    max_bytes: usize,
) -> Result<Got, SourceError> {
    run(async { drain_columns(&mut source.open_columns(plan, restored, tasks)?, max_bytes).await })
}

/// The error's text, which is one that does not go away by itself.
fn refused<T: std::fmt::Debug>(result: Result<T, SourceError>) -> String {
    let error = result.expect_err("refused");
    assert!(error.permanent(), "{error}");
    error.to_string()
}

#[test]
fn every_kind_of_value_comes_out_equal() {
    let dir = tempdir().unwrap();
    let written = kinds(0..40);
    write(dir.path(), "a", parquet(&written));
    let source = source(dir.path(), "a");
    assert_eq!(source.sample_schema().unwrap(), schema(KINDS));
    for max_bytes in [1, 700, 1 << 20] {
        let got = read(&source, &plan(KINDS, UnknownFields::BadRow), None, 1, max_bytes).unwrap();
        assert_eq!((got.of("a"), &got.bad), (written.clone(), &vec![]));
    }
}

#[test]
fn files_of_other_programs_come_out_equal() {
    let dir = tempdir().unwrap();
    let columns = "at TIMESTAMP, zone TIMESTAMP WITH TIME ZONE, price DECIMAL(38,2), small DECIMAL(5,1), big BIGINT, \
                   unsigned BIGINT UNSIGNED, tags TEXT[], place STRUCT<lat DOUBLE, names TEXT[]>, word TEXT, day DATE";
    for name in ["pyarrow-v2.parquet", "pyarrow-int96.parquet"] {
        fs::copy(of_other_programs(name), dir.path().join(name)).unwrap();
        let got = read(&source(dir.path(), name), &plan(columns, UnknownFields::Drop), None, 1, 1).unwrap();
        assert_eq!(got.bad, []);
        assert_eq!(
            got.lines(name),
            [
                r#"{"at":"2013-01-01T05:17:00.123456","zone":"1970-01-01T00:00:00Z","price":1.50,"small":1.5,"big":9223372036854775807,"unsigned":18446744073709551615,"tags":["a","b"],"place":{"lat":1.5,"names":["x"]},"word":"a","day":"2013-01-01"}"#,
                r#"{"at":null,"zone":null,"price":-99999999999999999999999999999999999.99,"small":null,"big":-9223372036854775808,"unsigned":0,"tags":[],"place":null,"word":"b","day":null}"#,
                r#"{"at":"9999-12-31T23:59:59.999999","zone":"1970-01-01T00:00:00.001Z","price":null,"small":-9999.9,"big":null,"unsigned":null,"tags":null,"place":{"lat":null,"names":null},"word":"a","day":"0001-01-01"}"#,
                r#"{"at":"0001-01-01T00:00:00","zone":"1970-01-01T00:00:00.002Z","price":0.01,"small":0.0,"big":0,"unsigned":1,"tags":[null,"c"],"place":{"lat":0,"names":[]},"word":null,"day":"9999-12-31"}"#,
            ]
        );
    }
}

#[test]
fn every_row_comes_once_from_any_row_on() {
    let dir = tempdir().unwrap();
    write(dir.path(), "d/a", parquet(&kinds(0..23)));
    write(dir.path(), "d/b", without_rows("id"));
    write(dir.path(), "d/c", parquet(&kinds(100..107)));
    let (source, plan) = (source(dir.path(), "d/*"), plan(KINDS, UnknownFields::BadRow));
    let whole = read(&source, &plan, None, 2, 1 << 20).unwrap();
    let by_row = read(&source, &plan, None, 1, 1).unwrap();
    assert_eq!(by_row.positions, whole.positions);
    assert_eq!((by_row.total(), by_row.cuts.len()), (30, 31), "a step for the file without rows");
    for (cut, before, _) in &by_row.cuts {
        for (tasks, max_bytes) in [(1, 1), (3, 600), (2, 1 << 20)] {
            let rest = read(&source, &plan, Some(cut), tasks, max_bytes).unwrap();
            for partition in ["d/a", "d/c"] {
                let all = by_row.of(partition);
                let before = before.get(partition).copied().unwrap_or(0);
                let behind = all.slice(before, all.num_rows() - before);
                match rest.rows.contains_key(partition) {
                    true => assert_eq!(rest.of(partition), behind, "{partition} from {before}"),
                    false => assert_eq!(behind.num_rows(), 0, "{partition} from {before}"),
                }
            }
            assert_eq!(rest.positions, whole.positions);
        }
    }
}

#[test]
fn large_files_of_several_row_groups_are_read_in_bounded_batches() {
    let dir = tempdir().unwrap();
    let groups = "polars-groups.parquet";
    fs::copy(of_other_programs(groups), dir.path().join(groups)).unwrap();
    write(dir.path(), "own.parquet", parquet(&kinds(0..1000)));
    for (name, columns) in [(groups, None), ("own.parquet", Some(KINDS))] {
        let source = source(dir.path(), name);
        let sampled = source.sample_schema().unwrap();
        let plan =
            ColumnsPlan { schema: columns.map_or(sampled, schema), unknown: UnknownFields::BadRow, inferred: false };
        let whole = read(&source, &plan, None, 1, 1 << 20).unwrap();
        let by_bytes = read(&source, &plan, None, 1, 5000).unwrap();
        assert_eq!(by_bytes.of(name), whole.of(name));
        assert!(by_bytes.cuts.len() > 10, "{}", by_bytes.cuts.len());
        for batch in by_bytes.rows.values().flatten() {
            let bytes = ColumnBatch::new(batch.clone()).bytes();
            assert!(bytes < 20_000 || batch.num_rows() == 1, "{bytes} bytes in {} rows", batch.num_rows());
        }
        let (_, unfinished) = by_bytes.cuts.split_last().expect("many");
        for (cut, before, _) in unfinished.iter().step_by(7) {
            let rest = read(&source, &plan, Some(cut), 1, 3000).unwrap();
            let before = before[name];
            assert_eq!(rest.of(name), whole.of(name).slice(before, whole.total() - before));
        }
    }
}

#[test]
fn many_small_files_share_batches_and_are_dealt_to_all_tasks() {
    let dir = tempdir().unwrap();
    for file in 0..300 {
        write(dir.path(), &format!("in/{file:03}.parquet"), parquet(&numbers("BIGINT", file * 3..file * 3 + 3)));
    }
    let source = ParquetSource::new(ParquetOptions::new(dir.path(), vec!["in/*.parquet".to_owned()])).unwrap();
    assert_eq!(source.partitions().unwrap().len(), 300);
    let plan = plan("n BIGINT", UnknownFields::BadRow);
    let mut all = BTreeSet::new();
    let got = run(async {
        let mut readers = source.open_columns(&plan, None, 3).unwrap();
        let shares: Vec<usize> = readers.iter().map(|reader| reader.initial_positions().len()).collect();
        assert_eq!(shares, [100, 100, 100]);
        drain_columns(&mut readers, 1 << 20).await.unwrap()
    });
    assert!(got.cuts.len() <= 6, "{}", got.cuts.len());
    all.extend(got.rows.values().flatten().flat_map(lines));
    assert_eq!((got.total(), all.len()), (900, 900));
    // Half of them, then the other half.
    let half = &got.cuts[0].0;
    let rest = read(&source, &plan, Some(half), 4, 1 << 20).unwrap();
    assert_eq!(rest.total(), 900 - got.cuts[0].1.values().sum::<usize>());
    assert_eq!(rest.positions, got.positions);
    write(dir.path(), "in/new.parquet", parquet(&numbers("BIGINT", 7000..7002)));
    let rest = read(&source, &plan, Some(&got.cut()), 2, 1 << 20).unwrap();
    assert_eq!((rest.total(), rest.positions.len()), (2, 301));
}

#[test]
fn columns_are_found_by_name_widened_and_null_where_they_are_missing() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&rows("n INT, t TEXT, d DECIMAL(5,1)", "{\"n\":1,\"t\":\"x\",\"d\":1.5}\n")));
    write(dir.path(), "b", parquet(&rows("extra BIGINT, n SMALLINT UNSIGNED", "{\"extra\":7,\"n\":2}\n")));
    let wanted = "d DECIMAL(9,2), n BIGINT, t TEXT";
    let source = source(dir.path(), "*");
    let message = refused(read(&source, &plan(wanted, UnknownFields::BadRow), None, 1, 1));
    assert!(message.starts_with("b: ") && message.contains("`extra`"), "{message}");
    let got = read(&source, &plan(wanted, UnknownFields::Drop), None, 1, 1).unwrap();
    assert_eq!(got.lines("a"), [r#"{"d":1.50,"n":1,"t":"x"}"#]);
    assert_eq!(got.lines("b"), [r#"{"d":null,"n":2,"t":null}"#]);
    assert!(got.rows.values().flatten().all(|batch| batch.schema() == *schema(wanted).arrow()));
}

#[test]
fn a_file_that_does_not_fit_is_named_with_its_column_before_the_first_row() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&numbers("BIGINT", 0..3)));
    for (wanted, column) in [("n TEXT", "`n`"), ("m BIGINT NOT NULL", "`m`"), ("n BIGINT[]", "`n`"), ("n REAL", "`n`")]
    {
        write(dir.path(), "b", parquet(&numbers("BIGINT", 0..3)));
        let source = source(dir.path(), "b");
        let message = refused(source.open_columns(&plan(wanted, UnknownFields::Drop), None, 1).map(drop));
        assert!(message.starts_with("b: ") && message.contains(column), "{message}");
    }
    // A later one, too.
    write(dir.path(), "b", parquet(&rows("n TEXT", "{\"n\":\"1\"}\n")));
    let plan = plan("n BIGINT", UnknownFields::BadRow);
    assert!(refused(source(dir.path(), "*").open_columns(&plan, None, 4).map(drop)).starts_with("b: "));
}

#[test]
fn rows_with_a_value_that_does_not_fit_are_bad_rows_and_all_others_come() {
    let dir = tempdir().unwrap();
    let far = 1_i64 << 40;
    let is_bad = |n: i64| n % 7 == 3 || (50..60).contains(&n);
    let kind = "BIGINT, word TEXT";
    let line = |n: i64| format!("{{\"n\":{},\"word\":\"w{n}\"}}", if is_bad(n) { far + n } else { n });
    let all: Vec<String> = (0..100).map(line).collect();
    write(dir.path(), "a", parquet(&rows(&format!("n {kind}"), &(all.join("\n") + "\n"))));
    let (source, plan) = (source(dir.path(), "a"), plan("n INT, word TEXT", UnknownFields::BadRow));
    let good: Vec<String> = (0..100).filter(|n| !is_bad(*n)).map(line).collect();
    let bad_lines: Vec<u64> = (0..100).filter(|n| is_bad(*n)).map(|n| n as u64 + 1).collect();
    for max_bytes in [1, 500, 1 << 20] {
        let got = read(&source, &plan, None, 1, max_bytes).unwrap();
        assert_eq!(got.lines("a"), good);
        assert_eq!(got.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), bad_lines);
        for bad in &got.bad {
            // The row as the file has it.
            assert_eq!(bad.raw, line(bad.line as i64 - 1));
            assert_eq!(bad.raw_len, bad.raw.len() as u64);
            assert!(bad.reason.contains("`n`") && bad.reason.contains("10995116"), "{}", bad.reason);
        }
        for (cut, before, bad_before) in &got.cuts {
            let rest = read(&source, &plan, Some(cut), 1, 300).unwrap();
            assert_eq!(rest.lines("a"), good[before.get("a").copied().unwrap_or(0)..]);
            assert_eq!(rest.bad, got.bad[*bad_before..]);
        }
    }
}

#[test]
fn a_file_of_bad_rows_alone_is_reported_in_pieces() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&numbers("BIGINT", 1000..3000)));
    let (source, plan) = (source(dir.path(), "a"), plan("n TINYINT", UnknownFields::BadRow));
    let got = read(&source, &plan, None, 1, 1 << 20).unwrap();
    assert_eq!((got.total(), got.bad.len()), (0, 2000));
    assert!(got.largest <= 300, "{}", got.largest);
    assert_eq!(got.bad[1999].to_string().split(':').next(), Some("a, line 2000"));
}

#[test]
fn a_bad_row_has_the_columns_that_are_dropped_too() {
    let dir = tempdir().unwrap();
    let name = "pyarrow-v2.parquet";
    fs::copy(of_other_programs(name), dir.path().join(name)).unwrap();
    let plan = plan("big BIGINT NOT NULL", UnknownFields::Drop);
    let got = read(&source(dir.path(), name), &plan, None, 1, 1 << 20).unwrap();
    assert_eq!(got.lines(name), [r#"{"big":9223372036854775807}"#, r#"{"big":-9223372036854775808}"#, r#"{"big":0}"#]);
    assert_eq!(got.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [3]);
    assert!(got.bad[0].reason.contains("`big` has NULL"), "{}", got.bad[0].reason);
    let raw = String::from_utf8(got.bad[0].raw.to_vec()).unwrap();
    for part in ["\"big\":null", "\"price\":null", "\"small\":-9999.9", "\"day\":\"0001-01-01\""] {
        assert!(raw.contains(part), "{raw}");
    }
}

#[test]
fn rows_without_any_column_of_the_schema_are_counted_too() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&numbers("BIGINT", 0..100)));
    let source = source(dir.path(), "a");
    let got = read(&source, &plan("m TEXT", UnknownFields::Drop), None, 1, 50).unwrap();
    assert_eq!(got.lines("a"), vec![r#"{"m":null}"#; 100]);
    let message = refused(source.open_columns(&plan("m TEXT", UnknownFields::BadRow), None, 1).map(drop));
    assert!(message.contains("`n`"), "{message}");
}

#[test]
fn a_file_of_which_rows_were_read_has_to_stay_as_it_was() {
    let old = numbers("BIGINT", 0..40);
    let edits: [(&str, RecordBatch); 3] = [
        ("written anew or appended to", numbers("BIGINT", 0..400)),
        ("written anew or appended to", numbers("BIGINT", 0..2)),
        // The same numbers in another order: only content tells.
        ("another one of the same size", numbers("BIGINT", (0..40).map(|n| if n < 38 { n } else { 77 - n }))),
    ];
    for (what, new) in edits {
        for done in [false, true] {
            let dir = tempdir().unwrap();
            write(dir.path(), "in/a", uncompressed(&old));
            let (source, plan) = (source(dir.path(), "in/*"), plan("n BIGINT", UnknownFields::BadRow));
            let got = read(&source, &plan, None, 1, 64).unwrap();
            let cut = if done { got.cut() } else { got.cuts[1].0.clone() };
            write(dir.path(), "in/a", uncompressed(&new));
            let error = source.open_columns(&plan, Some(&cut), 1).map(drop).unwrap_err();
            assert!(matches!(error, SourceError::Changed { .. }) && error.permanent(), "{error}");
            let message = error.to_string();
            assert!(message.starts_with("in/a: ") && message.contains(what), "{message}");
            assert!(message.contains("into a file of its own"), "{message}");
            // Not Parquet at all any more.
            let size = fs::metadata(dir.path().join("in/a")).unwrap().len();
            write(dir.path(), "in/a", vec![0; size as usize]);
            let error = source.open_columns(&plan, Some(&cut), 1).map(drop).unwrap_err();
            assert!(matches!(error, SourceError::Changed { .. }), "{error}");
            // As before: goes on.
            write(dir.path(), "in/a", uncompressed(&old));
            let rest = read(&source, &plan, Some(&cut), 1, 64).unwrap();
            assert_eq!(rest.total(), if done { 0 } else { 40 - got.cuts[1].1["in/a"] });
        }
    }
}

/// A file in which a value more or less does not change the size.
fn uncompressed(rows: &RecordBatch) -> Vec<u8> {
    let mut options = FileOptions::new(FileFormat::Parquet);
    options.compression = Some(tidegate_columns::files::Compression::None);
    let mut writer = FileWriter::new(options, Some(&Schema::new(rows.schema()))).expect("Parquet holds it");
    let mut pieces = writer.write(&Rows::Columns(ColumnBatch::new(rows.clone()))).expect("written");
    pieces.extend(writer.finish().expect("ended"));
    pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect()
}

#[test]
fn a_file_of_which_nothing_was_read_may_be_replaced_up_to_the_last_moment() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&numbers("BIGINT", 0..3)));
    write(dir.path(), "b", parquet(&numbers("BIGINT", 0..3)));
    let (source, plan) = (source(dir.path(), "*"), plan("n BIGINT", UnknownFields::BadRow));
    let got = run(async {
        let mut readers = source.open_columns(&plan, None, 1).unwrap();
        write(dir.path(), "b", parquet(&numbers("INT", 10..15)));
        drain_columns(&mut readers, 1 << 20).await.unwrap()
    });
    assert_eq!(got.counts()["b"], 5);
    let again = read(&source, &plan, Some(&got.cut()), 1, 1 << 20).unwrap();
    assert_eq!((again.total(), again.positions), (0, got.positions));
    // By a checkpoint, too.
    let start = run(async { source.open_columns(&plan, None, 1).unwrap()[0].initial_positions() });
    write(dir.path(), "b", parquet(&numbers("INT", 20..27)));
    let got = read(&source, &plan, Some(&cut(&start.into_iter().collect())), 1, 1 << 20).unwrap();
    assert_eq!(got.counts()["b"], 7);
}

#[test]
fn a_file_that_is_written_over_while_it_is_read_is_told() {
    let dir = tempdir().unwrap();
    let old = uncompressed(&numbers("BIGINT", 0..2000));
    write(dir.path(), "a", &old);
    let (source, plan) = (source(dir.path(), "a"), plan("n BIGINT", UnknownFields::BadRow));
    for new in
        [uncompressed(&numbers("BIGINT", 0..4000)), uncompressed(&numbers("BIGINT", 1..2001)), old[..900].to_vec()]
    {
        write(dir.path(), "a", &old);
        let result = run(async {
            let mut readers = source.open_columns(&plan, None, 1)?;
            assert!(matches!(readers[0].next(1000).await?, Read::Rows(_)));
            write(dir.path(), "a", &new);
            drain_columns(&mut readers, 1000).await
        });
        let message = result.expect_err("told").to_string();
        assert!(message.starts_with("a: ") || message.contains("/a: "), "{message}");
    }
}

#[test]
fn a_renamed_file_is_refused_with_both_names() {
    for done in [true, false] {
        let dir = tempdir().unwrap();
        write(dir.path(), "in/a", parquet(&numbers("BIGINT", 0..40)));
        let (source, plan) = (source(dir.path(), "in/*"), plan("n BIGINT", UnknownFields::BadRow));
        let got = read(&source, &plan, None, 1, 64).unwrap();
        let cut = if done { got.cut() } else { got.cuts[0].0.clone() };
        fs::rename(dir.path().join("in/a"), dir.path().join("in/b")).unwrap();
        let error = source.open_columns(&plan, Some(&cut), 1).map(drop).unwrap_err();
        assert!(matches!(error, SourceError::Renamed { finished, .. } if finished == done), "{error}");
        let message = refused(Err::<(), _>(error));
        assert!(message.starts_with("in/b: ") && message.contains("in/a"), "{message}");
        // The two ways out of it.
        write(dir.path(), "in/a", parquet(&numbers("BIGINT", 0..40)));
        let rest = read(&source, &plan, Some(&cut), 1, 1 << 20).unwrap();
        assert_eq!(rest.counts()["in/b"], 40);
        fs::remove_file(dir.path().join("in/b")).unwrap();
        let rest = read(&source, &plan, Some(&cut), 1, 1 << 20).unwrap();
        assert!(!rest.counts().contains_key("in/b"));
    }
}

#[test]
fn a_file_may_go_when_it_is_finished_and_not_before() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&numbers("BIGINT", 0..40)));
    write(dir.path(), "b", parquet(&numbers("BIGINT", 50..52)));
    let (source, plan) = (source(dir.path(), "*"), plan("n BIGINT", UnknownFields::BadRow));
    let got = read(&source, &plan, None, 1, 1).unwrap();
    fs::remove_file(dir.path().join("a")).unwrap();
    let error = source.open_columns(&plan, Some(&got.cuts[4].0), 1).map(drop).unwrap_err();
    assert!(matches!(error, SourceError::Missing { .. }) && error.permanent());
    assert!(error.to_string().starts_with("a: was read up to row 5 "), "{error}");
    let again = read(&source, &plan, Some(&got.cut()), 1, 1).unwrap();
    assert_eq!((again.total(), &again.positions), (0, &got.positions), "its position is kept");
    write(dir.path(), "a", parquet(&numbers("BIGINT", 0..40)));
    assert_eq!(read(&source, &plan, Some(&again.cut()), 1, 1).unwrap().total(), 0);
}

#[test]
fn files_without_rows_that_look_alike_are_no_renamed_ones() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", without_rows("n"));
    let (source, plan) = (source(dir.path(), "*"), plan("n BIGINT", UnknownFields::BadRow));
    let got = read(&source, &plan, None, 1, 1).unwrap();
    assert!(got.positions["a"].contains("\"done\":true"), "{:?}", got.positions);
    fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
    assert_eq!(read(&source, &plan, Some(&got.cut()), 1, 1).unwrap().positions.len(), 2);
}

#[test]
fn positions_that_cannot_be_are_refused() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&numbers("BIGINT", 0..4)));
    let (source, plan) = (source(dir.path(), "*"), plan("n BIGINT", UnknownFields::BadRow));
    let got = read(&source, &plan, None, 1, 1).unwrap();
    let second = got.cuts[1].0.partitions.entries().unwrap().get("a").unwrap().to_owned();
    assert!(second.contains("\"row\":2,\"rows\":4,"), "{second}");
    let edited = |from: &str, to: &str| {
        assert!(second.contains(from));
        second.replace(from, to)
    };
    let texts = [
        edited("\"row\":2", "\"row\":5"),
        edited("\"row\":2", "\"row\":18446744073709551615"),
        edited("\"rows\":4", "\"rows\":18446744073709551615"),
        edited("\"rows\":4", "\"rows\":3"),
        edited("\"done\":false", "\"done\":true"),
        edited("\"row\":2", "\"row\":-1"),
        edited("\"row\":", "\"line\":"),
        "{}".to_owned(),
        "null".to_owned(),
        "{\"offset\":0,\"line\":0,\"done\":false,\"size\":3,\"head-len\":0,\"head\":\"\",\"tail\":\"\"}".to_owned(),
    ];
    for text in texts {
        let cut = cut(&[("a".to_owned(), text.clone())].into());
        let error = source.open_columns(&plan, Some(&cut), 1).map(drop).unwrap_err();
        assert!(matches!(error, SourceError::Position { .. }) && error.permanent(), "{text}: {error}");
    }
}

#[test]
fn files_that_are_not_parquet_or_not_whole_are_named() {
    let whole = parquet(&kinds(0..300));
    let cases: [(&[u8], &str); 5] = [
        (&whole[..whole.len() - 1], "still being written"),
        (&whole[..whole.len() / 2], "still being written"),
        (&whole[..6], "still being written"),
        (b"", "is not a Parquet file"),
        (b"{\"n\":1}\n", "is not a Parquet file"),
    ];
    let dir = tempdir().unwrap();
    write(dir.path(), "a", &whole);
    let source = source(dir.path(), "*");
    let plan = plan(KINDS, UnknownFields::BadRow);
    for (bytes, what) in cases {
        write(dir.path(), "b", bytes);
        for message in [refused(source.open_columns(&plan, None, 2).map(drop)), refused(source.sample_schema())] {
            assert!(message.starts_with("b: ") && message.contains(what), "{message}");
        }
    }
}

#[test]
fn damage_within_a_file_is_told_with_its_name_and_never_becomes_other_rows() {
    let dir = tempdir().unwrap();
    let written = kinds(0..300);
    let whole = parquet(&written);
    let source = source(dir.path(), "a");
    let plan = plan(KINDS, UnknownFields::BadRow);
    let mut told = 0;
    for at in (4..whole.len()).step_by(whole.len() / 150) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        write(dir.path(), "a", &bytes);
        match read(&source, &plan, None, 1, 4000) {
            // Statistics and the like are not read.
            Ok(got) => assert_eq!(got.total() + got.bad.len(), 300),
            Err(error) => {
                told += 1;
                let message = error.to_string();
                assert!(message.starts_with("a: ") || message.contains("/a: "), "{message}");
            }
        }
    }
    assert!(told > 75, "{told}");
}

#[test]
fn the_schema_of_several_files_holds_the_rows_of_each() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&rows("n INT NOT NULL, t TEXT NOT NULL", "{\"n\":1,\"t\":\"x\"}\n")));
    write(dir.path(), "b", parquet(&rows("d DATE NOT NULL, n BIGINT NOT NULL", "{\"d\":\"2013-01-01\",\"n\":2}\n")));
    let source = source(dir.path(), "*");
    let sampled = source.sample_schema().unwrap();
    assert_eq!(sampled, schema("n BIGINT NOT NULL, t TEXT, d DATE"));
    let got =
        read(&source, &ColumnsPlan { schema: sampled, unknown: UnknownFields::BadRow, inferred: false }, None, 2, 1)
            .unwrap();
    assert_eq!(got.lines("a"), [r#"{"n":1,"t":"x","d":null}"#]);
    assert_eq!(got.lines("b"), [r#"{"n":2,"t":null,"d":"2013-01-01"}"#]);
    write(dir.path(), "c", parquet(&rows("t BIGINT", "{\"t\":1}\n")));
    let message = refused(source.sample_schema());
    assert!(message.contains("of a and c: ") && message.contains("`t` is TEXT here and BIGINT there"), "{message}");
    assert!(message.contains("declare `schema`"), "{message}");
}

#[test]
fn a_column_that_no_column_list_can_name_is_told() {
    let dir = tempdir().unwrap();
    fs::copy(of_other_programs("pyarrow-v2.parquet"), dir.path().join("a")).unwrap();
    let message = refused(source(dir.path(), "a").sample_schema());
    assert!(message.contains("column `map` has a type") && message.contains("declare `schema`"), "{message}");
}

#[test]
fn rows_per_second_are_limited_and_none_is_lost() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", parquet(&numbers("BIGINT", 0..200)));
    let mut options = ParquetOptions::new(dir.path(), vec!["a".to_owned()]);
    options.rate = Some(1000);
    let source = ParquetSource::new(options.clone()).unwrap();
    let got = read(&source, &plan("n BIGINT", UnknownFields::BadRow), None, 1, 1 << 20).unwrap();
    // What 50 ms bring.
    assert!(got.rows["a"].iter().all(|batch| batch.num_rows() <= 50));
    assert_eq!(got.of("a"), numbers("BIGINT", 0..200));
    options.rate = Some(0);
    assert!(refused(ParquetSource::new(options)).contains("`rate`"));
}

#[test]
fn rows_are_had_as_columns_only() {
    let dir = tempdir().unwrap();
    let source = source(dir.path(), "nothing/*");
    let contract = source.contract();
    assert!(contract.replayable && contract.bounded && source.has_columns());
    for encoding in [Encoding::JsonLines, Encoding::Raw] {
        assert!(refused(source.open(encoding, None, 1).map(drop)).contains("columns"));
    }
    assert!(refused(source.sample_schema()).contains("no file matches `nothing/*`"));
    assert!(refused(source.partitions()).contains("no file matches `nothing/*`"));
}
