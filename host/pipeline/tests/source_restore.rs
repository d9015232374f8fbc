//! Restoring a files source from any position gives exactly the rows behind it.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use source_support::*;
use tempfile::tempdir;
use tidegate_pipeline::source::files::{CsvOptions, FilesOptions, FilesSource, Format};
use tidegate_pipeline::source::{Source, SourceError};
use tidegate_protocol::plugin::Encoding;

const JSON: &str = "{\"a\":1}\r\n\n  \n{\"b\":\"é☃\"}\nnot json\n{\"c\":[1,2]}\n12345678901234567890\n{\"last\":true}";
const CSV: &str = "a,b\r\n1,\"x\ny\"\r\n\r\n2,ragged,3\n3,\"q\"\"q\"\n4,\"multi\r\nline\r\n\"\n5,é";
const RAW: &[u8] = b"one\n\n\xff\xfe\0\r\nfour\n    \nsix";

fn formats() -> Vec<(Format, Encoding, Vec<u8>)> {
    let csv = Format::Csv(CsvOptions::default());
    vec![
        (Format::Raw, Encoding::Raw, RAW.to_vec()),
        (Format::JsonLines, Encoding::JsonLines, JSON.as_bytes().to_vec()),
        (csv.clone(), Encoding::JsonLines, CSV.as_bytes().to_vec()),
        (csv, Encoding::Csv, CSV.as_bytes().to_vec()),
    ]
}

/// The content as one file each of: plain with a byte-order mark, gzip of two members, zstd of two frames, plain.
fn lay_out(dir: &std::path::Path, content: &[u8]) {
    let (first, second) = content.split_at(content.len() / 2);
    write(dir, "in/a-bom", [b"\xef\xbb\xbf", content].concat());
    write(dir, "in/b.gz", [gzip(first), gzip(second)].concat());
    write(dir, "in/c.zst", [zstd(first), zstd(second)].concat());
    write(dir, "in/d", content);
    write(dir, "in/e-empty", "");
}

#[test]
fn restoring_at_every_row_gives_exactly_the_rows_behind_it() {
    for (format, encoding, content) in formats() {
        let dir = tempdir().unwrap();
        lay_out(dir.path(), &content);
        let source = files(dir.path(), "in/*", format.clone());
        let whole = read_from(&source, encoding, None, 1, 1 << 20).unwrap();
        let by_row = read_from(&source, encoding, None, 2, 1).unwrap();
        assert_eq!(by_row.bytes, whole.bytes, "{format:?}");
        assert_eq!(by_row.positions, whole.positions, "{format:?}");
        assert_eq!((by_row.rows, &by_row.bad), (whole.rows, &whole.bad), "{format:?}");
        assert!(by_row.cuts.len() as u64 >= whole.rows && whole.rows > 12, "{}", by_row.cuts.len());
        for (cut, before, bad_before) in &by_row.cuts {
            for max_bytes in [1, 20, 1 << 20] {
                let rest = read_from(&source, encoding, Some(cut), 2, max_bytes).unwrap();
                for (partition, all) in &whole.bytes {
                    let mut joined = before.get(partition).cloned().unwrap_or_default();
                    joined.extend(rest.bytes.get(partition).cloned().unwrap_or_default());
                    assert_eq!(&joined, all, "{partition} from {cut:?}");
                }
                assert_eq!(bad_before + rest.bad.len(), whole.bad.len());
                // Numbers of lines go on counting.
                assert!(rest.bad.iter().all(|bad| whole.bad.contains(bad)), "{:?}", rest.bad);
                assert_eq!(rest.positions, whole.positions);
            }
        }
    }
}

#[test]
fn all_compressions_give_the_same_rows() {
    for (format, encoding, content) in formats() {
        let dir = tempdir().unwrap();
        lay_out(dir.path(), &content);
        let all = read_from(&files(dir.path(), "in/*", format), encoding, None, 3, 1 << 20).unwrap();
        assert_eq!(all.bytes["in/a-bom"], all.bytes["in/d"]);
        assert_eq!(all.bytes["in/b.gz"], all.bytes["in/d"]);
        assert_eq!(all.bytes["in/c.zst"], all.bytes["in/d"]);
        assert!(all.positions["in/e-empty"].contains("\"done\":true"), "{:?}", all.positions);
    }
}

