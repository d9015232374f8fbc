//! A destination in memory, with a plugin that can be told to misbehave.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_protocol::ids::{KeyRange, PartId, RunId};
use tidegate_protocol::plugin::*;

/// What a call is told to do instead of working. One entry is used up per call.
#[derive(Debug, Clone)]
pub(crate) enum Mischief {
    /// Work as usual; for scripts that want a later call to fail.
    None,
    /// Do nothing, and trap.
    Trap,
    /// Do the work, and lose the answer.
    LoseAnswer,
    /// Answer with this error.
    Error(ErrorKind),
    /// Answer every commit of the call so.
    Outcome(Outcome),
    /// Never answer.
    Hang,
    /// Break the host's own code around the call.
    Panic,
    /// Make no instance: the plugin is in quarantine.
    Quarantine,
}

/// What it holds, and how it is told to behave.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Prepared rows, by short name.
    pub(crate) staged: BTreeMap<String, Vec<Bytes>>,
    /// Committed rows, by short name.
    pub(crate) committed: BTreeMap<String, Vec<Bytes>>,
    /// The parts of the newest commit.
    pub(crate) last: Vec<PartId>,
    /// The run that owns it.
    pub(crate) fence: Option<RunId>,
    /// What was announced, by number.
    pub(crate) intents: Vec<(u64, String)>,
    /// Commit calls so far.
    pub(crate) commits: u64,
    /// Rows that contain one of these are not taken in `write`.
    pub(crate) rejects_in_write: Vec<&'static str>,
    /// Rows that contain one of these are found out in `prepare`.
    pub(crate) rejects_in_prepare: Vec<&'static str>,
    /// Batches with a row that contains one of these are refused whole.
    pub(crate) bad_batch: Vec<&'static str>,
    /// What the next calls do.
    pub(crate) mischief: BTreeMap<Call, VecDeque<Mischief>>,
    /// The plugin announces what it creates.
    pub(crate) announces: bool,
    /// How long a prepare takes.
    pub(crate) slow_prepare: std::time::Duration,
}

/// The destination itself; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Destination(Arc<Mutex<State>>);

impl Destination {
    /// To look into it, and to change it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a reader sees, sorted.
    pub(crate) fn rows(&self) -> Vec<String> {
        let mut rows: Vec<String> = self
            .lock()
            .committed
            .values()
            .flatten()
            .map(|row| String::from_utf8_lossy(row).trim_end().to_owned())
            .collect();
        rows.sort();
        rows
    }

    /// The next calls do these, one after the other.
    pub(crate) fn script(&self, call: Call, mischief: impl IntoIterator<Item = Mischief>) {
        self.lock().mischief.entry(call).or_default().extend(mischief);
    }

    /// Its plugin, with every ability.
    pub(crate) fn plugin(&self) -> Arc<dyn Plugin> {
        self.plugin_with(|_| {})
    }

    /// Its plugin, with other abilities.
    pub(crate) fn plugin_with(&self, change: impl FnOnce(&mut Abilities)) -> Arc<dyn Plugin> {
        let mut abilities = Abilities {
            staging: true,
            idempotent_commit: true,
            marker_retention: None,
            marker_survives_foreign_writers: true,
            observe: true,
            fence: true,
            reconcile: true,
            atomic_scope: AtomicScope::Sink,
            visibility: Visibility::WholeEpoch,
            max_open_epochs: 8,
            upsert_keys: false,
            prepared_ttl: None,
            max_idle: None,
            names_per_day: None,
            orphans: Orphans::Listable,
        };
        change(&mut abilities);
        Arc::new(MemoryPlugin {
            destination: self.clone(),
            description: Description {
                name: "memory".into(),
                version: "1".into(),
                config_schema: "{}".into(),
                encodings: vec![Encoding::JsonLines, Encoding::Raw],
                abilities,
                committable_versions: vec![1],
                grants: vec![],
                needs: vec![],
            },
        })
    }

    fn mischief(&self, call: Call) -> Mischief {
        self.lock().mischief.get_mut(&call).and_then(VecDeque::pop_front).unwrap_or(Mischief::None)
    }
}

struct MemoryPlugin {
    destination: Destination,
    description: Description,
}

