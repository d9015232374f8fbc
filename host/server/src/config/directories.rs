//! Directories granted to plugins, and those that would eat themselves: output that is read again as input, state among
//! outputs or inputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidegate_pipeline::source::files;

use super::places::of_source;
use super::reader::{Document, Entry, Section};
use super::{DirGrant, PipelineFile, SourceKind, tables};

/// Where a sink writes, seen from the directory granted to it: there, and where the `files` sink keeps its own.
const WRITTEN_BELOW: [&str; 4] = ["", "_epochs", "_tidegate/sink/staging", "_tidegate/sink/register"];

/// Names of what is kept in a state directory.
const KEPT_IN_STATE: [&str; 7] = [
    "lock",
    "lease",
    "control.sock",
    "moved.json",
    "log/00000000000000000001.log",
    "log/00000000000000000001.log.tmp",
    "state/0000000000000000000000000000000000000000000000000000000000000000",
];

/// The directories that a sink grants. Relative ones start at `base`.
pub(super) fn grants(base: &Path, sink: &Section<'_, '_>) -> BTreeMap<String, DirGrant> {
    let entries = sink.entries("dirs").into_iter();
    entries.filter_map(|entry| grant(base, &entry).map(|grant| (entry.name, grant))).collect()
}

fn grant(base: &Path, entry: &Entry<'_, '_>) -> Option<DirGrant> {
    if entry.kind() == "a table" {
        let section = entry.section(tables::DIR)?;
        let (written, own_volume) = (section.text("path"), section.boolean("own-volume"));
        let (quota, max_files) = (section.has("quota"), section.has("max-files"));
        let quota = if quota { Some(section.size("quota")?) } else { None };
        let max_files = if max_files { Some(section.integer("max-files")?) } else { None };
        let (written, own_volume) = (written?, own_volume?);
        return Some(DirGrant { path: base.join(&written), written, quota, max_files, own_volume });
    }
    match entry.as_text() {
        Some(text) if !text.is_empty() && !text.contains('\0') => {
            let path = base.join(text);
            Some(DirGrant { written: text.to_owned(), path, quota: None, max_files: None, own_volume: false })
        }
        _ => {
            entry.problem(
                format!("`{}` is {}, expected a path in quotes", entry.path, entry.kind()),
                &[
                    "the name is the plugin's, the path is yours: output = \"out\"",
                    "with a quota it is a table: output = { path = \"out\", quota = \"10GiB\", max-files = 100000 }",
                ],
            );
            None
        }
    }
}

/// Notes what lies where it must not.
pub(super) fn check(base: &Path, document: &Document<'_>, file: &PipelineFile) {
    Directories { base, document }.check_directories(file);
}

struct Directories<'d, 'i> {
    base: &'d Path,
    document: &'d Document<'i>,
}

impl Directories<'_, '_> {
    /// Refuses a state directory whose files a source would read.
    fn check_state(&self, written: &Path, real: &Path, file: &PipelineFile) {
        let kept: Vec<_> =
            [written, real].iter().flat_map(|state| KEPT_IN_STATE.map(|name| state.join(name))).collect();
        for (source, section) in &file.sources {
            let SourceKind::Files { paths, .. } = &section.kind else { continue };
            let read = |glob: &&String| kept.iter().any(|name| files::matches_file(self.base, glob, name));
            if let Some(glob) = paths.iter().find(read) {
                let message = format!(
                    "`state` in [pipeline] is {}, and `{glob}` of `paths` in [sources.{source}] would read what is kept \
                     there",
                    written.display()
                );
                let at = file.places.at(&["pipeline".to_owned(), "state".to_owned()]);
                self.document.problem_at(at, message, "give the state a directory that no pattern of a source covers");
            }
        }
    }

    fn check_directories(&self, file: &PipelineFile) {
        let sinks = file.all_sinks().flat_map(|(id, sink, _)| {
            let folder = sink.files.as_ref().and_then(|files| files.folder.as_deref()).map(some_folder);
            sink.dirs.values().map(move |grant| (id.clone(), plain(&grant.path), folder.clone())).collect::<Vec<_>>()
        });
        let state = real(&file.pipeline.state);
        self.check_state(&file.pipeline.state, &state, file);
        for (sink, dir, folder) in sinks {
            let place = real(&dir);
            if place.starts_with(&state) || state.starts_with(&place) {
                let message = format!(
                    "the state directory and a directory of sink `{sink}` lie in each other: {}",
                    dir.display()
                );
                let at = file.places.at(&["pipeline".to_owned(), "state".to_owned()]);
                self.document.problem_at(at, message, "give the state a directory of its own");
            }
            for (source, section) in &file.sources {
                let SourceKind::Files { paths, .. } = &section.kind else { continue };
                let written: Vec<_> =
                    WRITTEN_BELOW.into_iter().chain(folder.as_deref()).map(|below| dir.join(below)).collect();
                let read = |glob: &String| written.iter().any(|folder| files::reaches(self.base, glob, folder));
                if paths.iter().any(read) {
                    let message =
                        format!("source `{source}` would read what sink `{sink}` writes in {}", dir.display());
                    let at = file.places.at(&of_source(source, &["paths"]));
                    self.document.problem_at(at, message, "write to a directory that no glob of a source covers");
                }
            }
        }
    }
}

/// One of the folders that a template names.
fn some_folder(template: &str) -> String {
    let mut folder = String::new();
    let mut within = false;
    for letter in template.trim_matches('/').chars() {
        match letter {
            '{' => within = true,
            '}' => {
                within = false;
                folder.push('x');
            }
            letter if !within => folder.push(letter),
            _ => {}
        }
    }
    folder
}

/// The path without `.` and, as far as the text tells, without `..`.
fn plain(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// Where the path leads, through symbolic links as far as it exists; the rest as [`plain`] has it.
pub(crate) fn real(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let Ok(found) = existing.canonicalize() {
            let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
            return plain(&found.join(rest));
        }
    }
    plain(path)
}
