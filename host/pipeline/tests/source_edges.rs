//! What real files look like.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use source_support::*;
use tempfile::tempdir;
use tidegate_pipeline::source::files::{Compression, CsvOptions, FilesOptions, FilesSource, Format};
use tidegate_pipeline::source::{BAD_ROW_CLIP, Source, SourceError};
use tidegate_protocol::plugin::Encoding;

fn read(format: Format, encoding: Encoding, content: impl AsRef<[u8]>) -> Result<All, SourceError> {
    read_limited(format, encoding, content, FilesOptions::MAX_LINE)
}

fn read_limited(
    format: Format,
    encoding: Encoding,
    content: impl AsRef<[u8]>,
    max_line: usize,
) -> Result<All, SourceError> {
    let dir = tempdir().unwrap();
    write(dir.path(), "f", content);
    let mut options = FilesOptions::new(dir.path(), vec!["f".to_owned()], format);
    options.max_line = max_line;
    read_from(&FilesSource::new(options)?, encoding, None, 1, 1 << 20)
}

fn raw(content: impl AsRef<[u8]>) -> Vec<u8> {
    read(Format::Raw, Encoding::Raw, content).unwrap().bytes.remove("f").unwrap_or_default()
}

fn json(content: impl AsRef<[u8]>) -> All {
    read(Format::JsonLines, Encoding::JsonLines, content).unwrap()
}

fn csv(content: impl AsRef<[u8]>) -> Result<All, SourceError> {
    read(Format::Csv(CsvOptions::default()), Encoding::JsonLines, content)
}

fn told(all: &All) -> Vec<String> {
    all.bad.iter().map(ToString::to_string).collect()
}

#[test]
fn raw_lines_pass_unchanged() {
    for content in [&b"a\r\nb\r\n"[..], b"\n\n \n", b"\0\xff\n\xfe\xff\n", b"\r\r\n", "é☃\n".as_bytes(), b"\n"] {
        assert_eq!(raw(content), content);
    }
}

#[test]
fn a_last_line_without_newline_is_a_row_and_gets_one() {
    assert_eq!(raw("a\nb"), b"a\nb\n");
    assert_eq!(raw("\r"), b"\r\n");
    assert_eq!(json("1\n2").text("f"), "1\n2\n");
    assert_eq!(csv("a\n1").unwrap().text("f"), "{\"a\":\"1\"}\n");
    assert_eq!(csv("a\n\"1\"").unwrap().text("f"), "{\"a\":\"1\"}\n");
}

#[test]
fn an_empty_file_is_no_row_and_no_error() {
    for content in ["", "\u{feff}"] {
        assert_eq!(raw(content), b"");
        assert_eq!(json(content).rows, 0);
        assert_eq!(csv(content).unwrap().rows, 0);
        assert!(json(content).positions["f"].contains("\"done\":true"));
    }
    assert_eq!(csv("a,b\n").unwrap().rows, 0);
}

#[test]
fn a_byte_order_mark_goes_once_and_only_from_the_start() {
    assert_eq!(raw("\u{feff}a\n\u{feff}b\n"), "a\n\u{feff}b\n".as_bytes());
    assert_eq!(json("\u{feff}{}\n").text("f"), "{}\n");
    assert_eq!(json("{}\n\u{feff}{}\n").bad[0].line, 2);
    assert_eq!(csv("\u{feff}a\n\u{feff}1\n").unwrap().text("f"), "{\"a\":\"\u{feff}1\"}\n");
}

#[test]
fn utf_16_is_told_as_such() {
    let wide: Vec<u8> = "\u{feff}{}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let error = read(Format::JsonLines, Encoding::JsonLines, &wide).unwrap_err();
    assert!(error.to_string().contains("f, line 1: the file is UTF-16"), "{error}");
    assert!(csv(&wide).is_err());
    assert_eq!(raw(&wide), [&wide[..], b"\n"].concat());
}

#[test]
fn json_lines_pass_byte_for_byte() {
    let content =
        "{\"a\":1,\"a\":2}\r\n { \"n\" : 9007199254740993 , \"f\":1.000e+2}\t\n\"\\u00e9\\/\"\n[[{}]]\nnull\n";
    let all = json(content);
    assert_eq!((all.text("f").as_str(), all.rows), (content, 5));
    assert_eq!(told(&all), [""; 0]);
    let as_raw = read(Format::JsonLines, Encoding::Raw, content).unwrap();
    assert_eq!(as_raw.text("f"), content);
}

