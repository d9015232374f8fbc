use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use bytes::Bytes;
use tidegate_protocol::plugin::{Batch, Encoding, FileChunk};

use super::*;
use crate::parquet::ParquetFile;
use crate::rows::{ColumnBatch, Rows};
use crate::{ColumnsErrorKind, Schema};

fn schema() -> Schema {
    Schema::new(Arc::new(ArrowSchema::new(vec![
        Field::new("carrier", DataType::Utf8, true),
        Field::new("number", DataType::Int64, false),
    ])))
}

fn batch(rows: &[(Option<&str>, i64)]) -> Rows {
    let carriers: StringArray = rows.iter().map(|row| row.0).collect();
    let numbers = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
    let batch = RecordBatch::try_new(schema().arrow().clone(), vec![Arc::new(carriers), Arc::new(numbers)]);
    Rows::Columns(ColumnBatch::new(batch.expect("two columns of one length")))
}

/// Rows whose text does not compress.
fn noise(rows: std::ops::Range<i64>) -> Rows {
    let text = |n: i64| {
        (0..4).map(|i| format!("{:016x}", (n * 4 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64))).collect()
    };
    let texts: Vec<String> = rows.clone().map(text).collect();
    let rows: Vec<(Option<&str>, i64)> = texts.iter().map(|text| Some(text.as_str())).zip(rows).collect();
    batch(&rows)
}

fn options(format: FileFormat, compression: Compression) -> FileOptions {
    FileOptions { compression: Some(compression), ..FileOptions::new(format) }
}

fn in_folders(format: FileFormat, folder: &str) -> FileOptions {
    FileOptions { folder: Some(folder.parse().expect("a folder")), ..options(format, Compression::None) }
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Whole {
    folder: String,
    extension: String,
    bytes: Vec<u8>,
    rows: u64,
    ended: bool,
}

/// Puts pieces together, as a plugin does; checks what a plugin may rely on.
fn put_together(pieces: &[Batch]) -> BTreeMap<u32, Whole> {
    let mut files: BTreeMap<u32, Whole> = BTreeMap::new();
    for piece in pieces {
        assert_eq!(piece.encoding, Encoding::Files);
        assert!(piece.bytes.len() <= super::open::CHUNK_BYTES);
        let FileChunk { number, folder, extension, last } = piece.file.clone().expect("a piece of a file");
        let next = files.len() as u32;
        let file = files.entry(number).or_insert_with(|| {
            assert_eq!(number, next, "numbers count up");
            Whole { folder: folder.to_string(), extension: extension.to_string(), ..Whole::default() }
        });
        assert!(!file.ended, "nothing follows the last piece");
        assert_eq!((file.folder.as_str(), file.extension.as_str()), (&*folder, &*extension));
        file.bytes.extend_from_slice(&piece.bytes);
        file.rows += piece.rows;
        file.ended = last;
    }
    files
}

fn write(writer: &mut FileWriter, batches: &[Rows]) -> BTreeMap<u32, Whole> {
    let mut pieces = Vec::new();
    for rows in batches {
        pieces.extend(writer.write(rows).expect("writes"));
    }
    pieces.extend(writer.finish().expect("finishes"));
    let files = put_together(&pieces);
    assert!(files.values().all(|file| file.ended), "every file is ended");
    assert_eq!(files.values().map(|file| file.rows).sum::<u64>(), batches.iter().map(Rows::rows).sum::<u64>());
    files
}

fn written(options: FileOptions, batches: &[Rows]) -> BTreeMap<u32, Whole> {
    write(&mut FileWriter::new(options, Some(&schema())).expect("fits"), batches)
}

fn read_parquet(bytes: &[u8]) -> Vec<(Option<String>, i64)> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, bytes).expect("writes");
    let parquet = ParquetFile::open(file.path()).expect("opens");
    let mut reader = parquet.read_from(0, 1 << 20);
    let mut rows = Vec::new();
    while let Some(found) = reader.next_batch().expect("reads") {
        assert_eq!(found.first_row, rows.len() as u64);
        rows.extend(rows_of(&found.batch));
    }
    rows
}

fn rows_of(batch: &RecordBatch) -> Vec<(Option<String>, i64)> {
    use arrow_array::cast::AsArray;
    let carriers = batch.column(0).as_string::<i32>().iter().map(|text| text.map(str::to_owned));
    carriers.zip(batch.column(1).as_primitive::<arrow_array::types::Int64Type>().values().iter().copied()).collect()
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    // Stops at the end of the first member, as many readers do.
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).expect("gzip");
    text
}