#[test]
fn restoring_in_a_file_of_many_blocks_works_for_every_compression() {
    let dir = tempdir().unwrap();
    let content: String = (0..60_000).map(|n| format!("{{\"n\":{n},\"text\":\"{}\"}}\n", "x".repeat(n % 97))).collect();
    write(dir.path(), "plain", &content);
    write(dir.path(), "gz", gzip(content.as_bytes()));
    write(dir.path(), "zst", zstd(content.as_bytes()));
    for file in ["plain", "gz", "zst"] {
        let source = files(dir.path(), file, Format::JsonLines);
        let whole = read_from(&source, Encoding::JsonLines, None, 1, 300_000).unwrap();
        assert_eq!(whole.text(file), content);
        assert_eq!(whole.rows, 60_000);
        for (cut, before, _) in whole.cuts.iter().step_by(3) {
            let rest = read_from(&source, Encoding::JsonLines, Some(cut), 1, 1 << 20).unwrap();
            let joined = [before[file].as_slice(), rest.bytes.get(file).map_or(&[], Vec::as_slice)].concat();
            assert_eq!(joined.len(), content.len());
            assert!(joined == content.as_bytes());
        }
    }
}

#[test]
fn a_finished_source_reads_nothing_again_and_takes_new_files() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n");
    write(dir.path(), "b.gz", gzip(b"2\n"));
    let source = files(dir.path(), "*", Format::Raw);
    let first = read_from(&source, Encoding::Raw, None, 2, 1 << 20).unwrap();
    let again = read_from(&source, Encoding::Raw, Some(&first.cut()), 2, 1 << 20).unwrap();
    assert_eq!((again.rows, again.cuts.len()), (0, 0));
    assert_eq!(again.positions, first.positions);
    write(dir.path(), "c", "3\n");
    let third = read_from(&source, Encoding::Raw, Some(&again.cut()), 2, 1 << 20).unwrap();
    assert_eq!((third.text("c").as_str(), third.rows), ("3\n", 1));
    assert_eq!(third.positions.len(), 3);
}

#[test]
fn a_file_that_grew_after_its_end_gives_its_new_rows() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n");
    write(dir.path(), "b.gz", gzip(b"1\n"));
    write(dir.path(), "empty", "");
    let source = files(dir.path(), "*", Format::Raw);
    let first = read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap();
    append(dir.path(), "a", "2\n3");
    append(dir.path(), "b.gz", gzip(b"2\n"));
    append(dir.path(), "empty", "4\n");
    let second = read_from(&source, Encoding::Raw, Some(&first.cut()), 1, 1 << 20).unwrap();
    assert_eq!(second.text("a"), "2\n3\n");
    assert_eq!(second.text("b.gz"), "2\n");
    assert_eq!(second.text("empty"), "4\n");
}

#[test]
fn a_file_that_grew_behind_a_line_without_newline_is_refused() {
    let dir = tempdir().unwrap();
    for (name, content, more) in [("a", b"1\n2".to_vec(), b"3\n".to_vec()), ("b.gz", gzip(b"1\n2"), gzip(b"3\n"))] {
        write(dir.path(), name, content);
        let source = files(dir.path(), name, Format::Raw);
        let first = read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap();
        append(dir.path(), name, more);
        // Told before anything is read, where that can be.
        assert_eq!(source.open(Encoding::Raw, Some(&first.cut()), 1).is_err(), name == "a");
        let error = read_from(&source, Encoding::Raw, Some(&first.cut()), 1, 1 << 20).unwrap_err();
        assert!(error.permanent());
        let message = error.to_string();
        assert!(message.starts_with(&format!("{name}: the file grew")) && message.contains("line 2"), "{message}");
    }
}

