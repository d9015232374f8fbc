//! Files that grow, and files that appear: read as they come, without an end.
//!
//! - **Looking.** Every now and then one task looks at the directories that the patterns name, for all of them: names,
//!   inodes and sizes. This works on any file system, and takes at most half of the time and a sixth of a processor. In
//!   between it glances at the files that grew lately (`glance.rs`). A new file goes to the task with the least left to
//!   read, or to the one that read what was under its name before.
//! - **A row is whole** when its newline is there (in CSV: the one outside of quotes). A torn last line waits, over
//!   barriers and restarts, and is never handed out in parts. A file with no newline at its end is not at its end.
//! - **A file is the same file** by inode and time of creation, and if what was read of it is still at its beginning
//!   (the first 4 KiB and the 1 KiB before the position). Its partition is called like the file when it was found first,
//!   with a number where that name is taken: `app.log`, `app.log#2`. Inodes that another disk numbers anew do no harm:
//!   then the content alone tells, as it does after `rsync`, which writes files anew.
//! - **Renamed and created anew**, as rotation does: the old file is read to its end, under whatever name it has in its
//!   directory now, or without any while it is open; then the new one. Several rotations between two looks: files that
//!   came and went in between are known by their names (the log's, with a number or a date), and by having been written
//!   after the last one that was known to be rotated at the look before. A file that was rotated away between being found
//!   and being read is one of them. A listing may miss what is renamed while it is made: directories are listed until two
//!   listings are the same, and if they never are, nothing is concluded for forty looks. A pattern may match rotated names
//!   too; nothing is read twice. What was rotated to a name that no pattern matches before the first checkpoint knew of the
//!   log is not read.
//! - **Copied and truncated**: a file that became shorter, or begins otherwise, is read from its start; before that the
//!   copy is read from where the original was left, if one is found in its directory, under whatever name it has by then.
//!   If not, a warning tells from which line on rows may be lost. What is written between copying and truncating is lost
//!   with any reader, but for what was read of it; then the copy is shorter than what was read, and is known by its
//!   beginning, of at least 32 bytes. That a file was truncated is seen at looks, and behind every block that is read.
//! - **Truncated before it was read**: there is no content to know the copy by. A file named like a rotated one, not smaller
//!   than what was seen, and neither created before the log nor changed before the log was changed last, as far as looks and
//!   the checkpoint know, is the copy, and so are those that came after it.
//! - **Cut short**: where no copy is found, and the file begins with rows that were read (more than a header), these are not
//!   read again. What is behind them is read if it cannot be rows that were read before: the file has nothing else, or
//!   differs from them within its first 4 KiB. Where that cannot be known, it is an error, as lost rows are. After a restart,
//!   and of files that were not read for long, the first bytes are known in powers of two only.
//! - **A copy is held back**: a file of which nothing was read, that holds nothing but the beginning of another one, and is
//!   named as if made from it. When the original is truncated or goes, the copy takes its place; when the copy becomes
//!   something else, it is a file of its own. A task that reads a file when a look finds that it is not what it was has
//!   its loan called back: what it was about to hand out counts not.
//! - **Rows written to a copy that lacks rows which were read** cannot be told from what was copied: of what was read, only
//!   its first bytes and the last ones before the position are known. Where these show it, the rows are lost, as below; the
//!   copy goes on behind its end. Where the copy is shorter than what was read, and its first 2 KiB are what they were,
//!   nobody can know.
//! - **Rows that cannot be found any more are an error** where that is certain (bytes behind the position were seen, and
//!   are nowhere), or where it happened while nobody looked: a file that is gone before its end, that was truncated without
//!   a copy, or whose name another file has taken. `on-lost-rows = "warn"` goes on instead. Never is another position taken
//!   for it. What was read to its end, as far as was seen, and then truncated while running, or deleted, is told.
//! - **Deleted** files that were read to their end are fine. While one is open it is read on for ten looks more.
//! - **Content is the identity of a copy**: rows that are the same as those before, as beats without a time are, make a
//!   file that was truncated and written anew look like its own continuation.
//! - **Nobody can know** what became of rows of which no checkpoint and no look knew: a file of which nothing was read,
//!   and which was truncated and grew again.
//! - **Positions are forgotten** of files that were deleted, at once; of files that are out of reach otherwise, all but
//!   the newest thousand; of files rotated to names that no pattern matches, all but the newest 64. One that comes back
//!   after that is a new file.
//! - **Links**: a file is what the disk says (device and inode of the target), and is read once, whatever its names. One
//!   that is no link counts, or else the one that is known; another takes its place when it goes. A link that leads
//!   elsewhere is a rotation.
//! - **What cannot be opened** is told and tried again, at first at the next look, then more and more seldom; nothing
//!   is concluded from it. So with a copy that cannot be opened: what is read behind it waits, and so does all of its
//!   log that is new. A directory that cannot be listed is an error at the start. So are files that are compressed,
//!   then and later: of those there is no telling how far they are written.
//! - **Holes**: a file that grows by a hole has zero bytes there, which belong to the line they are in, as any others. A
//!   program that goes on writing far behind the start of a file that was truncated leaves such a hole at its beginning;
//!   have it open its file for appending.

