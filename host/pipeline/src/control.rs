//! What people ask of a running pipeline: to stop, a savepoint, to give a savepoint up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_protocol::event::RequestRefused;
use tidegate_protocol::ids::EpochRef;
use tokio::sync::{Mutex, mpsc, oneshot, watch};

/// So many requests may wait for the driver.
const WAITING: usize = 64;

/// The answer to a request: the savepoint's epoch, or why not.
pub type Answer = Result<EpochRef, RequestRefused>;

/// Speaks to a running pipeline. All clones speak to the same one; it hears them in whichever run it is.
#[derive(Debug, Clone)]
pub struct Control {
    stop: watch::Sender<bool>,
    requests: mpsc::Sender<Asked>,
    inbox: Arc<Mutex<mpsc::Receiver<Asked>>>,
    numbers: Arc<AtomicU64>,
}

/// A request on its way to the driver.
#[derive(Debug)]
pub(crate) enum Asked {
    Savepoint { request: u64, name: String, done: oneshot::Sender<Answer> },
    Forget { request: u64, name: String, done: oneshot::Sender<Answer> },
    Withdraw { request: u64 },
}

impl Default for Control {
    fn default() -> Self {
        let (requests, inbox) = mpsc::channel(WAITING);
        let (inbox, numbers) = (Arc::new(Mutex::new(inbox)), Arc::default());
        Self { stop: watch::Sender::new(false), requests, inbox, numbers }
    }
}

impl Control {
    /// Stop with a sealed and committed epoch. Asking twice is asking once.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns when somebody has asked.
    pub async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Cut an epoch now and keep its checkpoint under this name. Answered when it is sealed.
    pub fn savepoint(&self, name: &str) -> Waiting {
        self.ask(|request, done| Asked::Savepoint { request, name: name.to_owned(), done })
    }

    /// Give a savepoint up. Answered when that is durable.
    pub fn forget(&self, name: &str) -> Waiting {
        self.ask(|request, done| Asked::Forget { request, name: name.to_owned(), done })
    }

    fn ask(&self, asked: impl FnOnce(u64, oneshot::Sender<Answer>) -> Asked) -> Waiting {
        let request = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (done, answer) = oneshot::channel();
        let full = self.requests.try_send(asked(request, done)).is_err();
        Waiting { control: self.clone(), request, answer, full }
    }

    /// The next request. May be dropped at any time without losing one.
    pub(crate) async fn asked(&self) -> Asked {
        match self.inbox.lock().await.recv().await {
            Some(asked) => asked,
            // `self` holds a sender.
            None => std::future::pending().await,
        }
    }
}

/// A request that has no answer yet.
#[derive(Debug)]
pub struct Waiting {
    control: Control,
    request: u64,
    answer: oneshot::Receiver<Answer>,
    full: bool,
}

impl Waiting {
    /// The answer. May be dropped and asked for again until it has come.
    pub async fn answer(&mut self) -> Answer {
        match (&mut self.answer).await {
            _ if self.full => Err(RequestRefused::TooMany),
            Ok(answer) => answer,
            Err(_) => Err(RequestRefused::RunOver),
        }
    }

    /// Nobody waits any more: what has not begun is not done, and [`Waiting::answer`] says so.
    pub fn withdraw(&self) {
        // When too many requests wait for a pipeline that does not listen, it is over for this one as well.
        let _ = self.control.requests.try_send(Asked::Withdraw { request: self.request });
    }
}
