//! The rows taken out of letters, in files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_protocol::ids::SourceId;

use super::plan::{Plan, Target};
use super::unwrap::{Letter, kept};
use super::{LetterCount, failed, header};
use crate::config::{CsvSection, Format};
use crate::error::{Refused, ServerError};

/// Longest letter that is read, in bytes.
const LONGEST_LETTER: u64 = 256 << 20;
/// Files that are written at the same time: one per source, and per different header of CSV files.
const MOST_FILES: usize = 256;

/// The replay's directory.
pub(super) struct Store {
    dir: PathBuf,
}

/// What became of a file of letters.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Taken {
    sha256: String,
    letters: LetterCount,
}

impl Store {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where the rows are, a directory per source.
    pub(super) fn rows_dir(&self) -> PathBuf {
        self.dir.join("rows")
    }

    /// The replay's state directory.
    pub(super) fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Whether there are rows for a source.
    pub(super) fn has_rows(&self, source: &SourceId) -> Result<bool, ServerError> {
        Ok(!self.files_of(source)?.is_empty())
    }

    /// The first record for a source, with whatever follows in its file's first part.
    pub(super) fn first_row(&self, source: &SourceId) -> Result<Vec<u8>, ServerError> {
        let mut start = Vec::new();
        if let Some(path) = self.files_of(source)?.first() {
            let read = File::open(path).and_then(|file| file.take(1 << 20).read_to_end(&mut start));
            read.map_err(|error| failed(path, "read", &error))?;
        }
        Ok(start)
    }

    fn files_of(&self, source: &SourceId) -> Result<Vec<PathBuf>, ServerError> {
        let dir = self.rows_dir().join(source.as_str());
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&dir, "read", &error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failed(&dir, "read", &error))?.path();
            if !path.file_name().unwrap_or_default().as_encoded_bytes().starts_with(b".") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Takes the rows out of a file of letters, unless that was done before. Counts the letters if it was not.
    pub(super) fn take(&self, letters: &Path, plan: &Plan<'_>, base: &Path) -> Result<LetterCount, ServerError> {
        let Some(name) = letters.file_name().and_then(|name| name.to_str()) else {
            return Err(ServerError::Request {
                problem: format!("{} has a name that is not UTF-8", letters.display()),
                hints: vec!["rename it".to_owned()],
            });
        };
        let note = self.dir.join("letters").join(format!("{name}.json"));
        match fs::read(&note) {
            Ok(text) => return self.compare(letters, &note, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&note, "read", &error)),
        }
        let mut taking = Taking {
            store: self,
            plan,
            base,
            name,
            files: BTreeMap::new(),
            headers: BTreeMap::new(),
            count: LetterCount::default(),
        };
        let sha256 = taking.read(letters)?;
        let taken = Taken { sha256, letters: taking.count };
        taking.publish()?;
        let text = serde_json::to_vec(&taken).map_err(|error| ServerError::Host(error.to_string()))?;
        // Last: until it is there, the rows are taken out again, to the same files.
        write_durably(&note, &text).map_err(|error| failed(&note, "written", &error))?;
        Ok(taken.letters)
    }

    fn compare(&self, letters: &Path, note: &Path, text: &[u8]) -> Result<LetterCount, ServerError> {
        let taken: Taken = serde_json::from_slice(text)
            .map_err(|error| ServerError::Host(format!("{} is damaged: {error}", note.display())))?;
        let mut digest = Sha256::new();
        let mut file = File::open(letters).map_err(|error| failed(letters, "read", &error))?;
        let mut block = vec![0; 64 << 10];
        loop {
            match file.read(&mut block).map_err(|error| failed(letters, "read", &error))? {
                0 => break,
                count => digest.update(&block[..count]),
            }
        }
        if HEXLOWER.encode(&digest.finalize()) == taken.sha256 {
            return Ok(LetterCount::default());
        }
        Err(ServerError::Edits(vec![Refused {
            problem: format!(
                "{} was changed after its letters were sent again; read once more, rows of it would be there twice",
                letters.display()
            ),
            hints: vec!["set it back, and put letters that are to be sent in a file of another name".to_owned()],
        }]))
    }
}

/// A file of letters on its way.
struct Taking<'a> {
    store: &'a Store,
    plan: &'a Plan<'a>,
    base: &'a Path,
    name: &'a str,
    /// By source and header, the files that are written.
    files: BTreeMap<(SourceId, Vec<u8>), RowFile>,
    /// Headers by the file that they stand in.
    headers: BTreeMap<String, Result<Vec<u8>, String>>,
    count: LetterCount,
}

