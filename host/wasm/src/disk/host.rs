//! `wasi:filesystem` as the plugin sees it.
//!
//! The generated traits name wasmtime's own descriptor type; the table holds ours under the same numbers.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{FileType, Statx, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, Filesize,
    MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};

use super::file::Place;
use super::identity::{self, FileId, Found};
use super::listing::{Listing, descriptor_type};
use super::names::How;
use super::stream::{FileReader, FileWriter, STEP, read_at};
use super::{Descriptor, Disk, OpenDir, OpenFile, PREOPENS, code};
use crate::host::State;
use crate::host::clocks::coarse_nanos;
use crate::limits::budget;

type Fd = Resource<types::Descriptor>;
type Entries = Resource<types::DirectoryEntryStream>;

fn ours(fd: &Fd) -> Resource<Descriptor> {
    Resource::new_borrow(fd.rep())
}

fn listing(entries: &Entries) -> Resource<Listing> {
    Resource::new_borrow(entries.rep())
}

impl State {
    fn descriptor(&self, fd: &Fd) -> Result<&Descriptor, FsError> {
        Ok(self.table.get(&ours(fd))?)
    }

    fn open_file(&self, fd: &Fd) -> Result<OpenFile, FsError> {
        match self.descriptor(fd)? {
            Descriptor::File(file) => Ok(file.clone()),
            Descriptor::Dir(_) => Err(ErrorCode::IsDirectory.into()),
        }
    }

    fn open_dir(&self, fd: &Fd) -> Result<OpenDir, FsError> {
        match self.descriptor(fd)? {
            Descriptor::Dir(dir) => Ok(dir.clone()),
            Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    fn readable(&self, fd: &Fd) -> Result<OpenFile, FsError> {
        let file = self.open_file(fd)?;
        if file.read { Ok(file) } else { Err(ErrorCode::BadDescriptor.into()) }
    }

    fn writable(&self, fd: &Fd) -> Result<super::file::Writable, FsError> {
        let file = self.open_file(fd)?;
        if file.write { Ok(file.writable(&self.kill)) } else { Err(self.disk.deny().into()) }
    }

    fn push_descriptor(&mut self, descriptor: Descriptor) -> wasmtime::Result<Fd> {
        Ok(Resource::new_own(self.table.push(descriptor)?.rep()))
    }

    /// Waits until one more flush is within the rates of instance and tenant.
    async fn flush_turn(&mut self) {
        let wait = self.disk.flushes.take(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        while let Err(spent) = self.disk.tenant.spend(budget::FLUSHES, 1) {
            tokio::time::sleep(spent.again_in).await;
        }
    }
}

fn told<T>(result: std::io::Result<T>) -> FsResult<T> {
    result.map_err(|error| code(&error).into())
}

impl preopens::Host for State {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Fd, String)>> {
        if self.disk.granted.is_empty() {
            self.disk.count_denied(PREOPENS);
        }
        let granted = self.disk.granted.clone();
        let open = granted.into_iter().map(|(name, granted)| {
            let file = Arc::new(granted.account.root()?);
            Ok((self.push_descriptor(Descriptor::Dir(OpenDir { file, granted, depth: 0, mutate: true }))?, name))
        });
        open.collect()
    }
}

impl types::Host for State {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.downcast_ref::<std::io::Error>().map(code))
    }
}

impl types::HostDescriptor for State {
    fn read_via_stream(&mut self, fd: Fd, offset: Filesize) -> FsResult<Resource<DynInputStream>> {
        let file = self.readable(&fd)?.file;
        let stream: DynInputStream = Box::new(FileReader::new(file, offset));
        Ok(self.table.push(stream)?)
    }

