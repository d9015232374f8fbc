//! Typed rows: read as columns, changed on the way, written as lines and as whole files.

mod added;
mod edits;
mod exactly_once;
mod folders;
mod letters;
mod schemas;
mod transforms;
mod values;

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use tidegate_columns::encode::encode;
use tidegate_columns::parquet::ParquetFile;
use tidegate_e2e::{Ended, Scene, sorted};
use tidegate_protocol::plugin::Encoding;

const DEAD_LETTER: &str = "[dead-letter]\nplugin = \"builtin:files\"\n\n[dead-letter.dirs]\noutput = \"dead\"\n";

/// The plain pipeline with lines added to its source and to its sink, and tables added at its end.
fn pipeline(scene: &Scene, source: &str, sink: &str, more: &str) {
    scene.pipeline(source, more);
    scene.edit("subtasks = 2\n", &format!("subtasks = 2\n{sink}\n"));
}

/// One input file, and the pipeline over it.
fn one_file(content: &str, source: &str, sink: &str, more: &str) -> Scene {
    let scene = Scene::new();
    scene.write("in/a.jsonl", content);
    pipeline(&scene, source, sink, more);
    scene
}

fn validate(scene: &Scene) -> Ended {
    scene.tidegate(&["validate", "pipeline.toml"])
}

/// What a run says in JSON at its end.
fn told(scene: &Scene) -> serde_json::Value {
    let ended = scene.run(&["--json"]).expect(0);
    let last = ended.stdout.lines().last().expect("it says how it ended");
    serde_json::from_str(last).expect("one JSON value per line")
}

/// Published files in all folders.
#[track_caller]
fn published(scene: &Scene, output: &str) -> Vec<PathBuf> {
    let root = scene.path(output);
    let mut files = scene.files(output);
    files.retain(|path| {
        let inside = path.strip_prefix(&root).expect("below the folder");
        !inside.components().any(|part| part.as_os_str().to_string_lossy().starts_with(['_', '.']))
    });
    files
}

/// The rows of a file, as JSON; those of CSV files as records, without their header.
#[track_caller]
fn rows_in(path: &Path) -> Vec<String> {
    let name = path.to_string_lossy();
    let open = || File::open(path).expect("a published file can be opened");
    let (plain, packed) = match name.strip_suffix(".gz") {
        Some(plain) => (plain, true),
        None => (&*name, false),
    };
    if plain.ends_with(".parquet") {
        let file = ParquetFile::open(path).unwrap_or_else(|error| panic!("{error}"));
        let mut batches = file.read_from(0, 1 << 20);
        let mut rows = Vec::new();
        while let Some(batch) = batches.next_batch().expect("it is whole") {
            rows.extend(json(&batch.batch));
        }
        return rows;
    }
    if plain.ends_with(".arrows") {
        let reader = StreamReader::try_new(BufReader::new(open()), None).expect("an Arrow stream");
        return reader.flat_map(|batch| json(&batch.expect("it is whole"))).collect();
    }
    let mut text = String::new();
    let mut file = open();
    let read = if packed {
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text)
    } else {
        file.read_to_string(&mut text)
    };
    read.unwrap_or_else(|error| panic!("`{name}`: {error}"));
    assert!(text.ends_with('\n'), "`{name}` is not whole");
    text.lines().skip(usize::from(plain.ends_with(".csv"))).map(str::to_owned).collect()
}

fn json(batch: &RecordBatch) -> Vec<String> {
    let text = encode(batch, Encoding::JsonLines).expect("rows have a form as JSON");
    std::str::from_utf8(&text).expect("JSON is UTF-8").lines().map(str::to_owned).collect()
}

/// All rows below a folder, sorted.
#[track_caller]
fn all_rows(scene: &Scene, output: &str) -> Vec<String> {
    sorted(&published(scene, output).iter().flat_map(|path| rows_in(path)).collect::<Vec<_>>())
}

/// Checks that these rows are there, each once.
#[track_caller]
fn expect_all(scene: &Scene, output: &str, expected: &[String]) {
    let (rows, expected) = (all_rows(scene, output), sorted(expected));
    assert!(!expected.is_empty(), "nothing is compared");
    if rows != expected {
        let lost: Vec<_> = expected.iter().filter(|row| !rows.contains(row)).take(3).collect();
        let odd: Vec<_> = rows.iter().filter(|row| !expected.contains(row)).take(3).collect();
        panic!("{} rows of {} in `{output}`; lost {lost:#?}; not expected {odd:#?}", rows.len(), expected.len());
    }
}

fn texts(rows: &[&str]) -> Vec<String> {
    rows.iter().map(|row| (*row).to_owned()).collect()
}
