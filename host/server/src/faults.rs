//! What a person is told of a call that failed: what did not happen, why, where, and how to mend it. What is done about
//! it is decided in [`tidegate_protocol::fault`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_pipeline::observe::{Moment, Observer, Progress};
use tidegate_protocol::event::{Notice, TaskFailure};
use tidegate_protocol::fault::Cause;
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::plugin::{Blame, Call, CallFault, ErrorKind, FaultKind};

use crate::config::PipelineFile;
use crate::quarantine::Plugins;

/// What did not happen.
fn heading(call: Call) -> &'static str {
    match call {
        Call::Instantiate => "its plugin could not be started",
        Call::Describe => "its plugin does not say what it is",
        Call::Open => "its destination could not be opened for writing",
        Call::Begin | Call::Write => "rows could not be staged",
        Call::Prepare => "staged rows could not be made durable",
        Call::Observe => "its destination does not say where it stands",
        Call::Fence => "its destination could not be taken over from older runs",
        Call::Commit => "what is sealed could not be made visible",
        Call::Reconcile => "its destination does not say whether what is sealed is visible",
        Call::Abandon => "what was never sealed could not be given back",
        Call::Release => "what no checkpoint needs any more could not be released",
        Call::ListOrphans => "its destination does not list what is staged",
    }
}

/// The directories that each sink's plugin was granted: the plugin knows them by other names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directories(BTreeMap<SinkId, Vec<(String, PathBuf)>>);

impl Directories {
    pub(crate) fn of(file: &PipelineFile) -> Self {
        let granted = file.all_sinks().map(|(id, sink, _)| {
            (id, sink.dirs.iter().map(|(name, grant)| (name.clone(), grant.path.clone())).collect())
        });
        Self(granted.collect())
    }

    /// Where its plugin's names lead, one hint each.
    pub(crate) fn hints(&self, sink: &SinkId) -> Vec<String> {
        let granted = self.0.get(sink).into_iter().flatten();
        granted.map(|(name, path)| format!("its directory `{name}` is {}", path.display())).collect()
    }

    fn paths(&self, sink: &SinkId) -> Option<String> {
        let paths: Vec<_> = self.0.get(sink)?.iter().map(|(_, path)| path.display().to_string()).collect();
        (!paths.is_empty()).then(|| paths.join(" or "))
    }

    /// One line: what did not happen, the cause if it is known, and the plugin's own words.
    pub(crate) fn words(&self, sink: &SinkId, of: Option<EpochRef>, fault: &CallFault) -> String {
        let about = of.map(|of| format!("epoch {}: ", of.epoch)).unwrap_or_default();
        let cause = fault.cause().map(|cause| format!("{}: ", self.cause(sink, cause))).unwrap_or_default();
        format!("sink `{sink}`: {about}{}: {cause}{fault}", heading(fault.call))
    }

    fn cause(&self, sink: &SinkId, cause: Cause) -> String {
        let place = self.paths(sink);
        match (cause, place) {
            (Cause::NoSpace, Some(place)) => format!("no space left in {place}"),
            (Cause::NoSpace, None) => "no space left".to_owned(),
            (Cause::ReadOnly, Some(place)) => format!("{place} is mounted read-only"),
            (Cause::ReadOnly, None) => "it is read-only".to_owned(),
            (Cause::NotAllowed, Some(place)) => format!("permission denied in {place}"),
            (Cause::NotAllowed, None) => "permission denied".to_owned(),
            (Cause::Conflict, Some(place)) => format!("another program writes in {place}"),
            (Cause::Conflict, None) => "another program writes to the destination".to_owned(),
        }
    }

    /// How to mend it; nothing where only the plugin's own words can say.
    pub(crate) fn mending(&self, sink: &SinkId, fault: &CallFault) -> Option<String> {
        let place = self.paths(sink).unwrap_or_else(|| "the destination".to_owned());
        Some(match (fault.cause(), &fault.kind) {
            (Some(Cause::NoSpace), _) => format!("free space in {place}, or raise the quota"),
            (Some(Cause::ReadOnly), _) => format!("mount {place} so that it can be written"),
            (Some(Cause::NotAllowed), _) => {
                format!("let the user that runs the pipeline write in {place}, and in what is below")
            }
            (Some(Cause::Conflict), _) => {
                format!("let no other program change what this sink writes to in {place} while it writes")
            }
            (None, FaultKind::Error(error)) => match error.kind {
                ErrorKind::Retryable | ErrorKind::Unknown => "see that the destination can be reached and works".into(),
                ErrorKind::BadConfig => format!("mend the table [sinks.{sink}] of the pipeline file"),
                ErrorKind::Permanent
                | ErrorKind::BadBatch
                | ErrorKind::EpochLost
                | ErrorKind::Fenced
                | ErrorKind::Unsupported
                | ErrorKind::Denied => return None,
            },
            (None, FaultKind::Quarantined) => {
                format!(
                    "give [sinks.{sink}] another version of the plugin, or lift it: tidegate plugin quarantine FILE --lift"
                )
            }
            (None, FaultKind::Budget(_)) => {
                format!("raise the limit that it names in [sinks.{sink}.limits], if the plugin needs it")
            }
            (None, FaultKind::Timeout | FaultKind::AnswerLost | FaultKind::Trap | FaultKind::Malformed) => {
                match fault.blame {
                    Blame::Plugin => "the plugin is at fault: tell who wrote it".into(),
                    Blame::Destination => "see that the destination can be reached".into(),
                    Blame::Operator => format!("mend the table [sinks.{sink}] of the pipeline file"),
                    Blame::Host => return None,
                }
            }
            (None, FaultKind::Host) => return None,
        })
    }

