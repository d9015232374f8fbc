//! Directories granted to plugins, looked at without touching them.

use std::io::ErrorKind as Io;
use std::path::Path;

use rustix::fs::{Access, access};
use tidegate_protocol::ids::SinkId;

use crate::config::{ConfigError, DirGrant, PipelineFile, of_sink};
use crate::edits::{Finding, Verdict};
use crate::error::ErrorKind;

/// What the file is wrong about: there, or on the way there, is something that is no directory.
pub(crate) fn no_directory(file: &PipelineFile, id: &SinkId, name: &str, grant: &DirGrant) -> Option<ConfigError> {
    let path = &grant.path;
    let there = match std::fs::metadata(path) {
        Ok(found) => (!found.is_dir()).then_some(path.as_path()),
        Err(error) if error.kind() == Io::NotADirectory => path.ancestors().find(|path| path.is_file()),
        Err(_) => None,
    }?;
    let lies = if there == path { String::new() } else { format!(", on the way to {}", path.display()) };
    let message = format!("sink `{id}`: {} (granted as `{name}`) is not a directory{lies}", there.display());
    let hint = "grant another path, or move away what is there";
    Some(file.wrong(&of_sink(id, &["dirs", name]), message, vec![hint.to_owned()]))
}

/// What a plugin gets.
pub(crate) fn of_plugin(grant: &DirGrant) -> tidegate_wasm::DirGrant {
    let DirGrant { path, quota, max_files, .. } = grant;
    tidegate_wasm::DirGrant { path: path.clone(), quota_bytes: *quota, quota_files: *max_files }
}

/// A directory that must be on a volume of its own, so that whoever fills it does not fill the log's, and is not.
pub(crate) fn shared_volume(file: &PipelineFile, id: &SinkId, name: &str, grant: &DirGrant) -> Option<ConfigError> {
    use std::os::unix::fs::MetadataExt as _;
    if !grant.own_volume {
        return None;
    }
    // What is missing is made where the nearest folder that is there lies.
    let here = |path: &Path| if path.as_os_str().is_empty() { Path::new(".").to_owned() } else { path.to_owned() };
    let look = |path: &Path| std::fs::metadata(here(path)).ok().map(|found| found.dev());
    let volume = |path: &Path| path.ancestors().find_map(look);
    let state = &file.pipeline.state;
    if volume(&grant.path) != volume(state) {
        return None;
    }
    let message = format!(
        "sink `{id}`: {} (granted as `{name}` with own-volume = true) is on the same volume as the state directory {}",
        grant.path.display(),
        state.display()
    );
    let hint = "mount another volume there, or write own-volume = false and rely on `quota`";
    Some(file.wrong(&of_sink(id, &["dirs", name]), message, vec![hint.to_owned()]))
}

/// What would keep a plugin from writing, as far as that can be seen without being asked to look.
pub(crate) fn findings(file: &PipelineFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, section, _) in file.all_sinks() {
        for (name, grant) in &section.dirs {
            let wrong = no_directory(file, &id, name, grant).or_else(|| shared_volume(file, &id, name, grant));
            if let Some(wrong) = wrong {
                findings.extend(Finding::of_error(&wrong.into()));
                continue;
            }
            let path = &grant.path;
            let told = |what: String| {
                let message = format!("sink `{id}`: {} (granted as `{name}`) {what}", path.display());
                Finding::new(Verdict::Refused, message).of_kind(ErrorKind::Failed)
            };
            match std::fs::metadata(path) {
                Ok(_) if access(path, Access::WRITE_OK).is_err() => findings.push(told("cannot be written".to_owned())),
                Err(error) if error.kind() != Io::NotFound => findings.push(told(format!("cannot be used: {error}"))),
                _ => {}
            }
        }
    }
    findings
}
