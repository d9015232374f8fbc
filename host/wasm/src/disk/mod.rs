//! Granted directories: `wasi:filesystem` with rights by role, quotas, and flushes per second.
//!
//! | module | |
//! |---|---|
//! | [`account`] | how much is in a directory |
//! | [`rights`] | what a role may do |
//! | [`path`] | from a path to a file, never outside |
//! | [`file`], [`stream`] | writing within a quota |
//! | [`names`] | opening, making, renaming, linking and removing |
//! | [`flushes`] | how often |
//! | [`host`] | WASI's functions |
//!
//! All system calls are made on the instance's own thread: when it has ended, nothing of the instance is under way.

pub(crate) mod account;
mod file;
mod flushes;
mod host;
mod identity;
mod listing;
mod names;
mod path;
mod rights;
mod stream;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tidegate_protocol::plugin::Role;
use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};

use self::account::{Account, Amount};
use self::file::SharedFile;
use self::flushes::FlushRate;
use self::path::PathError;
use self::rights::{Own, Rights};
use crate::host::State;
use crate::limits::Limits;
use crate::tenant::Tenant;

/// Folders within folders, from the granted directory on.
pub(crate) const MAX_DEPTH: usize = 64;

const TYPES: &str = "wasi:filesystem/types";
const PREOPENS: &str = "wasi:filesystem/preopens";

/// A directory that an instance was granted.
#[derive(Clone)]
pub(crate) struct GrantedDir {
    pub(crate) account: Arc<Account>,
    pub(crate) quota: Amount,
}

impl GrantedDir {
    /// # Errors
    /// The directory, or something in it, cannot be read.
    pub(crate) fn open(path: &Path, quota: Amount) -> io::Result<Self> {
        Ok(Self { account: Account::of(path)?, quota })
    }
}

/// The directories of one instance, and what it did there.
pub(crate) struct Disk {
    granted: Vec<(String, GrantedDir)>,
    rights: Rights,
    own: Own,
    flushes: FlushRate,
    tenant: Tenant,
    /// So that plugins see no numbers of the host's files.
    hash: std::hash::RandomState,
}

impl Disk {
    /// `role` of `None`: a plugin that describes itself.
    pub(crate) fn new(role: Option<Role>, granted: Vec<(String, GrantedDir)>, limits: &Limits, tenant: Tenant) -> Self {
        let own = Own::default();
        granted.iter().for_each(|(_, dir)| dir.account.add_owner(&own));
        Self {
            granted,
            rights: role.map(Rights::of).unwrap_or_default(),
            own,
            flushes: FlushRate::new(limits.flushes),
            tenant,
            hash: std::hash::RandomState::new(),
        }
    }

    /// Counts an attempt at something that was not granted.
    pub(crate) fn count_denied(&self, interface: &'static str) {
        self.tenant.count_denied(interface);
    }

    /// The refusal of something that was not granted.
    fn deny(&self) -> ErrorCode {
        self.count_denied(TYPES);
        ErrorCode::NotPermitted
    }

    fn refuse(&self, error: PathError) -> ErrorCode {
        match error {
            PathError::Outside => self.deny(),
            PathError::System(error) => code(&error.into()),
        }
    }
}

/// What stands behind WASI's `descriptor`.
pub(crate) enum Descriptor {
    Dir(OpenDir),
    File(OpenFile),
}

#[derive(Clone)]
pub(crate) struct OpenDir {
    file: Arc<File>,
    granted: GrantedDir,
    /// Folders between the granted directory and this one.
    depth: usize,
    mutate: bool,
}

#[derive(Clone)]
pub(crate) struct OpenFile {
    file: Arc<File>,
    granted: GrantedDir,
    shared: Arc<SharedFile>,
    read: bool,
    write: bool,
}

impl Descriptor {
    fn file(&self) -> &Arc<File> {
        match self {
            Descriptor::Dir(dir) => &dir.file,
            Descriptor::File(file) => &file.file,
        }
    }
}

/// In WASI's words.
fn code(error: &io::Error) -> ErrorCode {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::DQUOT) => ErrorCode::Quota,
        Some(Errno::XDEV) => ErrorCode::CrossDevice,
        Some(Errno::ROFS) => ErrorCode::ReadOnly,
        Some(Errno::TXTBSY) => ErrorCode::TextFileBusy,
        Some(Errno::MFILE | Errno::NFILE) => ErrorCode::InsufficientMemory,
        _ => ErrorCode::from(error),
    }
}

/// Links `wasi:filesystem`, in place of wasmtime's.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    types::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    preopens::add_to_linker::<_, HasSelf<State>>(linker, State::counted)
}
