//! The connections of one instance: open while a request is under way, and for a while after it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wasmtime_wasi_http::Error;

use super::headers::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
use super::place::{HttpPlace, Version};
use super::wire::{HeadMeter, Running, Wire};
use crate::net::traffic::{Slot, Spent, Traffic};
use crate::net::{Deadline, NetError};

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(20);
/// Bytes that wait in a connection, each way.
const BUFFER: usize = 64 << 10;
/// Bytes of answers that a server may send ahead, over HTTP/2: per request, and per connection.
const WINDOW: (u32, u32) = (256 << 10, 1 << 20);

/// Bodies of requests.
pub(crate) type Outgoing = UnsyncBoxBody<Bytes, Error>;

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// The place was not reached.
    Net(NetError),
    /// The call's budget is spent.
    Spent(Spent),
    /// Other instances have taken all that the tenant may have.
    TenantFull,
    /// The server does not speak HTTP.
    Protocol(hyper::Error),
}

impl From<Spent> for NoConnection {
    fn from(spent: Spent) -> Self {
        NoConnection::Spent(spent)
    }
}

enum Sender {
    Http1(http1::SendRequest<Outgoing>),
    Http2(http2::SendRequest<Outgoing>),
}

/// Drives one connection. Dropped, the connection is reset.
struct Driver {
    task: JoinHandle<()>,
    _slot: Slot,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection for one request: its own over HTTP/1, a shared one over HTTP/2.
pub(crate) struct Line {
    sender: Sender,
    driver: Arc<Driver>,
    /// The request's own share of a shared connection.
    _share: Option<Slot>,
    pub(crate) head: HeadMeter,
    /// The name of the place that it leads to.
    place: String,
}

impl Line {
    pub(crate) fn version(&self) -> Version {
        match self.sender {
            Sender::Http1(_) => Version::Http1,
            Sender::Http2(_) => Version::Http2,
        }
    }

    fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends one request; its body goes on being sent after that. A request of which nothing was sent comes back.
    pub(crate) async fn send(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outgoing>>> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        }
    }

    async fn ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
}

struct Idle {
    line: Line,
    since: Instant,
}

#[derive(Default)]
struct Inner {
    idle: Vec<Idle>,
    sweeping: bool,
}

/// What one instance has open.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Inner>>, Running);

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open connection that is free, or a new one. The second value: it is new.
    pub(crate) async fn line(
        &self,
        place: &HttpPlace,
        traffic: &Traffic,
        deadline: Deadline,
    ) -> Result<(Line, bool), NoConnection> {
        while let Some(mut line) = self.take(&place.name, traffic)? {
            if line.ready().await {
                return Ok((line, false));
            }
        }
        Ok((self.open(place, traffic, deadline).await?, true))
    }

    /// A connection that could serve once more.
    fn take(&self, place: &str, traffic: &Traffic) -> Result<Option<Line>, NoConnection> {
        let mut inner = self.lock();
        inner.idle.retain(|idle| !idle.line.is_closed());
        let Some(found) = inner.idle.iter().position(|idle| idle.line.place == place) else { return Ok(None) };
        if let Sender::Http2(sender) = &inner.idle[found].line.sender {
            let sender = sender.clone();
            inner.idle[found].since = Instant::now();
            let line = &inner.idle[found].line;
            let (driver, head) = (line.driver.clone(), line.head.clone());
            drop(inner);
            let share = traffic.open()?.ok_or(NoConnection::TenantFull)?;
            let place = place.to_owned();
            return Ok(Some(Line { sender: Sender::Http2(sender), driver, _share: Some(share), head, place }));
        }
        Ok(Some(inner.idle.swap_remove(found).line))
    }

    async fn open(&self, place: &HttpPlace, traffic: &Traffic, deadline: Deadline) -> Result<Line, NoConnection> {
        if traffic.is_full() {
            self.let_go_of_unused();
        }
        let slot = match traffic.open()? {
            Some(slot) => slot,
            None => {
                self.let_go_of_unused();
                traffic.open()?.ok_or(NoConnection::TenantFull)?
            }
        };
        if place.target.needs_lookup() {
            traffic.lookup()?;
        }
        let (io, version) = place.connect(deadline).await.map_err(NoConnection::Net)?;
        let head = HeadMeter::unlimited();
        let io = TokioIo::new(Wire::new(io, traffic.clone(), head.clone(), self.1.clone()));
        let greet = async {
            match version {
                Version::Http1 => greet_http1(io).await,
                Version::Http2 => greet_http2(io).await,
            }
        };
        let greeted = deadline.within(&place.target, "the connection's first words", async { Ok(greet.await) }).await;
        let (sender, task) = greeted.map_err(NoConnection::Net)?.map_err(NoConnection::Protocol)?;
        let driver = Arc::new(Driver { task, _slot: slot });
        let Sender::Http2(shared) = &sender else {
            return Ok(Line { sender, driver, _share: None, head, place: place.name.clone() });
        };
        let kept = Line {
            sender: Sender::Http2(shared.clone()),
            driver: driver.clone(),
            _share: None,
            head: head.clone(),
            place: place.name.clone(),
        };
        self.keep(kept);
        let share = traffic.open()?.ok_or(NoConnection::TenantFull)?;
        Ok(Line { sender, driver, _share: Some(share), head, place: place.name.clone() })
    }

    /// The request and its answer are over, and both were whole.
    pub(crate) fn give_back(&self, line: Line) {
        // Shared ones are kept already.
        if line.version() == Version::Http1 && !line.is_closed() {
            self.keep(line);
        }
    }

    fn keep(&self, line: Line) {
        let mut inner = self.lock();
        inner.idle.push(Idle { line, since: Instant::now() });
        if !std::mem::replace(&mut inner.sweeping, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }

    /// Closes what no request uses.
    fn let_go_of_unused(&self) {
        self.lock().idle.retain(|idle| Arc::strong_count(&idle.line.driver) > 1);
    }

    /// Closes everything, now. Nothing more is sent, not even by a request that is under way.
    pub(crate) fn close(&self) {
        self.1.stop();
        self.lock().idle.clear();
    }

    /// Whether the instance may still use the network.
    pub(crate) fn running(&self) -> &Running {
        &self.1
    }
}

/// Closes connections that were not used for a while, until there are none.
async fn sweep(pool: Weak<Mutex<Inner>>) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut inner = pool.lock().unwrap_or_else(PoisonError::into_inner);
        inner.idle.retain(|idle| {
            let used = Arc::strong_count(&idle.line.driver) > 1;
            !idle.line.is_closed() && (used || idle.since.elapsed() < IDLE)
        });
        if inner.idle.is_empty() {
            inner.sweeping = false;
            return;
        }
    }
}

async fn greet_http1(io: TokioIo<Wire>) -> hyper::Result<(Sender, JoinHandle<()>)> {
    let mut builder = http1::Builder::new();
    builder.max_headers(MAX_HEAD_FIELDS).max_header_size(MAX_HEAD_BYTES).max_buf_size(BUFFER);
    let (sender, connection) = builder.handshake(io).await?;
    // Its end is seen by whoever uses it.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok((Sender::Http1(sender), task))
}

async fn greet_http2(io: TokioIo<Wire>) -> hyper::Result<(Sender, JoinHandle<()>)> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .max_send_buf_size(BUFFER)
        .initial_stream_window_size(WINDOW.0)
        .initial_connection_window_size(WINDOW.1);
    let (sender, connection) = builder.handshake(io).await?;
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok((Sender::Http2(sender), task))
}