#[test]
fn lines_of_white_space_are_skipped_in_json_lines_and_still_counted() {
    let all = json("\n1\n \t\r\n\n2\nx\n\n");
    assert_eq!((all.text("f").as_str(), all.rows), ("1\n2\n", 2));
    assert_eq!(all.bad[0].line, 6);
    assert_eq!(json(" \n\n").rows, 0);
}

#[test]
fn bad_json_is_told_with_file_line_and_reason_and_the_rest_passes() {
    let all = json(b"{}\n{\"a\":}\n1\n\"\xff\"\n\"\0\"\ntrue false\n[\n2\n");
    assert_eq!(all.text("f"), "{}\n1\n2\n");
    let told = told(&all);
    assert_eq!(told.len(), 5);
    assert_eq!(told[0], "f, line 2: not valid JSON: expected value at column 6");
    assert_eq!(told[1], "f, line 4: not UTF-8 at column 2");
    assert!(told[2].starts_with("f, line 5: not valid JSON: control character"), "{}", told[2]);
    assert!(told[3].starts_with("f, line 6: not valid JSON: trailing characters"), "{}", told[3]);
    assert_eq!(&all.bad[1].raw[..], b"\"\xff\"");
    assert_eq!(all.bad[1].raw_len, 3);
}

#[test]
fn deeply_nested_json_is_a_bad_row_and_no_stack_overflow() {
    let all = json(format!("{}\n{}\n1\n", "[".repeat(500_000), "{\"a\":".repeat(100_000) + &"}".repeat(100_000)));
    assert_eq!((all.rows, all.bad.len()), (1, 2));
    assert_eq!(all.bad[0].raw.len(), BAD_ROW_CLIP);
    assert_eq!(all.bad[0].raw_len, 500_000);
}

#[test]
fn a_flood_of_bad_rows_comes_in_small_batches() {
    let dir = tempdir().unwrap();
    write(dir.path(), "f", "x\n".repeat(10_000));
    let source = files(dir.path(), "f", Format::JsonLines);
    let all = read_from(&source, Encoding::JsonLines, None, 1, 1 << 20).unwrap();
    assert_eq!(all.bad.len(), 10_000);
    assert_eq!(all.bad[9_999].line, 10_000);
    let mut before = 0;
    for (_, _, bad) in &all.cuts {
        assert!(bad - before <= 256);
        before = *bad;
    }
}

#[test]
fn a_line_over_the_limit_is_a_bad_row_and_the_next_line_is_read() {
    for (format, encoding) in [(Format::Raw, Encoding::Raw), (Format::JsonLines, Encoding::JsonLines)] {
        // Within one block, across blocks, as the last line, and exactly at the limit.
        for limit in [5, 1000, 3 << 20] {
            let long = "1".repeat(limit + 1);
            let fits = "2".repeat(limit);
            let content = format!("{long}\n{fits}\n{long}{long}\n3\n{long}");
            let all = read_limited(format.clone(), encoding, &content, limit).unwrap();
            assert!(all.text("f") == format!("{fits}\n3\n"), "{limit}");
            let lines: Vec<_> = all.bad.iter().map(|bad| (bad.line, bad.raw_len)).collect();
            let (one, two) = (limit as u64 + 1, 2 * limit as u64 + 2);
            assert_eq!(lines, [(1, one), (3, two), (5, one)]);
            assert!(all.bad[0].reason.contains("`max-line` allows"), "{}", all.bad[0].reason);
            assert!(all.bad.iter().all(|bad| bad.raw.len() <= BAD_ROW_CLIP));
        }
    }
}

#[test]
fn csv_becomes_objects_of_strings_in_column_order() {
    let all = csv("b,a,\"c \"\"x\"\"\"\r\n1,,\"q\"\"q,\n\r\né\"\r\n007,\\,\t\0\n").unwrap();
    assert_eq!(
        all.text("f"),
        concat!(
            r#"{"b":"1","a":"","c \"x\"":"q\"q,\n\r\né"}"#,
            "\n",
            r#"{"b":"007","a":"\\","c \"x\"":"\t\u0000"}"#,
            "\n"
        )
    );
}

#[test]
fn csv_lines_are_counted_through_quoted_newlines_and_blank_lines() {
    let all = csv("a,b\r\n\"x\r\ny\n\",1\r\n\r\n\r\nbad\n2,\"\n\n\"\r\n3,4,5\n").unwrap();
    assert_eq!(all.rows, 2);
    assert_eq!(told(&all), ["f, line 7: expected 2 fields, found 1", "f, line 11: expected 2 fields, found 3"]);
    assert_eq!(&all.bad[0].raw[..], b"bad");
}

