//! What a child process of ours is put under, before it looks at anything that a stranger made.
//!
//! The child applies it to itself, single-threaded, right after it was started. No barrier stands alone: a system call
//! that one of them lets through has to pass the others.
//!
//! | barrier | keeps out |
//! |---|---|
//! | limits (`setrlimit`) | memory, processor time, open files, written bytes, threads, core dumps |
//! | user, network, IPC, UTS and cgroup namespaces | every network, also abstract sockets; System V IPC |
//! | Landlock | every path that is not listed; where the kernel knows how: TCP, UDP, and signals to other processes |
//! | no capabilities, no new privileges | what root may do; set-user-id programs |
//! | a session of its own, death with the parent | the terminal's signals; outliving the host |

use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::{fmt, fs, io};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use serde::{Deserialize, Serialize};

/// What happens where the kernel denies a part of the confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ConfinementPolicy {
    /// Nothing is done in a child process that is not wholly confined.
    #[default]
    Required,
    /// What cannot be applied is logged as a warning, and the child works without it.
    IfPossible,
}

/// What a child process may have. The default is nothing, without limits on memory and time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Confinement {
    /// Bytes of address space. Not for a child that runs plugins: wasmtime reserves much more than it uses.
    pub address_space: Option<u64>,
    /// Bytes of private memory that can be written to. Memory shared between processes does not count.
    pub data: Option<u64>,
    /// Seconds of processor time of all its threads together.
    pub cpu_seconds: Option<u64>,
    /// File descriptors, standard streams included.
    pub open_files: Option<u64>,
    /// Largest size in bytes to which it may write a file. A larger one ends it.
    pub file_bytes: Option<u64>,
    /// Threads, the first one included.
    pub threads: Option<u64>,
    /// By how much less urgent than its parent it is (0 to 19).
    pub nice: i32,
    /// Whether it keeps the host's network.
    pub network: bool,
    /// Files, and folders with all that is in them, that it may read.
    pub read: Vec<PathBuf>,
    /// Folders in which it may also create, change and delete.
    pub write: Vec<PathBuf>,
}

/// A barrier that could not be put up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Which one.
    pub barrier: String,
    /// Why not.
    pub why: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.barrier, self.why)
    }
}

/// Ends this process when its parent, or the parent's thread that started it, ends. `false` if the parent already has.
pub fn die_with_parent(parent: u32) -> bool {
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // Asked after the request: a parent that died before it is no longer our parent.
    asked.is_ok() && i32::try_from(parent).is_ok_and(|parent| Pid::as_raw(rustix::process::getppid()) == parent)
}

/// Closes all file descriptors but the standard streams.
///
/// # Safety
/// Nothing in this process owns a descriptor above 2, as in `main` before anything was opened.
pub unsafe fn close_inherited() -> io::Result<()> {
    let mut inherited = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        inherited.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()).filter(|fd| *fd > 2));
    }
    for fd in inherited {
        // SAFETY: it is borrowed for no longer than the question whether it is open, and closed only if so: one of them was
        // the listing's own. The caller says that nobody owns the others.
        unsafe {
            if rustix::io::fcntl_getfd(BorrowedFd::borrow_raw(fd)).is_ok() {
                rustix::io::close(fd);
            }
        }
    }
    Ok(())
}

impl Confinement {
    /// Puts this process under it, and says what could not be applied. There must be one thread only.
    pub fn apply(&self) -> Vec<Gap> {
        let mut gaps = Gaps::default();
        // Fails if this process leads its group, which is as good.
        let _ = rustix::process::setsid();
        gaps.note("the working directory", std::env::set_current_dir("/"));
        if self.nice > 0 {
            gaps.note("a lower priority", rustix::process::nice(self.nice));
        }
        gaps.note("no new privileges", rustix::thread::set_no_new_privs(true));
        match self.landlock() {
            Ok(RulesetStatus::NotEnforced) => {
                gaps.add("Landlock", "this kernel does not have it, or it is switched off")
            }
            Ok(_) => {}
            Err(why) => gaps.add("Landlock", why),
        }
        let own_users = self.namespaces(&mut gaps);
        let none = CapabilitySet::empty();
        let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
        gaps.note("no capabilities", rustix::thread::set_capabilities(None, none));
        self.limits(own_users, &mut gaps);
        gaps.0
    }

