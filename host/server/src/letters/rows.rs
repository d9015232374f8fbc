//! The rows taken out of letters, in files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tidegate_protocol::ids::SourceId;

use super::ids::{Ids, IdsError, Key, key};
use super::plan::{Plan, Target};
use super::unwrap::Letter;
use super::{Found, failed, header, origins, place_of};
use crate::config::{CsvSection, Format};
use crate::error::{Refused, ServerError};

/// Longest letter that is read, in bytes.
const LONGEST_LETTER: u64 = 256 << 20;
/// Files that are written at the same time: one per source, and per different header of CSV files.
const MOST_FILES: usize = 256;
/// A file of rows that is longer is followed by another one, so that several tasks have something to read.
const LONG_FILE: u64 = 64 << 20;
/// Headers of CSV files that are remembered.
const MOST_HEADERS: usize = 1024;
/// Letters that cannot be sent again and are named, of all that are counted.
const MOST_NAMED: usize = 10;

/// The replay's directory.
pub(super) struct Store {
    dir: PathBuf,
}

impl Store {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where the takes are: `<number>/rows/<source>/<file>`.
    pub(super) fn takes_dir(&self) -> PathBuf {
        self.dir.join("takes")
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
        let mut files = Vec::new();
        for take in self.takes()? {
            files.extend(listed(&self.takes_dir().join(take).join("rows").join(source.as_str()))?);
        }
        Ok(files)
    }

    /// The names of the takes, oldest first.
    fn takes(&self) -> Result<Vec<String>, ServerError> {
        let names = listed(&self.takes_dir())?.into_iter();
        Ok(names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    /// Takes the rows out of all letters in these files of a directory that no replay took before.
    ///
    /// What is taken becomes a *take*: its rows, and the ids of all letters ever taken, in one directory that gets its
    /// name at once. Killed before, nothing was taken; killed after, everything was.
    pub(super) fn take(&self, files: &[PathBuf], from: &Path, plan: &Plan<'_>) -> Result<Found, ServerError> {
        if files.is_empty() {
            return Ok(Found::default());
        }
        fs::create_dir_all(&self.dir).map_err(|error| failed(&self.dir, "made", &error))?;
        let _alone = self.alone()?;
        let takes = self.takes()?;
        let before = takes.last().map(|take| self.takes_dir().join(take).join("ids"));
        let number: u64 = match takes.last() {
            Some(take) => {
                let foreign = |_| damaged(&self.takes_dir().join(take), "is no take of letters: expected a number");
                take.parse().map_err(foreign)?
            }
            None => 0,
        };
        let unfinished = self.dir.join("unfinished");
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&unfinished, "removed", &error));
            }
            _ => {}
        }
        fs::create_dir(&unfinished).map_err(|error| failed(&unfinished, "made", &error))?;
        let mut taking = Taking {
            plan,
            dir: unfinished.clone(),
            place: place_of(plan.base(), from),
            ids: Ids::open(before.as_deref(), &unfinished).map_err(ids_error)?,
            files: BTreeMap::new(),
            written: 0,
            headers: BTreeMap::new(),
            found: Found::default(),
        };
        files.iter().try_for_each(|file| taking.file(file))?;
        let found = std::mem::take(&mut taking.found);
        if found.count.replayed > 0 {
            taking.close()?;
            taking.ids.finish(&unfinished.join("ids")).map_err(ids_error)?;
            self.publish(&unfinished, number + 1).map_err(|error| failed(&self.takes_dir(), "written", &error))?;
            // The newest ones are all of them.
            before.into_iter().for_each(|ids| drop(fs::remove_file(ids)));
        } else {
            fs::remove_dir_all(&unfinished).map_err(|error| failed(&unfinished, "removed", &error))?;
        }
        Ok(found)
    }

    /// One process takes at a time; another one waits.
    fn alone(&self) -> Result<File, ServerError> {
        let path = self.dir.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|error| failed(&path, "opened", &error))?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(lock),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(&path, "locked", &error.into())),
            }
        }
    }

    /// Gives a take its name, and makes all names durable, up to that beside the state.
    fn publish(&self, unfinished: &Path, number: u64) -> io::Result<()> {
        let sync = |dir: &Path| File::open(dir)?.sync_all();
        for kind in ["rows", "origins"] {
            for source in fs::read_dir(unfinished.join(kind))? {
                sync(&source?.path())?;
            }
            sync(&unfinished.join(kind))?;
        }
        sync(unfinished)?;
        fs::create_dir_all(self.takes_dir())?;
        let take = self.takes_dir().join(format!("{number:08}"));
        // Until here nothing was taken.
        fs::rename(unfinished, &take)?;
        take.ancestors().skip(1).take(3).try_for_each(sync)
    }
}

