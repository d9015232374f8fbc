//! Folders in which the checks run pipelines.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::flights::{split, write_lines};
use crate::multiset::Lines;
use crate::product::{PATIENCE, Process};

/// How a pipeline file is written.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Rows per second over all tasks.
    pub(crate) rate: Option<u64>,
    /// Checkpoint interval in milliseconds.
    pub(crate) interval_ms: u64,
    /// Source format.
    pub(crate) format: &'static str,
    /// Checkpoints kept.
    pub(crate) retain: u32,
    /// Tasks that read.
    pub(crate) tasks: u32,
    /// Subtasks of the sink.
    pub(crate) subtasks: u32,
    /// Further lines of the source's table.
    pub(crate) source: &'static str,
    /// Further lines of the sink's table, and tables below it.
    pub(crate) sink: &'static str,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rate: None,
            interval_ms: 50,
            format: "json-lines",
            retain: 10,
            tasks: 3,
            subtasks: 2,
            source: "",
            sink: "",
        }
    }
}

/// One pipeline with its input, state and output in one folder.
#[derive(Debug)]
pub(crate) struct Workshop {
    folder: PathBuf,
    /// Where plugins run, if not where the product runs them by itself.
    isolation: Option<String>,
}

impl Workshop {
    /// Makes an empty folder of that name, in place of an older one.
    pub(crate) fn new(parent: &Path, name: &str) -> Result<Self> {
        let folder = parent.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(folder.join("input"))?;
        std::fs::create_dir_all(folder.join("disk"))?;
        Ok(Self { folder: folder.canonicalize()?, isolation: None })
    }

    /// With plugins that run there: `shared` or `process`.
    pub(crate) fn isolated(mut self, isolation: &str) -> Self {
        self.isolation = Some(isolation.to_owned());
        self
    }

    /// Writes the input as `partitions` files of JSON lines.
    pub(crate) fn input(&self, lines: &[String], partitions: usize) -> Result<()> {
        for (part, lines) in split(lines, partitions).into_iter().enumerate() {
            write_lines(&self.folder.join(format!("input/flights-{part:02}.jsonl")), lines)?;
        }
        Ok(())
    }

    /// Writes the pipeline file: state and output both below `disk/`.
    pub(crate) fn plan(&self, plan: &Plan) -> Result<()> {
        let Plan { rate, interval_ms, format, retain, tasks, subtasks, source, sink } = plan;
        let mut text = format!(
            "[pipeline]\nname = \"flights\"\nstate = \"disk/state\"\n\n\
             [checkpoint]\ninterval = \"{interval_ms}ms\"\nretain-count = {retain}\n\n\
             [sources.flights]\nkind = \"files\"\npaths = [\"input/*.jsonl\"]\nformat = \"{format}\"\n\
             tasks = {tasks}\n{source}\n"
        );
        if let Some(rate) = rate {
            writeln!(text, "rate = {rate}")?;
        }
        write!(
            text,
            "\n[sinks.out]\nplugin = \"builtin:files\"\nsubtasks = {subtasks}\ndirs = {{ output = \"disk/out\" }}\n{sink}\n"
        )?;
        std::fs::write(self.file(), text)?;
        Ok(())
    }

    /// The pipeline file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("pipeline.toml")
    }

    /// Where the input lies.
    pub(crate) fn input_folder(&self) -> PathBuf {
        self.folder.join("input")
    }

    /// State and output, and nothing else.
    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// The input directory.
    pub(crate) fn inputs(&self) -> PathBuf {
        self.folder.join("input")
    }

    /// The output directory.
    pub(crate) fn output(&self) -> PathBuf {
        self.folder.join("disk/out")
    }

    /// Forgets state and output.
    pub(crate) fn clear(&self) -> Result<()> {
        std::fs::remove_dir_all(self.disk())?;
        std::fs::create_dir(self.disk())?;
        Ok(())
    }

    /// The command that runs the pipeline.
    pub(crate) fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command.arg("run").arg(self.file()).current_dir(&self.folder);
        if let Some(isolation) = &self.isolation {
            command.args(["--isolation", isolation]);
        }
        command
    }

    /// Runs the pipeline to its end, which must be a good one.
    pub(crate) fn finish(&self, binary: &Path) -> Result<()> {
        let (status, _, said) = Process::start(self.command(binary))?.finish(PATIENCE)?;
        ensure!(status.success(), "`tidegate run` ended with {status}; it said:\n{said}");
        Ok(())
    }

    /// The newest slot of the log; 0 when there is none yet.
    pub(crate) fn newest_slot(&self) -> Result<u64> {
        newest_slot(&self.folder.join("disk/state/log"))
    }

    /// The rows of the input.
    pub(crate) fn sent(&self) -> Result<Lines> {
        let mut lines = Lines::default();
        for entry in std::fs::read_dir(self.folder.join("input"))? {
            lines.add_all(std::fs::File::open(entry?.path())?)?;
        }
        Ok(lines)
    }

    /// Removes the folder.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(&self.folder).with_context(|| format!("cannot remove `{}`", self.folder.display()))
    }
}

/// The newest slot of a log: it rises with every record, whatever else is written or deleted. Read from the sectors
/// themselves, as `host/store/FORMAT.md` draws them.
fn newest_slot(log: &Path) -> Result<u64> {
    const SECTOR: usize = 512;
    const FRAME: std::ops::Range<usize> = 16..36;
    let mut newest = 0;
    let Ok(entries) = std::fs::read_dir(log) else { return Ok(0) };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "log") {
            continue;
        }
        // A segment may be removed while we look.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        for sector in bytes.chunks_exact(SECTOR) {
            let frame = &sector[FRAME];
            let (magic, kind) = (&frame[..4], frame[6]);
            if sector[4..8] == [0; 4] && magic == b"TGFR" && kind == 1 {
                let slot = frame[12..20].iter().rev().fold(0_u64, |slot, byte| slot << 8 | u64::from(*byte));
                newest = newest.max(slot);
            }
        }
    }
    Ok(newest)
}

/// Where checks put their folders that need about so many bytes: memory where there is enough, since what they judge is
/// not the speed of the disk.
pub(crate) fn folder_for(check: &str, bytes: u64) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let roomy = memory.is_dir() && free_bytes(memory).is_ok_and(|free| free / 2 > bytes);
    let parent = if roomy { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("tidegate-{check}-{}", std::process::id()))
}

/// A folder on a disk, below the target directory. A file system in memory is refused: flushing it costs nothing.
pub(crate) fn folder_on_disk(check: &str) -> Result<PathBuf> {
    let folder = crate::product::target_directory()?.join(format!("xtask/{check}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    ensure!(
        filesystem(&folder)?.f_type != libc::TMPFS_MAGIC,
        "`{}` is in memory, where a flush costs nothing: set CARGO_TARGET_DIR to a disk",
        folder.display()
    );
    Ok(folder)
}

/// Bytes free for us on the file system of a folder.
pub(crate) fn free_bytes(folder: &Path) -> Result<u64> {
    let found = filesystem(folder)?;
    Ok(found.f_bavail.saturating_mul(u64::try_from(found.f_bsize)?))
}

fn filesystem(folder: &Path) -> Result<libc::statfs> {
    let name = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes())?;
    // SAFETY: an all-zero `statfs` is a valid value: it holds only integers.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string that ends in NUL, and a live, writable `statfs`.
    let answer = unsafe { libc::statfs(name.as_ptr(), &mut found) };
    ensure!(answer == 0, "`{}`: {}", folder.display(), std::io::Error::last_os_error());
    Ok(found)
}
