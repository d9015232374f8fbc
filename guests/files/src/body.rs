//! What a committable says, in all versions.

use serde::{Deserialize, Serialize};
use tidegate_sdk::{Committable, Error};

use crate::layout;

/// Version of [`Body`].
const VERSION: u32 = 1;
/// Version of [`NumberedBody`].
const NUMBERED_VERSION: u32 = 2;
/// Versions that can be committed and given back.
pub(crate) const VERSIONS: [u32; 2] = [VERSION, NUMBERED_VERSION];

/// Version 1: one file, staged under the part's short id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Body {
    /// The name to publish under; none: there were no rows and there is no file.
    pub(crate) file: Option<String>,
    /// Size of the file.
    pub(crate) bytes: u64,
}

/// Version 2: files of the host, staged under the part's short id and their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NumberedBody {
    /// Begins the names to publish under: `<folder>/<stem>-<number>.<extension>`.
    pub(crate) stem: String,
    /// Each folder once; empty for none.
    pub(crate) folders: Vec<String>,
    /// The files; a file's number is its place in the list.
    pub(crate) files: Vec<NumberedFile>,
}

/// A file of version 2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NumberedFile {
    /// Which of the folders.
    pub(crate) folder: u32,
    pub(crate) extension: String,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
}

/// A body on its way into a committable.
pub(crate) struct Encoded {
    pub(crate) version: u32,
    pub(crate) bytes: serde_json::Result<Vec<u8>>,
    /// Whether there is a file at all.
    pub(crate) any: bool,
}

impl From<Body> for Encoded {
    fn from(body: Body) -> Encoded {
        Encoded { version: VERSION, bytes: serde_json::to_vec(&body), any: body.file.is_some() }
    }
}

impl From<NumberedBody> for Encoded {
    fn from(body: NumberedBody) -> Encoded {
        Encoded { version: NUMBERED_VERSION, bytes: serde_json::to_vec(&body), any: !body.files.is_empty() }
    }
}

/// A file of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartFile {
    /// Its name in `staging`.
    pub(crate) staged: String,
    /// Its name to publish under, with its folder.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
}

/// What is to be published of a part.
pub(crate) struct PartFiles {
    pub(crate) files: Vec<PartFile>,
    /// Whether they are staged with numbers.
    pub(crate) numbered: bool,
}

/// Reads a committable of any version; checks all that becomes part of a path.
pub(crate) fn read(committable: &Committable) -> Result<PartFiles, Error> {
    let Committable { part, version, body, rows, .. } = committable;
    let wrong =
        |error: &dyn std::fmt::Display| Error::permanent("committable-body", format!("`{}`: {error}", part.short));
    match *version {
        VERSION => {
            let body: Body = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
            let file = |name: String| PartFile { staged: part.short.clone(), name, bytes: body.bytes, rows: *rows };
            let files: Vec<PartFile> = body.file.into_iter().map(file).collect();
            files.iter().try_for_each(|file| layout::check_published(&file.name))?;
            Ok(PartFiles { files, numbered: false })
        }
        NUMBERED_VERSION => {
            let body: NumberedBody = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
            body.folders.iter().try_for_each(|folder| layout::check_folder(folder))?;
            let mut files = Vec::with_capacity(body.files.len());
            let mut sum = 0u64;
            for (number, file) in (0u32..).zip(body.files) {
                let NumberedFile { folder, extension, bytes, rows } = file;
                let folder =
                    body.folders.get(folder as usize).ok_or_else(|| wrong(&"it names a folder it does not have"))?;
                layout::check_published(&layout::numbered("", &body.stem, number, &extension))?;
                sum = sum.saturating_add(rows);
                files.push(PartFile {
                    staged: layout::staged_name(&part.short, number),
                    name: layout::numbered(folder, &body.stem, number, &extension),
                    bytes,
                    rows,
                });
            }
            if sum != *rows {
                return Err(wrong(&"its files do not have as many rows as the part"));
            }
            Ok(PartFiles { files, numbered: true })
        }
        other => {
            let message = format!("`{}` has committable version {other}; this plugin reads 1 and 2", part.short);
            Err(Error::permanent("committable-version", message))
        }
    }
}