/// What lies in a directory and is not hidden, in the order of names; nothing if there is no such directory.
fn listed(dir: &Path) -> Result<Vec<PathBuf>, ServerError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(dir, "read", &error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(dir, "read", &error))?.path();
        if !path.file_name().unwrap_or_default().as_encoded_bytes().starts_with(b".") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn ids_error(error: IdsError) -> ServerError {
    match error {
        IdsError::Io(path, error) => failed(&path, "used", &error),
        IdsError::Damaged(path, why) => damaged(&path, &why),
    }
}

fn damaged(path: &Path, why: &str) -> ServerError {
    ServerError::refused(
        format!("{} {why}; so it is not known which letters were sent before", path.display()),
        vec!["restore the replay's directory from a copy".to_owned()],
    )
}

fn changed(file: &Path) -> ServerError {
    ServerError::Edits(vec![Refused {
        problem: format!(
            "{} was changed after its letters were sent again, and has letters without an `id`; read once more, rows \
             of it would be there twice",
            file.display()
        ),
        hints: vec!["set it back, and put letters that are to be sent in a file of another name".to_owned()],
    }])
}

/// A take on its way.
struct Taking<'a> {
    plan: &'a Plan<'a>,
    dir: PathBuf,
    /// Names the directory of the letters, for those without an id.
    place: Vec<u8>,
    ids: Ids,
    /// By source and header, the files that are written.
    files: BTreeMap<(SourceId, Vec<u8>), RowFile>,
    /// Files begun so far.
    written: u64,
    /// Headers by the file that they stand in.
    headers: BTreeMap<String, Result<Vec<u8>, String>>,
    found: Found,
}

struct RowFile {
    path: PathBuf,
    out: BufWriter<File>,
    bytes: u64,
    /// The line on which the next row begins.
    line: u64,
    /// Which letter each row was in.
    origins_path: PathBuf,
    origins: BufWriter<File>,
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Letters without an id in a file: known by the file's name, their place among them, and what they say.
struct Unnamed<'a> {
    file: &'a [u8],
    /// Letters of it were taken before: they must be the same ones still.
    known: bool,
    count: u64,
}