    /// Leaves the namespaces of the host. Says whether it has a user namespace of its own.
    fn namespaces(&self, gaps: &mut Gaps) -> bool {
        let mut flags = UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
        if !self.network {
            flags |= UnshareFlags::NEWNET;
        }
        // SAFETY: `FILES` is not among the flags.
        let with_users = unsafe { rustix::thread::unshare_unsafe(flags | UnshareFlags::NEWUSER) };
        let Err(why) = with_users else { return true };
        // Where user namespaces are denied, root can still have the others.
        // SAFETY: as above.
        if unsafe { rustix::thread::unshare_unsafe(flags) }.is_err() {
            gaps.add("namespaces", format!("unshare: {why}; see user.max_user_namespaces and the like"));
        }
        false
    }

    /// All that this kernel's Landlock can deny is denied, but for what is listed.
    fn landlock(&self) -> Result<RulesetStatus, String> {
        // Known rights that this kernel does not know are left out.
        const ABI_KNOWN: ABI = ABI::V10;
        let fail = |error: RulesetError| error.to_string();
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI_KNOWN))
            .and_then(|rules| rules.scope(Scope::from_all(ABI_KNOWN)))
            .map_err(fail)?;
        if !self.network {
            rules = rules.handle_access(AccessNet::from_all(ABI_KNOWN)).map_err(fail)?;
        }
        let mut rules = rules.create().map_err(fail)?;
        let read = self.read.iter().map(|path| (path, AccessFs::ReadFile | AccessFs::ReadDir));
        let special = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
        let write = self.write.iter().map(|path| (path, AccessFs::from_all(ABI_KNOWN) & !special));
        for (path, access) in read.chain(write) {
            let parent = PathFd::new(path).map_err(|error| error.to_string())?;
            let is_dir = fs::metadata(path).is_ok_and(|meta| meta.is_dir());
            let access = if is_dir { access } else { access & AccessFs::from_file(ABI_KNOWN) };
            rules = rules.add_rule(PathBeneath::new(parent, access)).map_err(fail)?;
        }
        Ok(rules.restrict_self().map_err(fail)?.ruleset)
    }

    fn limits(&self, own_users: bool, gaps: &mut Gaps) {
        let cpu = self.cpu_seconds.map(|soft| Rlimit { current: Some(soft), maximum: Some(soft.saturating_add(5)) });
        // Without a user namespace of its own, all processes of this user would count.
        let threads = self.threads.filter(|_| own_users);
        let limits = [
            ("core dumps", Resource::Core, Some(fixed(0))),
            ("file size", Resource::Fsize, self.file_bytes.map(fixed)),
            ("message queues", Resource::Msgqueue, Some(fixed(0))),
            ("address space", Resource::As, self.address_space.map(fixed)),
            ("private memory", Resource::Data, self.data.map(fixed)),
            // Passing the first limit ends the process with a signal that tells, the second one in any case.
            ("processor time", Resource::Cpu, cpu),
            ("threads", Resource::Nproc, threads.map(fixed)),
            ("open files", Resource::Nofile, self.open_files.map(fixed)),
        ];
        for (name, resource, limit) in limits {
            if let Some(limit) = limit {
                gaps.note(&format!("the limit on {name}"), set_limit(resource, limit));
            }
        }
    }
}

fn fixed(value: u64) -> Rlimit {
    Rlimit { current: Some(value), maximum: Some(value) }
}

/// A limit that is lower already stays.
fn set_limit(resource: Resource, wanted: Rlimit) -> rustix::io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let lower = |now: Option<u64>, wanted: Option<u64>| match (now, wanted) {
        (Some(now), Some(wanted)) => Some(now.min(wanted)),
        (now, wanted) => now.or(wanted),
    };
    let maximum = lower(now.maximum, wanted.maximum);
    let current = lower(lower(now.current, wanted.current), maximum);
    rustix::process::setrlimit(resource, Rlimit { current, maximum })
}

#[derive(Default)]
struct Gaps(Vec<Gap>);

impl Gaps {
    fn add(&mut self, barrier: &str, why: impl Into<String>) {
        self.0.push(Gap { barrier: barrier.to_owned(), why: why.into() });
    }

    fn note<T, E: fmt::Display>(&mut self, barrier: &str, applied: Result<T, E>) {
        if let Err(error) = applied {
            self.add(barrier, error.to_string());
        }
    }
}
