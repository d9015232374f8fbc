//! A plugin that passed all checks, and a plugin bound to a sink.

use std::path::Path;
use std::sync::Arc;

use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    Batch, Blame, BoxFuture, Call, CallContext, CallFault, Committable, Committer, Description, External, FaultKind,
    IntentLog, Janitor, OrphanPage, Outcome, Plugin, PluginError, Position, Prepared, Reject, Role, Unsealed, Usage,
    Writer, WriterState,
};
use wasmtime::component::{Component, Resource};

use crate::bindings::SinkPre;
use crate::bindings::imported::types as w;
use crate::convert;
use crate::error::{AdmitError, WasmError};
use crate::footprint::{self, Footprint};
use crate::grants::{BindOptions, Grants};
use crate::guard::Guarded;
use crate::host::State;
use crate::host::rows::HostBatch;
use crate::instance::{Guest, Instance, Stragglers};
use crate::limits::{Limits, Unit, budget};
use crate::process::{Isolation, Remote};
use crate::runtime::{Runtime, import_names};
use crate::screen::Outline;
use crate::text::Redactor;

/// A component that is a sink plugin of this interface version, type-checked, compiled and described.
#[derive(Clone)]
pub struct Admitted {
    runtime: Arc<Runtime>,
    /// Keeps the compiled code findable for the next admission of the same file.
    component: Arc<Component>,
    pre: SinkPre<State>,
    description: Arc<Description>,
    footprint: Footprint,
    digest: String,
    imports: Vec<String>,
}

impl Admitted {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        component: Arc<Component>,
        pre: SinkPre<State>,
        description: Description,
        footprint: Footprint,
        digest: String,
        outline: Outline,
    ) -> Self {
        let imports = import_names(&outline);
        let digest = format!("sha256:{digest}");
        Self { runtime, component, pre, description: Arc::new(description), footprint, digest, imports }
    }

    /// In a child process: what the parent admitted.
    pub(crate) fn in_child(
        runtime: Arc<Runtime>,
        component: Arc<Component>,
        pre: SinkPre<State>,
        description: Description,
        digest: String,
    ) -> Self {
        // Was looked at by the parent.
        let (footprint, imports) = (Footprint::default(), Vec::new());
        Self { runtime, component, pre, description: Arc::new(description), footprint, digest, imports }
    }

    /// With grants that were checked. `stragglers` are those of the same sink.
    pub(crate) fn bound(&self, grants: Grants, stragglers: Stragglers) -> Arc<dyn Plugin> {
        Arc::new(Bound { admitted: self.clone(), grants, stragglers })
    }

    /// What the plugin says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// `sha256:<hex>` of the component.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Names of everything it imports, in order.
    pub fn imports(&self) -> Vec<String> {
        self.imports.clone()
    }

    /// What an instance begins with.
    pub fn footprint(&self) -> Footprint {
        self.footprint
    }

    /// Whether what an instance begins with, and what the plugin says that it needs, is within these limits.
    ///
    /// # Errors
    /// [`AdmitError::Budget`] with both figures.
    pub fn check_limits(&self, limits: &Limits) -> Result<(), AdmitError> {
        let label = self.label();
        self.footprint.check(&label, limits)?;
        footprint::check_needs(&label, &self.description.needs, limits)
    }

    /// Name and version, as in messages.
    fn label(&self) -> String {
        format!("{} {}", self.description.name, self.description.version)
    }

    /// Whether `bind` would find that operator and plugin mean the same grants. Changes nothing.
    ///
    /// # Errors
    /// A grant the plugin needs is missing, or one it does not ask for is given.
    pub fn check_grants(&self, options: &BindOptions) -> Result<(), WasmError> {
        Grants::check(options, &self.description, &self.label())
    }

    /// Gives it what one sink grants. Directories are created if missing; nothing of the plugin runs.
    ///
    /// # Errors
    /// A grant the plugin needs is missing, one it does not ask for is given, a directory cannot be used or reaches
    /// what is the host's own, the limits are less than the plugin needs, or the tenant's child process cannot be started or
    /// confined.
    pub fn bind(&self, mut options: BindOptions) -> Result<Arc<dyn Plugin>, WasmError> {
        if let Err(error) = self.check_limits(&options.limits) {
            return Err(WasmError::Budget { sink: options.sink, detail: error.to_string() });
        }
        options.keep_out.extend(self.runtime.cache_dir().map(Path::to_owned));
        let (isolation, tenant) = (options.isolation.unwrap_or(self.runtime.isolation()), options.tenant.clone());
        let lease = options.lease.take();
        let grants = Grants::make(options, &self.description, self.label())?;
        let plugin = match isolation {
            Isolation::Shared => self.bound(grants, Stragglers::default()),
            Isolation::Process => {
                let group = self.runtime.group(&tenant)?;
                let (description, digest) = (self.description.clone(), self.digest.clone());
                Arc::new(Remote::new(group, self.component.clone(), grants, description, digest, lease)?)
            }
        };
        Ok(Arc::new(Guarded::new(plugin, tenant, self.label(), self.runtime.threads())))
    }
}

