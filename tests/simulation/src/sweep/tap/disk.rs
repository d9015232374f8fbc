//! Every operation of the disk that holds a log.

use std::io;

use tidegate_store::disk::sim::{Fault, SimDisk};
use tidegate_store::disk::{Disk, Entry};

use crate::sweep::director::{Director, Verdict};
use crate::sweep::effect::{DiskOp, Mode, What};
use crate::sweep::trace::Fact;

/// A disk of one process.
pub(crate) struct TapDisk {
    disk: SimDisk,
    tenant: usize,
    director: Director,
}

impl TapDisk {
    pub(crate) fn new(disk: SimDisk, tenant: usize, director: &Director) -> Self {
        Self { disk, tenant, director: director.clone() }
    }

    fn change(
        &mut self,
        op: DiskOp,
        path: &str,
        change: impl FnOnce(&mut SimDisk) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.director.effect(What::Disk { tenant: self.tenant, op, path: path.to_owned() }) {
            Verdict::Dead => return Err(dead()),
            // The disk itself knows how each operation fails.
            Verdict::Do(Mode::Full) => self.disk.fail_after(0, Fault::Full),
            Verdict::Do(_) => self.disk.fail_after(0, Fault::Eio),
            Verdict::Go => {}
        }
        let result = change(&mut self.disk);
        let host = self.director.host();
        self.director.note(Fact::Disk { host, tenant: self.tenant, op, path: path.to_owned(), ok: result.is_ok() });
        result
    }

    fn look(&self, list: bool, path: &str) -> io::Result<Verdict> {
        match self.director.effect(What::Look { tenant: self.tenant, list, path: path.to_owned() }) {
            Verdict::Dead => Err(dead()),
            Verdict::Do(Mode::Eio) => Err(io::Error::other("simulated device failure")),
            verdict => Ok(verdict),
        }
    }
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

impl Disk for TapDisk {
    fn list(&mut self, folder: &str) -> io::Result<Vec<Entry>> {
        let verdict = self.look(true, folder)?;
        let mut entries = self.disk.list(folder)?;
        if verdict == Verdict::Do(Mode::Miss) {
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            entries.pop();
        }
        Ok(entries)
    }

    fn read(&mut self, path: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.look(false, path)?;
        self.disk.read(path, offset, len)
    }

    fn create(&mut self, path: &str) -> io::Result<()> {
        self.change(DiskOp::Create, path, |disk| disk.create(path))
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(DiskOp::Write, path, |disk| disk.write(path, offset, bytes))
    }

    fn flush(&mut self, path: &str) -> io::Result<()> {
        self.change(DiskOp::Flush, path, |disk| disk.flush(path))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.change(DiskOp::Rename, to, |disk| disk.rename(from, to))
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.change(DiskOp::Remove, path, |disk| disk.remove(path))
    }

    fn make_folder(&mut self, folder: &str) -> io::Result<()> {
        self.change(DiskOp::MakeFolder, folder, |disk| disk.make_folder(folder))
    }

    fn remove_folder(&mut self, folder: &str) -> io::Result<()> {
        self.disk.may_remove_folder(folder)?;
        self.change(DiskOp::MakeFolder, folder, |disk| disk.remove_folder(folder))
    }

    fn flush_folder(&mut self, folder: &str) -> io::Result<()> {
        self.change(DiskOp::FlushFolder, folder, |disk| disk.flush_folder(folder))
    }
}