const TWO: [(Option<&str>, i64); 2] = [(Some("UA"), 1), (None, 2)];
const LINES: &str = "{\"carrier\":\"UA\",\"number\":1}\n{\"carrier\":null,\"number\":2}\n";

#[test]
fn every_format_holds_the_rows() {
    let one = |format, compression| {
        let mut files = written(options(format, compression), &[batch(&TWO)]);
        assert_eq!(files.len(), 1);
        files.remove(&0).expect("number 0")
    };
    let lines = one(FileFormat::JsonLines, Compression::None);
    assert_eq!((lines.extension.as_str(), &*lines.bytes), ("jsonl", LINES.as_bytes()));
    let lines = one(FileFormat::JsonLines, Compression::Gzip(Some(9)));
    assert_eq!((lines.extension.as_str(), &*gunzip(&lines.bytes)), ("jsonl.gz", LINES.as_bytes()));
    let csv = one(FileFormat::Csv, Compression::Zstd(None));
    let text = zstd::bulk::decompress(&csv.bytes, 1000).expect("one frame");
    assert_eq!((csv.extension.as_str(), &*text), ("csv.zst", b"carrier,number\nUA,1\n,2\n".as_slice()));
    for compression in [Compression::None, Compression::Snappy, Compression::Gzip(None), Compression::Zstd(Some(5))] {
        let parquet = one(FileFormat::Parquet, compression);
        assert_eq!(parquet.extension, "parquet");
        assert_eq!(read_parquet(&parquet.bytes), [(Some("UA".to_owned()), 1), (None, 2)]);
    }
    let arrow = one(FileFormat::Arrow, Compression::None);
    let mut reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(arrow.bytes), None).expect("a file");
    assert_eq!(rows_of(&reader.next().expect("a batch").expect("whole")).len(), 2);
    let arrows = one(FileFormat::ArrowStream, Compression::Gzip(None));
    assert_eq!(arrows.extension, "arrows.gz");
    let text = gunzip(&arrows.bytes);
    let mut reader = arrow_ipc::reader::StreamReader::try_new(text.as_slice(), None).expect("a stream");
    assert_eq!(rows_of(&reader.next().expect("a batch").expect("whole")).len(), 2);
}

#[test]
fn no_rows_are_no_files() {
    assert!(written(FileOptions::new(FileFormat::Parquet), &[]).is_empty());
    assert!(written(FileOptions::new(FileFormat::Csv), &[batch(&[])]).is_empty());
}

#[test]
fn the_next_epoch_begins_with_file_0_again_and_the_same_rows_give_the_same_bytes() {
    let formats = [FileFormat::JsonLines, FileFormat::Csv, FileFormat::Parquet, FileFormat::ArrowStream];
    for (format, compression) in formats.into_iter().zip([
        Compression::Zstd(None),
        Compression::Gzip(None),
        Compression::Zstd(None),
        Compression::None,
    ]) {
        let options = FileOptions {
            folder: Some("carrier={carrier}".parse().expect("a folder")),
            memory_bytes: 3 << 20,
            ..options(format, compression)
        };
        let batches = [noise(0..40), batch(&TWO), noise(20..60)];
        let mut writer = FileWriter::new(options.clone(), Some(&schema())).expect("fits");
        let first = write(&mut writer, &batches);
        assert_eq!(write(&mut writer, &batches), first);
        assert_eq!(written(options, &batches), first);
        assert_eq!((writer.memory(), writer.open_files()), (0, 0));
    }
}

#[test]
fn rows_go_into_folders_by_their_values() {
    let rows = [(Some("UA"), 1), (Some("B6"), 2), (Some("UA"), 3), (None, 4), (Some(""), 5)];
    let files = written(in_folders(FileFormat::JsonLines, "c={carrier}/n/"), &[batch(&rows)]);
    let found: Vec<(&str, u64)> = files.values().map(|file| (file.folder.as_str(), file.rows)).collect();
    assert_eq!(found, [("c=UA/n", 2), ("c=B6/n", 1), ("c=__HIVE_DEFAULT_PARTITION__/n", 2)]);
    assert_eq!(files[&0].bytes, b"{\"carrier\":\"UA\",\"number\":1}\n{\"carrier\":\"UA\",\"number\":3}\n");
}

