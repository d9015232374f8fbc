//! Told to whoever wants to know: what is about to be done at followed files. The world changes between two of these.

use std::fmt;
use std::sync::Arc;

/// What was done, or is about to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The files that patterns match were listed.
    Listed,
    /// So was all that is in their directories, because something happened there.
    ListedAround,
    /// A file is opened next.
    Opening,
    /// Rows of a file are read next.
    Reading,
}

/// Is told of each [`Moment`], on the thread on which it comes, which waits for it. It must not use the source.
#[derive(Clone, Default)]
pub struct Moments(Option<Arc<dyn Fn(Moment) + Send + Sync>>);

impl Moments {
    /// Tells `each`.
    pub fn told(each: impl Fn(Moment) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(each)))
    }

    pub(super) fn tell(&self, moment: Moment) {
        if let Some(each) = &self.0 {
            each(moment);
        }
    }
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moments").field(&self.0.is_some()).finish()
    }
}