#[test]
fn a_csv_field_that_goes_on_behind_its_closing_quote_is_a_bad_row_and_not_altered() {
    let content = "id,name\n1,\"x\ny\"\n2,\"a\"b\n3,a\"b\n\"4\" ,c\n5,\"say \"\"hi\"\"\"\n";
    for encoding in [Encoding::JsonLines, Encoding::Csv] {
        let all = read(Format::Csv(CsvOptions::default()), encoding, content).unwrap();
        assert_eq!(all.rows, 3);
        let told = told(&all);
        assert_eq!(told.len(), 2);
        assert!(told[0].starts_with("f, line 4: field 2 goes on behind its closing quote"), "{}", told[0]);
        assert!(told[1].starts_with("f, line 6: field 1 goes on behind its closing quote"), "{}", told[1]);
        assert_eq!(&all.bad[0].raw[..], b"2,\"a\"b");
    }
    assert!(csv("\"id\"x,name\n1,2\n").unwrap_err().to_string().starts_with("f, line 1: field 1 goes on"));
}

#[test]
fn csv_that_is_not_utf_8_is_a_bad_row_and_passes_as_csv() {
    let all = csv(b"a,b\n1,\xff\n\xc3,\xa9\n3,4\n").unwrap();
    assert_eq!(all.text("f"), "{\"a\":\"3\",\"b\":\"4\"}\n");
    assert_eq!(
        told(&all),
        [
            "f, line 2: field 2 is not UTF-8; convert the file to UTF-8",
            "f, line 3: field 1 is not UTF-8; convert the file to UTF-8"
        ]
    );
    let all = read(Format::Csv(CsvOptions::default()), Encoding::Csv, b"a,b\n1,\xff\n").unwrap();
    assert_eq!(all.bytes["f"], b"1,\xff\n");
}

#[test]
fn csv_passes_unchanged_without_its_header() {
    let content = "a,b\r\n\"1\",\"x\r\ny\"\r\nragged\r\n2,\r\n3,\"\"";
    for encoding in [Encoding::Csv, Encoding::Raw] {
        let all = read(Format::Csv(CsvOptions::default()), encoding, content).unwrap();
        assert_eq!(all.text("f"), "\"1\",\"x\r\ny\"\r\n2,\r\n3,\"\"\n");
        assert_eq!((all.rows, all.bad.len()), (3, 1));
    }
}

#[test]
fn records_handed_on_without_their_names_all_have_the_same() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "x,y\n1,2\n");
    write(dir.path(), "b", "y,x\n20,10\n");
    let source = files(dir.path(), "?", Format::Csv(CsvOptions::default()));
    let error = read_from(&source, Encoding::Csv, None, 1, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("y, x") && error.contains("x, y") && error.contains("`schema`"), "{error}");
    // With their names, they may differ.
    assert_eq!(read_from(&source, Encoding::JsonLines, None, 1, 1 << 20).unwrap().rows, 2);
}

#[test]
fn other_delimiters_quotes_and_headless_files_are_read() {
    let options =
        CsvOptions { header: false, delimiter: b';', quote: b'\'', columns: vec!["x".to_owned(), "y".to_owned()] };
    let format = Format::Csv(options);
    let all = read(format.clone(), Encoding::JsonLines, "1;'a;''b'\n\"2;3\n").unwrap();
    assert_eq!(all.text("f"), "{\"x\":\"1\",\"y\":\"a;'b\"}\n{\"x\":\"\\\"2\",\"y\":\"3\"}\n");
    // That is not RFC 4180, so it is not offered as such.
    let error = read(format, Encoding::Csv, "1;2\n").unwrap_err();
    assert!(matches!(error, SourceError::Configuration { key: "format", .. }), "{error}");
}

#[test]
fn a_header_that_names_a_column_twice_is_refused() {
    let error = csv("a,b,a\n1,2,3\n").unwrap_err();
    assert!(error.permanent());
    assert_eq!(error.to_string(), "f, line 1: the column `a` is named twice; every column needs a name of its own");
    assert!(csv(b"a,\xff\n1,2\n").is_err());
}

