//! Bodies. A request's body ends well only when the plugin said that it is finished; an answer's is bounded in size and
//! time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use super::exchange::Lease;
use super::headers::{self, Withheld};

/// The body of a request, as a connection reads it.
///
/// wasmtime's body ends in the same way when the plugin finished it and when it was dropped with its Store. So whoever
/// finishes says it with trailers, if only empty ones ([`crate::host::http`]); an end without them is an error, and the
/// server sees a request that breaks off. Over HTTP/1 with a declared length the server would take the last byte for the
/// end, so the chunk with the last byte waits until the plugin has said it.
pub(crate) struct RequestBody {
    inner: WasiBody,
    /// There is no body at all: nobody has to finish it.
    absent: bool,
    left: u64,
    declared: Option<u64>,
    came: u64,
    waiting: Option<Bytes>,
    trailers: Option<http::HeaderMap>,
    finished: bool,
    /// HTTP/1 sends only those trailers that the head announced, and silently drops others.
    announced: Option<Vec<HeaderName>>,
    whole: Arc<AtomicBool>,
    /// Comes to an end when nobody wants the request any more.
    wanted: oneshot::Receiver<()>,
}

/// The interest in a request. Dropped before the request went out to its end, the request breaks off.
pub(crate) struct Claim {
    whole: Arc<AtomicBool>,
    _wanted: oneshot::Sender<()>,
}

impl Claim {
    /// Whether the request went out to its end.
    pub(crate) fn is_sent(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }
}

impl RequestBody {
    /// `most` bytes at most. It breaks off when the answer's [`Claim`] is dropped.
    pub(crate) fn new(inner: WasiBody, declared: Option<u64>, most: u64) -> (Self, Claim) {
        let absent = inner.is_end_stream();
        let whole = Arc::new(AtomicBool::new(absent));
        let (claim, wanted) = oneshot::channel();
        let claim = Claim { whole: whole.clone(), _wanted: claim };
        let body = Self {
            inner,
            absent,
            left: most,
            declared,
            came: 0,
            waiting: None,
            trailers: None,
            finished: false,
            announced: None,
            whole,
            wanted,
        };
        (body, claim)
    }

    /// No trailers but these may follow.
    pub(crate) fn announce(&mut self, trailers: Vec<HeaderName>) {
        self.announced = Some(trailers);
    }

    fn take(&mut self, bytes: Bytes) -> Result<Option<Bytes>, Error> {
        let length = bytes.len() as u64;
        self.came += length;
        self.left = self.left.checked_sub(length).ok_or(Error::HttpRequestBodySize(Some(self.came)))?;
        match self.declared {
            Some(declared) if self.came > declared => Err(Error::HttpRequestBodySize(Some(self.came))),
            Some(declared) if self.came == declared => {
                self.waiting = Some(bytes);
                Ok(None)
            }
            _ => Ok(Some(bytes)),
        }
    }

    fn finish(&mut self, trailers: http::HeaderMap) -> Result<(), Error> {
        if self.declared.is_some_and(|declared| declared != self.came) {
            return Err(Error::HttpRequestBodySize(Some(self.came)));
        }
        headers::check_trailers(&trailers).map_err(|_| Error::HttpRequestDenied)?;
        if let Some(announced) = &self.announced
            && let Some(name) = trailers.keys().find(|name| !announced.contains(name))
        {
            let detail = format!("over HTTP/1 the header `trailer` must announce the trailer {name}");
            return Err(Error::InternalError(Some(detail)));
        }
        self.finished = true;
        self.trailers = (!trailers.is_empty()).then_some(trailers);
        Ok(())
    }

    /// What is left to send after the plugin finished.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        let bytes = self.waiting.take().map(Frame::data);
        if bytes.is_none() || self.trailers.is_none() {
            self.whole.store(true, Ordering::Release);
        }
        bytes.or_else(|| self.trailers.take().map(Frame::trailers))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if self.finished {
                return Poll::Ready(self.rest().map(Ok));
            }
            if Pin::new(&mut self.wanted).poll(cx).is_ready() {
                return Poll::Ready(Some(Err(Error::ConnectionTerminated)));
            }
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(frame) => frame?,
                None if self.absent => return Poll::Ready(None),
                // Dropped and not finished.
                None => return Poll::Ready(Some(Err(Error::ConnectionTerminated))),
            };
            let frame = match frame.into_data() {
                // Empty chunks would fill queues and say nothing.
                Ok(bytes) if bytes.is_empty() => continue,
                Ok(bytes) => self.take(bytes)?,
                Err(frame) => {
                    self.finish(frame.into_trailers().unwrap_or_default())?;
                    None
                }
            };
            if let Some(bytes) = frame {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.absent
    }

    fn size_hint(&self) -> SizeHint {
        if self.absent { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

/// The body of an answer, as a plugin reads it. As it was sent: what is compressed stays compressed.
pub(crate) struct AnswerBody {
    inner: Incoming,
    left: u64,
    came: u64,
    idle_time: Duration,
    idle: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
    withheld: Withheld,
    lease: Lease,
    over: bool,
}

impl AnswerBody {
    /// `most` bytes at most, all of them before `deadline`, and never nothing for longer than `idle`.
    pub(crate) fn new(
        inner: Incoming,
        most: u64,
        idle_time: Duration,
        deadline: Instant,
        withheld: Withheld,
        lease: Lease,
    ) -> Self {
        let over = inner.is_end_stream();
        if over {
            lease.done();
        }
        let idle = Box::pin(tokio::time::sleep(idle_time));
        let deadline = Box::pin(tokio::time::sleep_until(deadline));
        Self { inner, left: most, came: 0, idle_time, idle, deadline, withheld, lease, over }
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.over = true;
        self.lease.cut();
        Poll::Ready(Some(Err(error)))
    }

    fn pass(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Error> {
        match frame.into_data() {
            Ok(bytes) => {
                let length = bytes.len() as u64;
                self.came += length;
                self.left = self.left.checked_sub(length).ok_or(Error::HttpResponseBodySize(Some(self.came)))?;
                Ok(Frame::data(bytes))
            }
            Err(frame) => {
                let mut trailers = frame.into_trailers().unwrap_or_default();
                headers::clean_answer(&mut trailers, &self.withheld);
                Ok(Frame::trailers(trailers))
            }
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        // Looked at first: a server that always has one more byte must not put the end off.
        if self.deadline.as_mut().poll(cx).is_ready() {
            return self.fail(Error::HttpResponseTimeout);
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let next = Instant::now() + self.idle_time;
                self.idle.as_mut().reset(next);
                match self.pass(frame) {
                    Ok(frame) => Poll::Ready(Some(Ok(frame))),
                    Err(error) => self.fail(error),
                }
            }
            Poll::Ready(Some(Err(error))) if error.is_timeout() => self.fail(Error::HttpResponseTimeout),
            Poll::Ready(Some(Err(_))) => self.fail(Error::HttpResponseIncomplete),
            Poll::Ready(None) => {
                self.over = true;
                self.lease.done();
                Poll::Ready(None)
            }
            Poll::Pending if self.idle.as_mut().poll(cx).is_ready() => self.fail(Error::ConnectionReadTimeout),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }
}