#[test]
fn no_value_makes_an_unsafe_folder() {
    let long = "é".repeat(300);
    let values = [
        "a/b",
        "..",
        ".",
        "_x",
        ".hidden",
        "a=b",
        "100%",
        "new\nline",
        "nul\0",
        "\u{9b}",
        "\u{7f}",
        "a:b\\c",
        "{}[]^",
        "ok é",
        "",
        &long,
        &format!("{long}x"),
    ];
    let rows: Vec<(Option<&str>, i64)> = values.iter().map(|value| (Some(*value), 0)).chain([(None, 0)]).collect();
    let files = written(in_folders(FileFormat::Csv, "{carrier}/n={number}"), &[batch(&rows)]);
    let folders: Vec<&str> = files.values().map(|file| file.folder.as_str()).collect();
    for folder in &folders {
        assert!(folder.len() <= super::folder::MAX_FOLDER_BYTES, "{folder}");
        for segment in folder.split('/') {
            assert!(!segment.is_empty() && segment.len() <= 128 && !segment.starts_with(['_', '.']), "{folder}");
            assert!(!segment.contains(|c: char| c.is_control()), "{folder:?}");
        }
        assert_eq!(folder.split('/').count(), 2, "{folder}");
    }
    let expected = [
        "a%2Fb",
        "%2E.",
        "%2E",
        "%5Fx",
        "%2Ehidden",
        "a%3Db",
        "100%25",
        "new%0Aline",
        "nul%00",
        "%C2%9B",
        "%7F",
        "a%3Ab%5Cc",
        "%7B%7D%5B%5D%5E",
        "ok é",
        "%5F_HIVE_DEFAULT_PARTITION__",
    ];
    for (folder, expected) in folders.iter().zip(expected) {
        assert_eq!(*folder, format!("{expected}/n=0"));
    }
    assert_eq!(folders.len(), values.len(), "long values stay apart, NULL and the empty string do not");
}

#[test]
fn a_folder_template_that_cannot_be_is_refused_by_name() {
    for (text, part) in [
        ("", "empty level"),
        ("/a={a}", "empty level"),
        ("a={a}//b={b}", "empty level"),
        ("_a={a}", "begins with"),
        ("../{a}", "begins with"),
        ("a={a", "without its"),
        ("a={}", "without a column"),
        ("plain", "names no column"),
        ("a:b={a}", "cannot stand"),
        ("a\u{1}={a}", "cannot stand"),
        ("{a}/{a}/{a}/{a}/{a}/{a}/{a}/{a}/{a}", "more than 8"),
    ] {
        let error = text.parse::<FolderTemplate>().expect_err(text);
        assert_eq!(error.kind, ColumnsErrorKind::BadOption);
        assert!(error.message.contains(part), "{text}: {error}");
    }
    let error = FileWriter::new(in_folders(FileFormat::Csv, "x={x}"), Some(&schema())).err().expect("no such column");
    assert!(
        error.message.contains("x={x}") && error.message.contains("column x does not exist; the nearest is"),
        "{error}"
    );
}

#[test]
fn a_file_is_ended_when_it_has_its_size() {
    for format in [FileFormat::JsonLines, FileFormat::Parquet, FileFormat::Arrow] {
        let options = FileOptions { roll_bytes: 100_000, ..options(format, Compression::None) };
        let batches: Vec<Rows> = (0..40).map(|n| noise(n * 250..(n + 1) * 250)).collect();
        let files = written(options, &batches);
        assert!((5..40).contains(&files.len()), "{format:?}: {} files", files.len());
        for (number, file) in &files {
            let last = *number as usize == files.len() - 1;
            assert!(last || (90_000..200_000).contains(&file.bytes.len()), "{format:?}: {}", file.bytes.len());
        }
    }
}

#[test]
fn open_files_have_a_bound_and_many_folders_stay_few_files() {
    let rows: Vec<(String, i64)> = (0..5000).map(|n| (format!("c{}", n % 50), n)).collect();
    let rows: Vec<(Option<&str>, i64)> = rows.iter().map(|(text, n)| (Some(text.as_str()), *n)).collect();
    let options = FileOptions { max_open_files: 4, ..in_folders(FileFormat::JsonLines, "c={carrier}") };
    let mut writer = FileWriter::new(options, Some(&schema())).expect("fits");
    let mut pieces = Vec::new();
    for rows in rows.chunks(500) {
        pieces.extend(writer.write(&batch(rows)).expect("writes"));
        assert!(writer.open_files() <= 4);
    }
    pieces.extend(writer.finish().expect("finishes"));
    let files = put_together(&pieces);
    assert_eq!(files.values().map(|file| file.rows).sum::<u64>(), 5000);
    assert_eq!(files.len(), 50, "rows of folders without an open file wait");
}