#[test]
fn a_quote_that_is_not_closed_is_an_error_with_its_line() {
    for content in ["a,b\n1,2\n3,\"4\n5,6\n", "a,b\n1,2\n3,\"4\n5,6", "a,b\n1,2\n3,\""] {
        let error = csv(content).unwrap_err();
        assert!(error.permanent());
        assert!(error.to_string().starts_with("f, line 3: the record that begins here has a quote"), "{error}");
    }
    let open = format!("a,b\n1,2\n3,\"{}", "4\n".repeat(3 << 20));
    let error = csv(open).unwrap_err();
    assert!(error.to_string().starts_with("f, line 3: the record that begins here is longer than"), "{error}");
    let long = format!("a\n1\n{}\n2\n", "x".repeat(2000));
    let error = read_limited(Format::Csv(CsvOptions::default()), Encoding::JsonLines, long, 1000).unwrap_err();
    assert!(error.to_string().contains("f, line 3") && error.to_string().contains("1000 bytes"), "{error}");
}

#[test]
fn csv_records_cut_by_a_block_are_whole() {
    let record = |n: usize| format!("{n},\"{}\r\n\"\"\"\r\n", "y".repeat(n % 1009));
    let content: String = "a,b\r\n".to_owned() + &(0..5000).map(record).collect::<String>();
    assert!(content.len() > 2 << 20);
    let all = csv(&content).unwrap();
    assert_eq!((all.rows, all.bad.len()), (5000, 0));
    let expected: String =
        (0..5000).map(|n| format!("{{\"a\":\"{n}\",\"b\":\"{}\\r\\n\\\"\"}}\n", "y".repeat(n % 1009))).collect();
    assert!(all.text("f") == expected);
    let as_is = read(Format::Csv(CsvOptions::default()), Encoding::Csv, &content).unwrap();
    assert!(as_is.text("f") == content[5..]);
}

#[test]
fn gzip_cut_short_anywhere_is_an_error_and_not_an_end() {
    let whole = [gzip(b"{\"a\":1}\n{\"a\":2}\n"), gzip(b"{\"a\":3}\n")].concat();
    let first = gzip(b"{\"a\":1}\n{\"a\":2}\n").len();
    for length in (0..whole.len()).filter(|&length| length != first) {
        let dir = tempdir().unwrap();
        write(dir.path(), "f.gz", &whole[..length]);
        let source = files(dir.path(), "f.gz", Format::JsonLines);
        let error = read_from(&source, Encoding::JsonLines, None, 1, 1 << 20).unwrap_err();
        assert!(matches!(error, SourceError::Truncated { .. }) && error.permanent(), "{length}: {error}");
        assert!(error.to_string().contains("f.gz: the gzip data ends in the middle"), "{error}");
    }
}

#[test]
fn zstd_cut_short_anywhere_is_an_error_and_not_an_end() {
    let whole = [zstd(b"{\"a\":1}\n{\"a\":2}\n"), zstd(b"{\"a\":3}\n")].concat();
    let first = zstd(b"{\"a\":1}\n{\"a\":2}\n").len();
    for length in (0..whole.len()).filter(|&length| length != first) {
        let dir = tempdir().unwrap();
        write(dir.path(), "f.zst", &whole[..length]);
        let source = files(dir.path(), "f.zst", Format::JsonLines);
        let error = read_from(&source, Encoding::JsonLines, None, 1, 1 << 20).unwrap_err();
        assert!(matches!(error, SourceError::Truncated { .. }) && error.permanent(), "{length}: {error}");
    }
}

#[test]
fn reading_goes_on_when_the_whole_compressed_file_has_come() {
    let content: String = (0..200_000).map(|n| format!("{}\n", n * 7919)).collect();
    let whole = gzip(content.as_bytes());
    let dir = tempdir().unwrap();
    write(dir.path(), "f.gz", &whole[..whole.len() - 1000]);
    let source = files(dir.path(), "f.gz", Format::Raw);
    let (positions, before) = run(async {
        let mut readers = source.open(Encoding::Raw, None, 1).unwrap();
        let tidegate_pipeline::source::Read::Rows(batch) = readers[0].next(1 << 20).await.unwrap() else {
            panic!("rows come before the cut");
        };
        (batch.positions.into_iter().collect(), batch.bytes)
    });
    write(dir.path(), "f.gz", &whole);
    let rest = read_from(&source, Encoding::Raw, Some(&cut(&positions)), 1, 1 << 20).unwrap();
    assert!([&before[..], &rest.bytes["f.gz"]].concat() == content.as_bytes());
}