#[test]
fn growth_that_begins_with_the_newline_that_was_missing_is_read_behind_it() {
    let csv = || Format::Csv(CsvOptions::default());
    type Growth = (&'static str, &'static str, &'static str, u64);
    let cases: [Growth; 7] = [
        ("1\n2", "\n", "", 2),
        ("1\n2", "\r\n", "", 2),
        ("1\n2", "\n3\n", "3\n", 3),
        ("1\n2", "\r\n3\n", "3\n", 3),
        ("1\n2", "\n3", "3\n", 3),
        ("1\n2", "\n\n3\n", "\n3\n", 4),
        ("1\r", "\n3\n", "3\n", 2),
    ];
    for (content, more, new, lines) in cases {
        for format in [Format::Raw, csv()] {
            for compress in [false, true] {
                let dir = tempdir().unwrap();
                let packed = |text: &str| if compress { gzip(text.as_bytes()) } else { text.into() };
                write(dir.path(), "f", packed(content));
                let source = files(dir.path(), "f", format.clone());
                let first = read_from(&source, Encoding::Raw, None, 1, 1).unwrap();
                append(dir.path(), "f", packed(more));
                let second = read_from(&source, Encoding::Raw, Some(&first.cut()), 1, 1).unwrap();
                let expected = if format == Format::Raw { new } else { new.trim_start_matches('\n') };
                assert_eq!(second.text("f"), expected, "{content:?} {more:?} {format:?} {compress}");
                let position = &second.positions["f"];
                assert!(position.contains(&format!("\"line\":{lines},\"done\":true")), "{position}");
                // Every checkpoint on the way goes on as well, and the end stays the end.
                for (cut, before, _) in &second.cuts {
                    let rest = read_from(&source, Encoding::Raw, Some(cut), 1, 1 << 20).unwrap();
                    let joined = [before.get("f").cloned().unwrap_or_default(), rest.text("f").into_bytes()].concat();
                    assert_eq!(joined, expected.as_bytes());
                    assert_eq!(rest.positions, second.positions);
                }
            }
        }
    }
}

#[test]
fn growth_without_content_leaves_the_last_line_open() {
    let dir = tempdir().unwrap();
    write(dir.path(), "f", gzip(b"1\n2"));
    let source = files(dir.path(), "f", Format::Raw);
    let first = read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap();
    append(dir.path(), "f", gzip(b""));
    let second = read_from(&source, Encoding::Raw, Some(&first.cut()), 1, 1 << 20).unwrap();
    assert_eq!((second.rows, second.positions["f"].contains("\"open-end\":true")), (0, true));
    append(dir.path(), "f", gzip(b"\r"));
    let error = read_from(&source, Encoding::Raw, Some(&second.cut()), 1, 1 << 20).unwrap_err();
    assert!(error.to_string().starts_with("f: the file grew"), "{error}");
}

fn rename(dir: &std::path::Path, from: &str, to: &str) {
    std::fs::rename(dir.join(from), dir.join(to)).unwrap();
}

#[test]
fn a_finished_file_that_was_renamed_is_refused_with_both_names() {
    let long: String = (0..3000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    for content in [&b"{}\n"[..], b"{}", long.as_bytes()] {
        for (packed, more) in [
            (content.to_vec(), b"\n{\"more\":1}\n".to_vec()),
            (gzip(content), gzip(b"\n{\"more\":1}\n")),
            (zstd(content), zstd(b"\n{\"more\":1}\n")),
        ] {
            let dir = tempdir().unwrap();
            write(dir.path(), "d/1", &packed);
            write(dir.path(), "d/2", "2\n");
            let source = files(dir.path(), "d/*", Format::JsonLines);
            let all = read_from(&source, Encoding::JsonLines, None, 1, 1 << 20).unwrap();
            rename(dir.path(), "d/1", "d/one");
            for _ in 0..2 {
                // Told before anything is read; also when it has grown since.
                let Err(error) = source.open(Encoding::JsonLines, Some(&all.cut()), 1) else { panic!("it was taken") };
                assert!(matches!(error, SourceError::Renamed { finished: true, .. }) && error.permanent(), "{error}");
                let message = error.to_string();
                assert!(message.starts_with("d/one: ") && message.contains("put it back as it was"), "{message}");
                assert!(message.contains("read of d/1,"), "{message}");
                append(dir.path(), "d/one", &more);
            }
            // Each of the ways to mend it.
            write(dir.path(), "d/1", &packed);
            assert!(source.open(Encoding::JsonLines, Some(&all.cut()), 1).is_ok(), "a copy under the old name");
            rename(dir.path(), "d/one", "one");
            std::fs::remove_file(dir.path().join("d/1")).unwrap();
            let rest = read_from(&source, Encoding::JsonLines, Some(&all.cut()), 1, 1 << 20).unwrap();
            assert_eq!((rest.rows, rest.positions.len()), (0, 2), "out of the pattern's reach");
        }
    }
}

#[test]
fn a_file_that_was_packed_or_unpacked_since_is_refused_with_both_names() {
    let long: String = (0..3000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let ways = |content: &[u8]| [("d/f", content.to_vec()), ("d/f.gz", gzip(content)), ("d/f.zst", zstd(content))];
    for content in [&b"{}\n"[..], b"{}", long.as_bytes()] {
        for (old, bytes) in ways(content) {
            for (new, others) in ways(content).into_iter().filter(|(new, _)| *new != old) {
                let dir = tempdir().unwrap();
                write(dir.path(), old, &bytes);
                write(dir.path(), "d/other", "2\n");
                let source = files(dir.path(), "d/*", Format::JsonLines);
                let all = read_from(&source, Encoding::JsonLines, None, 1, 1 << 20).unwrap();
                let begun = &read_from(&source, Encoding::JsonLines, None, 1, 64).unwrap().cuts[0].0;
                std::fs::remove_file(dir.path().join(old)).unwrap();
                write(dir.path(), new, others);
                for (cut, done) in [(&all.cut(), true), (begun, content.len() < 64)] {
                    let error = source.open(Encoding::JsonLines, Some(cut), 1).err().expect("it is the old file");
                    assert!(matches!(error, SourceError::Renamed { finished, .. } if finished == done), "{error}");
                    let message = error.to_string();
                    assert!(
                        message.starts_with(&format!("{new}: ")) && message.contains(&format!("of {old},")),
                        "{message}"
                    );
                    assert!(error.permanent() && message.contains("unpacked"), "{message}");
                }
                // Other rows under such a name are new.
                let changed = [b"{\"other\":1}\n", content].concat();
                let (_, changed) = ways(&changed).into_iter().find(|(name, _)| *name == new).unwrap();
                write(dir.path(), new, changed);
                let rest = read_from(&source, Encoding::JsonLines, Some(&all.cut()), 1, 1 << 20).unwrap();
                assert_eq!(rest.rows as usize, 1 + content.iter().filter(|byte| **byte == b'{').count(), "{old} {new}");
            }
        }
    }
}

#[test]
fn a_file_reached_by_another_directory_name_is_not_read_again() {
    let dir = tempdir().unwrap();
    write(dir.path(), "d/1", "1\n2\n");
    let all = read_from(&files(dir.path(), "d/*", Format::Raw), Encoding::Raw, None, 1, 1 << 20).unwrap();
    std::os::unix::fs::symlink("d", dir.path().join("e")).unwrap();
    let error = read_from(&files(dir.path(), "e/*", Format::Raw), Encoding::Raw, Some(&all.cut()), 1, 1).unwrap_err();
    assert!(error.to_string().starts_with("e/1: begins with all that was read of d/1, "), "{error}");
}

#[test]
fn an_unfinished_file_that_was_renamed_is_refused_with_both_names() {
    for packed in [b"1\n2\n3\n".to_vec(), gzip(b"1\n2\n3\n")] {
        let dir = tempdir().unwrap();
        write(dir.path(), "a", packed);
        let source = files(dir.path(), "*", Format::Raw);
        let all = read_from(&source, Encoding::Raw, None, 1, 1).unwrap();
        rename(dir.path(), "a", "b");
        let error = read_from(&source, Encoding::Raw, Some(&all.cuts[0].0), 1, 1).unwrap_err();
        assert!(matches!(error, SourceError::Renamed { finished: false, .. }) && error.permanent(), "{error}");
        assert!(error.to_string().contains("read of a, which was being read"), "{error}");
        // Another file says nothing about where it went.
        write(dir.path(), "b", "4\n5\n6\n");
        let error = read_from(&source, Encoding::Raw, Some(&all.cuts[0].0), 1, 1).unwrap_err();
        assert!(matches!(error, SourceError::Missing { .. }), "{error}");
    }
}

#[test]
fn a_new_file_with_other_content_is_taken_though_an_old_one_is_gone() {
    let text = |last: &str| format!("{}{last}\n", "the same start\n".repeat(1000));
    let csv = Format::Csv(CsvOptions::default());
    for (format, old, new, rows) in [
        (Format::Raw, b"1\n".to_vec(), b"2\n".to_vec(), 1),
        (Format::Raw, b"1\n2\n".to_vec(), b"1\n".to_vec(), 1),
        (Format::Raw, Vec::new(), Vec::new(), 0),
        // Same size, same first 4 KiB.
        (Format::Raw, text("a").into_bytes(), text("b").into_bytes(), 1001),
        // Of a compressed file all content counts.
        (
            Format::Raw,
            [zstd(text("a").as_bytes()), zstd(text("x").as_bytes())].concat(),
            [zstd(text("b").as_bytes()), zstd(text("x").as_bytes())].concat(),
            2002,
        ),
        // Days without data look like each other.
        (csv.clone(), b"a,b\n".to_vec(), b"a,b\n".to_vec(), 0),
        (csv, b"a,b\n".to_vec(), b"a,b\n1,2\n".to_vec(), 1),
    ] {
        let dir = tempdir().unwrap();
        write(dir.path(), "old", old);
        let source = files(dir.path(), "*", format);
        let all = read_from(&source, Encoding::Raw, None, 1, 1 << 20).unwrap();
        std::fs::remove_file(dir.path().join("old")).unwrap();
        write(dir.path(), "new", new);
        let rest = read_from(&source, Encoding::Raw, Some(&all.cut()), 1, 1 << 20).unwrap();
        assert_eq!((rest.rows, rest.positions.len()), (rows, 2));
    }
}

#[test]
fn all_content_of_a_compressed_file_before_the_position_counts() {
    let lines = |n: usize| -> String { (0..n).map(|n| format!("{}\n", n * 7919)).collect() };
    let old = lines(20_000);
    // Neither at the start nor near the position.
    let new = old.replacen("\n39595000\n", "\n39595001\n", 1);
    assert_ne!(old, new);
    for pack in [gzip as fn(&[u8]) -> Vec<u8>, zstd] {
        let dir = tempdir().unwrap();
        let (head, tail) = (pack(lines(4000).as_bytes()), pack(b"end\n"));
        assert!(head.len() > 4096);
        write(dir.path(), "f", [head.clone(), pack(old.as_bytes()), tail.clone()].concat());
        let source = files(dir.path(), "f", Format::Raw);
        let all = read_from(&source, Encoding::Raw, None, 1, 100_000).unwrap();
        let cut = &all.cuts[all.cuts.len() - 2].0;
        write(dir.path(), "f", [head, pack(new.as_bytes()), tail, pack(b"so that it is longer\n")].concat());
        let error = read_from(&source, Encoding::Raw, Some(cut), 1, 100_000).unwrap_err();
        assert!(matches!(error, SourceError::Replaced { .. }) && error.permanent(), "{error}");
    }
}

#[test]
fn a_file_that_shrank_or_was_replaced_is_named_and_refused() {
    let long = |byte: &str| format!("{}\n", byte.repeat(99)).repeat(200);
    type Edit = Box<dyn Fn(String) -> String>;
    let edits: Vec<(&str, Edit)> = vec![
        ("shrank", Box::new(|content| content[..content.len() - 100].to_owned())),
        ("first 4096 bytes", Box::new(|content| format!("b{}", &content[1..]))),
        // Same size, same head: seen at the position.
        ("bytes before line", Box::new(|content| format!("{}x{}", &content[..9_990], &content[9_991..]))),
    ];
    for (what, edit) in edits {
        for done in [false, true] {
            if done && what == "bytes before line" {
                continue; // The position is at the end then.
            }
            let dir = tempdir().unwrap();
            write(dir.path(), "in/a", long("a"));
            let source = files(dir.path(), "in/*", Format::Raw);
            let all = read_from(&source, Encoding::Raw, None, 1, 10_000).unwrap();
            let cut = if done { all.cut() } else { all.cuts[0].0.clone() };
            write(dir.path(), "in/a", edit(long("a")));
            let error = read_from(&source, Encoding::Raw, Some(&cut), 1, 10_000).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, SourceError::Changed { .. }) && error.permanent());
            assert!(message.starts_with("in/a: ") && message.contains(what), "{message}");
        }
    }
}

#[test]
fn a_compressed_file_that_was_edited_before_the_position_is_refused_before_any_row() {
    let dir = tempdir().unwrap();
    // Content that does not compress, so that the first 4 KiB of both files are the same.
    let noise = |seed: u64| -> Vec<u8> {
        let mut x = seed;
        (0..40_000u32)
            .map(|i| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                if i % 100 == 99 { b'\n' } else { b'0' + ((x >> 33) % 64) as u8 }
            })
            .collect()
    };
    let (head, old, new) = (gzip(&noise(1)), gzip(&noise(2)), gzip(&noise(3)));
    write(dir.path(), "a.gz", [head.clone(), old].concat());
    let source = files(dir.path(), "a.gz", Format::Raw);
    let all = read_from(&source, Encoding::Raw, None, 1, 60_000).unwrap();
    let cut = all.cuts[0].0.clone();
    write(dir.path(), "a.gz", [head, new, gzip(&noise(4))].concat());
    let error = read_from(&source, Encoding::Raw, Some(&cut), 1, 60_000).unwrap_err();
    assert!(error.to_string().starts_with("a.gz: the file was replaced or edited"), "{error}");
}