#[test]
fn memory_has_a_bound_over_all_open_files() {
    for (format, compression) in [
        (FileFormat::Parquet, Compression::Zstd(None)),
        (FileFormat::JsonLines, Compression::None),
        (FileFormat::JsonLines, Compression::Zstd(None)),
    ] {
        for max_open_files in [64, 8] {
            let bound = 8 << 20;
            let options = FileOptions {
                folder: Some("n={number}".parse().expect("a folder")),
                memory_bytes: bound,
                max_open_files,
                ..options(format, compression)
            };
            let mut writer = FileWriter::new(options, Some(&schema())).expect("fits");
            let (mut pieces, mut largest) = (Vec::new(), 0);
            for n in 0..40 {
                let Rows::Columns(columns) = noise(n * 1000..(n + 1) * 1000) else { unreachable!("columns") };
                let numbers = Int64Array::from_iter_values((0..1000).map(|row| row % 32));
                let carriers = columns.batch.column(0).clone();
                let columns = RecordBatch::try_new(schema().arrow().clone(), vec![carriers, Arc::new(numbers)]);
                pieces.extend(writer.write(&Rows::Columns(columns.expect("fits").into())).expect("writes"));
                largest = largest.max(writer.memory());
                assert!(writer.memory() <= bound, "{format:?} {compression:?}: {}", writer.memory());
            }
            pieces.extend(writer.finish().expect("finishes"));
            let rows: u64 = put_together(&pieces).values().map(|file| file.rows).sum();
            assert_eq!(rows, 40_000);
            assert!(largest > 100_000, "{format:?}: memory is counted: {largest}");
        }
    }
}

#[test]
fn the_compressor_of_a_file_stays_small_at_every_level() {
    for level in [1, 3, 9, 10, 19, 22] {
        let options = options(FileFormat::JsonLines, Compression::Zstd(Some(level)));
        let mut writer = FileWriter::new(options, Some(&schema())).expect("fits");
        let mut pieces = writer.write(&noise(0..5000)).expect("writes");
        assert!(writer.memory() < 20 << 20, "level {level}: {}", writer.memory());
        pieces.extend(writer.finish().expect("finishes"));
        let bytes = &put_together(&pieces)[&0].bytes;
        let lines = zstd::stream::decode_all(bytes.as_slice()).expect("one frame");
        assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), 5000);
    }
}

#[test]
fn too_many_files_in_one_part_are_refused_with_what_to_do() {
    let options = FileOptions { roll_bytes: 1, ..in_folders(FileFormat::JsonLines, "n={number}") };
    let mut writer = FileWriter::new(options, Some(&schema())).expect("fits");
    let error = (0..10).find_map(|n| writer.write(&noise(n * 1000..(n + 1) * 1000)).err()).expect("an end");
    assert_eq!(error.kind, ColumnsErrorKind::TooManyFiles);
    assert!(error.message.contains("n={number}"), "{error}");
    assert_eq!(writer.finish().expect_err("stays so").kind, ColumnsErrorKind::Internal);
}

#[test]
fn folders_whose_rows_wait_for_a_file_crowd_a_part_too() {
    // All rows of few folders are written at once, those of the others when the part ends.
    let options = in_folders(FileFormat::JsonLines, "n={number}");
    let mut writer = FileWriter::new(options, Some(&schema())).expect("fits");
    writer.write(&noise(0..1000)).expect("writes");
    assert!(!writer.crowded() && writer.open_files() < 1000);
    writer.write(&noise(1000..2100)).expect("writes");
    assert!(writer.crowded());
    let files = put_together(&writer.finish().expect("finishes"));
    assert_eq!(files.len(), 2100);
    // The next part begins with none.
    writer.write(&noise(0..1000)).expect("writes");
    assert!(!writer.crowded());
}

#[test]
fn encoded_rows_pass_through_and_large_ones_are_not_copied() {
    let large: Bytes = "x\n".repeat(100_000).into();
    let mut writer = FileWriter::new(options(FileFormat::Raw, Compression::None), None).expect("fits");
    let small = Batch::new(Bytes::from_static(b"a\nb\n"), 2, Encoding::Raw);
    assert!(writer.write(&small.clone().into()).expect("writes").is_empty());
    let pieces = writer.write(&Batch::new(large.clone(), 100_000, Encoding::Raw).into()).expect("writes");
    assert_eq!(pieces.len(), 2);
    assert_eq!(pieces[1].bytes.as_ptr(), large.as_ptr());
    let mut all = pieces;
    all.extend(writer.write(&small.into()).expect("writes"));
    all.extend(writer.finish().expect("finishes"));
    let files = put_together(&all);
    assert_eq!(files[&0].bytes, [b"a\nb\n", &large[..], b"a\nb\n"].concat());
    assert_eq!((files[&0].rows, files[&0].extension.as_str()), (100_004, "txt"));
}

