//! Standard input, generated rows, and the rate limit.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use std::io::Write;
use std::time::Duration;

use source_support::*;
use tempfile::tempdir;
use tidegate_pipeline::source::files::{FilesOptions, FilesSource, Format};
use tidegate_pipeline::source::generate::{GenerateOptions, GenerateSource};
use tidegate_pipeline::source::stdin::{StdinOptions, StdinSource};
use tidegate_pipeline::source::{Read, Source, SourceError};
use tidegate_protocol::plugin::Encoding;

fn stdin(format: Format, input: impl std::io::Read + Send + 'static) -> StdinSource {
    StdinSource::with_input(StdinOptions { format, max_line: 1 << 20 }, Box::new(input)).unwrap()
}

#[test]
fn stdin_gives_all_rows_once_and_is_not_replayable() {
    let source = stdin(Format::JsonLines, &b"\xef\xbb\xbf1\nx\n{}"[..]);
    assert!(!source.contract().replayable && source.contract().bounded);
    let all = read_from(&source, Encoding::JsonLines, None, 2, 1 << 20).unwrap();
    assert_eq!(all.text("stdin"), "1\n{}\n");
    assert_eq!(all.bad[0].to_string(), "stdin, line 2: not valid JSON: expected value at column 1");
    assert_eq!(all.positions["stdin"], "{\"line\":3}");
    let Err(error) = source.open(Encoding::JsonLines, None, 1) else { panic!("it was read already") };
    assert!(error.permanent());
}

#[test]
fn stdin_answers_idle_while_nothing_comes_and_hands_out_rows_as_they_come() {
    run(async {
        for (format, encoding) in [(Format::Raw, Encoding::Raw), (Format::Csv(Default::default()), Encoding::Csv)] {
            let (input, mut output) = std::io::pipe().unwrap();
            let source = stdin(format, input);
            let mut readers = source.open(encoding, None, 1).unwrap();
            assert_eq!(readers[0].next(1).await.unwrap(), Read::Idle);
            output.write_all(b"h\nrow 1\nro").unwrap();
            let mut rows = Vec::new();
            while !rows.ends_with(b"row 1\n") {
                if let Read::Rows(batch) = readers[0].next(1).await.unwrap() {
                    rows.extend_from_slice(&batch.bytes);
                }
            }
            assert_eq!(readers[0].next(1).await.unwrap(), Read::Idle);
            output.write_all(b"w 2").unwrap();
            drop(output);
            let all = drain(&mut readers, 1).await.unwrap();
            assert_eq!(all.text("stdin"), "row 2\n");
        }
    });
}

#[test]
fn a_stream_that_fails_is_an_error_and_stays_one() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("broken"))
        }
    }
    run(async {
        let mut readers = stdin(Format::Raw, Broken).open(Encoding::Raw, None, 1).unwrap();
        let error = loop {
            match readers[0].next(1).await {
                Ok(Read::Idle) => {}
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("stdin: cannot be read: broken"), "{error}");
        assert!(readers[0].next(1).await.is_err());
    });
}

fn generate(rows: Option<u64>, partitions: u32) -> GenerateOptions {
    GenerateOptions { seed: 7, rows, partitions, ..GenerateOptions::default() }
}

#[test]
fn generated_rows_are_frozen() {
    let source = GenerateSource::new(GenerateOptions { row_bytes: (90, 100), ..generate(None, 3) }).unwrap();
    let row = |partition, n| String::from_utf8(source.row(partition, n)).unwrap();
    assert_eq!(
        row(0, 0),
        r#"{"partition":0,"n":0,"key":"k699","value":207623,"fill":"n9db4Wkjxidxg-qvgm2o6tCw8OHo1hH7n-S0B"}"#
    );
    assert_eq!(
        row(2, 123_456),
        r#"{"partition":2,"n":123456,"key":"k889","value":887265,"fill":"lv3QDND7SCWjxEZ0CCXncg1Y6k5yjZ8"}"#
    );
}

