//! Where guests and neighbours are admitted, bound and called.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, KeyRange, Nonce, PartId, PipelineId, RunId, SinkHash, SinkId};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, CallContext, CallFault, Encoding, External, Plugin, Position, Unsealed,
};
use tidegate_wasm::{Admitted, BindOptions, Limits, Runtime, RuntimeOptions, SecretRef, Tenant, TenantLimits, builtin};

use crate::case::{Case, Guest, Seen, Source};
use crate::kept::Kept;

static WELL_BEHAVED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/well_behaved.wasm"));
static RUST_GUESTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.wasm"));

/// What no guest may bring into sight.
pub(crate) const CANARY: &str = "canary-5b7e-do-not-show";

/// A case at work by itself.
pub type Doing<'a> = BoxFuture<'a, Result<Seen, String>>;

/// One runtime, a folder, and who pays.
pub struct Stage {
    /// The runtime that all share.
    pub runtime: Arc<Runtime>,
    /// The guest.
    pub guest: &'static Guest,
    /// What must come of it.
    pub case: Case,
    /// Who pays for the guest.
    pub tenant: Tenant,
    folder: tempfile::TempDir,
}

impl Stage {
    /// An empty stage for a guest. Compiled code is kept between processes.
    ///
    /// # Errors
    /// The runtime does not start here.
    pub fn new(guest: &'static Guest) -> Result<Self, String> {
        Self::with_tenant(guest, TenantLimits::default())
    }

    /// As [`Stage::new`], with budgets of the guest's tenant.
    ///
    /// # Errors
    /// As for [`Stage::new`].
    pub fn with_tenant(guest: &'static Guest, limits: TenantLimits) -> Result<Self, String> {
        let cache = PathBuf::from(concat!(env!("OUT_DIR"), "/compiled"));
        let case = (guest.case)();
        let options =
            RuntimeOptions { cache_dir: Some(cache), limits: case.limits.clone(), ..RuntimeOptions::default() };
        let runtime = Runtime::new(options).map_err(|e| e.to_string())?;
        let folder = tempfile::tempdir().map_err(|e| format!("no folder for the test: {e}"))?;
        std::fs::write(folder.path().join("token"), CANARY).map_err(|e| format!("no secret: {e}"))?;
        Ok(Self { runtime, guest, case, tenant: Tenant::new("attacker", limits), folder })
    }

    /// For files of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The configuration that makes a Rust guest what it is.
    pub fn config(&self) -> String {
        format!(r#"{{"guest":"{}"}}"#, self.guest.name)
    }

    /// The guest's component.
    pub fn component(&self) -> &'static [u8] {
        match self.guest.source {
            Source::Rust => RUST_GUESTS,
            Source::Wat(component) => component,
        }
    }

    /// Admits the guest.
    ///
    /// # Errors
    /// The words with which it is refused.
    pub fn admit(&self) -> Result<Admitted, String> {
        self.runtime.admit("hostile.wasm", self.component()).map_err(|e| e.to_string())
    }

    /// The guest, bound.
    ///
    /// # Errors
    /// It is not admitted, or its grants do not fit.
    pub fn bound(&self, kept: &Arc<Kept>, limits: &Limits) -> Result<Arc<dyn Plugin>, String> {
        self.bind(&self.admit()?, kept, limits, &self.tenant)
    }

    /// A plugin that behaves well, bound as the guest is.
    ///
    /// # Errors
    /// It is not admitted: a defect of the skeleton.
    pub fn well_behaved(&self, kept: &Arc<Kept>) -> Result<Arc<dyn Plugin>, String> {
        self.well_behaved_of(kept, &self.tenant)
    }

    /// As [`Stage::well_behaved`], for another tenant.
    ///
    /// # Errors
    /// As for [`Stage::well_behaved`].
    pub fn well_behaved_of(&self, kept: &Arc<Kept>, tenant: &Tenant) -> Result<Arc<dyn Plugin>, String> {
        let admitted = self.runtime.admit("well-behaved.wasm", WELL_BEHAVED).map_err(|e| e.to_string())?;
        self.bind(&admitted, kept, &self.case.limits, tenant)
    }

    pub(crate) fn bind(
        &self,
        admitted: &Admitted,
        kept: &Arc<Kept>,
        limits: &Limits,
        tenant: &Tenant,
    ) -> Result<Arc<dyn Plugin>, String> {
        let mut options = BindOptions::new("attacked");
        options.tenant = tenant.clone();
        options.limits = limits.clone();
        options.log = kept.clone();
        options.metrics = kept.clone();
        if admitted.description().grants.iter().any(|grant| grant.kind == "secret") {
            options.secrets.insert("token".to_owned(), SecretRef::File(self.folder().join("token")));
        }
        admitted.bind(options).map_err(|e| e.to_string())
    }

