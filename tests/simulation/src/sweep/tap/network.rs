//! Requests that are on their way while nobody waits for them any more. They outlive the process that sent them.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_protocol::plugin::BoxFuture;

use crate::sweep::trace::{Fact, Site, Trace};

/// A request; what it does is done when this is awaited.
pub(crate) struct Request {
    pub(crate) site: Site,
    pub(crate) arrives: BoxFuture<'static, bool>,
}

/// The network of one world; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<Vec<(u32, Request)>>>);

impl Network {
    /// It arrives before the call that many calls from now.
    pub(crate) fn send(&self, request: Request, calls: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((calls, request));
    }

    /// A call is about to arrive: what is due arrives first.
    pub(crate) async fn pass(&self, trace: &Trace) {
        let due = self.take(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        deliver(due, trace).await;
    }

    /// All that is left arrives.
    pub(crate) async fn drain(&self, trace: &Trace) {
        let due = self.take(|_| true);
        deliver(due, trace).await;
    }

    /// Nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn take(&self, mut due: impl FnMut(&mut u32) -> bool) -> Vec<Request> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, later): (Vec<_>, Vec<_>) =
            waiting.drain(..).map(|(mut left, r)| (due(&mut left), left, r)).partition(|(due, ..)| *due);
        *waiting = later.into_iter().map(|(_, left, request)| (left, request)).collect();
        now.into_iter().map(|(_, _, request)| request).collect()
    }
}

async fn deliver(due: Vec<Request>, trace: &Trace) {
    for request in due {
        let ok = request.arrives.await;
        trace.note(Fact::Late { site: request.site, ok });
    }
}