#[test]
fn large_output_comes_in_bounded_pieces_while_it_is_written() {
    let mut writer = FileWriter::new(options(FileFormat::JsonLines, Compression::None), Some(&schema())).expect("fits");
    let pieces = writer.write(&noise(0..40_000)).expect("writes");
    assert!(pieces.len() >= 3, "{} pieces", pieces.len());
    put_together(&pieces);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let refused = |options: FileOptions, schema: Option<&Schema>| {
        FileWriter::new(options, schema).err().expect("refused").message
    };
    assert!(refused(options(FileFormat::Arrow, Compression::Zstd(None)), Some(&schema())).contains("arrow-stream"));
    assert!(refused(options(FileFormat::Csv, Compression::Snappy), Some(&schema())).contains("Parquet only"));
    assert!(refused(options(FileFormat::Parquet, Compression::None), None).contains("schema"));
    assert!(refused(options(FileFormat::Csv, Compression::None), None).contains("schema"));
    assert!(refused(in_folders(FileFormat::JsonLines, "a={a}"), None).contains("schema"));
    assert!(Compression::parse("lzma", None).is_err());
    assert!(Compression::parse("zstd", Some(23)).expect_err("too high").message.contains("1 to 22"));
    assert!(Compression::parse("none", Some(1)).is_err());
    assert_eq!(Compression::parse("gzip", Some(0)), Ok(Compression::Gzip(Some(0))));
}

#[test]
fn it_can_move_to_another_thread() {
    fn check<T: Send>() {}
    check::<FileWriter>();
    check::<ParquetFile>();
    check::<crate::parquet::ParquetRows>();
}

#[test]
fn a_csv_of_one_text_that_may_be_null_is_refused() {
    let one = |ddl: &str| FileWriter::new(FileOptions::new(FileFormat::Csv), Some(&Schema::parse_ddl(ddl).unwrap()));
    let error = one("z TEXT").err().expect("NULL and the empty text look alike");
    assert!(error.message.contains("`z`") && error.message.contains("NOT NULL"), "{error}");
    assert!(one("z TEXT NOT NULL").is_ok() && one("z BIGINT").is_ok() && one("z TEXT, y TEXT").is_ok());
}

#[test]
fn files_are_numbered_in_the_order_of_their_first_pieces() {
    for format in [FileFormat::JsonLines, FileFormat::Parquet] {
        let mut options = in_folders(format, "carrier={carrier}");
        options.roll_bytes = 2 << 10;
        let mut writer = FileWriter::new(options, Some(&schema())).expect("good options");
        // The first file stays open while those of another folder are rolled.
        let mut batches = vec![batch(&[(Some("first"), 0)])];
        batches
            .extend((0..40i64).map(|n| batch(&(n * 50..n * 50 + 50).map(|n| (Some("other"), n)).collect::<Vec<_>>())));
        let files = write(&mut writer, &batches);
        assert!(files.len() > 2, "{}", files.len());
        assert_eq!(files.values().filter(|file| file.folder == "carrier=first").count(), 1);
    }
}

#[test]
fn equal_numbers_share_a_folder() {
    let numbers = Arc::new(Float64Array::from(vec![0.0, -0.0, 1.5]));
    let fields = vec![Field::new("d", DataType::Float64, false), Field::new("t", DataType::Utf8, false)];
    let texts = Arc::new(StringArray::from(vec!["-0.0", "0.0", "x"]));
    let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), vec![numbers, texts]).unwrap();
    let split = |template: &str| {
        let split = template.parse::<super::FolderTemplate>().unwrap().split(&batch).unwrap();
        split.into_iter().map(|(folder, rows)| (folder.to_string(), rows.num_rows())).collect::<Vec<_>>()
    };
    assert_eq!(split("d={d}"), [("d=0.0".to_owned(), 2), ("d=1.5".to_owned(), 1)]);
    // Texts that look like them are two.
    assert_eq!(split("t={t}").len(), 3);
}
