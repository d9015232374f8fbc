//! The sink, run natively behind the trait that the component exports.

mod calls;
mod folders;
mod formats;
mod world;

/// Parts of one file.
#[path = "."]
mod lines {
    pub(crate) type World = crate::world::World<false>;

    mod crash;
    mod power;
    mod race;
}

/// Parts of several files in folders: the same tests.
#[path = "."]
#[expect(clippy::duplicate_mod, reason = "once more, with another `World`")]
mod several {
    pub(crate) type World = crate::world::World<true>;

    mod crash;
    mod power;
    mod race;
}