struct Bound {
    admitted: Admitted,
    grants: Grants,
    stragglers: Stragglers,
}

impl Bound {
    async fn instance(&self, role: Role, intents: Option<Arc<dyn IntentLog>>) -> Result<Member, CallFault> {
        let tenant = self.grants.tenant();
        let granted = self.grants.for_role(role, intents).map_err(|message| {
            let fault = CallFault::new(self.grants.plugin(), Call::Instantiate, FaultKind::Host, message);
            fault.of_tenant(Some(tenant.name())).blamed_on(Blame::Operator)
        })?;
        let redactor = granted.redactor.clone();
        let limits = self.grants.limits().clone();
        let blueprint = self.admitted.runtime.blueprint(
            self.admitted.pre.clone(),
            limits.clone(),
            self.grants.plugin().to_owned(),
            tenant.clone(),
            self.stragglers.clone(),
        );
        let instance = Instance::start(blueprint, granted).await?;
        Ok(Member { instance, redactor, limits, usage: None })
    }
}

impl Plugin for Bound {
    fn description(&self) -> &Description {
        &self.admitted.description
    }

    fn digest(&self) -> &str {
        &self.admitted.digest
    }

    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.instance(Role::Writer, Some(intents)).await?) as Box<dyn Writer>) })
    }

    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.instance(Role::Committer, None).await?) as Box<dyn Committer>) })
    }

    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.instance(Role::Janitor, None).await?) as Box<dyn Janitor>) })
    }
}

/// An instance in one of the three roles.
struct Member {
    instance: Instance,
    redactor: Redactor,
    limits: Limits,
    /// At the end of the last prepare.
    usage: Option<Usage>,
}

impl Member {
    /// Makes a call whose answer is a result of the plugin's own.
    async fn ask<R, F>(&mut self, call: Call, work: F) -> Result<R, CallFault>
    where
        R: Send + 'static,
        F: AsyncFnOnce(&mut Guest) -> wasmtime::Result<Result<R, w::Error>> + Send + 'static,
    {
        self.instance.call(call, work).await?.map_err(|error| {
            let error: PluginError = convert::error_from_wit(error, &self.redactor);
            self.instance.fault(call, FaultKind::Error(error), "")
        })
    }

    fn checked<T>(&self, call: Call, answer: Result<T, String>) -> Result<T, CallFault> {
        answer.map_err(|message| self.instance.fault(call, FaultKind::Malformed, &message))
    }

    fn outcomes(&self, call: Call, outcomes: Vec<w::Outcome>) -> Result<Vec<Outcome>, CallFault> {
        self.checked(call, convert::outcomes_from_wit(outcomes, &self.redactor))
    }
}

impl Writer for Member {
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let range = convert::range_to_wit(range);
        let bytes = restored.iter().fold(0usize, |sum, state| sum.saturating_add(state.body.len()));
        // What is too much is not copied first.
        let restored = if bytes <= self.limits.transfer_bytes { restored } else { &[] };
        let restored: Vec<_> = restored.iter().map(convert::state_to_wit).collect();
        Box::pin(self.ask(Call::Open, async move |guest: &mut Guest| {
            guest.store.data_mut().hand_over(bytes)?;
            guest.sink.tidegate_sink_writer().call_open(&mut guest.store, &ctx, range, &restored).await
        }))
    }

    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let begun = part.clone();
        let part = convert::part_to_wit(part);
        let limits = self.limits.clone();
        Box::pin(self.ask(Call::Begin, async move |guest: &mut Guest| {
            let state = guest.store.data_mut();
            state.ledger.part = Some(begun);
            state.meter.begin_checkpoint(&limits);
            guest.sink.tidegate_sink_writer().call_begin(&mut guest.store, &ctx, &part).await
        }))
    }

    fn write<'a>(&'a mut self, ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        Box::pin(async move {
            let rejects = self.ask(Call::Write, async move |guest: &mut Guest| {
                let batch = guest.store.data_mut().table.push(HostBatch(batch))?;
                let loan = Resource::new_borrow(batch.rep());
                let answer = guest.sink.tidegate_sink_writer().call_write(&mut guest.store, &ctx, loan).await;
                guest.store.data_mut().table.delete(batch)?;
                answer
            });
            let rejects = rejects.await?;
            self.checked(Call::Write, convert::rejects_from_wit(rejects, &self.redactor))
        })
    }

    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let (max_body, max_state) = (self.limits.committable_bytes as u64, self.limits.state_bytes as u64);
        Box::pin(async move {
            let prepared = self.ask(Call::Prepare, async move |guest: &mut Guest| {
                let prepared = guest.sink.tidegate_sink_writer().call_prepare(&mut guest.store, &ctx).await?;
                let state = guest.store.data_mut();
                if let Ok(prepared) = &prepared {
                    let (body, kept) = (&prepared.committable.body, prepared.state.as_ref());
                    state.meter.bound(budget::COMMITTABLE, body.len() as u64, max_body, Unit::Bytes)?;
                    let kept = kept.map_or(0, |kept| kept.body.len() as u64);
                    state.meter.bound(budget::STATE, kept, max_state, Unit::Bytes)?;
                }
                Ok(prepared.map(|prepared| (prepared, state.usage())))
            });
            let (prepared, usage) = prepared.await?;
            self.usage = Some(usage);
            let (body, state) = (self.limits.committable_bytes, self.limits.state_bytes);
            self.checked(Call::Prepare, convert::prepared_from_wit(prepared, &self.redactor, body, state))
        })
    }

    fn usage(&self) -> Option<Usage> {
        self.usage
    }
}