#[test]
fn a_file_may_go_when_it_is_finished_and_not_before() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n2\n");
    write(dir.path(), "b", "3\n");
    let source = files(dir.path(), "*", Format::Raw);
    let all = read_from(&source, Encoding::Raw, None, 1, 1).unwrap();
    std::fs::remove_file(dir.path().join("a")).unwrap();
    let error = read_from(&source, Encoding::Raw, Some(&all.cuts[0].0), 1, 1).unwrap_err();
    assert!(matches!(error, SourceError::Missing { .. }) && error.permanent());
    assert!(error.to_string().contains("a: was read up to line 1"), "{error}");
    let again = read_from(&source, Encoding::Raw, Some(&all.cut()), 1, 1).unwrap();
    assert_eq!(again.positions, all.positions, "its position is kept");
    write(dir.path(), "a", "1\n2\n");
    assert_eq!(read_from(&source, Encoding::Raw, Some(&again.cut()), 1, 1).unwrap().rows, 0);
}

#[test]
fn positions_of_something_else_are_refused() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n");
    let source = files(dir.path(), "*", Format::Raw);
    for text in ["{}", "null", "{\"next\":1}", "[1", "{\"offset\":-1}"] {
        let cut = cut(&[("a".to_owned(), text.to_owned())].into());
        let error = read_from(&source, Encoding::Raw, Some(&cut), 1, 1).unwrap_err();
        assert!(matches!(error, SourceError::Position { .. }), "{error}");
    }
}

