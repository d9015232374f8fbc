//! What authors of Tidegate sink plugins use.
//!
//! Implement [`Sink`] and [`Writer`], then register the sink with one line: `tidegate_sdk::export!(MySink);`. Built for
//! `wasm32-wasip2` the crate is a component of `tidegate:sink`; built for any other target the same code runs natively
//! behind the same traits (see [`native`]), which is how a sink is tested with plain `cargo test`.
//!
//! ```
//! use serde::Deserialize;
//! use tidegate_sdk::{
//!     Abilities, Batch, Committable, Ctx, Description, Encoding, Error, KeyRange, Outcome, Part, Prepared, Reject,
//!     Sink, Writer, WriterState,
//! };
//!
//! /// Counts rows and publishes nothing.
//! #[derive(Default)]
//! struct Nowhere;
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     limit: u64,
//! }
//!
//! struct Counter {
//!     config: Config,
//!     part: Option<(Part, u64)>,
//! }
//!
//! impl Sink for Nowhere {
//!     type Writer = Counter;
//!
//!     fn describe() -> Description {
//!         Description {
//!             name: "nowhere".into(),
//!             version: "1.0.0".into(),
//!             config_schema: r#"{"type":"object","properties":{"limit":{"type":"integer"}}}"#.into(),
//!             encodings: vec![Encoding::JsonLines, Encoding::Raw],
//!             abilities: Abilities { staging: true, ..Abilities::NONE },
//!             committable_versions: vec![1],
//!             grants: Vec::new(),
//!             needs: Vec::new(),
//!         }
//!     }
//!
//!     fn open(&mut self, ctx: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<Counter, Error> {
//!         Ok(Counter { config: ctx.config()?, part: None })
//!     }
//!
//!     fn commit(&mut self, _: &Ctx, _: &[Part], parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
//!         Ok(vec![Outcome::Committed; parts.len()])
//!     }
//! }
//!
//! impl Writer for Counter {
//!     fn begin(&mut self, _: &Ctx, part: &Part) -> Result<(), Error> {
//!         self.part = Some((part.clone(), 0));
//!         Ok(())
//!     }
//!
//!     fn write(&mut self, _: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
//!         let Some((_, count)) = &mut self.part else { return Err(Error::permanent("not-begun", "begin first")) };
//!         *count += rows.info().rows;
//!         if *count > self.config.limit {
//!             return Err(Error::permanent("too-many", format!("more than {} rows in a part", self.config.limit)));
//!         }
//!         Ok(Vec::new())
//!     }
//!
//!     fn prepare(&mut self, _: &Ctx) -> Result<Prepared, Error> {
//!         let (part, rows) = self.part.take().ok_or_else(|| Error::permanent("not-begun", "begin first"))?;
//!         let committable = Committable { part, version: 1, body: Vec::new(), rows, expires_at: None };
//!         Ok(Prepared { committable, resources: Vec::new(), state: None, rows, rejects: Vec::new() })
//!     }
//! }
//!
//! tidegate_sdk::export!(Nowhere);
//! # fn main() {}
//! ```
//!
//! Rules that the interface cannot express, and every sink keeps:
//! - Report, do not loop: retries belong to the host.
//! - No state between `prepare` and `commit` but the committable: they may run in different processes.
//! - `commit`, `abandon` and `release` may be repeated; a repeat changes nothing.
//! - [`Outcome::Never`] only when a late request can no longer succeed. When in doubt, [`Outcome::Unknown`].

mod batch;
mod config;
mod ctx;
mod error;
pub mod fs;
pub mod http;
mod sink;
pub mod tcp;
mod types;

#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod guest;
#[cfg(not(target_family = "wasm"))]
pub mod native;

pub use batch::Batch;
pub use ctx::{Ctx, Level, Secret};
pub use error::{Error, ErrorKind};
pub use sink::{Sink, Writer};
pub use types::{
    Abilities, AtomicScope, BatchInfo, Committable, Description, Encoding, External, FileChunk, GrantRequest, KeyRange,
    Need, Orphan, OrphanPage, Orphans, Outcome, Part, Position, Prepared, Reject, Role, RunId, Unsealed, Visibility,
    WriterState,
};

/// Makes a [`Sink`] the component's exports. Once per crate; nothing on targets other than wasm.
#[macro_export]
macro_rules! export {
    ($sink:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Exported;
            impl $crate::guest::Exported for Exported {
                type Sink = $sink;
                fn with<R>(call: impl FnOnce(&mut $crate::guest::Instance<$sink>) -> R) -> R {
                    ::std::thread_local! {
                        static INSTANCE: ::std::cell::RefCell<$crate::guest::Instance<$sink>> =
                            ::std::cell::RefCell::new($crate::guest::Instance::new());
                    }
                    INSTANCE.with(|instance| call(&mut instance.borrow_mut()))
                }
            }
    $crate::guest::bindings::export!(Exported with_types_in $crate::guest::bindings);
        };
    };
}
