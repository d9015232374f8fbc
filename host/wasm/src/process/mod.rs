//! Plugins in a process of their own: one child per tenant, in which all its instances run, while protocol and log stay
//! here. An abort of the engine, or a plugin that got the better of it, is then a fault of that tenant.
//!
//! ```text
//!            parent                                              child (confined; one per tenant)
//! driver ──▶ Remote: Plugin ──▶ Seat ──▶ outbox ═══ socket ═══▶ Bound ──▶ instance, as without a child
//!                 ▲                      reader ◀══ pair ══════ answers, intents, secrets, log, metrics
//!                 └── every answer is checked as a plugin's own (`check`)
//! ```
//!
//! **What the child has.** Compiled code, which the parent sends; the directories that are granted to the tenant; the
//! network, if one of the tenant's sinks is granted a place there. No environment, no cache, no other file. The value of
//! a secret is asked for when the plugin reveals it.
//!
//! **What the child says** is believed no more than what a plugin says. A frame that makes no sense ends the child.
//!
//! **Death.** The child ends when its parent does, by the parent-death signal and by the end of the socket, whatever it
//! is doing. Until the kernel has carried that out, a call may still publish: the child therefore holds a [`Lease`] of
//! each pipeline that it works for, a lock that the kernel gives up only once the child is gone, and a run begins with
//! taking it. When the child dies, each running call has a fault, and the next instance has a fresh child.

mod actor;
mod check;
pub(crate) mod child;
mod deaths;
mod group;
mod lease;
mod pipe;
mod remote;
mod running;
mod seat;
pub(crate) mod wire;

use serde::{Deserialize, Serialize};

pub(crate) use group::Group;
pub use lease::Lease;
pub(crate) use remote::Remote;
#[doc(hidden)]
pub use wire::SecretPlace;

/// Where a tenant's plugins run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// In this process, beside those of other tenants.
    #[default]
    Shared,
    /// In a child process of the tenant's own.
    Process,
}