#[test]
fn a_position_past_any_sense_is_refused_without_a_panic() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n2\n");
    write(dir.path(), "b.gz", gzip(b"1\n2\n"));
    let source = files(dir.path(), "*", Format::Raw);
    let all = read_from(&source, Encoding::Raw, None, 1, 1).unwrap();
    for key in ["\"offset\":", "\"line\":", "\"head-len\":", "\"size\":"] {
        for number in [u64::MAX, i64::MAX as u64] {
            // The first file is at its end, the second in the middle.
            for (partition, text) in all.cuts[2].0.partitions.entries().unwrap().iter() {
                let mut cut = all.cuts[2].0.clone();
                let at = text.find(key).unwrap() + key.len();
                let end = at + text[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
                let edited = format!("{}{number}{}", &text[..at], &text[end..]);
                cut.partitions = cut.partitions.advanced([(partition.to_owned(), edited)]);
                let error = read_from(&source, Encoding::Raw, Some(&cut), 1, 1).unwrap_err();
                assert!(error.permanent(), "{key} of {partition}: {error}");
            }
        }
    }
}

#[test]
fn tasks_share_the_files_and_the_number_of_tasks_may_change() {
    let dir = tempdir().unwrap();
    for file in 0..7 {
        write(dir.path(), &format!("f{file}"), format!("{file}\n").repeat(10 * (file + 1)));
    }
    let source = files(dir.path(), "f*", Format::Raw);
    let whole = read_from(&source, Encoding::Raw, None, 1, 30).unwrap();
    for tasks in [1, 2, 3, 7, 20] {
        let readers = source.open(Encoding::Raw, None, tasks).unwrap();
        assert_eq!(readers.len(), tasks as usize);
        let mut names: Vec<_> = readers.iter().flat_map(|r| r.initial_positions()).map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, source.partitions().unwrap());
        let (cut, before, _) = &whole.cuts[whole.cuts.len() / 2];
        let rest = read_from(&source, Encoding::Raw, Some(cut), tasks, 30).unwrap();
        let rows_before: usize = before.values().map(|bytes| bytes.len() / 2).sum();
        assert_eq!(rest.rows as usize + rows_before, 280);
    }
}

