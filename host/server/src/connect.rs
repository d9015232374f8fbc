//! Asks destinations whether a run could begin there, and changes nothing: `validate --connect`.
//!
//! Granted directories are looked at by the host, since no call of the interface says whether a later one could write:
//! rights, a read-only mount, room. Then the plugin is asked for what changes nothing: `observe`, and a writer's `open`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::io::Errno;
use tidegate_pipeline::{Callee, timed};
use tidegate_protocol::ids::{KeyRange, Nonce, PartId, RunId, SinkHash, SinkId};
use tidegate_protocol::plugin::{
    BoxFuture, Call, CallContext, CallFault, ErrorKind, External, IntentLog, Plugin, PluginError,
};

use crate::assemble::Assembled;
use crate::config::SinkSection;
use crate::edits::{Finding, Verdict};
use crate::error::{ErrorKind as Kind, ServerError};
use crate::faults::Directories;
use crate::state::State;

/// What the host itself may need for a call beyond what the plugin is allowed.
const GRACE: Duration = Duration::from_secs(5);
/// With less room a run hardly gets through its start.
const LITTLE_ROOM: u64 = 1 << 20;

/// Asks every destination whether a run could begin there. Changes nothing, neither there nor here; the pipeline may be
/// running.
///
/// # Errors
/// The state cannot be read.
pub async fn connect(assembled: &Assembled) -> Result<Vec<Finding>, ServerError> {
    let file = &assembled.file;
    let newest = State::read(file)?.and_then(|state| state.history.newest_run());
    let run = RunId { number: newest.map_or(1, |run| run.number.saturating_add(1)), nonce: Nonce([0; 10]) };
    let directories = Directories::of(file);
    let mut findings = Vec::new();
    for (sink, section, _) in file.all_sinks() {
        let places: Vec<_> =
            section.dirs.iter().map(|(name, grant)| Place { sink: &sink, name, path: &grant.path }).collect();
        findings.extend(places.iter().filter_map(Place::finding));
        // Granting a directory makes it.
        if places.iter().all(|place| place.path.is_dir()) {
            findings.extend(ask(assembled, &sink, section, run, &directories).await);
        }
    }
    Ok(findings)
}

/// A granted directory.
struct Place<'a> {
    sink: &'a SinkId,
    name: &'a str,
    path: &'a Path,
}

impl Place<'_> {
    fn finding(&self) -> Option<Finding> {
        let there = self.path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
        if !there.is_dir() {
            // Said without being asked.
            return None;
        }
        match what_stands_in_the_way(there) {
            Some((verdict, what, mending)) => Some(self.told(verdict, &what).hint(mending)),
            None if there != self.path => Some(self.told(Verdict::Allowed, "is not there; a run makes it")),
            None => None,
        }
    }

    fn told(&self, verdict: Verdict, what: &str) -> Finding {
        let Place { sink, name, path } = self;
        let message = format!("sink `{sink}`: {} (granted as `{name}`) {what}", path.display());
        Finding::new(verdict, message).of_kind(Kind::Failed)
    }
}

/// Why nothing could be written into a directory, and how to mend it.
fn what_stands_in_the_way(dir: &Path) -> Option<(Verdict, String, String)> {
    let at = dir.display();
    let refused = |what: String, mending: String| Some((Verdict::Refused, what, mending));
    match access(dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => {}
        Err(Errno::ROFS) => {
            return refused("is mounted read-only".to_owned(), format!("mount {at} so that it can be written"));
        }
        Err(Errno::ACCESS | Errno::PERM) => {
            let mending = format!("let the user that runs the pipeline write in {at}");
            return refused("cannot be written: permission denied".to_owned(), mending);
        }
        Err(error) => return refused(format!("cannot be used: {error}"), format!("look at {at}")),
    }
    let room = statvfs(dir).ok()?;
    if room.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return refused("is mounted read-only".to_owned(), format!("mount {at} so that it can be written"));
    }
    let root = rustix::process::geteuid().is_root();
    let blocks = if root { room.f_bfree } else { room.f_bavail };
    let names = if root { room.f_ffree } else { room.f_favail };
    let bytes = blocks.saturating_mul(room.f_frsize);
    let mending = format!("free space in {at}");
    match () {
        () if room.f_blocks > 0 && blocks == 0 => refused("has no space left".to_owned(), mending),
        () if room.f_files > 0 && names == 0 => refused("has no room for another file".to_owned(), mending),
        () if room.f_blocks > 0 && bytes < LITTLE_ROOM => {
            Some((Verdict::Warning, format!("has only {} KiB left", bytes / 1024), mending))
        }
        () => None,
    }
}

async fn ask(
    assembled: &Assembled,
    sink: &SinkId,
    section: &SinkSection,
    run: RunId,
    directories: &Directories,
) -> Option<Finding> {
    let admission = assembled.sinks.get(sink)?;
    let pipeline = &assembled.file.pipeline;
    let plugin = match admission.bind(&assembled.file, None) {
        Ok(plugin) => plugin,
        Err(error) => return Finding::of_error(&error).pop(),
    };
    let hash = SinkHash::of(&pipeline.name, sink);
    let config = admission.binding.config.as_str().into();
    let ctx = CallContext { sink: sink.clone(), sink_hash: hash, run, config, attempt: 1 };
    let fault = calls(plugin.as_ref(), ctx, section.limits.call_time.saturating_add(GRACE)).await.err()?;
    let finding = Finding::new(Verdict::Refused, directories.words(sink, None, &fault)).of_kind(Kind::Failed);
    Some(match directories.mending(sink, &fault) {
        Some(mending) => finding.hint(mending),
        None => finding,
    })
}

/// The calls that change nothing at the destination.
async fn calls(plugin: &dyn Plugin, mut ctx: CallContext, limit: Duration) -> Result<(), CallFault> {
    let description = plugin.description();
    let callee = Callee::of(plugin, None);
    if description.abilities.observe {
        let mut committer = timed(&callee, Call::Instantiate, limit, plugin.committer()).await?;
        let position = timed(&callee, Call::Observe, limit, committer.observe(&ctx)).await?;
        // A run takes a number above what it finds there.
        let found = position.fence.map_or(0, |fence| fence.number.saturating_add(1));
        ctx.run.number = ctx.run.number.max(found);
    }
    let mut writer = timed(&callee, Call::Instantiate, limit, plugin.writer(Arc::new(NoIntents))).await?;
    timed(&callee, Call::Open, limit, writer.open(&ctx, KeyRange::ALL, &[])).await
}

/// Nothing is to be made, so nothing can be announced.
struct NoIntents;

impl NoIntents {
    fn refusal() -> PluginError {
        PluginError {
            kind: ErrorKind::Denied,
            code: "not-writing".to_owned(),
            message: "the destination is only looked at".to_owned(),
        }
    }
}

impl IntentLog for NoIntents {
    fn intent(&self, _: Option<PartId>, _: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        Box::pin(async { Err(Self::refusal()) })
    }

    fn bound(&self, _: u64, _: String) -> BoxFuture<'_, Result<(), PluginError>> {
        Box::pin(async { Err(Self::refusal()) })
    }
}