    /// The sink of builtin files, paid for by another tenant.
    ///
    /// # Errors
    /// It is not admitted, or its folder cannot be made.
    pub fn neighbour(&self, folder: &str) -> Result<Arc<dyn Plugin>, String> {
        let files = builtin::component("files").ok_or("the files sink is built in")?;
        let admitted = self.runtime.admit("builtin:files", files).map_err(|e| e.to_string())?;
        let mut options = BindOptions::new("neighbour");
        options.tenant = Tenant::new("neighbour", TenantLimits::default());
        options.dirs.insert("output".to_owned(), self.folder().join(folder).into());
        admitted.bind(options).map_err(|e| e.to_string())
    }

    /// Calls the guest in every way, one after the other, until a call fails that should attack, or fails otherwise than
    /// by an answer.
    ///
    /// # Errors
    /// It cannot be bound.
    pub async fn call_all(&self) -> Result<Seen, String> {
        let mut seen = Seen::new(self.tenant.clone());
        let admitted = match self.admit() {
            Ok(admitted) => admitted,
            Err(words) => {
                seen.refused = Some(words);
                return Ok(seen);
            }
        };
        seen.description = Some(admitted.description().clone());
        let kept = Arc::new(Kept::default());
        let plugin = self.bind(&admitted, &kept, &self.case.limits, &self.tenant)?;
        seen.fault = self.calls(&*plugin, &kept, &mut seen).await.err();
        (seen.lines, seen.samples, seen.intents) = (kept.lines(), kept.samples(), kept.intents());
        Ok(seen)
    }

    async fn calls(&self, plugin: &dyn Plugin, kept: &Arc<Kept>, seen: &mut Seen) -> Result<(), CallFault> {
        let ctx = context("attacked", 1, &self.config());
        // A number that a pipeline here does not come to.
        let part = part(&ctx, 7, 0);
        seen.began = Instant::now();
        let mut writer = plugin.writer(kept.clone()).await?;
        writer.open(&ctx, KeyRange::ALL, &[]).await?;
        writer.begin(&ctx, &part).await?;
        for _ in 0..2 {
            seen.began = Instant::now();
            seen.rejects.extend(writer.write(&ctx, rows("{\"n\":1}\n{\"n\":2}\n")).await?);
        }
        seen.began = Instant::now();
        let prepared = writer.prepare(&ctx).await?;
        let committable = prepared.committable.clone();
        seen.prepared = Some(prepared);
        drop(writer);

        seen.began = Instant::now();
        let mut committer = plugin.committer().await?;
        seen.position = Some(committer.observe(&ctx).await?);
        committer.fence(&ctx, &Position::default()).await?;
        seen.began = Instant::now();
        seen.outcomes = committer.commit(&ctx, &[], std::slice::from_ref(&committable)).await?;
        seen.began = Instant::now();
        committer.reconcile(&ctx, std::slice::from_ref(&committable)).await?;
        drop(committer);

        seen.began = Instant::now();
        let mut janitor = plugin.janitor().await?;
        let resource = External { kind: "upload".into(), name: "u".into(), expires_at: None };
        let unsealed = Unsealed { part, committable: Some(committable), resources: vec![resource.clone()] };
        janitor.abandon(&ctx, &[unsealed]).await?;
        seen.began = Instant::now();
        janitor.release(&ctx, &[resource]).await?;
        seen.began = Instant::now();
        seen.page = Some(janitor.list_orphans(&ctx, "tg-", None).await?);
        Ok(())
    }
}

/// The context of a call.
pub(crate) fn context(sink: &str, run: u64, config: &str) -> CallContext {
    let sink = SinkId::new(sink).expect("a legal name");
    CallContext {
        sink_hash: SinkHash::of(&pipeline_id(), &sink),
        sink,
        run: RunId { number: run, nonce: Nonce([run as u8; 10]) },
        config: config.into(),
        attempt: 1,
    }
}

/// The name of all pipelines here.
pub(crate) fn pipeline_id() -> PipelineId {
    PipelineId::new("hostile").expect("a legal name")
}

/// A part of that sink and run.
pub(crate) fn part(ctx: &CallContext, epoch: u64, ordinal: u32) -> PartId {
    PartId::mint(&pipeline_id(), &ctx.sink, ctx.run, Epoch(epoch), ordinal, 1)
}

/// Rows as JSON lines.
pub(crate) fn rows(text: &str) -> Batch {
    Batch::new(Bytes::copy_from_slice(text.as_bytes()), text.lines().count() as u64, Encoding::JsonLines)
}
