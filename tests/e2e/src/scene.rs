//! A folder with a pipeline file, its input, its state and its output.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::binary::tidegate;
use crate::process::{Ended, Running};

/// One folder for one test. Removed at the end.
#[derive(Debug)]
pub struct Scene {
    folder: TempDir,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// An empty folder with an empty `in`.
    ///
    /// # Panics
    /// No temporary folder can be made.
    pub fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("tidegate-e2e-").tempdir().expect("a temporary folder can be made");
        std::fs::create_dir(folder.path().join("in")).expect("a folder can be made");
        Self { folder }
    }

    /// A scene with rows in three partitions and the plain pipeline over them, with these lines added to the source.
    pub fn plain(rows: usize, source: &str) -> Self {
        let scene = Self::new();
        for part in 0..3 {
            let first = rows * part / 3;
            let last = rows * (part + 1) / 3;
            scene.write(&format!("in/{part}.jsonl"), lines(&numbered(first..last)));
        }
        scene.pipeline(source, "");
        scene
    }

    /// The same, read so slowly that it takes three seconds: enough epochs to be killed in, whatever the machine does.
    /// [`Scene::finish`] takes the brake off.
    pub fn slow(rows: usize) -> Self {
        Self::plain(rows, &format!("rate = {}", rows / 3))
    }

    /// Takes the brake off, if there is one, and runs to a good end.
    ///
    /// # Panics
    /// The end is not a good one.
    #[track_caller]
    pub fn finish(&self) -> Ended {
        let text = std::fs::read_to_string(self.path("pipeline.toml")).expect("the pipeline file is there");
        let lines = text.lines().filter(|line| !line.starts_with("rate = "));
        self.write("pipeline.toml", lines.map(|line| format!("{line}\n")).collect::<String>());
        self.run(&[]).expect(0)
    }

    /// Writes the plain pipeline file with lines added to its source, and tables added at its end.
    pub fn pipeline(&self, source: &str, more: &str) {
        self.write(
            "pipeline.toml",
            format!(
                "[pipeline]\nname = \"flights\"\nstate = \"state\"\n\n[checkpoint]\ninterval = \"20ms\"\n\n\
                 [sources.flights]\nkind = \"files\"\npaths = [\"in/*\"]\nformat = \"json-lines\"\n{source}\n\n\
                 [sinks.out]\nplugin = \"builtin:files\"\nsubtasks = 2\n\n[sinks.out.dirs]\noutput = \"out\"\n\n{more}\n"
            ),
        );
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    ///
    /// # Panics
    /// It cannot be written.
    #[track_caller]
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap_or_else(|error| panic!("cannot write `{name}`: {error}"));
    }

    /// Replaces words of the pipeline file, each of which must be there.
    ///
    /// # Panics
    /// A word is missing.
    #[track_caller]
    pub fn edit(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path("pipeline.toml")).expect("the pipeline file is there");
        assert!(text.contains(from), "`{from}` is not in the pipeline file:\n{text}");
        self.write("pipeline.toml", text.replace(from, to));
    }

    /// A command of the binary, with its arguments, in the folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(tidegate());
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    /// Runs the binary with these arguments to the end.
    #[track_caller]
    pub fn tidegate(&self, arguments: &[&str]) -> Ended {
        Running::start(self.command(arguments)).end()
    }

    /// `tidegate run pipeline.toml` with more arguments, to the end.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.tidegate(&[&["run", "pipeline.toml"], arguments].concat())
    }

    /// The same, still running.
    #[track_caller]
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(&[&["run", "pipeline.toml"], arguments].concat()))
    }

    /// Runs until the n-th time a moment is reached, and kills the process there.
    #[track_caller]
    pub fn killed_at(&self, moment: &str, arguments: &[&str]) {
        let name = moment.split(':').next().unwrap_or(moment);
        let mut running = self.start(&[&["--hold-at", moment], arguments].concat());
        running.hear(&format!("held {name}"));
        running.kill();
    }

    /// All rows that a plain listing of an output directory shows, sorted.
    ///
    /// # Panics
    /// A file cannot be read, or does not end with a newline.
    #[track_caller]
    pub fn rows(&self, output: &str) -> Vec<String> {
        let mut rows = Vec::new();
        for path in self.published(output) {
            let text = std::fs::read_to_string(&path).expect("a published file can be read");
            assert!(text.ends_with('\n'), "`{}` is not whole", path.display());
            rows.extend(text.lines().map(str::to_owned));
        }
        rows.sort();
        rows
    }

    /// The files that a plain listing of an output directory shows.
    ///
    /// # Panics
    /// The directory cannot be read.
    #[track_caller]
    pub fn published(&self, output: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path(output)) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry can be read").path()).collect();
        paths.retain(|path| !path.file_name().unwrap_or_default().to_string_lossy().starts_with(['_', '.']));
        paths.sort();
        paths
    }

    /// Checks that every row is there once.
    ///
    /// # Panics
    /// One is missing or there twice.
    #[track_caller]
    pub fn expect_rows(&self, output: &str, expected: &[String]) {
        let (rows, expected) = (self.rows(output), sorted(expected));
        assert!(!expected.is_empty(), "nothing is compared");
        if rows != expected {
            let lost = expected.iter().filter(|row| !rows.contains(row)).count();
            panic!("{} rows of {} in `{output}`, {lost} lost", rows.len(), expected.len());
        }
    }

    /// Copies a folder, with everything in it, to another name. Nothing may be there yet.
    ///
    /// # Panics
    /// It cannot be copied.
    #[track_caller]
    pub fn copy(&self, from: &str, to: &str) {
        let status = Command::new("cp").arg("-a").arg(self.path(from)).arg(self.path(to)).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot copy `{from}` to `{to}`");
    }

    /// Removes a folder.
    ///
    /// # Panics
    /// It cannot be removed.
    #[track_caller]
    pub fn remove(&self, name: &str) {
        std::fs::remove_dir_all(self.path(name)).unwrap_or_else(|error| panic!("cannot remove `{name}`: {error}"));
    }

    /// Removes a folder, if there is one.
    pub fn remove_if_there(&self, name: &str) {
        if self.path(name).exists() {
            self.remove(name);
        }
    }

    /// Every file below a folder.
    ///
    /// # Panics
    /// A folder cannot be read.
    #[track_caller]
    pub fn files(&self, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.path(name), &mut found);
        found.sort();
        found
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry can be read").path();
        // A run that was killed leaves its socket's name.
        let socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
        if path.is_dir() && !path.is_symlink() {
            walk(&path, found);
        } else if !socket {
            found.push(path);
        }
    }
}

/// Rows with a number each, as JSON.
pub fn numbered(numbers: std::ops::Range<usize>) -> Vec<String> {
    let carriers = ["UA", "B6", "AA", "DL"];
    numbers.map(|n| format!(r#"{{"n":{n},"carrier":"{}","note":"row number {n}"}}"#, carriers[n % 4])).collect()
}

/// The rows as the text of a file.
pub fn lines(rows: &[String]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

/// The rows, sorted.
pub fn sorted(rows: &[String]) -> Vec<String> {
    let mut rows = rows.to_vec();
    rows.sort();
    rows
}
