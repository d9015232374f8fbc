//! Which files there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::FileType;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use walkdir::WalkDir;

use crate::source::SourceError;

/// Files by partition name, and where they are.
pub(in crate::source) type Found = BTreeMap<String, PathBuf>;

/// All files that any of the patterns matches. A file that several patterns match is one partition.
///
/// A partition's name is the file's path relative to `base`, also if that takes `..`, so that a project can be moved as
/// a whole; files that an absolute pattern finds outside of `base` are named by their absolute path.
pub(in crate::source) fn discover(base: &Path, patterns: &[String]) -> Result<Found, SourceError> {
    if patterns.is_empty() {
        let expected = "must name at least one file or pattern".to_owned();
        return Err(SourceError::Configuration { key: "paths", expected });
    }
    let base = self::base(base)?;
    let mut found = Found::new();
    let mut seen = BTreeSet::new();
    for pattern in patterns {
        for path in matches(&base, pattern)? {
            let path = normal(&path);
            if seen.insert(path.clone()) {
                found.insert(name(&base, &path, Path::new(pattern).is_absolute())?, path);
            }
        }
    }
    refuse_second_names(&found)?;
    Ok(found)
}

/// The directory that names count from, as an absolute path.
pub(super) fn base(base: &Path) -> Result<PathBuf, SourceError> {
    let absolute = std::path::absolute(base).map_err(|error| SourceError::Io { path: base.to_owned(), error })?;
    Ok(normal(&absolute))
}

/// Whether the pattern would match a file, whatever its name, that lies directly in `dir`. Patterns with `**` are judged
/// by where they begin.
pub fn reaches(base: &Path, pattern: &str, dir: &Path) -> bool {
    let (root, rest) = split(&normal(base), pattern);
    let (root, dir) = (normal(&root), normal(dir));
    let Some(rest) = rest else { return root.parent() == Some(&dir) };
    let Ok(inside) = dir.strip_prefix(&root) else { return false };
    if !is_hidden(&rest) && inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b".")) {
        return false;
    }
    match rest.rsplit_once('/') {
        _ if rest.contains("**") => true,
        None => inside.as_os_str().is_empty(),
        // What is no pattern by itself, such as `{a/b,c}` cut in two, may be anything.
        Some((folder, _)) => compile(pattern, folder).map_or(true, |matcher| matcher.is_match(inside)),
    }
}

/// Whether the pattern matches this file, there or not.
pub fn matches_file(base: &Path, pattern: &str, file: &Path) -> bool {
    let (root, rest) = split(&normal(base), pattern);
    let (root, file) = (normal(&root), normal(file));
    let Some(rest) = rest else { return root == file };
    let Ok(inside) = file.strip_prefix(&root) else { return false };
    if !is_hidden(&rest) && inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b".")) {
        return false;
    }
    compile(pattern, &rest).is_ok_and(|matcher| matcher.is_match(inside))
}

/// Whether the pattern asks for names that begin with a dot.
fn is_hidden(rest: &str) -> bool {
    rest.split('/').any(|part| part.starts_with('.'))
}

/// A file with two names would be read twice.
fn refuse_second_names(found: &Found) -> Result<(), SourceError> {
    let mut names = BTreeMap::new();
    for (name, path) in found {
        let data = std::fs::metadata(path).map_err(|error| SourceError::Io { path: path.clone(), error })?;
        if let Some(first) = names.insert((data.dev(), data.ino()), name) {
            let expected = format!(
                "`{first}` and `{name}` are one file, by a symbolic or hard link, and its rows would be read twice; \
                 remove one of the two, or make the patterns match only one"
            );
            return Err(SourceError::Configuration { key: "paths", expected });
        }
    }
    Ok(())
}

/// Refuses what is neither a file nor a directory: leaving it out in silence would lose what someone wants to be read.
pub(super) fn refuse_special(kind: FileType, path: &Path) -> Result<(), SourceError> {
    let what = match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => return Ok(()),
    };
    let expected = format!(
        "{} is {what} and not a file; it cannot be read again after a restart. Move it away, or make the patterns not \
         match it; the `stdin` source reads streams",
        path.display()
    );
    Err(SourceError::Configuration { key: "paths", expected })
}