mod copies;
mod generation;
mod glance;
mod look;
mod moments;
mod names;
mod recognise;
mod registry;
mod strangers;
mod tail;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_protocol::plugin::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::glance::Chosen;
use self::look::Look;
pub use self::moments::{Moment, Moments};
use self::registry::Registry;
use self::tail::{Refusal, Stepped, Tail};
use super::gather::Gather;
use super::partition::Settings;
use super::position::Position;
use crate::source::rate::RateLimiter;
use crate::source::{Read, Reader, SourceBatch, SourceError};

/// How long a reader waits before it answers that there is nothing.
const PATIENCE: Duration = Duration::from_millis(50);
/// Between two looks at least so many times the processor's time passes that the first one took.
const SHARE: u32 = 5;
/// Time between two glances at the files that grew lately, at least.
const GLANCE: Duration = Duration::from_millis(20);
/// Bytes read of one file before another one has its turn.
const TURN: u64 = 16 << 20;

/// How files are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowOptions {
    /// Time between two looks at the directories, at least. Zero: a look for every call of [`Reader::next`].
    pub poll: Duration,
    /// What to do if rows cannot be found any more.
    pub on_lost_rows: OnLostRows,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { poll: Duration::from_millis(250), on_lost_rows: OnLostRows::Stop }
    }
}

/// What to do if rows that were not read cannot be found any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLostRows {
    /// It is an error.
    Stop,
    /// It is told, and reading goes on with what there is.
    Warn,
}

fn compressed(name: &str) -> SourceError {
    let expected = format!(
        "`{name}` is compressed, and compressed files cannot be followed: how far they are written cannot be told. Make \
         the patterns of `paths` match only files that are not compressed, or read it with a source of its own"
    );
    SourceError::Configuration { key: "follow", expected }
}

/// Which files, and how to read them.
pub(super) struct Files {
    /// Absolute.
    pub(super) base: PathBuf,
    pub(super) paths: Vec<String>,
    pub(super) settings: Settings,
    pub(super) options: FollowOptions,
    /// Whose rows may share a batch.
    pub(super) per_batch: usize,
    pub(super) moments: Moments,
}

/// What the readers of a source share.
struct Shared {
    files: Files,
    registry: Mutex<Registry>,
    looks: Mutex<Looks>,
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is the caller's turn to look now. Who is told so has to.
    fn claim(&self) -> Option<Turn> {
        let glances = self.glances();
        let mut looks = self.looks();
        if looks.under_way {
            return None;
        }
        let now = Instant::now();
        let turn = match looks.next(self.files.options.poll) <= now {
            true => Turn::Look,
            false if glances && looks.glance.is_none_or(|glance| glance <= now) => Turn::Glance,
            false => return None,
        };
        looks.under_way = true;
        Some(turn)
    }

    fn take(&self, turn: Turn) -> Result<(), SourceError> {
        match turn {
            Turn::Look => self.look(),
            Turn::Glance => {
                self.glance();
                Ok(())
            }
        }
    }

    fn look(&self) -> Result<(), SourceError> {
        let (start, cpu) = (Instant::now(), processor_time());
        let looked = look_at(&self.files).and_then(|look| self.registry().work_in(look, false));
        let cost = start.elapsed().max(processor_time().saturating_sub(cpu).saturating_mul(SHARE));
        let pause = match self.files.options.poll {
            Duration::ZERO => Duration::ZERO,
            poll => poll.max(cost),
        };
        let mut looks = self.looks();
        (looks.next, looks.under_way) = (Some(Instant::now() + pause), false);
        looked
    }

    /// Whether there is something to glance at, and time for it between two looks.
    fn glances(&self) -> bool {
        self.files.options.poll > GLANCE && self.registry().is_warm()
    }

    fn glance(&self) {
        let start = Instant::now();
        let chosen = self.registry().choose(start);
        let seen = chosen.into_iter().filter_map(Chosen::seen).collect();
        self.registry().grow(seen);
        let pause = GLANCE.max(start.elapsed().saturating_mul(SHARE));
        let mut looks = self.looks();
        (looks.glance, looks.under_way) = (Some(Instant::now() + pause), false);
    }

