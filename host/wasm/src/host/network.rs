//! What one instance was granted of the network, and what it has used up.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sockets::Approved;
use crate::limits::Limits;
use crate::net::place::TcpPlace;
use crate::net::traffic::Traffic;
use crate::tenant::Tenant;

/// Granted TCP places by the plugin's name for them.
pub(crate) type TcpPlaces = BTreeMap<String, Arc<TcpPlace>>;

/// The network as one instance sees it.
pub(crate) struct Network {
    /// On whose behalf, and whose denied attempts are counted.
    pub(crate) tenant: Tenant,
    pub(crate) traffic: Traffic,
    pub(crate) tcp: TcpPlaces,
    /// Where sockets of WASI may connect to, beside addresses that are granted as such.
    pub(crate) approved: Vec<Approved>,
}

impl Network {
    pub(crate) fn new(tenant: Tenant, limits: &Limits, tcp: TcpPlaces) -> Self {
        let traffic = Traffic::new(tenant.clone(), limits);
        Self { tenant, traffic, tcp, approved: Vec::new() }
    }
}