#[test]
fn dropping_the_future_loses_no_rows() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n2\n3\n");
    let source = FilesSource::new(FilesOptions::new(dir.path(), vec!["a".to_owned()], Format::Raw)).unwrap();
    run(async {
        let mut readers = source.open(Encoding::Raw, None, 1).unwrap();
        // The thread that reads may have answered already; then nothing was dropped under way, and it begins anew.
        let mut tries = 0;
        while futures_util::poll!(readers[0].next(1)).is_ready() {
            tries += 1;
            assert!(tries < 1_000, "no read was ever under way");
            readers = source.open(Encoding::Raw, None, 1).unwrap();
        }
        let all = drain(&mut readers, 1).await.unwrap();
        assert_eq!(all.text("a"), "1\n2\n3\n");
    });
}

#[test]
fn a_bad_line_behind_the_position_may_be_corrected() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "{}\nbad\n[]\n");
    let source = files(dir.path(), "a", Format::JsonLines);
    let all = read_from(&source, Encoding::JsonLines, None, 1, 1).unwrap();
    let cut = &all.cuts[0].0;
    write(dir.path(), "a", "{}\n\"good\"\n[]\n");
    let rest = read_from(&source, Encoding::JsonLines, Some(cut), 1, 1 << 20).unwrap();
    assert_eq!((rest.text("a").as_str(), rest.bad.len()), ("\"good\"\n[]\n", 0));
    // Not one before it.
    write(dir.path(), "a", "[]\n\"good\"\n[]\n");
    assert!(read_from(&source, Encoding::JsonLines, Some(cut), 1, 1 << 20).is_err());
}