fn matches(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, SourceError> {
    let mut files = Vec::new();
    let root = search(base, pattern, &mut |found| {
        files.push(found?);
        Ok(())
    })?;
    if files.is_empty() {
        return Err(SourceError::NothingMatches { pattern: pattern.to_owned(), searched: root });
    }
    Ok(files)
}

/// Hands over every file that the pattern matches, and whatever is in the way; goes on for as long as it is told to.
/// Gives the directory that was searched.
///
/// # Errors
/// The pattern is none, or what `each` answers.
pub(super) fn search(
    base: &Path,
    pattern: &str,
    each: &mut dyn FnMut(Result<PathBuf, SourceError>) -> Result<(), SourceError>,
) -> Result<PathBuf, SourceError> {
    let nothing =
        |searched: &Path| SourceError::NothingMatches { pattern: pattern.to_owned(), searched: searched.to_owned() };
    let (root, rest) = split(base, pattern);
    let Some(rest) = rest else {
        let searched = root.parent().unwrap_or(&root).to_owned();
        each(plain_file(pattern, root))?;
        return Ok(searched);
    };
    let matcher = compile(pattern, &rest)?;
    let hidden = is_hidden(&rest);
    let mut walk = WalkDir::new(&root).follow_links(true).min_depth(1);
    if !rest.contains("**") {
        walk = walk.max_depth(rest.split('/').count());
    }
    // Names that begin with a dot are left out, as shells do: they are other programs' unfinished files.
    let visible = |entry: &walkdir::DirEntry| {
        hidden || entry.depth() == 0 || !entry.file_name().as_encoded_bytes().starts_with(b".")
    };
    for entry in walk.into_iter().filter_entry(visible) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                each(Err(walk_error(error, &root, nothing(&root))))?;
                continue;
            }
        };
        let inside = entry.path().strip_prefix(&root).unwrap_or(entry.path());
        if matcher.is_match(inside) {
            match refuse_special(entry.file_type(), entry.path()) {
                Err(error) => each(Err(error))?,
                Ok(()) if entry.file_type().is_file() => each(Ok(entry.into_path()))?,
                Ok(()) => {}
            }
        }
    }
    Ok(root)
}

fn plain_file(pattern: &str, path: PathBuf) -> Result<PathBuf, SourceError> {
    match std::fs::metadata(&path) {
        Ok(data) if data.is_file() => Ok(path),
        Ok(data) => {
            refuse_special(data.file_type(), &path)?;
            let expected = format!("`{pattern}` is not a file; to read a directory's files, write `{pattern}/*`");
            Err(SourceError::Configuration { key: "paths", expected })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let searched = path.parent().unwrap_or(&path).to_owned();
            Err(SourceError::NothingMatches { pattern: pattern.to_owned(), searched })
        }
        Err(error) => Err(SourceError::Io { path, error }),
    }
}

fn compile(pattern: &str, rest: &str) -> Result<GlobMatcher, SourceError> {
    match GlobBuilder::new(rest).literal_separator(true).build() {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => {
            let expected = format!("`{pattern}` is not a pattern: {}", error.kind());
            Err(SourceError::Configuration { key: "paths", expected })
        }
    }
}

fn walk_error(error: walkdir::Error, root: &Path, nothing: SourceError) -> SourceError {
    let path = error.path().unwrap_or(root).to_owned();
    if let Some(ancestor) = error.loop_ancestor() {
        let expected = format!("{} is a link to its own parent {}", path.display(), ancestor.display());
        return SourceError::Configuration { key: "paths", expected };
    }
    match error.into_io_error() {
        Some(error) if error.kind() == io::ErrorKind::NotFound && path == root => nothing,
        Some(error) => SourceError::Io { path, error },
        None => SourceError::Io { path, error: io::Error::other("the directory cannot be walked") },
    }
}

/// The directory before the first component with a special character, and the rest, if there is one.
fn split(base: &Path, pattern: &str) -> (PathBuf, Option<String>) {
    let special = |part: &str| part.contains(['*', '?', '[', ']', '{', '}', '\\']);
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let literal = parts.iter().take_while(|part| !special(part)).count();
    let start = if pattern.starts_with('/') { Path::new("/") } else { base };
    let root = parts[..literal].iter().fold(start.to_owned(), |path, part| path.join(part));
    (root, (literal < parts.len()).then(|| parts[literal..].join("/")))
}

/// Resolves `.` and `..` by the letter.
pub(super) fn normal(path: &Path) -> PathBuf {
    let text = path.as_os_str().as_encoded_bytes();
    let is_normal = text.starts_with(b"/") && !text.ends_with(b"/");
    if is_normal && [&b"/."[..], b"//"].iter().all(|odd| memchr::memmem::find(text, odd).is_none()) {
        return path.to_owned();
    }
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

pub(super) fn name(base: &Path, path: &Path, absolute: bool) -> Result<String, SourceError> {
    // Nearly all of them, and there may be very many.
    let inside = path.to_str().zip(base.to_str()).and_then(|(path, base)| path.strip_prefix(base)?.strip_prefix('/'));
    if let Some(inside) = inside {
        return Ok(inside.to_owned());
    }
    let name = match path.strip_prefix(base) {
        Ok(inside) => inside.to_owned(),
        Err(_) if absolute => path.to_owned(),
        Err(_) => relative(base, path),
    };
    name.into_os_string().into_string().map_err(|name| SourceError::Configuration {
        key: "paths",
        expected: format!("file names must be UTF-8, `{}` is not; rename it", name.to_string_lossy()),
    })
}

fn relative(base: &Path, path: &Path) -> PathBuf {
    let common = base.components().zip(path.components()).take_while(|(a, b)| a == b).count();
    let up = base.components().skip(common).map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}