#[test]
fn damaged_compressed_data_is_an_error() {
    let content: String = (0..5000).map(|n| format!("{}\n", n * 7919)).collect();
    let mut checked = zstd::Encoder::new(Vec::new(), 3).unwrap();
    checked.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut checked, content.as_bytes()).unwrap();
    for (name, mut bytes) in [("f.gz", gzip(content.as_bytes())), ("f.zst", checked.finish().unwrap())] {
        let middle = bytes.len() / 2;
        for byte in &mut bytes[middle..middle + 8] {
            *byte ^= 0x5a;
        }
        let dir = tempdir().unwrap();
        write(dir.path(), name, &bytes);
        let source = files(dir.path(), name, Format::Raw);
        let error = read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap_err();
        assert!(error.permanent() && error.to_string().starts_with(name), "{error}");
    }
}

/// A gzip file of stored blocks: only the checksum at the member's end tells that a byte of it was changed.
fn stored(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    std::io::Write::write_all(&mut encoder, content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn rows_handed_out_before_damage_showed_are_not_continued_by_another_stream() {
    let content: String = (0..400_000u64).map(|n| format!("{:08}\n", n * 7919 % 99_999_989)).collect();
    let intact = stored(content.as_bytes());
    let mut damaged = intact.clone();
    let at = memchr::memmem::find(&intact, &content.as_bytes()[180_000..180_016]).unwrap();
    damaged[at] ^= 1;
    let dir = tempdir().unwrap();
    write(dir.path(), "f.gz", &damaged);
    let source = files(dir.path(), "f.gz", Format::Raw);
    // Checkpoints in front of the damage and behind it, and then the error.
    let (before, behind, error) = run(async {
        let mut readers = source.open(Encoding::Raw, None, 1).unwrap();
        let mut cuts = Vec::new();
        loop {
            match readers[0].next(90_000).await {
                Ok(tidegate_pipeline::source::Read::Rows(batch)) => {
                    cuts.push(cut(&batch.positions.into_iter().collect()));
                }
                Ok(other) => panic!("no {other:?} before the error"),
                Err(error) => return (cuts[0].clone(), cuts[4].clone(), error),
            }
        }
    });
    assert!(matches!(error, SourceError::Damaged { lines: 100_000.., .. }) && error.permanent(), "{error}");
    let message = error.to_string();
    assert!(message.starts_with("f.gz: the gzip data is damaged") && message.contains("may be delivered"), "{message}");

    write(dir.path(), "f.gz", &intact);
    let rest = read_from(&source, Encoding::Raw, Some(&before), 1, 1 << 20).unwrap();
    assert!(content.as_bytes()[90_000..] == rest.bytes["f.gz"], "nothing wrong was handed out up to there");
    let error = read_from(&source, Encoding::Raw, Some(&behind), 1, 1 << 20).unwrap_err();
    assert!(matches!(error, SourceError::Replaced { next_line: 50_001, .. }) && error.permanent(), "{error}");
    let message = error.to_string();
    assert!(message.starts_with("f.gz: the file was replaced") && message.contains("older than them"), "{message}");
}

#[test]
fn bytes_behind_gzip_are_an_error_and_zero_padding_is_not() {
    let dir = tempdir().unwrap();
    write(dir.path(), "f.gz", [gzip(b"1\n"), vec![0; 600], gzip(b"2\n"), vec![0; 5]].concat());
    let source = files(dir.path(), "f.gz", Format::Raw);
    assert_eq!(read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap().text("f.gz"), "1\n2\n");
    write(dir.path(), "f.gz", [gzip(b"1\n"), b"2\n".to_vec()].concat());
    let error = read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("not gzip follow"), "{error}");
}

#[test]
fn compression_is_told_by_content_and_a_name_that_disagrees_is_an_error() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", gzip(b"1\n"));
    write(dir.path(), "b.jsonl", zstd(b"2\n"));
    let all = read_from(&files(dir.path(), "*", Format::Raw), Encoding::Raw, None, 1, 1 << 20).unwrap();
    assert_eq!((all.text("a"), all.text("b.jsonl")), ("1\n".to_owned(), "2\n".to_owned()));
    write(dir.path(), "c.gz", "plain text\n");
    let error = read_from(&files(dir.path(), "c.gz", Format::Raw), Encoding::Raw, None, 1, 1 << 20).unwrap_err();
    assert!(error.to_string().starts_with("c.gz: expected gzip"), "{error}");
    let mut options = FilesOptions::new(dir.path(), vec!["c.gz".to_owned(), "a".to_owned()], Format::Raw);
    options.compression = Compression::None;
    options.files_per_batch = 1;
    let source = FilesSource::new(options).unwrap();
    let all = read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap();
    assert_eq!(all.text("c.gz"), "plain text\n");
    assert!(all.bytes["a"].starts_with(b"\x1f\x8b"));
}
