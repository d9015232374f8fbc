//! Opening, making, renaming, linking and removing.
//!
//! A name is judged and changed under the account's lock and through one descriptor of its folder: no plugin of this
//! process comes between, and whatever else comes between is not followed.

use std::ffi::CString;
use std::fs::File;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags};

use super::account::Amount;
use super::file::Writable;
use super::identity::{self, Found};
use super::path::{self, PathParts};
use super::{Descriptor, Disk, MAX_DEPTH, OpenDir, OpenFile, code};
use crate::meter::KillSwitch;

/// How `open-at` is asked to open.
pub(crate) struct How {
    pub(crate) follow: bool,
    pub(crate) open: OpenFlags,
    pub(crate) flags: DescriptorFlags,
}

impl How {
    fn writes(&self) -> bool {
        self.flags.contains(DescriptorFlags::WRITE) || self.open.contains(OpenFlags::TRUNCATE)
    }

    fn access(&self) -> OFlags {
        // A FIFO or a device that somebody put there must not hold the thread; it is refused once it is open.
        let common = OFlags::NONBLOCK | OFlags::NOCTTY;
        match (self.flags.contains(DescriptorFlags::READ), self.writes()) {
            (true, true) => common | OFlags::RDWR,
            (false, true) => common | OFlags::WRONLY,
            (_, false) => common | OFlags::RDONLY,
        }
    }
}

/// A name in a folder that is open.
struct Named {
    dir: Arc<File>,
    name: CString,
    /// Folders above it, from the granted directory on.
    depth: usize,
    /// Only a folder is meant.
    folder: bool,
}

impl Named {
    fn look(&self) -> std::io::Result<Found> {
        identity::at(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn system(error: Errno) -> ErrorCode {
    code(&error.into())
}

impl Disk {
    fn parse<'p>(&self, path: &'p str) -> Result<PathParts<'p>, ErrorCode> {
        path::parse(path).map_err(|error| self.refuse(error))
    }

    fn named(&self, dir: &OpenDir, path: &str) -> Result<Named, ErrorCode> {
        let PathParts { parent, name, folder, depth } = self.parse(path)?;
        let name = path::c_name(name.ok_or(ErrorCode::Invalid)?).map_err(|error| self.refuse(error))?;
        let depth = dir.depth.saturating_add(depth).saturating_sub(1);
        let dir = match parent {
            None => dir.file.clone(),
            Some(parent) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                Arc::new(path::open(&dir.file, parent, flags).map_err(|error| self.refuse(error))?.into())
            }
        };
        Ok(Named { dir, name, depth, folder })
    }

    /// What a path stands for.
    pub(crate) fn look_at(&self, dir: &OpenDir, path: &str, follow: bool) -> Result<Found, ErrorCode> {
        let parts = self.parse(path)?;
        let follow = if follow || parts.folder { OFlags::empty() } else { OFlags::NOFOLLOW };
        let file = path::open(&dir.file, path, OFlags::PATH | follow).map_err(|error| self.refuse(error))?;
        identity::of(&file).map_err(|error| code(&error))
    }

    pub(crate) fn open(
        &mut self,
        dir: &OpenDir,
        path: &str,
        how: &How,
        kill: &KillSwitch,
    ) -> Result<Descriptor, ErrorCode> {
        let synced = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if how.flags.intersects(synced) {
            return Err(ErrorCode::Unsupported);
        }
        let creates = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        if how.open.contains(OpenFlags::DIRECTORY) && how.open.intersects(creates) {
            return Err(ErrorCode::Invalid);
        }
        if !how.open.contains(OpenFlags::CREATE) {
            return self.open_existing(dir, path, how, kill);
        }
        let account = dir.granted.account.clone();
        let _names = account.lock_names();
        if !how.open.contains(OpenFlags::EXCLUSIVE) {
            match self.open_existing(dir, path, how, kill) {
                Err(ErrorCode::NoEntry) => {}
                other => return other,
            }
        }
        self.create(dir, path, how)
    }

    fn open_existing(
        &mut self,
        dir: &OpenDir,
        path: &str,
        how: &How,
        kill: &KillSwitch,
    ) -> Result<Descriptor, ErrorCode> {
        let parts = self.parse(path)?;
        let mut flags = how.access();
        flags.set(OFlags::DIRECTORY, how.open.contains(OpenFlags::DIRECTORY) || parts.folder);
        flags.set(OFlags::NOFOLLOW, !how.follow);
        let file: File = path::open(&dir.file, path, flags).map_err(|error| self.refuse(error))?.into();
        let found = identity::of(&file).map_err(|error| code(&error))?;
        match found.kind {
            FileType::Directory => Ok(Descriptor::Dir(OpenDir {
                file: Arc::new(file),
                granted: dir.granted.clone(),
                depth: dir.depth.saturating_add(parts.depth),
                mutate: how.flags.contains(DescriptorFlags::MUTATE_DIRECTORY),
            })),
            FileType::RegularFile => {
                if how.writes() && !self.own.has(found.id) {
                    return Err(self.deny());
                }
                let open = opened(dir, file, &found, how);
                if how.open.contains(OpenFlags::TRUNCATE) {
                    open.writable(kill).set_size(0).map_err(|error| code(&error))?;
                }
                Ok(Descriptor::File(open))
            }
            // A device, a FIFO, a socket: somebody else put it there.
            _ => Err(self.deny()),
        }
    }