    fn write_via_stream(&mut self, fd: Fd, offset: Filesize) -> FsResult<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(FileWriter::new(self.writable(&fd)?, Place::At(offset)));
        Ok(self.table.push(stream)?)
    }

    fn append_via_stream(&mut self, fd: Fd) -> FsResult<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(FileWriter::new(self.writable(&fd)?, Place::End));
        Ok(self.table.push(stream)?)
    }

    async fn advise(&mut self, fd: Fd, offset: Filesize, len: Filesize, advice: Advice) -> FsResult<()> {
        let advice = match advice {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
            Advice::NoReuse => rustix::fs::Advice::NoReuse,
        };
        let file = self.open_file(&fd)?.file;
        told(rustix::fs::fadvise(&file, offset, std::num::NonZeroU64::new(len), advice).map_err(Into::into))
    }

    async fn sync_data(&mut self, fd: Fd) -> FsResult<()> {
        let file = self.descriptor(&fd)?.file().clone();
        self.flush_turn().await;
        told(file.sync_data())
    }

    async fn sync(&mut self, fd: Fd) -> FsResult<()> {
        let file = self.descriptor(&fd)?.file().clone();
        self.flush_turn().await;
        told(file.sync_all())
    }

    async fn get_flags(&mut self, fd: Fd) -> FsResult<DescriptorFlags> {
        let mut flags = DescriptorFlags::empty();
        match self.descriptor(&fd)? {
            Descriptor::Dir(dir) => {
                flags |= DescriptorFlags::READ;
                if dir.mutate {
                    flags |= DescriptorFlags::MUTATE_DIRECTORY;
                }
            }
            Descriptor::File(file) => {
                if file.read {
                    flags |= DescriptorFlags::READ;
                }
                if file.write {
                    flags |= DescriptorFlags::WRITE;
                }
            }
        }
        Ok(flags)
    }

    async fn get_type(&mut self, fd: Fd) -> FsResult<DescriptorType> {
        Ok(match self.descriptor(&fd)? {
            Descriptor::Dir(_) => DescriptorType::Directory,
            Descriptor::File(_) => DescriptorType::RegularFile,
        })
    }

    async fn set_size(&mut self, fd: Fd, size: Filesize) -> FsResult<()> {
        if i64::try_from(size).is_err() {
            return Err(ErrorCode::FileTooLarge.into());
        }
        told(self.writable(&fd)?.set_size(size))
    }

    async fn set_times(&mut self, fd: Fd, access: NewTimestamp, change: NewTimestamp) -> FsResult<()> {
        let file = match self.descriptor(&fd)? {
            Descriptor::File(file) if file.write => file.file.clone(),
            _ => return Err(self.disk.deny().into()),
        };
        set_times(&file, access, change)
    }

    async fn read(&mut self, fd: Fd, len: Filesize, offset: Filesize) -> FsResult<(Vec<u8>, bool)> {
        let file = self.readable(&fd)?.file;
        let mut buffer = vec![0; usize::try_from(len).unwrap_or(STEP).min(STEP)];
        let read = told(read_at(&file, &mut buffer, offset))?;
        buffer.truncate(read);
        Ok((buffer, read == 0))
    }

    async fn write(&mut self, fd: Fd, buffer: Vec<u8>, offset: Filesize) -> FsResult<Filesize> {
        told(self.writable(&fd)?.write(Place::At(offset), &buffer))?;
        Ok(buffer.len() as u64)
    }

    async fn read_directory(&mut self, fd: Fd) -> FsResult<Entries> {
        let entries = told(Listing::new(&self.open_dir(&fd)?.file))?;
        Ok(Resource::new_own(self.table.push(entries)?.rep()))
    }

    async fn create_directory_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let dir = self.open_dir(&fd)?;
        Ok(self.disk.create_directory(&dir, &path)?)
    }

    async fn stat(&mut self, fd: Fd) -> FsResult<DescriptorStat> {
        Ok(stat(&told(identity::of(self.descriptor(&fd)?.file()))?))
    }

    async fn stat_at(&mut self, fd: Fd, flags: PathFlags, path: String) -> FsResult<DescriptorStat> {
        let dir = self.open_dir(&fd)?;
        Ok(stat(&self.disk.look_at(&dir, &path, flags.contains(PathFlags::SYMLINK_FOLLOW))?))
    }

    async fn set_times_at(
        &mut self,
        fd: Fd,
        _: PathFlags,
        path: String,
        access: NewTimestamp,
        change: NewTimestamp,
    ) -> FsResult<()> {
        let dir = self.open_dir(&fd)?;
        set_times(&self.disk.own_file(&dir, &path)?, access, change)
    }

    async fn link_at(&mut self, fd: Fd, flags: PathFlags, from: String, to_fd: Fd, to: String) -> FsResult<()> {
        if flags.contains(PathFlags::SYMLINK_FOLLOW) {
            return Err(ErrorCode::Invalid.into());
        }
        let (from_dir, to_dir) = (self.open_dir(&fd)?, self.open_dir(&to_fd)?);
        Ok(self.disk.link(&from_dir, &from, &to_dir, &to)?)
    }

    async fn open_at(
        &mut self,
        fd: Fd,
        path_flags: PathFlags,
        path: String,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Fd> {
        let dir = self.open_dir(&fd)?;
        let how = How { follow: path_flags.contains(PathFlags::SYMLINK_FOLLOW), open, flags };
        let descriptor = self.disk.open(&dir, &path, &how, &self.kill)?;
        self.push_descriptor(descriptor).map_err(FsError::trap)
    }

    async fn readlink_at(&mut self, fd: Fd, path: String) -> FsResult<String> {
        let dir = self.open_dir(&fd)?;
        Ok(self.disk.read_link(&dir, &path)?)
    }

    async fn remove_directory_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let dir = self.open_dir(&fd)?;
        Ok(self.disk.remove_directory(&dir, &path)?)
    }

    async fn rename_at(&mut self, fd: Fd, from: String, to_fd: Fd, to: String) -> FsResult<()> {
        let (from_dir, to_dir) = (self.open_dir(&fd)?, self.open_dir(&to_fd)?);
        Ok(self.disk.rename(&from_dir, &from, &to_dir, &to)?)
    }

    async fn symlink_at(&mut self, fd: Fd, _: String, _: String) -> FsResult<()> {
        self.open_dir(&fd)?;
        Err(self.disk.symlink().into())
    }

    async fn unlink_file_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let dir = self.open_dir(&fd)?;
        Ok(self.disk.remove_file(&dir, &path)?)
    }

    async fn is_same_object(&mut self, one: Fd, other: Fd) -> wasmtime::Result<bool> {
        let (one, other) = (self.table.get(&ours(&one))?, self.table.get(&ours(&other))?);
        Ok(identity::of(one.file())?.id == identity::of(other.file())?.id)
    }

    async fn metadata_hash(&mut self, fd: Fd) -> FsResult<MetadataHashValue> {
        let found = told(identity::of(self.descriptor(&fd)?.file()))?;
        Ok(self.disk.metadata_hash(found.id))
    }

    async fn metadata_hash_at(&mut self, fd: Fd, flags: PathFlags, path: String) -> FsResult<MetadataHashValue> {
        let dir = self.open_dir(&fd)?;
        let found = self.disk.look_at(&dir, &path, flags.contains(PathFlags::SYMLINK_FOLLOW))?;
        Ok(self.disk.metadata_hash(found.id))
    }

    fn drop(&mut self, fd: Fd) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Descriptor>::new_own(fd.rep()))?;
        Ok(())
    }
}