    fn still_failing(&self, notice: &Notice) -> Option<String> {
        let (words, mending, until) = match notice {
            Notice::CallFails { sink, of, fault, for_ms } => {
                let until = format!("tried again for another {}", span(*for_ms));
                (self.words(sink, *of, fault), self.mending(sink, fault), until)
            }
            Notice::GoesBack { failure, runs_left } => {
                let until = match runs_left {
                    1 => "goes back to the last sealed epoch, for the last time".to_owned(),
                    left => format!("goes back to the last sealed epoch, at most {left} times"),
                };
                match failure {
                    TaskFailure::Plugin(sink, fault) => {
                        (self.words(sink, None, fault), self.mending(sink, fault), until)
                    }
                    other => (other.to_string(), None, until),
                }
            }
            _ => return None,
        };
        let mending = mending.map(|mending| format!("; {mending}")).unwrap_or_default();
        Some(format!("{words}; {until}{mending}"))
    }
}

fn span(millis: u64) -> String {
    match millis.div_ceil(1000) {
        seconds @ 0..=120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// Tells of calls that fail in words that name directories, and which sinks' plugins are in quarantine; hands everything
/// else on.
pub(crate) struct Telling {
    pub(crate) directories: Directories,
    pub(crate) plugins: Plugins,
    pub(crate) to: Arc<dyn Observer>,
}

impl Observer for Telling {
    fn reached(&self, moment: Moment) {
        self.to.reached(moment);
    }

    fn notice(&self, notice: &Notice) {
        match self.directories.still_failing(notice) {
            Some(words) => self.to.notice(&Notice::Warning(words)),
            None => self.to.notice(notice),
        }
    }

    fn progress(&self, progress: &Progress) {
        let quarantined = self.plugins.sinks();
        match quarantined == progress.quarantined {
            true => self.to.progress(progress),
            false => self.to.progress(&Progress { quarantined, ..progress.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_protocol::plugin::PluginError;

    use super::*;

    const CALLS: [Call; 13] = [
        Call::Instantiate,
        Call::Describe,
        Call::Open,
        Call::Begin,
        Call::Write,
        Call::Prepare,
        Call::Observe,
        Call::Fence,
        Call::Commit,
        Call::Reconcile,
        Call::Abandon,
        Call::Release,
        Call::ListOrphans,
    ];

    fn out() -> SinkId {
        SinkId::new("out").unwrap()
    }

    fn directories() -> Directories {
        Directories(BTreeMap::from([(out(), vec![("output".to_owned(), PathBuf::from("/data/out"))])]))
    }

    fn fault(call: Call, kind: ErrorKind, code: &str) -> CallFault {
        let error = PluginError { kind, code: code.to_owned(), message: "it went wrong".to_owned() };
        CallFault::new("files 1", call, FaultKind::Error(error), "")
    }

    #[test]
    fn every_call_is_told_with_what_did_not_happen_the_cause_the_place_and_the_mending() {
        for call in CALLS {
            for (code, cause, mending) in [
                ("no-space", "no space left in /data/out", "free space in /data/out"),
                ("read-only", "/data/out is mounted read-only", "mount /data/out"),
                ("file-denied", "permission denied in /data/out", "write in /data/out"),
                ("conflict", "another program writes in /data/out", "let no other program change"),
            ] {
                let fault = fault(call, ErrorKind::EpochLost, code);
                let words = directories().words(&out(), None, &fault);
                let expected = format!("{}: {cause}: files 1: {call} failed: it went wrong ({code})", heading(call));
                assert_eq!(words, format!("sink `out`: {expected}"));
                let hint = directories().mending(&out(), &fault).unwrap_or_default();
                assert!(hint.contains(mending), "{hint}");
            }
        }
        let headings: std::collections::BTreeSet<_> = CALLS.into_iter().map(heading).collect();
        assert_eq!(headings.len(), CALLS.len() - 1, "only `begin` and `write` are the same to a person");
    }

    #[test]
    fn what_is_tried_again_is_told_with_how_long() {
        let fault = fault(Call::Fence, ErrorKind::Retryable, "no-space");
        let words = directories().still_failing(&Notice::CallFails { sink: out(), of: None, fault, for_ms: 65_100 });
        let words = words.unwrap_or_default();
        assert!(words.contains("; tried again for another 66 s; free space in /data/out"), "{words}");
    }
}