impl Committer for Member {
    fn observe<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        Box::pin(async move {
            let position = self.ask(Call::Observe, async move |guest: &mut Guest| {
                guest.sink.tidegate_sink_committer().call_observe(&mut guest.store, &ctx).await
            });
            let position = position.await?;
            self.checked(Call::Observe, convert::position_from_wit(position, &self.redactor))
        })
    }

    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let expected = convert::position_to_wit(expected);
        Box::pin(async move {
            let position = self.ask(Call::Fence, async move |guest: &mut Guest| {
                guest.sink.tidegate_sink_committer().call_fence(&mut guest.store, &ctx, &expected).await
            });
            let position = position.await?;
            self.checked(Call::Fence, convert::position_from_wit(position, &self.redactor))
        })
    }

    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let previous: Vec<_> = previous.iter().map(convert::part_to_wit).collect();
        let committables: Vec<_> = committables.iter().map(convert::committable_to_wit).collect();
        Box::pin(async move {
            let outcomes = self.ask(Call::Commit, async move |guest: &mut Guest| {
                let committer = guest.sink.tidegate_sink_committer();
                committer.call_commit(&mut guest.store, &ctx, &previous, &committables).await
            });
            let outcomes = outcomes.await?;
            self.outcomes(Call::Commit, outcomes)
        })
    }

    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let committables: Vec<_> = committables.iter().map(convert::committable_to_wit).collect();
        Box::pin(async move {
            let outcomes = self.ask(Call::Reconcile, async move |guest: &mut Guest| {
                guest.sink.tidegate_sink_committer().call_reconcile(&mut guest.store, &ctx, &committables).await
            });
            let outcomes = outcomes.await?;
            self.outcomes(Call::Reconcile, outcomes)
        })
    }
}

impl Janitor for Member {
    fn abandon<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let parts: Vec<_> = parts.iter().map(convert::unsealed_to_wit).collect();
        Box::pin(async move {
            let outcomes = self.ask(Call::Abandon, async move |guest: &mut Guest| {
                guest.sink.tidegate_sink_janitor().call_abandon(&mut guest.store, &ctx, &parts).await
            });
            let outcomes = outcomes.await?;
            self.outcomes(Call::Abandon, outcomes)
        })
    }

    fn release<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let resources: Vec<_> = resources.iter().map(convert::external_to_wit).collect();
        Box::pin(async move {
            let outcomes = self.ask(Call::Release, async move |guest: &mut Guest| {
                guest.sink.tidegate_sink_janitor().call_release(&mut guest.store, &ctx, &resources).await
            });
            let outcomes = outcomes.await?;
            self.outcomes(Call::Release, outcomes)
        })
    }

    fn list_orphans<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>> {
        let ctx = convert::ctx_to_wit(ctx);
        let (prefix, page) = (prefix.to_owned(), page.map(str::to_owned));
        Box::pin(async move {
            let page = self.ask(Call::ListOrphans, async move |guest: &mut Guest| {
                let janitor = guest.sink.tidegate_sink_janitor();
                janitor.call_list_orphans(&mut guest.store, &ctx, &prefix, page.as_deref()).await
            });
            let page = page.await?;
            self.checked(Call::ListOrphans, convert::orphans_from_wit(page))
        })
    }
}