impl Plugin for MemoryPlugin {
    fn description(&self) -> &Description {
        &self.description
    }
    fn digest(&self) -> &str {
        "sha256:memory"
    }
    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        let writer = MemoryWriter { destination: self.destination.clone(), intents, part: None, rows: Vec::new() };
        Box::pin(async move { Ok(Box::new(writer) as Box<dyn Writer>) })
    }
    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        let committer = Other(self.destination.clone());
        Box::pin(async move {
            before(Call::Instantiate, &self.destination.mischief(Call::Instantiate)).await?;
            Ok(Box::new(committer) as Box<dyn Committer>)
        })
    }
    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        let janitor = Other(self.destination.clone());
        Box::pin(async move { Ok(Box::new(janitor) as Box<dyn Janitor>) })
    }
}

fn fault(call: Call, kind: FaultKind) -> CallFault {
    CallFault::new("memory 1", call, kind, "as scripted")
}

fn error(call: Call, kind: ErrorKind) -> CallFault {
    let error = PluginError { kind, code: "scripted".into(), message: "as scripted".into() };
    fault(call, FaultKind::Error(error))
}

/// Whether the call is to be answered with this fault before it does anything.
async fn before(call: Call, mischief: &Mischief) -> Result<(), CallFault> {
    match mischief {
        Mischief::Hang => std::future::pending().await,
        Mischief::Panic => panic!("as scripted"),
        Mischief::Trap => Err(fault(call, FaultKind::Trap)),
        Mischief::Quarantine => Err(fault(call, FaultKind::Quarantined)),
        Mischief::Error(kind) => Err(error(call, *kind)),
        Mischief::None | Mischief::LoseAnswer | Mischief::Outcome(_) => Ok(()),
    }
}

/// Whether the answer gets lost.
fn after(call: Call, mischief: &Mischief) -> Result<(), CallFault> {
    match mischief {
        Mischief::LoseAnswer => Err(fault(call, FaultKind::AnswerLost)),
        _ => Ok(()),
    }
}

fn contains(row: &[u8], words: &[&str]) -> bool {
    let row = String::from_utf8_lossy(row);
    words.iter().any(|word| row.contains(word))
}

struct MemoryWriter {
    destination: Destination,
    intents: Arc<dyn IntentLog>,
    part: Option<PartId>,
    rows: Vec<Bytes>,
}

impl Writer for MemoryWriter {
    fn open<'a>(
        &'a mut self,
        _ctx: &'a CallContext,
        _range: KeyRange,
        _restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move { before(Call::Open, &self.destination.mischief(Call::Open)).await })
    }

    fn begin<'a>(&'a mut self, _ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move {
            before(Call::Begin, &self.destination.mischief(Call::Begin)).await?;
            assert!(self.part.is_none(), "an epoch belongs to one writer instance, one at a time");
            if self.destination.lock().announces {
                let resource = External { kind: "upload".into(), name: String::new(), expires_at: None };
                let number = self
                    .intents
                    .intent(Some(part.clone()), resource)
                    .await
                    .map_err(|error| fault(Call::Begin, FaultKind::Error(error)))?;
                let name = format!("upload-{}", part.short);
                self.intents
                    .bound(number, name.clone())
                    .await
                    .map_err(|error| fault(Call::Begin, FaultKind::Error(error)))?;
                self.destination.lock().intents.push((number, name));
            }
            self.part = Some(part.clone());
            Ok(())
        })
    }

    fn write<'a>(&'a mut self, _ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        Box::pin(async move {
            let mischief = self.destination.mischief(Call::Write);
            before(Call::Write, &mischief).await?;
            let rows: Vec<Bytes> =
                batch.bytes.split_inclusive(|b| *b == b'\n').map(|r| batch.bytes.slice_ref(r)).collect();
            assert_eq!(rows.len() as u64, batch.rows);
            let state = self.destination.lock();
            if rows.iter().any(|row| contains(row, &state.bad_batch)) {
                drop(state);
                return Err(error(Call::Write, ErrorKind::BadBatch));
            }
            let mut rejects = Vec::new();
            for (number, row) in rows.into_iter().enumerate() {
                if contains(&row, &state.rejects_in_write) {
                    rejects.push(Reject { row: number as u64, code: "no".into(), message: "not in write".into() });
                } else {
                    self.rows.push(row);
                }
            }
            Ok(rejects)
        })
    }

    fn prepare<'a>(&'a mut self, _ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        Box::pin(async move {
            let mischief = self.destination.mischief(Call::Prepare);
            before(Call::Prepare, &mischief).await?;
            let takes = self.destination.lock().slow_prepare;
            tokio::time::sleep(takes).await;
            let part = self.part.take().expect("prepare follows begin");
            let mut state = self.destination.lock();
            let mut rejects = Vec::new();
            let mut kept = Vec::new();
            for (number, row) in self.rows.drain(..).enumerate() {
                if contains(&row, &state.rejects_in_prepare) {
                    rejects.push(Reject { row: number as u64, code: "no".into(), message: "not in prepare".into() });
                } else {
                    kept.push(row);
                }
            }
            let rows = kept.len() as u64;
            state.staged.insert(part.short.clone(), kept);
            drop(state);
            after(Call::Prepare, &mischief)?;
            let resource = External { kind: "staged".into(), name: part.short.clone(), expires_at: None };
            Ok(Prepared {
                committable: Committable { part, version: 1, body: Bytes::new(), rows, expires_at: None },
                resources: vec![resource],
                state: None,
                rows,
                rejects,
            })
        })
    }
}