impl Taking<'_> {
    /// Reads all letters in a file.
    fn file(&mut self, letters: &Path) -> Result<(), ServerError> {
        let io = |error: io::Error| failed(letters, "read", &error);
        let mut input = BufReader::new(File::open(letters).map_err(io)?);
        let compressed = matches!(input.fill_buf().map_err(io)?, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..]);
        if compressed {
            return Err(ServerError::Request {
                problem: format!("{} is compressed", letters.display()),
                hints: vec!["decompress the letters into a directory, and give --from DIR".to_owned()],
            });
        }
        let name = letters.file_name().unwrap_or_default().as_encoded_bytes();
        let marker = key("file", &[&self.place, name]);
        let mut unnamed = Unnamed { file: name, known: self.is_known(&marker)?, count: 0 };
        let mut line = Vec::new();
        for number in 1u64.. {
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
            let letter = line.trim_ascii();
            if !letter.is_empty() {
                self.letter(letter, letters, number, &mut unnamed)?;
            }
        }
        if unnamed.count > 0 {
            self.remember(marker)?;
        }
        Ok(())
    }

    fn is_known(&self, key: &Key) -> Result<bool, ServerError> {
        self.ids.contains(key).map_err(ids_error)
    }

    fn remember(&mut self, key: Key) -> Result<(), ServerError> {
        self.ids.insert(key).map_err(ids_error)
    }

    fn letter(&mut self, line: &[u8], file: &Path, number: u64, unnamed: &mut Unnamed<'_>) -> Result<(), ServerError> {
        let letter = Letter::read(line);
        let id = letter.as_ref().ok().and_then(|letter| letter.id.as_deref()).filter(|id| !id.is_empty());
        // A letter without an id whose row could not be sent yet is known by the second key.
        let (key, seen) = match id {
            Some(id) => (key("id", &[id.as_bytes()]), None),
            None => {
                unnamed.count += 1;
                let parts = [&self.place, unnamed.file, &unnamed.count.to_be_bytes(), line];
                (key("line", &parts), Some(key("seen", &parts)))
            }
        };
        if self.is_known(&key)? {
            self.found.count.sent_before += 1;
            return Ok(());
        }
        if let (Some(seen), true) = (&seen, unnamed.known)
            && !self.is_known(seen)?
        {
            return Err(changed(file));
        }
        match letter.and_then(|letter| Ok((self.unwrapped(&letter)?, letter))) {
            Ok(((target, header, row), letter)) => {
                self.found.count.replayed += 1;
                self.write(target.source, header, &row, &letter)?;
                self.remember(key)
            }
            Err(why) => {
                self.found.count.kept += 1;
                if self.found.kept.len() < MOST_NAMED {
                    self.found.kept.push(format!("{}, line {number}: {why}", file.display()));
                }
                seen.map_or(Ok(()), |seen| self.remember(seen))
            }
        }
    }

    /// Where a letter's row goes, the header that it needs, and the row with its line end.
    fn unwrapped(&mut self, letter: &Letter) -> Result<(Target, Vec<u8>, Vec<u8>), String> {
        let target = self.plan.target(letter)?;
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
                if csv.header { self.header(letter, csv)? } else { Vec::new() }
            }
            _ => Vec::new(),
        };
        Ok((target, header, row))
    }

    fn header(&mut self, letter: &Letter, csv: &CsvSection) -> Result<Vec<u8>, String> {
        // Letters of a row that failed again in a replay name a file of ours, which has the header, too.
        let Some(file) = letter.replay_file.as_ref().or(letter.file.as_ref()) else {
            return Err("the letter does not name the `file` whose header tells the columns".to_owned());
        };
        if let Some(known) = self.headers.get(file) {
            return known.clone();
        }
        let ours = self.plan.takes_dir().join(file);
        let path = if ours.is_file() { ours } else { self.plan.base().join(file) };
        let header = header::of_file(&path, csv);
        if self.headers.len() >= MOST_HEADERS {
            self.headers.clear();
        }
        self.headers.insert(file.clone(), header.clone());
        header
    }

    fn write(&mut self, source: SourceId, header: Vec<u8>, row: &[u8], letter: &Letter) -> Result<(), ServerError> {
        let key = (source, header);
        if self.files.get(&key).is_some_and(|file| file.bytes >= LONG_FILE)
            && let Some(full) = self.files.remove(&key)
        {
            full.close()?;
        }
        if !self.files.contains_key(&key) {
            if self.files.len() >= MOST_FILES {
                self.close()?;
            }
            self.files.insert(key.clone(), self.begin(&key.0, &key.1)?);
            self.written += 1;
        }
        let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
        file.bytes += row.len() as u64;
        file.out.write_all(row).map_err(|error| failed(&file.path, "written", &error))?;
        origins::write(&mut file.origins, file.line, letter)
            .map_err(|error| failed(&file.origins_path, "written", &error))?;
        file.line += lines(row);
        Ok(())
    }

    fn begin(&self, source: &SourceId, header: &[u8]) -> Result<RowFile, ServerError> {
        let begin = |kind: &str, start: &[u8]| {
            let dir = self.dir.join(kind).join(source.as_str());
            fs::create_dir_all(&dir).map_err(|error| failed(&dir, "made", &error))?;
            let path = dir.join(format!("{:08}", self.written));
            let begun = File::create(&path).and_then(|file| {
                let mut out = BufWriter::new(file);
                out.write_all(start)?;
                Ok(out)
            });
            let out = begun.map_err(|error| failed(&path, "written", &error))?;
            Ok::<_, ServerError>((path, out))
        };
        let (path, out) = begin("rows", header)?;
        let (origins_path, origins) = begin("origins", b"")?;
        Ok(RowFile { path, out, bytes: 0, line: 1 + lines(header), origins_path, origins })
    }

    /// Ends all files that are written, durably.
    fn close(&mut self) -> Result<(), ServerError> {
        std::mem::take(&mut self.files).into_values().try_for_each(RowFile::close)
    }
}