#[test]
fn generated_rows_are_json_of_the_size_asked_for() {
    let options = GenerateOptions { row_bytes: (100, 160), keys: 5, ..generate(Some(1000), 4) };
    let all = read_from(&GenerateSource::new(options).unwrap(), Encoding::JsonLines, None, 2, 4096).unwrap();
    assert_eq!(all.rows, 1000);
    let mut keys = std::collections::BTreeSet::new();
    let mut sizes = std::collections::BTreeSet::new();
    for bytes in all.bytes.values() {
        for (n, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let row: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert_eq!(row["n"], n);
            keys.insert(row["key"].as_str().unwrap().to_owned());
            sizes.insert(line.len());
        }
    }
    assert_eq!(keys.len(), 5);
    assert_eq!((*sizes.first().unwrap(), *sizes.last().unwrap()), (100, 160));
}

#[test]
fn generated_rows_replay_from_every_row() {
    let source = GenerateSource::new(generate(Some(50), 3)).unwrap();
    let whole = read_from(&source, Encoding::JsonLines, None, 1, 1 << 20).unwrap();
    let by_row = read_from(&source, Encoding::JsonLines, None, 2, 1).unwrap();
    assert_eq!(by_row.cuts.len(), 50);
    assert_eq!(by_row.bytes, whole.bytes);
    for (cut, before, _) in &by_row.cuts {
        let rest = read_from(&source, Encoding::JsonLines, Some(cut), 3, 500).unwrap();
        for (partition, all) in &whole.bytes {
            let part =
                |all: &std::collections::BTreeMap<String, Vec<u8>>| all.get(partition).cloned().unwrap_or_default();
            assert_eq!(&[part(before), part(&rest.bytes)].concat(), all);
        }
        assert_eq!(rest.positions, whole.positions);
    }
    // More rows may be asked for later; other rows may not.
    let more = GenerateSource::new(generate(Some(53), 3)).unwrap();
    assert_eq!(read_from(&more, Encoding::JsonLines, Some(&whole.cut()), 1, 1).unwrap().rows, 3);
    for other in [
        GenerateOptions { seed: 8, ..generate(Some(50), 3) },
        generate(Some(50), 2),
        GenerateOptions { keys: 2, ..generate(Some(50), 3) },
        GenerateOptions { row_bytes: (1, 2), ..generate(Some(50), 3) },
    ] {
        let source = GenerateSource::new(other).unwrap();
        let error = read_from(&source, Encoding::JsonLines, Some(&whole.cut()), 1, 1).unwrap_err();
        assert!(matches!(error, SourceError::Position { .. }) && error.permanent(), "{error}");
    }
}

