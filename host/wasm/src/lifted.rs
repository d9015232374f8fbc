//! What a plugin hands back, as the component model lifts it, and how it is taken. Only for whoever checks that from
//! outside without a component around each answer, which would take most of the time: no part of the interface of this
//! crate, and free to change.

pub use crate::bindings::exported::janitor::{Orphan, OrphanPage};
pub use crate::bindings::exported::plugin::{
    Abilities, AtomicScope, Description, GrantRequest, Need, Orphans, Role, Visibility,
};
pub use crate::bindings::exported::writer::Prepared;
pub use crate::bindings::imported::rows::Encoding;
pub use crate::bindings::imported::types::{
    Committable, Error, ErrorKind, External, KeyRange, Outcome, Part, Position, Reject, RunId, WriterState,
};
pub use crate::convert::{
    Checked, committable_to_wit, description_from_wit, error_from_wit, external_to_wit, orphans_from_wit,
    outcomes_from_wit, position_from_wit, position_to_wit, prepared_from_wit, rejects_from_wit, state_to_wit,
    stored_external,
};
pub use crate::text::Redactor;
