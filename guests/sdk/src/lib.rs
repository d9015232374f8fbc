//! What authors of Tidegate sink plugins use.
//!
//! Implement [`Sink`] and [`Writer`], then register the sink with one line: `tidegate_sdk::export!(MySink);`. Built for
//! `wasm32-wasip2` the crate is a component of `tidegate:sink`; built for any other target the same code runs natively
//! behind the same traits (see [`native`]), which is how a sink is tested with plain `cargo test`.
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
mod sink;
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
    Abilities, AtomicScope, BatchInfo, Committable, Description, Encoding, External, GrantRequest, KeyRange, Orphan,
    OrphanPage, Orphans, Outcome, Part, Position, Prepared, Reject, Role, RunId, Unsealed, Visibility, WriterState,
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