impl RowFile {
    fn close(self) -> Result<(), ServerError> {
        let close = |path: &Path, out: BufWriter<File>| {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error);
            file.and_then(|file| file.sync_all()).map_err(|error| failed(path, "written", &error))
        };
        close(&self.origins_path, self.origins)?;
        close(&self.path, self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const PIPELINE: &str = "[pipeline]\nname = \"p\"\nstate = \"state\"\n\n[sources.s]\nkind = \"files\"\n\
        paths = [\"in/*\"]\nformat = \"json-lines\"\non-bad-row = \"dead-letter\"\n\n[sinks.k]\n\
        plugin = \"builtin:files\"\n\n[sinks.k.dirs]\noutput = \"out\"\n\n[dead-letter]\n\
        plugin = \"builtin:files\"\n\n[dead-letter.dirs]\noutput = \"dead\"\n";

    /// A pipeline, the replay's store, and a directory with letters in it.
    struct Desk {
        folder: tempfile::TempDir,
        file: config::PipelineFile,
        store: Store,
    }

    impl Desk {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let file = config::parse(PIPELINE, Path::new("p.toml"), folder.path()).expect("valid");
            let store = Store::new(folder.path().join("replay"));
            Self { folder, file, store }
        }

        fn write(&self, name: &str, letters: &str) {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder");
            fs::write(path, letters).expect("written");
        }

        /// Counts of what was sent, left where it is, and sent before.
        fn take(&self, dir: &str) -> Result<(u64, u64, u64), ServerError> {
            let dir = self.folder.path().join(dir);
            let plan = Plan::new(&self.file, None, self.store.takes_dir()).expect("names are free");
            let count = self.store.take(&listed(&dir).expect("it is there"), &dir, &plan)?.count;
            Ok((count.replayed, count.kept, count.sent_before))
        }

        fn rows(&self) -> String {
            let files =
                ["s", "to-k"].map(|id| self.store.files_of(&SourceId::new(id).expect("legal")).expect("listed"));
            files.into_iter().flatten().map(|path| fs::read_to_string(path).expect("readable")).collect()
        }
    }

    #[test]
    fn an_id_is_sent_once_whatever_file_directory_link_or_mended_row_it_comes_with() {
        let desk = Desk::new();
        let letter = |n: u32, row: &str| format!("{{\"id\":\"i{n}\",\"source\":\"s\",\"row\":\"{row}\"}}\n");
        desk.write("dl/a", &(letter(1, "1") + &letter(2, "2")));
        desk.write("dl/copy", &letter(2, "2"));
        assert_eq!(desk.take("dl").expect("taken"), (2, 0, 1));
        assert_eq!(desk.take("dl").expect("known"), (0, 0, 3));
        // Another directory, a mended row, and a file that has grown.
        desk.write("m/a", &(letter(1, "one") + &letter(2, "2") + &letter(3, "3")));
        assert_eq!(desk.take("m").expect("taken"), (1, 0, 2));
        std::os::unix::fs::symlink(desk.folder.path().join("m"), desk.folder.path().join("link")).expect("a link");
        assert_eq!(desk.take("link").expect("known"), (0, 0, 3));
        desk.write("m/a", &letter(4, "4"));
        assert_eq!(desk.take("m").expect("taken"), (1, 0, 0));
        assert_eq!(desk.rows(), "1\n2\n3\n4\n");
        assert_eq!(desk.store.takes().expect("listed").len(), 3, "nothing new makes no take");
    }

