//! What a granted directory holds: bytes and names, counted once by walking and kept from then on.
//!
//! One account per directory and process, whatever sinks and roles have it. What others do there (readers who remove
//! files, the operator) is not seen when it happens: it counts from the next walk on. A walk is made when the account is
//! opened, so at the start of a process, and when a quota would refuse something; but not so often that walking is most
//! of what is done.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat};

use super::file::SharedFile;
use super::identity::{self, FileId};
use super::rights::{Own, Owners};

use crate::sync::lock;

/// Folders deeper than this are counted, and not looked into. Plugins cannot make them.
const MAX_WALK_DEPTH: usize = 512;
/// After a walk that took one second the next one is made ten seconds later at the earliest.
const REST: u32 = 10;
const MIN_REST: Duration = Duration::from_millis(100);

/// Bytes and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    /// Lengths of files. A file with several names counts once, a sparse one by its length.
    pub(crate) bytes: u64,
    /// Names of files, folders and whatever else.
    pub(crate) names: u64,
}

impl Amount {
    pub(crate) const fn bytes(bytes: u64) -> Self {
        Self { bytes, names: 0 }
    }

    pub(crate) const NAME: Self = Self { bytes: 0, names: 1 };

    fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.names = self.names.saturating_add(more.names);
    }

    fn sub(&mut self, less: Self) {
        self.bytes = self.bytes.saturating_sub(less.bytes);
        self.names = self.names.saturating_sub(less.names);
    }

    fn fits(self, quota: Self) -> bool {
        self.bytes <= quota.bytes && self.names <= quota.names
    }

    /// Whether no more of what `asked` adds is beyond the quota: who asks for no bytes is not refused for bytes.
    fn admits(self, asked: Self, quota: Self) -> bool {
        let mut sum = self;
        sum.add(asked);
        let counted = |asked: u64, sum: u64| if asked == 0 { 0 } else { sum };
        Self { bytes: counted(asked.bytes, sum.bytes), names: counted(asked.names, sum.names) }.fits(quota)
    }
}

/// The account of one directory.
pub(crate) struct Account {
    root: File,
    books: Mutex<Books>,
    counted: OnceLock<Result<(), io::ErrorKind>>,
    /// Held while names are looked at and then changed, so that no plugin of this process comes between.
    names: Mutex<()>,
    files: Mutex<Files>,
    owners: Mutex<Owners>,
}

#[derive(Default)]
struct Books {
    used: Amount,
    /// Taken, and perhaps not in the directory yet.
    pending: Amount,
    /// What was taken since the walk that is under way began.
    walking: Option<Amount>,
    /// No walk before.
    next_walk: Option<Instant>,
}

/// Files that are open in this process.
#[derive(Default)]
struct Files {
    open: HashMap<FileId, Weak<SharedFile>>,
    prune_at: usize,
}

/// All accounts of the process.
static ACCOUNTS: Mutex<Vec<(FileId, Weak<Account>)>> = Mutex::new(Vec::new());

impl Account {
    /// The account of a directory. Walks through it if nobody in this process has it yet.
    ///
    /// # Errors
    /// The directory, or something in it, cannot be read.
    pub(crate) fn of(dir: &Path) -> io::Result<Arc<Self>> {
        let root = File::open(dir)?;
        let id = identity::of(&root)?.id;
        let account = {
            let mut accounts = lock(&ACCOUNTS);
            accounts.retain(|(_, account)| account.strong_count() > 0);
            let known = accounts.iter().find(|(other, _)| *other == id).and_then(|(_, account)| account.upgrade());
            known.unwrap_or_else(|| {
                let account = Arc::new(Self::new(root));
                accounts.push((id, Arc::downgrade(&account)));
                account
            })
        };
        // Not under the lock of all accounts: this can take long.
        let counted = account.counted.get_or_init(|| {
            let walked = walk(&account.root).map_err(|error| error.kind())?;
            lock(&account.books).used.add(walked);
            Ok(())
        });
        (*counted)?;
        Ok(account)
    }

    fn new(root: File) -> Self {
        Self {
            root,
            books: Mutex::default(),
            counted: OnceLock::new(),
            names: Mutex::default(),
            files: Mutex::default(),
            owners: Mutex::default(),
        }
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> io::Result<File> {
        self.root.try_clone()
    }

    /// What is in it, as far as is known.
    #[cfg(test)]
    pub(crate) fn used(&self) -> Amount {
        lock(&self.books).used
    }

    /// Takes what is about to be added, or nothing: then the quota does not reach. What was taken is settled with
    /// [`Account::settle`] once it was tried.
    pub(crate) fn take(&self, asked: Amount, quota: Amount) -> bool {
        self.try_take(asked, quota) || (self.walk_again() && self.try_take(asked, quota))
    }

    fn try_take(&self, asked: Amount, quota: Amount) -> bool {
        let mut books = lock(&self.books);
        if !books.used.admits(asked, quota) {
            return false;
        }
        books.used.add(asked);
        books.pending.add(asked);
        if let Some(since) = &mut books.walking {
            since.add(asked);
        }
        true
    }

    /// Of what was taken so much is not there after all.
    pub(crate) fn settle(&self, taken: Amount, not_used: Amount) {
        let mut books = lock(&self.books);
        books.pending.sub(taken);
        books.used.sub(not_used);
    }

    /// Something is gone.
    pub(crate) fn give_back(&self, amount: Amount) {
        // While a walk is under way it may not have come by there yet: then this counts too much, until the next one.
        let mut books = lock(&self.books);
        books.used.sub(amount);
    }

    /// Counts anew; `false` if that was done just now, or cannot be done.
    fn walk_again(&self) -> bool {
        let began = Instant::now();
        {
            let mut books = lock(&self.books);
            if books.walking.is_some() || books.next_walk.is_some_and(|next| began < next) {
                return false;
            }
            books.walking = Some(books.pending);
        }
        let walked = walk(&self.root);
        let hidden = self.hidden();
        let took = began.elapsed();
        let mut books = lock(&self.books);
        let since = books.walking.take().unwrap_or_default();
        books.next_walk = began.checked_add(took.saturating_mul(REST + 1).max(MIN_REST));
        match walked {
            Ok(mut counted) => {
                // Some of that was seen on the way: too much is counted then, never too little.
                counted.add(since);
                counted.add(hidden);
                books.used = counted;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "a granted directory cannot be counted");
                false
            }
        }
    }

