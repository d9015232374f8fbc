//! From a plugin's path to a file below a granted directory, and never elsewhere.
//!
//! The kernel resolves paths beneath the directory (`openat2`), so that nothing that is swapped meanwhile leads out. Where
//! it cannot, paths are walked step by step, and links are not followed at all.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Bytes of a path.
const MAX_PATH: usize = 4095;
/// Bytes of one name in a path.
const MAX_NAME: usize = 255;
/// How often a path is resolved anew when folders on it are moved meanwhile.
const MAX_TRIES: usize = 16;

/// Why a path leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// It leads out of the directory, or would.
    Outside,
    /// Anything else.
    System(Errno),
}

impl From<Errno> for PathError {
    fn from(error: Errno) -> Self {
        match error {
            // What `openat2` says of a path that leaves the directory.
            Errno::XDEV => Self::Outside,
            error => Self::System(error),
        }
    }
}

/// A path in its parts. Relative, and its `..` stay below where it starts as far as the text tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathParts<'a> {
    /// Everything before the last name; `None`: nothing.
    pub(crate) parent: Option<&'a str>,
    /// The last name; `None`: the path is the directory itself, or ends in `.` or `..`.
    pub(crate) name: Option<&'a str>,
    /// It ends in a slash: only a folder is meant.
    pub(crate) folder: bool,
    /// Names on the way, the last one included.
    pub(crate) depth: usize,
}

/// Takes a path apart.
pub(crate) fn parse(path: &str) -> Result<PathParts<'_>, PathError> {
    if path.starts_with('/') {
        return Err(PathError::Outside);
    }
    if path.is_empty() {
        return Err(PathError::System(Errno::NOENT));
    }
    if path.contains('\0') {
        return Err(PathError::System(Errno::INVAL));
    }
    if path.len() > MAX_PATH || path.split('/').any(|name| name.len() > MAX_NAME) {
        return Err(PathError::System(Errno::NAMETOOLONG));
    }
    let (mut level, mut depth) = (0isize, 0usize);
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => level -= 1,
            _ => (level, depth) = (level + 1, depth + 1),
        }
        if level < 0 {
            return Err(PathError::Outside);
        }
    }
    let trimmed = path.trim_end_matches('/');
    let folder = trimmed.len() < path.len();
    let (parent, name) = match trimmed.rsplit_once('/') {
        Some((parent, name)) => (Some(parent), name),
        None => (None, trimmed),
    };
    let name = (!matches!(name, "." | "..")).then_some(name);
    Ok(PathParts { parent, name, folder, depth })
}

/// Opens what `path` stands for below `dir`. With `flags` as for `openat`; the path was parsed before.
pub(crate) fn open(dir: &File, path: &str, flags: OFlags) -> Result<OwnedFd, PathError> {
    static WITHOUT_OPENAT2: AtomicBool = AtomicBool::new(false);
    let flags = flags | OFlags::CLOEXEC;
    if !WITHOUT_OPENAT2.load(Ordering::Relaxed) {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_TRIES {
            match openat2(dir, path, flags, Mode::empty(), resolve) {
                // Something on the way was moved meanwhile.
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS) => {
                    WITHOUT_OPENAT2.store(true, Ordering::Relaxed);
                    return open_by_steps(dir, path, flags);
                }
                opened => return Ok(opened?),
            }
        }
        return Err(PathError::System(Errno::AGAIN));
    }
    open_by_steps(dir, path, flags)
}

/// The same without help of the kernel: `..` and links on the way are refused.
fn open_by_steps(dir: &File, path: &str, flags: OFlags) -> Result<OwnedFd, PathError> {
    let mut at = dir.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    let Some((last, before)) = names.split_last() else {
        return Ok(openat(&at, ".", flags | OFlags::DIRECTORY, Mode::empty())?);
    };
    if names.contains(&"..") {
        return Err(PathError::Outside);
    }
    for name in before {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = openat(&at, *name, step, Mode::empty())?;
    }
    let directory = if path.ends_with('/') { OFlags::DIRECTORY } else { OFlags::empty() };
    Ok(openat(&at, *last, flags | directory | OFlags::NOFOLLOW, Mode::empty())?)
}

/// A name for system calls.
pub(crate) fn c_name(name: &str) -> Result<CString, PathError> {
    CString::new(name).map_err(|_| PathError::System(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let parts = |parent, name, folder, depth| Ok(PathParts { parent, name, folder, depth });
        assert_eq!(parse("a"), parts(None, Some("a"), false, 1));
        assert_eq!(parse("a/./b//c/"), parts(Some("a/./b/"), Some("c"), true, 3));
        assert_eq!(parse("a/.."), parts(Some("a"), None, false, 1));
        assert_eq!(parse("."), parts(None, None, false, 0));
        for outside in ["/", "//a", "/etc/passwd", "..", "../a", "a/../../b", "./.."] {
            assert_eq!(parse(outside), Err(PathError::Outside), "{outside}");
        }
        assert_eq!(parse(""), Err(PathError::System(Errno::NOENT)));
        assert_eq!(parse("a\0b"), Err(PathError::System(Errno::INVAL)));
        assert_eq!(parse(&"x".repeat(256)), Err(PathError::System(Errno::NAMETOOLONG)));
        assert_eq!(parse(&"x/".repeat(3000)), Err(PathError::System(Errno::NAMETOOLONG)));
    }

    #[test]
    fn neither_way_leads_out() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("in/a")).unwrap();
        std::fs::write(base.path().join("secret"), "x").unwrap();
        std::fs::write(base.path().join("in/a/file"), "x").unwrap();
        for (target, link) in [("../secret", "up"), ("/etc/passwd", "absolute"), ("a", "inside")] {
            std::os::unix::fs::symlink(target, base.path().join("in").join(link)).unwrap();
        }
        let dir = File::open(base.path().join("in")).unwrap();
        for open in [open, open_by_steps] {
            assert!(open(&dir, "a/file", OFlags::RDONLY).is_ok());
            assert!(open(&dir, "a/", OFlags::RDONLY).is_ok());
            assert!(open(&dir, "a/file/", OFlags::RDONLY).is_err());
            assert!(open(&dir, ".", OFlags::RDONLY).is_ok());
            for outside in ["up", "absolute", "a/../../secret", "a/../up"] {
                assert!(open(&dir, outside, OFlags::RDONLY).is_err(), "{outside}");
            }
        }
        assert!(open(&dir, "inside/file", OFlags::RDONLY).is_ok());
        assert!(open_by_steps(&dir, "inside/file", OFlags::RDONLY).is_err());
    }
}