    #[test]
    fn a_letter_whose_row_cannot_be_sent_stays_and_is_sent_when_it_can_be() {
        let desk = Desk::new();
        desk.write("m/a", "{\"id\":\"i\",\"source\":\"gone\",\"row\":\"1\"}\noops\n{\"sink\":\"k\",\"row\":\"2\"}\n");
        assert_eq!(desk.take("m").expect("taken"), (1, 2, 0));
        assert_eq!(desk.take("m").expect("known"), (0, 2, 1));
        desk.write("m/a", "{\"id\":\"i\",\"source\":\"s\",\"row\":\"1\"}\noops\n{\"sink\":\"k\",\"row\":\"2\"}\n");
        assert_eq!(desk.take("m").expect("taken"), (1, 1, 1));
        assert_eq!(desk.rows(), "1\n2\n");
    }

    #[test]
    fn files_of_letters_without_ids_are_read_once_and_not_changed_afterwards() {
        let desk = Desk::new();
        let (one, two) = ("{\"source\":\"s\",\"row\":\"1\"}\n", "{\"source\":\"s\",\"row\":\"2\"}\n");
        desk.write("m/a", &[one, one].concat());
        assert_eq!(desk.take("m").expect("taken"), (2, 0, 0));
        assert_eq!(desk.take("m").expect("known"), (0, 0, 2));
        desk.write("m/b", two);
        assert_eq!(desk.take("m").expect("another file"), (1, 0, 2));
        for changed in [[one, two].concat(), [two, one, one].concat(), [one, one, two].concat()] {
            desk.write("m/a", &changed);
            assert!(desk.take("m").is_err_and(|error| error.to_string().contains("was changed")), "{changed}");
        }
        // What has an id may be put beside them.
        desk.write("m/a", &format!("{{\"id\":\"i\",\"source\":\"s\",\"row\":\"3\"}}\n{one}{one}"));
        assert_eq!(desk.take("m").expect("taken"), (1, 0, 3));
    }

    #[test]
    fn a_take_is_there_as_a_whole_or_not_at_all() {
        let desk = Desk::new();
        let letters = "{\"id\":\"1\",\"source\":\"s\",\"row\":\"1\"}\n{\"sink\":\"k\",\"row\":\"2\"}\n";
        desk.write("m/a", letters);
        // Killed while it was written.
        desk.write("replay/unfinished/rows/s/00000000", "half");
        desk.write("replay/unfinished/ids", "half");
        assert_eq!(desk.take("m").expect("taken"), (2, 0, 0));
        let take = desk.folder.path().join("replay/takes/00000001");
        // Killed right before it got its name, and so taken again.
        fs::rename(&take, desk.folder.path().join("replay/unfinished")).expect("it was there");
        assert_eq!(desk.take("m").expect("taken"), (2, 0, 0));
        assert_eq!(desk.rows(), "1\n2\n");
        // Without its ids it is not known what was sent: nothing is.
        fs::remove_file(take.join("ids")).expect("it was there");
        assert!(desk.take("m").is_err_and(|error| error.to_string().contains("not known which letters")));
    }

    #[test]
    fn rows_of_very_many_headers_need_few_files_at_a_time() {
        let desk = Desk::new();
        let mut file = desk.file.clone();
        let text = PIPELINE.replace("\"json-lines\"", "\"csv\"");
        file.sources = config::parse(&text, Path::new("p.toml"), desk.folder.path()).expect("valid").sources;
        let desk = Desk { file, ..desk };
        let mut letters = String::new();
        for n in 0..MOST_FILES + 50 {
            desk.write(&format!("in/{n}"), &format!("c{n}\n1\n"));
            letters += &format!("{{\"id\":\"{n}\",\"source\":\"s\",\"file\":\"in/{n}\",\"row\":\"{n}\"}}\n");
        }
        desk.write("m/a", &letters);
        assert_eq!(desk.take("m").expect("taken").0, (MOST_FILES + 50) as u64);
        assert!(desk.rows().contains("c300\n300\n"));
    }
}