#[test]
fn a_file_of_which_nothing_was_read_may_be_replaced() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n");
    write(dir.path(), "b", "2\n3\n");
    write(dir.path(), "c.gz", &gzip(b"4\n5\n")[..20]);
    let source = files(dir.path(), "*", Format::Raw);
    let positions = source.open(Encoding::Raw, None, 1).unwrap()[0].initial_positions().into_iter().collect();
    write(dir.path(), "b", "6\n");
    write(dir.path(), "c.gz", gzip(b"7\n"));
    let all = read_from(&source, Encoding::Raw, Some(&cut(&positions)), 1, 1 << 20).unwrap();
    assert_eq!((all.text("b").as_str(), all.text("c.gz").as_str()), ("6\n", "7\n"));
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error_and_not_an_end() {
    let dir = tempdir().unwrap();
    let content = "0123456\n".repeat(400_000);
    write(dir.path(), "a", &content);
    let source = files(dir.path(), "a", Format::Raw);
    run(async {
        let mut readers = source.open(Encoding::Raw, None, 1).unwrap();
        readers[0].next(1000).await.unwrap();
        std::fs::OpenOptions::new().write(true).open(dir.path().join("a")).unwrap().set_len(2_000_000).unwrap();
        let error = drain(&mut readers, 1 << 20).await.unwrap_err();
        assert!(error.to_string().starts_with("a: the file shrank from 3200000 to 2000000 bytes while"), "{error}");
        assert!(readers[0].next(1).await.is_err(), "an error stays");
    });
}

#[test]
fn a_file_that_grows_while_it_is_read_gives_its_new_rows() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "0123456\n".repeat(400_000));
    let source = files(dir.path(), "a", Format::Raw);
    let all = run(async {
        let mut readers = source.open(Encoding::Raw, None, 1).unwrap();
        readers[0].next(8).await.unwrap();
        append(dir.path(), "a", "new\n");
        drain(&mut readers, 1 << 20).await.unwrap()
    });
    assert_eq!(all.rows, 400_000);
    assert!(all.text("a").ends_with("\nnew\n"));
    assert_eq!(read_from(&source, Encoding::Raw, Some(&all.cut()), 1, 1).unwrap().rows, 0);
}
