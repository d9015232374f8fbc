//! Announcing resources before they are created. Only a writer has somewhere to announce them.

use std::sync::Arc;

use tidegate_protocol::ids::PartId;
use tidegate_protocol::plugin::IntentLog;

use super::State;
use crate::bindings::imported::ledger;
use crate::bindings::imported::types::{Error, ErrorKind, External};
use crate::convert;

/// Where announcements go.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    /// `None` for committers, janitors and `describe`.
    pub(crate) intents: Option<Arc<dyn IntentLog>>,
    /// The part begun last.
    pub(crate) part: Option<PartId>,
}

impl Ledger {
    fn intents(&self) -> Result<Arc<dyn IntentLog>, Error> {
        self.intents
            .clone()
            .ok_or_else(|| super::error(ErrorKind::Denied, "not-a-writer", "only a writer may announce resources"))
    }
}

impl ledger::Host for State {
    async fn resource_intent(&mut self, resource: External) -> wasmtime::Result<Result<u64, Error>> {
        self.meter.check()?;
        let intents = match self.ledger.intents() {
            Ok(intents) => intents,
            Err(denied) => return Ok(Err(denied)),
        };
        let resource = match convert::stored_external(resource, &self.redactor) {
            Ok(resource) => resource,
            Err(message) => return Ok(Err(super::error(ErrorKind::Permanent, "bad-resource", message))),
        };
        let answer = intents.intent(self.ledger.part.clone(), resource).await;
        Ok(answer.map_err(convert::error_to_wit))
    }

    async fn resource_bound(&mut self, intent: u64, name: String) -> wasmtime::Result<Result<(), Error>> {
        self.meter.check()?;
        let intents = match self.ledger.intents() {
            Ok(intents) => intents,
            Err(denied) => return Ok(Err(denied)),
        };
        let bound = External { kind: String::new(), name, expires_at: None };
        match convert::stored_external(bound, &self.redactor) {
            Ok(bound) => Ok(intents.bound(intent, bound.name).await.map_err(convert::error_to_wit)),
            Err(message) => Ok(Err(super::error(ErrorKind::Permanent, "bad-resource", message))),
        }
    }
}
