//! Files that two sources read: their rows come twice where one sink takes both.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tidegate_pipeline::source::files::{FilesOptions, FilesSource, Format};
use tidegate_protocol::ids::SourceId;

use crate::config::{PipelineFile, SourceKind, of_source};
use crate::edits::{Finding, Verdict};

/// A warning for every two sources of one sink that read the same files now.
pub(crate) fn findings(file: &PipelineFile) -> Vec<Finding> {
    let read: Vec<_> = file
        .sources
        .iter()
        .filter_map(|(id, section)| match &section.kind {
            SourceKind::Files { paths, .. } => Some((id, paths)),
            _ => None,
        })
        .collect();
    let together = |one: &SourceId, other: &SourceId| {
        file.sinks.values().any(|sink| sink.sources.contains(one) && sink.sources.contains(other))
    };
    let met = |id: &SourceId| read.iter().any(|(other, _)| *other != id && together(id, other));
    // Looking takes a while in large directories.
    let candidates = read.iter().filter(|(id, _)| met(id));
    let mut seen: BTreeMap<(u64, u64), Vec<&SourceId>> = BTreeMap::new();
    let mut shared: BTreeMap<(&SourceId, &SourceId), (PathBuf, u64)> = BTreeMap::new();
    for (id, paths) in candidates {
        for path in found(file, paths) {
            let Ok(data) = std::fs::metadata(&path) else { continue };
            let readers = seen.entry((data.dev(), data.ino())).or_default();
            for other in readers.iter().filter(|other| together(id, other)) {
                shared.entry((*other, *id)).or_insert_with(|| (path.clone(), 0)).1 += 1;
            }
            readers.push(id);
        }
    }
    shared.iter().map(|((one, other), (path, count))| finding(file, one, other, path, *count)).collect()
}

fn finding(file: &PipelineFile, one: &SourceId, other: &SourceId, path: &std::path::Path, count: u64) -> Finding {
    let more = match count {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let message = format!(
        "sources `{one}` and `{other}` both read {}{more}: a sink that takes both gets every row of it twice",
        path.display()
    );
    Finding::new(Verdict::Warning, file.told_at(&of_source(other, &["paths"]), message))
        .hint("make the patterns in `paths` of one of the two leave it out, or give the sinks `sources` of their own")
}

/// The files that the patterns match now; none where they cannot be listed, which is told elsewhere.
fn found(file: &PipelineFile, paths: &[String]) -> Vec<PathBuf> {
    let options = FilesOptions::new(&file.base, paths.to_vec(), Format::Raw);
    let names = FilesSource::new(options).and_then(|source| source.partitions()).unwrap_or_default();
    names.into_iter().map(|name| file.base.join(name)).collect()
}