struct RowFile {
    unfinished: PathBuf,
    path: PathBuf,
    out: BufWriter<File>,
}

impl Taking<'_> {
    /// Reads all letters; gives the file's digest.
    fn read(&mut self, letters: &Path) -> Result<String, ServerError> {
        let io = |error: io::Error| failed(letters, "read", &error);
        let mut input = BufReader::new(File::open(letters).map_err(io)?);
        let compressed = matches!(input.fill_buf().map_err(io)?, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..]);
        if compressed {
            return Err(ServerError::Request {
                problem: format!("{} is compressed", letters.display()),
                hints: vec!["decompress the letters into a directory, and give --from DIR".to_owned()],
            });
        }
        let mut digest = Sha256::new();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if (&mut input).take(LONGEST_LETTER).read_until(b'\n', &mut line).map_err(io)? == 0 {
                break;
            }
            if line.len() as u64 == LONGEST_LETTER {
                return Err(ServerError::Request {
                    problem: format!("{}, line {number}: longer than any dead letter", letters.display()),
                    hints: vec!["remove the line".to_owned()],
                });
            }
            digest.update(&line);
            let letter = line.trim_ascii();
            if !letter.is_empty() {
                self.letter(letter, number)?;
            }
        }
        Ok(HEXLOWER.encode(&digest.finalize()))
    }

    fn letter(&mut self, line: &[u8], number: u64) -> Result<(), ServerError> {
        match self.unwrapped(line) {
            Ok((target, header, row)) => {
                self.count.replayed += 1;
                self.write(target.source, header, &row)
            }
            Err(why) => {
                self.count.kept += 1;
                let letter = kept(line, self.name, number, &why);
                self.write(self.plan.kept().source, Vec::new(), &letter)
            }
        }
    }

    /// Where a letter's row goes, the header that it needs, and the row with its line end.
    fn unwrapped(&mut self, line: &[u8]) -> Result<(Target, Vec<u8>, Vec<u8>), String> {
        let letter = Letter::read(line)?;
        let target = self.plan.target(&letter)?;
        let mut row = letter.row()?;
        row.push(b'\n');
        let blank = row.iter().all(u8::is_ascii_whitespace);
        let header = match &target.format {
            Format::Raw | Format::JsonLines | Format::Parquet if row[..row.len() - 1].contains(&b'\n') => {
                return Err("the row has a line break in it, and would be two".to_owned());
            }
            Format::JsonLines | Format::Csv(_) | Format::Parquet if blank => {
                return Err("the row is empty; remove the letter if it is to be given up".to_owned());
            }
            Format::Csv(csv) => {
                let line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
                if !header::record_length(&row, csv).is_some_and(|length| row[length..].iter().all(line_end)) {
                    return Err("the row is not one CSV record: a quote is not closed, or lines follow".to_owned());
                }
                if csv.header { self.header(&letter, csv)? } else { Vec::new() }
            }
            _ => Vec::new(),
        };
        Ok((target, header, row))
    }

    fn header(&mut self, letter: &Letter, csv: &CsvSection) -> Result<Vec<u8>, String> {
        let Some(file) = &letter.file else {
            return Err("the letter does not name the `file` whose header tells the columns".to_owned());
        };
        if let Some(known) = self.headers.get(file) {
            return known.clone();
        }
        // Letters of a replay name a file of ours.
        let ours = self.store.rows_dir().join(file);
        let path = if ours.is_file() { ours } else { self.base.join(file) };
        let header = header::of_file(&path, csv);
        self.headers.insert(file.clone(), header.clone());
        header
    }

    fn write(&mut self, source: SourceId, header: Vec<u8>, row: &[u8]) -> Result<(), ServerError> {
        let key = (source, header);
        if !self.files.contains_key(&key) {
            let file = self.begin(&key.0, &key.1)?;
            self.files.insert(key.clone(), file);
        }
        let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
        file.out.write_all(row).map_err(|error| failed(&file.unfinished, "written", &error))
    }

    fn begin(&self, source: &SourceId, header: &[u8]) -> Result<RowFile, ServerError> {
        let number = self.files.keys().filter(|(other, _)| other == source).count();
        if number >= MOST_FILES {
            return Err(ServerError::Request {
                problem: format!("the letters in {} come from CSV files with too many different headers", self.name),
                hints: vec![format!("at most {MOST_FILES} are taken; split the file")],
            });
        }
        let name = if header.is_empty() { self.name.to_owned() } else { format!("{}.{number}", self.name) };
        let dir = self.store.rows_dir().join(source.as_str());
        fs::create_dir_all(&dir).map_err(|error| failed(&dir, "made", &error))?;
        let unfinished = dir.join(format!(".new-{}-{name}", std::process::id()));
        let file = File::create(&unfinished).map_err(|error| failed(&unfinished, "written", &error))?;
        let mut out = BufWriter::new(file);
        out.write_all(header).map_err(|error| failed(&unfinished, "written", &error))?;
        Ok(RowFile { path: dir.join(name), unfinished, out })
    }

    /// Gives the files their names.
    fn publish(self) -> Result<(), ServerError> {
        for RowFile { unfinished, path, out } in self.files.into_values() {
            let done = out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| {
                file.sync_all()?;
                fs::rename(&unfinished, &path)?;
                sync_folders(&path)
            });
            done.map_err(|error| failed(&path, "written", &error))?;
        }
        Ok(())
    }
}

fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let Some(dir) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    fs::create_dir_all(dir)?;
    let mut name = std::ffi::OsString::from(format!(".new-{}-", std::process::id()));
    name.push(path.file_name().unwrap_or_default());
    let unfinished = dir.join(name);
    let mut file = File::create(&unfinished)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_folders(path)
}

/// Makes the names durable: of the file, its folder, the replay's directory, and that beside the state.
fn sync_folders(path: &Path) -> io::Result<()> {
    path.ancestors().skip(1).take(4).try_for_each(|dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const PIPELINE: &str = "[pipeline]\nname = \"p\"\nstate = \"state\"\n\n[sources.s]\nkind = \"files\"\n\
        paths = [\"in/*\"]\nformat = \"json-lines\"\non-bad-row = \"dead-letter\"\n\n[sinks.k]\n\
        plugin = \"builtin:files\"\n\n[sinks.k.dirs]\noutput = \"out\"\n\n[dead-letter]\n\
        plugin = \"builtin:files\"\n\n[dead-letter.dirs]\noutput = \"dead\"\n";

    #[test]
    fn what_was_begun_before_a_crash_is_done_again_to_the_same_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = config::parse(PIPELINE, Path::new("p.toml"), folder.path()).expect("valid");
        let plan = Plan::new(&file, None).expect("names are free");
        let store = Store::new(folder.path().join("replay"));
        let letters = folder.path().join("letters");
        fs::write(&letters, "{\"source\":\"s\",\"row\":\"1\"}\n{\"sink\":\"k\",\"row\":\"2\"}\n\noops\n")
            .expect("written");
        let counted = LetterCount { replayed: 2, kept: 1 };
        let look = || -> Vec<(String, Vec<u8>)> {
            ["s", "to-k", "kept-letters"]
                .into_iter()
                .flat_map(|source| store.files_of(&SourceId::new(source).expect("legal")).expect("can be listed"))
                .map(|path| (path.to_string_lossy().into_owned(), fs::read(&path).expect("can be read")))
                .collect()
        };
        assert_eq!(store.take(&letters, &plan, folder.path()).expect("taken"), counted);
        let first = look();
        assert_eq!(first.iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>()[..2], [2, 2], "{first:?}");
        assert_eq!(first.len(), 3);
        // Killed before the note, and while a file was written.
        fs::remove_file(store.dir.join("letters/letters.json")).expect("it was there");
        fs::remove_file(&first[1].0).expect("it was there");
        fs::write(store.rows_dir().join("to-k/.new-1-letters"), "2").expect("written");
        assert_eq!(store.take(&letters, &plan, folder.path()).expect("taken"), counted);
        assert_eq!(look(), first);
        // Done: not counted again, and not read again.
        assert_eq!(store.take(&letters, &plan, folder.path()).expect("known"), LetterCount::default());
        let pipeline = plan.pipeline(&store, "0").expect("names fit").expect("there are rows");
        assert_eq!(pipeline.pipeline.name.as_str(), "p-replay-0");
        let sources: Vec<_> = pipeline.sources.keys().map(SourceId::as_str).collect();
        assert_eq!(sources, ["kept-letters", "s", "to-k"]);
        let of_sink: Vec<_> = pipeline
            .sinks
            .iter()
            .map(|(id, sink)| (id.as_str(), sink.sources.iter().map(SourceId::as_str).collect::<Vec<_>>()))
            .collect();
        assert_eq!(of_sink, [("k", vec!["s", "to-k"]), ("kept-letters", vec!["kept-letters"])]);
    }
}