#[test]
fn generate_refuses_options_out_of_range() {
    for (key, options) in [
        ("partitions", generate(None, 0)),
        ("keys", GenerateOptions { keys: 0, ..generate(None, 1) }),
        ("row-bytes", GenerateOptions { row_bytes: (9, 8), ..generate(None, 1) }),
        ("row-bytes", GenerateOptions { row_bytes: (9, u32::MAX), ..generate(None, 1) }),
        ("rate", GenerateOptions { rate: Some(0), ..generate(None, 1) }),
    ] {
        let error = GenerateSource::new(options).unwrap_err();
        assert!(error.to_string().starts_with(&format!("`{key}`")), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_counts_over_all_tasks() {
    let dir = tempdir().unwrap();
    for file in 0..3 {
        write(dir.path(), &format!("f{file}"), "{}\n".repeat(400) + "bad\n");
    }
    let mut options = FilesOptions::new(dir.path(), vec!["f*".to_owned()], Format::JsonLines);
    options.rate = Some(100);
    let files: Box<dyn Source> = Box::new(FilesSource::new(options).unwrap());
    let generated = GenerateOptions { rate: Some(100), ..generate(Some(1203), 3) };
    for source in [files, Box::new(GenerateSource::new(generated).unwrap())] {
        let start = tokio::time::Instant::now();
        let mut readers = source.open(Encoding::JsonLines, None, 3).unwrap();
        let mut rows = 0;
        let mut ended = 0;
        while ended < readers.len() {
            ended = 0;
            for reader in &mut readers {
                match reader.next(1 << 20).await.unwrap() {
                    Read::Rows(batch) => rows += batch.rows + batch.bad.len() as u64,
                    Read::Idle => {}
                    Read::End => ended += 1,
                }
            }
        }
        assert_eq!(rows, 1203);
        let took = start.elapsed();
        assert!((Duration::from_secs(11)..Duration::from_secs(14)).contains(&took), "{took:?}");
    }
}

/// Gives a few bytes at a time, so that every cut falls somewhere.
struct Dribble {
    content: Vec<u8>,
    at: usize,
    random: u64,
}

fn next_random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

impl std::io::Read for Dribble {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let length = (1 + next_random(&mut self.random) % 7).min(self.content.len() - self.at).min(into.len());
        into[..length].copy_from_slice(&self.content[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

/// Bytes or the error's text, rows, and bad rows.
type Outcome = (String, u64, Vec<(u64, String, Vec<u8>)>);

fn outcome(result: Result<All, SourceError>) -> Outcome {
    match result {
        Err(error) => (error.to_string().split_once(',').map_or(String::new(), |(_, rest)| rest.to_owned()), 0, vec![]),
        Ok(all) => {
            let bytes = all.bytes.into_values().flatten().collect::<Vec<u8>>();
            let bad = all.bad.into_iter().map(|bad| (bad.line, bad.reason, bad.raw.to_vec())).collect();
            (format!("{bytes:?}"), all.rows, bad)
        }
    }
}

#[test]
fn where_reads_cut_the_input_makes_no_difference() {
    let pieces: [&[u8]; 16] = [
        b"\n",
        b"\r\n",
        b"\r",
        b"\"",
        b",",
        b"\"\"",
        b"1",
        b"{}",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\"a\"",
        b"[1,2]",
        b" ",
        b"\0",
        b"1,2\n",
        b"long long long",
    ];
    let mut random = 1;
    let (mut errors, mut bad) = (0, 0);
    for round in 0..300 {
        let content: Vec<u8> = (0..next_random(&mut random) % 40)
            .flat_map(|_| pieces[next_random(&mut random) % pieces.len()])
            .copied()
            .collect();
        let max_line = [4, 16, 1 << 20][round % 3];
        let columns = vec!["x".to_owned(), "y".to_owned()];
        let csv =
            Format::Csv(tidegate_pipeline::source::files::CsvOptions { header: false, columns, ..Default::default() });
        for (format, encoding) in [
            (Format::Raw, Encoding::Raw),
            (Format::JsonLines, Encoding::JsonLines),
            (csv.clone(), Encoding::JsonLines),
            (csv, Encoding::Csv),
        ] {
            let dir = tempdir().unwrap();
            write(dir.path(), "f", &content);
            let mut options = FilesOptions::new(dir.path(), vec!["f".to_owned()], format.clone());
            options.max_line = max_line;
            let source = FilesSource::new(options).unwrap();
            let whole = outcome(read_from(&source, encoding, None, 1, 1 << 20));
            let by_row = outcome(read_from(&source, encoding, None, 1, 1));
            let input = Dribble { content: content.clone(), at: 0, random: round as u64 };
            let source = StdinSource::with_input(StdinOptions { format, max_line }, Box::new(input)).unwrap();
            let dribbled = outcome(read_from(&source, encoding, None, 1, 1));
            assert_eq!(by_row, whole, "{:?} {encoding:?} {max_line}", String::from_utf8_lossy(&content));
            assert_eq!(dribbled, whole, "{:?} {encoding:?} {max_line}", String::from_utf8_lossy(&content));
            errors += u32::from(whole.1 == 0);
            bad += whole.2.len();
        }
    }
    assert!(errors > 20 && bad > 200, "{errors} {bad}");
}