impl types::HostDirectoryEntryStream for State {
    async fn read_directory_entry(&mut self, entries: Entries) -> FsResult<Option<DirectoryEntry>> {
        Ok(self.table.get_mut(&listing(&entries))?.next()?)
    }

    fn drop(&mut self, entries: Entries) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Listing>::new_own(entries.rep()))?;
        Ok(())
    }
}

impl Disk {
    /// Stands for a file for as long as the instance lives, and says nothing of the host.
    fn metadata_hash(&self, id: FileId) -> MetadataHashValue {
        MetadataHashValue { lower: self.hash.hash_one((id, 0u8)), upper: self.hash.hash_one((id, 1u8)) }
    }
}

fn stat(found: &Found) -> DescriptorStat {
    let Statx { stx_atime, stx_mtime, stx_ctime, .. } = found.raw;
    DescriptorStat {
        type_: descriptor_type(found.kind),
        link_count: found.links,
        size: if found.kind == FileType::Directory { 0 } else { found.bytes },
        data_access_timestamp: datetime(stx_atime),
        data_modification_timestamp: datetime(stx_mtime),
        status_change_timestamp: datetime(stx_ctime),
    }
}

/// As coarse as the clocks: touching a file must not tell the time more exactly.
fn datetime(time: StatxTimestamp) -> Option<Datetime> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(Datetime { seconds, nanoseconds: coarse_nanos(time.tv_nsec) })
}

fn set_times(file: &std::fs::File, access: NewTimestamp, change: NewTimestamp) -> FsResult<()> {
    let times = Timestamps { last_access: timespec(access)?, last_modification: timespec(change)? };
    told(rustix::fs::futimens(file, &times).map_err(Into::into))
}

fn timespec(time: NewTimestamp) -> Result<Timespec, ErrorCode> {
    Ok(match time {
        NewTimestamp::NoChange => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        NewTimestamp::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        NewTimestamp::Timestamp(Datetime { seconds, nanoseconds }) if nanoseconds < 1_000_000_000 => {
            Timespec { tv_sec: i64::try_from(seconds).map_err(|_| ErrorCode::Overflow)?, tv_nsec: nanoseconds.into() }
        }
        NewTimestamp::Timestamp(_) => return Err(ErrorCode::Invalid),
    })
}
