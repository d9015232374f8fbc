//! A plugin that runs in a child process, bound to a sink.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidegate_protocol::plugin::{
    Blame, BoxFuture, Call, CallFault, Committer, Description, FaultKind, IntentLog, Janitor, Plugin, Role, Writer,
};
use wasmtime::component::Component;

use super::group::{Group, Refused};
use super::lease::Lease;
use super::running::Shared;
use super::seat::Seat;
use super::wire::{SecretPlace, Terms};
use crate::error::WasmError;
use crate::grants::Grants;
use crate::grants::place::HttpAuth;
use crate::host::secrets::SecretRef;

/// What one sink grants its plugin, for every child that runs it.
pub(crate) struct Bond {
    group: Arc<Group>,
    terms: Terms,
    grants: Grants,
    component: Arc<Component>,
    lease: Option<Lease>,
    /// Secrets that the host itself uses in the child, by the numbers in the terms.
    hosts_secrets: Vec<SecretRef>,
    bound_in: Mutex<Vec<Weak<Shared>>>,
}

impl Drop for Bond {
    fn drop(&mut self) {
        let bound_in = self.bound_in.get_mut().unwrap_or_else(PoisonError::into_inner);
        bound_in.iter().filter_map(Weak::upgrade).for_each(|child| child.unbind(self.terms.binding));
    }
}

impl Bond {
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    pub(crate) fn lease(&self) -> Option<Lease> {
        self.lease.clone()
    }

    /// The compiled code.
    pub(crate) fn code(&self) -> std::io::Result<Vec<u8>> {
        self.component.serialize().map_err(|error| std::io::Error::other(format!("{error:#}")))
    }

    pub(crate) fn hosts_secret(&self, number: u32) -> Option<SecretRef> {
        self.hosts_secrets.get(usize::try_from(number).ok()?).cloned()
    }

    /// Whether it is granted a place in the network.
    pub(crate) fn network(&self) -> bool {
        !(self.terms.tcp.is_empty() && self.terms.http.is_empty())
    }

    pub(crate) fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        self.terms.dirs.values().map(|dir| &dir.path)
    }

    /// Files of the operator that the host reads on its behalf.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let trusts = self.terms.tcp.values().map(|grant| &grant.trust);
        let trusts = trusts.chain(self.terms.http.values().map(|grant| &grant.trust));
        trusts.flat_map(|trust| {
            let client = trust.client.iter().flat_map(|(chain, key)| [chain, key]);
            trust.roots.iter().chain(client).cloned()
        })
    }

    /// It is bound in that child now.
    pub(crate) fn note(&self, child: &Arc<Shared>) {
        let mut bound_in = self.bound_in.lock().unwrap_or_else(PoisonError::into_inner);
        bound_in.retain(|known| known.strong_count() > 0);
        if !bound_in.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(child))) {
            bound_in.push(Arc::downgrade(child));
        }
    }

    pub(crate) fn fault(&self, call: Call, kind: FaultKind, message: &str) -> CallFault {
        self.group.tenant().count_fault(&kind);
        CallFault::new(&self.terms.plugin, call, kind, message).of_tenant(Some(self.group.tenant().name()))
    }
}

/// A plugin in a child process.
pub(crate) struct Remote {
    bond: Arc<Bond>,
    description: Arc<Description>,
    digest: String,
}

impl Remote {
    /// `grants` were checked, and their directories are there.
    pub(crate) fn new(
        group: Arc<Group>,
        component: Arc<Component>,
        grants: Grants,
        description: Arc<Description>,
        digest: String,
        lease: Option<Lease>,
    ) -> Result<Self, WasmError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let options = grants.options();
        let mut dirs = options.dirs.clone();
        for (name, dir) in &mut dirs {
            // The child has another working directory, and no right to follow a link.
            dir.path = dir.path.canonicalize().map_err(|error| WasmError::Grant {
                sink: options.sink.clone(),
                detail: format!("the directory `{name}` ({}) cannot be used: {error}", dir.path.display()),
            })?;
        }
        let binding = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut hosts_secrets = Vec::new();
        let mut http = options.http.clone();
        for grant in http.values_mut() {
            for secret in secrets_of(&mut grant.auth) {
                let number = u32::try_from(hosts_secrets.len()).unwrap_or(u32::MAX);
                let place = SecretRef::Parent(SecretPlace::Hosts { binding, number });
                hosts_secrets.push(std::mem::replace(secret, place));
            }
        }
        let terms = Terms {
            binding,
            sink: options.sink.clone(),
            plugin: grants.plugin().to_owned(),
            digest: digest.clone(),
            description: (*description).clone(),
            dirs,
            tcp: options.tcp.clone(),
            http,
            secrets: options.secrets.keys().cloned().collect(),
            limits: options.limits.clone(),
        };
        let bound_in = Mutex::default();
        let bond = Arc::new(Bond { group, terms, grants, component, lease, hosts_secrets, bound_in });
        bond.group.join(&bond);
        Ok(Self { bond, description, digest })
    }

    async fn seat(&self, role: Role, intents: Option<Arc<dyn IntentLog>>) -> Result<Seat, CallFault> {
        let child = self.bond.group.child(&self.bond).await.map_err(|refused| match refused {
            Refused::Quarantined(why) => self.bond.fault(Call::Instantiate, FaultKind::Quarantined, &why),
            Refused::Failed(why) => self.bond.fault(Call::Instantiate, FaultKind::Host, &why).blamed_on(Blame::Host),
        })?;
        Seat::make(child, self.bond.clone(), role, intents).await
    }
}

fn secrets_of(auth: &mut HttpAuth) -> Vec<&mut SecretRef> {
    match auth {
        HttpAuth::None => Vec::new(),
        HttpAuth::Bearer(token) => vec![token],
        HttpAuth::Basic { password, .. } => vec![password],
        HttpAuth::SigV4 { key_id, secret, session_token, .. } => {
            [key_id, secret].into_iter().chain(session_token).collect()
        }
    }
}

impl Plugin for Remote {
    fn description(&self) -> &Description {
        &self.description
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn tenant(&self) -> Option<&str> {
        Some(self.bond.group.tenant().name())
    }

    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.seat(Role::Writer, Some(intents)).await?) as Box<dyn Writer>) })
    }

    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.seat(Role::Committer, None).await?) as Box<dyn Committer>) })
    }

    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.seat(Role::Janitor, None).await?) as Box<dyn Janitor>) })
    }
}
