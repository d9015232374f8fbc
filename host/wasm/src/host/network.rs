//! What one instance was granted of the network, and what it has used up.

use crate::limits::Limits;
use crate::net::traffic::Traffic;
use crate::tenant::Tenant;

/// The network as one instance sees it.
pub(crate) struct Network {
    /// On whose behalf, and whose denied attempts are counted.
    pub(crate) tenant: Tenant,
    pub(crate) traffic: Traffic,
}

impl Network {
    /// Nothing granted yet.
    pub(crate) fn new(tenant: Tenant, limits: &Limits) -> Self {
        let traffic = Traffic::new(tenant.clone(), limits);
        Self { tenant, traffic }
    }
}