struct Other(Destination);

impl Other {
    fn position(&self) -> Position {
        let state = self.0.lock();
        Position { fence: state.fence, last: state.last.clone(), token: Bytes::new() }
    }
}

impl Committer for Other {
    fn observe<'a>(&'a mut self, _ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(async move {
            before(Call::Observe, &self.0.mischief(Call::Observe)).await?;
            Ok(self.position())
        })
    }

    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(async move {
            before(Call::Fence, &self.0.mischief(Call::Fence)).await?;
            if self.position() != *expected || self.0.lock().fence > Some(ctx.run) {
                return Err(error(Call::Fence, ErrorKind::Fenced));
            }
            self.0.lock().fence = Some(ctx.run);
            Ok(self.position())
        })
    }

    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            let mischief = self.0.mischief(Call::Commit);
            before(Call::Commit, &mischief).await?;
            if let Mischief::Outcome(outcome) = &mischief {
                return Ok(vec![outcome.clone(); committables.len()]);
            }
            let mut state = self.0.lock();
            state.commits += 1;
            if state.fence.is_some_and(|fence| fence != ctx.run) {
                return Ok(vec![Outcome::Fenced; committables.len()]);
            }
            let known: BTreeSet<String> = state.last.iter().map(|part| part.short.clone()).collect();
            let in_order = previous.iter().all(|part| known.contains(&part.short));
            let mut outcomes = Vec::new();
            let mut last = Vec::new();
            for committable in committables {
                let short = &committable.part.short;
                if state.committed.contains_key(short) {
                    outcomes.push(Outcome::AlreadyCommitted);
                    continue;
                }
                assert!(in_order, "epochs of one sink are committed in order: {known:?}, {previous:?}");
                let rows = state.staged.remove(short).expect("only what was staged is committed");
                state.committed.insert(short.clone(), rows);
                last.push(committable.part.clone());
                outcomes.push(Outcome::Committed);
            }
            if !last.is_empty() {
                state.last = last;
            }
            drop(state);
            after(Call::Commit, &mischief)?;
            Ok(outcomes)
        })
    }

    fn reconcile<'a>(
        &'a mut self,
        _ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            before(Call::Reconcile, &self.0.mischief(Call::Reconcile)).await?;
            let state = self.0.lock();
            let outcome = |c: &Committable| {
                if state.committed.contains_key(&c.part.short) {
                    Outcome::AlreadyCommitted
                } else {
                    Outcome::NotCommitted
                }
            };
            Ok(committables.iter().map(outcome).collect())
        })
    }
}

impl Janitor for Other {
    fn abandon<'a>(
        &'a mut self,
        _ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            before(Call::Abandon, &self.0.mischief(Call::Abandon)).await?;
            let mut state = self.0.lock();
            for unsealed in parts {
                assert!(!state.committed.contains_key(&unsealed.part.short), "nothing sealed is abandoned");
                state.staged.remove(&unsealed.part.short);
            }
            Ok(vec![Outcome::Committed; parts.len()])
        })
    }

    fn release<'a>(
        &'a mut self,
        _ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            before(Call::Release, &self.0.mischief(Call::Release)).await?;
            Ok(vec![Outcome::Committed; resources.len()])
        })
    }

    fn list_orphans<'a>(
        &'a mut self,
        _ctx: &'a CallContext,
        prefix: &'a str,
        _page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>> {
        Box::pin(async move {
            before(Call::ListOrphans, &self.0.mischief(Call::ListOrphans)).await?;
            let state = self.0.lock();
            let orphans = state
                .staged
                .iter()
                .filter(|(short, _)| short.starts_with(prefix))
                .map(|(short, rows)| Orphan {
                    short: short.clone(),
                    resource: External { kind: "staged".into(), name: short.clone(), expires_at: None },
                    bytes: Some(rows.iter().map(|row| row.len() as u64).sum()),
                })
                .collect();
            Ok(OrphanPage { orphans, next: None })
        })
    }
}