    /// Bytes of files that are open and have no name any more.
    fn hidden(&self) -> Amount {
        // Dropped after the lock: the last one to let go of a file gives its bytes back.
        let open: Vec<_> = lock(&self.files).open.values().filter_map(Weak::upgrade).collect();
        Amount::bytes(open.iter().map(|file| file.hidden()).fold(0, u64::saturating_add))
    }

    /// Keeps other plugins of this process from changing names while a name is judged and changed.
    pub(crate) fn lock_names(&self) -> MutexGuard<'_, ()> {
        lock(&self.names)
    }

    /// What all who have a file open share.
    pub(crate) fn shared(self: &Arc<Self>, id: FileId, bytes: u64) -> Arc<SharedFile> {
        let mut files = lock(&self.files);
        if let Some(shared) = files.open.get(&id).and_then(Weak::upgrade) {
            return shared;
        }
        if files.open.len() >= files.prune_at {
            files.open.retain(|_, file| file.strong_count() > 0);
            files.prune_at = files.open.len() * 2 + 64;
        }
        let shared = Arc::new(SharedFile::new(self.clone(), bytes));
        files.open.insert(id, Arc::downgrade(&shared));
        shared
    }

    /// An instance came that may make files here.
    pub(crate) fn add_owner(&self, own: &Own) {
        lock(&self.owners).add(own);
    }

    /// A file gets, or got, a name under which others read it: whoever has it open writes to it no more, and nobody opens
    /// it for writing again.
    pub(crate) fn publish(&self, id: FileId) {
        lock(&self.owners).disown(id);
        if let Some(shared) = self.shared_if_open(id) {
            shared.freeze();
        }
    }

    /// What they share, if somebody has it open.
    pub(crate) fn shared_if_open(&self, id: FileId) -> Option<Arc<SharedFile>> {
        lock(&self.files).open.get(&id).and_then(Weak::upgrade)
    }
}

/// Counts everything below a directory. Follows no links. A file that has more names elsewhere counts by its share.
fn walk(root: &File) -> io::Result<Amount> {
    let mut total = Amount::default();
    let mut waiting = vec![Dir::read_from(root)?];
    loop {
        let depth = waiting.len();
        let Some(dir) = waiting.last_mut() else { return Ok(total) };
        let Some(entry) = dir.read() else {
            waiting.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        total.names = total.names.saturating_add(1);
        let at = dir.fd()?;
        // Gone since it was listed: counted until the next walk.
        let Ok(found) = identity::at(at, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        match found.kind {
            FileType::RegularFile => total.bytes = total.bytes.saturating_add(found.bytes.div_ceil(found.links.max(1))),
            FileType::Directory if depth < MAX_WALK_DEPTH => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below: Result<OwnedFd, _> = openat(at, name, flags, Mode::empty());
                match below {
                    Ok(below) => waiting.push(Dir::new(below)?),
                    Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {}
                    // Nobody who runs plugins can see into it, so no plugin can fill it.
                    Err(rustix::io::Errno::ACCESS) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Amount = Amount { bytes: 100, names: 10 };

    #[test]
    fn it_is_counted_once_and_a_file_with_two_names_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/file"), [7; 50]).unwrap();
        std::fs::hard_link(dir.path().join("a/b/file"), dir.path().join("again")).unwrap();
        File::create(dir.path().join("sparse")).unwrap().set_len(1 << 30).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
        let account = Account::of(dir.path()).unwrap();
        assert_eq!(account.used(), Amount { bytes: 50 + (1 << 30), names: 6 });
        std::fs::write(dir.path().join("later"), [7; 50]).unwrap();
        let same = Account::of(&dir.path().join("a/..")).unwrap();
        assert!(Arc::ptr_eq(&account, &same));
        assert_eq!(same.used().names, 6, "what others do counts from the next walk on");
        drop((account, same));
        assert_eq!(Account::of(dir.path()).unwrap().used().names, 7);
    }

    #[test]
    fn what_others_removed_is_noticed_before_anything_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, [7; 80]).unwrap();
        let account = Account::of(dir.path()).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(account.take(Amount::bytes(90), QUOTA), "it looks again");
        std::fs::write(&file, [7; 90]).unwrap();
        account.settle(Amount::bytes(90), Amount::default());
        assert_eq!(account.used().bytes, 90);
        assert!(!account.take(Amount::bytes(20), QUOTA));
    }

    #[test]
    fn what_is_being_written_is_not_forgotten_by_a_walk() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::of(dir.path()).unwrap();
        assert!(account.take(Amount::bytes(60), QUOTA));
        assert!(!account.take(Amount::bytes(60), QUOTA), "the walk found an empty directory");
        account.settle(Amount::bytes(60), Amount::bytes(60));
        assert!(account.take(Amount::bytes(60), QUOTA));
    }

    #[test]
    fn a_directory_that_is_too_full_takes_names_while_there_are_names() {
        let full = Amount { bytes: 500, names: 1 };
        assert!(full.admits(Amount::NAME, QUOTA));
        assert!(!full.admits(Amount::bytes(1), QUOTA));
    }
}