    /// When there will be something to do, if nothing comes.
    fn next_turn(&self) -> Instant {
        let glances = self.glances();
        let mut looks = self.looks();
        let look = looks.next(self.files.options.poll);
        match looks.under_way {
            // Another task's; what it finds is not known before it is done.
            true => Instant::now() + GLANCE,
            false if glances => look.min(looks.glance.unwrap_or(look)),
            false => look,
        }
    }
}

/// What a task does besides reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// At the directories.
    Look,
    /// At the files that grew lately.
    Glance,
}

/// When to look next.
#[derive(Default)]
struct Looks {
    next: Option<Instant>,
    glance: Option<Instant>,
    under_way: bool,
}

impl Looks {
    /// Counted from the first call on: the first look of all was taken shortly before.
    fn next(&mut self, poll: Duration) -> Instant {
        *self.next.get_or_insert_with(|| Instant::now() + poll)
    }
}

/// Of this thread: time in which others had the processor does not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

fn look_at(files: &Files) -> Result<Look, SourceError> {
    let look = Look::take(&files.base, &files.paths)?;
    files.moments.tell(Moment::Listed);
    Ok(look)
}

/// Finds what there is, and makes a reader for each task. Blocking.
///
/// # Errors
/// Something cannot be read, or rows are lost.
pub(super) fn open(
    files: Files,
    restored: Vec<(String, Position)>,
    tasks: usize,
    limiter: Option<Arc<RateLimiter>>,
) -> Result<Vec<Box<dyn Reader>>, SourceError> {
    let look = look_at(&files)?;
    if look.files.is_empty() {
        tracing::info!(paths = ?files.paths, "no file matches yet");
    }
    let mut registry = Registry::open(&files, restored, tasks, look)?;
    let initial: Vec<_> = (0..tasks).map(|task| registry.positions(task)).collect();
    let shared = Arc::new(Shared { files, registry: Mutex::new(registry), looks: Mutex::default() });
    let readers = initial.into_iter().enumerate().map(|(task, initial)| {
        let follower = Some(Box::new(Follower { shared: Arc::clone(&shared), task, open: None }));
        let (shared, limiter) = (Arc::clone(&shared), limiter.clone());
        Box::new(FollowReader { initial, shared, task, follower, running: None, limiter }) as Box<dyn Reader>
    });
    Ok(readers.collect())
}

/// One task's share.
struct FollowReader {
    initial: Vec<(String, String)>,
    shared: Arc<Shared>,
    task: usize,
    /// Here, or in `running`; nowhere after an error.
    follower: Option<Box<Follower>>,
    running: Option<Running>,
    limiter: Option<Arc<RateLimiter>>,
}

/// A batch, or nothing at the moment.
type Gathered = Result<Option<SourceBatch>, SourceError>;

/// A batch being read. Kept here and not in the future, so that dropping the future loses nothing.
struct Running {
    task: JoinHandle<(Box<Follower>, Gathered)>,
    allowed: u64,
}

impl FollowReader {
    async fn read(&mut self, max_bytes: usize) -> Result<Read, SourceError> {
        if self.running.is_none() && !self.start(max_bytes).await? {
            return Ok(Read::Idle);
        }
        let Some(running) = &mut self.running else { return Ok(Read::Idle) };
        let done = (&mut running.task).await;
        let allowed = running.allowed;
        self.running = None;
        let (follower, read) = done.map_err(|error| SourceError::Interrupted(error.to_string()))?;
        if let (Some(limiter), Ok(read)) = (&self.limiter, &read) {
            let used = read.as_ref().map_or(0, |batch| batch.rows + batch.bad.len() as u64);
            limiter.give_back(allowed.saturating_sub(used));
        }
        let read = read?;
        self.follower = Some(follower);
        match read {
            Some(batch) => Ok(Read::Rows(batch)),
            None => {
                self.rest().await;
                Ok(Read::Idle)
            }
        }
    }

    /// Starts to read if there is something to read, or to look.
    async fn start(&mut self, max_bytes: usize) -> Result<bool, SourceError> {
        let open = self.follower.as_ref().is_none_or(|follower| follower.open.is_some());
        let allowed = match &self.limiter {
            Some(limiter) if open || self.shared.registry().is_ready(self.task) => limiter.take(u64::MAX).await,
            _ => u64::MAX,
        };
        // Nothing is awaited from here on: a look that was claimed is taken.
        let turn = self.shared.claim();
        if turn.is_none() && (allowed == 0 || (!open && !self.shared.registry().is_ready(self.task))) {
            self.rest().await;
            return Ok(false);
        }
        let Some(mut follower) = self.follower.take() else {
            return Err(SourceError::Interrupted("it failed before".to_owned()));
        };
        let task = tokio::task::spawn_blocking(move || {
            let read = follower.read(max_bytes, allowed, turn);
            (follower, read)
        });
        self.running = Some(Running { task, allowed });
        Ok(true)
    }

