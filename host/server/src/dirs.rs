//! Directories granted to plugins, looked at without touching them.

use std::io::ErrorKind as Io;

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

/// What would keep a plugin from writing, as far as that can be seen without being asked to look.
pub(crate) fn findings(file: &PipelineFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, section, _) in file.all_sinks() {
        for (name, grant) in &section.dirs {
            if let Some(wrong) = no_directory(file, &id, name, grant) {
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
