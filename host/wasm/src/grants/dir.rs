//! A granted directory.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A directory that a plugin may use, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirGrant {
    /// Where it is. Created if missing.
    pub path: PathBuf,
    /// Bytes that all files in it may have together, whoever wrote them; `None`: [`crate::Limits::disk_bytes`].
    pub quota_bytes: Option<u64>,
    /// Files and folders that may be in it; `None`: [`crate::Limits::disk_files`].
    pub quota_files: Option<u64>,
}

impl DirGrant {
    /// With the quota of the instance's limits.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), quota_bytes: None, quota_files: None }
    }
}

impl<P: Into<PathBuf>> From<P> for DirGrant {
    fn from(path: P) -> Self {
        Self::new(path)
    }
}