    /// Until the next look, but not for long.
    async fn rest(&mut self) {
        let soon = Instant::now() + PATIENCE;
        tokio::time::sleep_until(self.shared.next_turn().min(soon)).await;
    }
}

impl Reader for FollowReader {
    fn next<'a>(&'a mut self, max_bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(self.read(max_bytes))
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        self.initial.clone()
    }
}

/// What moves between threads.
struct Follower {
    shared: Arc<Shared>,
    task: usize,
    open: Option<Open>,
}

/// A file whose turn it is.
struct Open {
    number: u64,
    lease: u64,
    tail: Tail,
    /// Where it stood when its turn began.
    from: u64,
}

impl Follower {
    /// The next rows of all files that have any, or positions that changed.
    fn read(&mut self, most_bytes: usize, most_rows: u64, turn: Option<Turn>) -> Gathered {
        if let Some(turn) = turn {
            self.shared.take(turn)?;
        }
        let most_files = self.shared.files.per_batch;
        let mut gather = Gather::new(most_bytes, most_rows, most_files);
        let moved = self.shared.registry().moved(self.task, most_files);
        gather.moved_alone(moved);
        while most_rows > 0
            && let Some((bytes, rows)) = gather.room()
        {
            let Some(open) = &mut self.open else {
                if self.open_next()? {
                    continue;
                }
                break;
            };
            self.shared.files.moments.tell(Moment::Reading);
            let stepped = open.tail.step(bytes, rows);
            let mut registry = self.shared.registry();
            let Some(generation) = registry.get(open.number).filter(|known| known.lease == open.lease) else {
                // Called back: something else has become of the file, and this is read from elsewhere.
                drop(registry);
                self.open = None;
                continue;
            };
            generation.advance(&open.tail.position);
            generation.most = generation.most.max(open.tail.size);
            match stepped? {
                Stepped::Taken(taken) => {
                    gather.add(taken);
                    let position = generation.report();
                    gather.moved(&generation.label, position);
                    // Not what was there when it was found.
                    if open.from > 0 {
                        registry.warm(open.number, Instant::now());
                    }
                    if open.tail.position.offset - open.from <= TURN {
                        continue;
                    }
                    registry.put_off(open.number);
                }
                Stepped::Dry => {
                    generation.begin = open.tail.begin();
                    registry.put_dry(open.number, open.tail.dry());
                }
                // As if it had not been opened: for the next look to tell.
                Stepped::Changed if open.tail.position.offset == 0 => registry.put_elsewhere(open.number),
                Stepped::Changed => registry.put_changed(open.number),
            }
            drop(registry);
            self.open = None;
        }
        gather.finish()
    }

    /// Whether there is a file to read.
    fn open_next(&mut self) -> Result<bool, SourceError> {
        loop {
            let Some((number, lease, order)) = self.shared.registry().take(self.task) else {
                return Ok(false);
            };
            self.shared.files.moments.tell(Moment::Opening);
            let opened = Tail::open(order, &self.shared.files.settings);
            let mut registry = self.shared.registry();
            let Some(generation) = registry.get(number).filter(|known| known.lease == lease) else { continue };
            match opened {
                // It was truncated since it was seen, before anything was read of it: for the next look to tell.
                Ok(tail) if tail.position.offset == 0 && tail.size < generation.most => registry.put_elsewhere(number),
                Ok(tail) => {
                    generation.handle = Some(Arc::clone(&tail.handle));
                    generation.header.clone_from(&tail.header);
                    generation.verified = true;
                    generation.most = generation.most.max(tail.size);
                    let from = tail.position.offset;
                    self.open = Some(Open { number, lease, tail, from });
                    return Ok(true);
                }
                Err(Refusal::Dry(size, handle)) => {
                    generation.handle = Some(handle);
                    generation.verified = true;
                    generation.most = generation.most.max(size);
                    registry.put_dry(number, size);
                }
                Err(Refusal::Elsewhere) => registry.put_elsewhere(number),
                Err(Refusal::Changed) => registry.put_changed(number),
                Err(Refusal::Later(problem)) => registry.put_refused(number, &problem),
                Err(Refusal::Never(problem)) => return Err(problem),
            }
        }
    }
}