    /// Under the lock on names.
    fn create(&mut self, dir: &OpenDir, path: &str, how: &How) -> Result<Descriptor, ErrorCode> {
        let named = self.named(dir, path)?;
        if named.folder {
            return Err(ErrorCode::IsDirectory);
        }
        if !self.rights.create {
            return Err(self.deny());
        }
        let file = self.add_name(dir, || {
            let flags = how.access() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&named.dir, &named.name, flags, Mode::from_raw_mode(0o666))
        })?;
        let file = File::from(file);
        let found = identity::of(&file).map_err(|error| code(&error))?;
        self.own.add(found.id);
        Ok(Descriptor::File(opened(dir, file, &found, how)))
    }

    /// Takes a name from the quota for as long as `make` succeeds.
    fn add_name<T>(&self, dir: &OpenDir, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, ErrorCode> {
        let account = &dir.granted.account;
        if !account.take(Amount::NAME, dir.granted.quota) {
            return Err(ErrorCode::Quota);
        }
        let made = make();
        account.settle(Amount::NAME, if made.is_ok() { Amount::default() } else { Amount::NAME });
        made.map_err(system)
    }

    pub(crate) fn create_directory(&mut self, dir: &OpenDir, path: &str) -> Result<(), ErrorCode> {
        let named = self.named(dir, path)?;
        let account = dir.granted.account.clone();
        let _names = account.lock_names();
        // First of all: that it is there is no breach of anything.
        if named.look().is_ok() {
            return Err(ErrorCode::Exist);
        }
        if !self.rights.create {
            return Err(self.deny());
        }
        if named.depth >= MAX_DEPTH {
            return Err(ErrorCode::NameTooLong);
        }
        self.add_name(dir, || rustix::fs::mkdirat(&named.dir, &named.name, Mode::from_raw_mode(0o777)))?;
        let made = named.look().map_err(|error| code(&error))?;
        self.own.add(made.id);
        Ok(())
    }

    pub(crate) fn remove_directory(&mut self, dir: &OpenDir, path: &str) -> Result<(), ErrorCode> {
        let named = self.named(dir, path)?;
        let account = dir.granted.account.clone();
        let _names = account.lock_names();
        let found = named.look().map_err(|error| code(&error))?;
        if found.kind != FileType::Directory {
            return Err(ErrorCode::NotDirectory);
        }
        self.may_remove(&found)?;
        rustix::fs::unlinkat(&named.dir, &named.name, AtFlags::REMOVEDIR).map_err(system)?;
        account.give_back(Amount::NAME);
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, dir: &OpenDir, path: &str) -> Result<(), ErrorCode> {
        let named = self.named(dir, path)?;
        let account = dir.granted.account.clone();
        let _names = account.lock_names();
        let found = named.look().map_err(|error| code(&error))?;
        if found.kind == FileType::Directory {
            return Err(ErrorCode::IsDirectory);
        }
        if named.folder {
            return Err(ErrorCode::NotDirectory);
        }
        self.may_remove(&found)?;
        rustix::fs::unlinkat(&named.dir, &named.name, AtFlags::empty()).map_err(system)?;
        give_back_name(dir, &found);
        Ok(())
    }

    fn may_remove(&self, found: &Found) -> Result<(), ErrorCode> {
        if self.rights.remove_others || (self.rights.create && self.own.has(found.id)) {
            return Ok(());
        }
        Err(self.deny())
    }

    pub(crate) fn rename(
        &mut self,
        from_dir: &OpenDir,
        from: &str,
        to_dir: &OpenDir,
        to: &str,
    ) -> Result<(), ErrorCode> {
        let (from, to) = (self.named(from_dir, from)?, self.named(to_dir, to)?);
        same_grant(from_dir, to_dir)?;
        let account = from_dir.granted.account.clone();
        let _names = account.lock_names();
        let moved = from.look().map_err(|error| code(&error))?;
        if (from.folder || to.folder) && moved.kind != FileType::Directory {
            return Err(ErrorCode::NotDirectory);
        }
        let own = self.rights.create && self.own.has(moved.id);
        if !own && !self.rights.rename_others {
            return Err(self.deny());
        }
        // Only within one folder: so no folder gets deeper than it was made.
        if moved.kind == FileType::Directory && !is_same(&from.dir, &to.dir)? {
            return Err(ErrorCode::CrossDevice);
        }
        let replaced = match to.look() {
            Ok(found) => Some(found),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(code(&error)),
        };
        match &replaced {
            None => rename_over_nothing(&from, &to)?,
            // Two names of one file: renaming does nothing.
            Some(found) if found.id == moved.id => return Ok(()),
            Some(_) if self.rights.remove_others => {
                rustix::fs::renameat(&from.dir, &from.name, &to.dir, &to.name).map_err(system)?;
            }
            Some(_) => return Err(self.deny()),
        }
        if let Some(found) = &replaced {
            give_back_name(to_dir, found);
        }
        if !own {
            account.publish(moved.id);
        }
        Ok(())
    }

    pub(crate) fn link(&mut self, from_dir: &OpenDir, from: &str, to_dir: &OpenDir, to: &str) -> Result<(), ErrorCode> {
        let (from, to) = (self.named(from_dir, from)?, self.named(to_dir, to)?);
        same_grant(from_dir, to_dir)?;
        if !self.rights.link {
            return Err(self.deny());
        }
        let account = from_dir.granted.account.clone();
        let _names = account.lock_names();
        let found = from.look().map_err(|error| code(&error))?;
        if found.kind != FileType::RegularFile {
            return Err(self.deny());
        }
        if from.folder || to.folder {
            return Err(ErrorCode::NotDirectory);
        }
        // Before it has the name under which others read it.
        account.publish(found.id);
        self.add_name(to_dir, || rustix::fs::linkat(&from.dir, &from.name, &to.dir, &to.name, AtFlags::empty()))
    }

    /// What a link says; a target that leads, or may lead, out of the directory is the host's own affair.
    pub(crate) fn read_link(&self, dir: &OpenDir, path: &str) -> Result<String, ErrorCode> {
        let named = self.named(dir, path)?;
        let target = rustix::fs::readlinkat(&named.dir, &named.name, Vec::new()).map_err(system)?;
        let target = target.into_string().map_err(|_| ErrorCode::IllegalByteSequence)?;
        if target.starts_with('/') || target.split('/').any(|name| name == "..") {
            return Err(self.deny());
        }
        Ok(target)
    }

    /// A plugin makes no symbolic links: who reads the directory would follow them.
    pub(crate) fn symlink(&self) -> ErrorCode {
        self.deny()
    }

    /// Opens a file of the instance's own to set its times.
    pub(crate) fn own_file(&self, dir: &OpenDir, path: &str) -> Result<File, ErrorCode> {
        let parts = self.parse(path)?;
        if parts.name.is_none() {
            return Err(self.deny());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file: File = path::open(&dir.file, path, flags).map_err(|error| self.refuse(error))?.into();
        let found = identity::of(&file).map_err(|error| code(&error))?;
        if self.own.has(found.id) { Ok(file) } else { Err(self.deny()) }
    }
}

fn opened(dir: &OpenDir, file: File, found: &Found, how: &How) -> OpenFile {
    OpenFile {
        shared: dir.granted.account.shared(found.id, found.bytes),
        file: Arc::new(file),
        granted: dir.granted.clone(),
        read: how.flags.contains(DescriptorFlags::READ) || !how.writes(),
        write: how.writes(),
    }
}

impl OpenFile {
    pub(crate) fn writable(&self, kill: &KillSwitch) -> Writable {
        Writable { file: self.file.clone(), shared: self.shared.clone(), quota: self.granted.quota, kill: kill.clone() }
    }
}

/// A name is gone, and perhaps what it stood for.
fn give_back_name(dir: &OpenDir, found: &Found) {
    let account = &dir.granted.account;
    let last = found.kind == FileType::RegularFile && found.links <= 1;
    match account.shared_if_open(found.id).filter(|_| last) {
        Some(shared) => {
            shared.lose_last_name();
            account.give_back(Amount::NAME);
        }
        None => account.give_back(Amount { bytes: if last { found.bytes } else { 0 }, names: 1 }),
    }
}

/// Between two granted directories nothing is moved or linked: their quotas and readers are not the same.
fn same_grant(one: &OpenDir, other: &OpenDir) -> Result<(), ErrorCode> {
    if Arc::ptr_eq(&one.granted.account, &other.granted.account) { Ok(()) } else { Err(ErrorCode::CrossDevice) }
}

fn is_same(one: &File, other: &File) -> Result<bool, ErrorCode> {
    let id = |file| identity::of(file).map(|found| found.id).map_err(|error| code(&error));
    Ok(id(one)? == id(other)?)
}

fn rename_over_nothing(from: &Named, to: &Named) -> Result<(), ErrorCode> {
    let kept = rustix::fs::renameat_with(&from.dir, &from.name, &to.dir, &to.name, RenameFlags::NOREPLACE);
    match kept {
        // This file system cannot; nobody of this process comes between.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::renameat(&from.dir, &from.name, &to.dir, &to.name).map_err(system)
        }
        other => other.map_err(system),
    }
}
