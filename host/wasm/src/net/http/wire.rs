//! The bytes of one connection, counted.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::place::Duplex;
use crate::net::traffic::{Spent, Traffic};

/// How much may still arrive before an answer's head is complete. Interim answers count, and there may be any number of
/// them.
#[derive(Clone, Default)]
pub(crate) struct HeadMeter(Arc<AtomicU64>);

/// Not while a head is waited for.
const UNLIMITED: u64 = u64::MAX;

impl HeadMeter {
    /// Nothing arrives but bodies, and what holds the connection up.
    pub(crate) fn unlimited() -> Self {
        Self(Arc::new(AtomicU64::new(UNLIMITED)))
    }

    /// A head is waited for, which may come to this many bytes with all that precedes it.
    pub(crate) fn begin(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// It is there.
    pub(crate) fn end(&self) {
        self.0.store(UNLIMITED, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let left = self.0.load(Ordering::Relaxed);
        if left == UNLIMITED {
            return Ok(());
        }
        match left.checked_sub(bytes as u64) {
            Some(left) => {
                self.0.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => Err(io::Error::other(EndlessHead)),
        }
    }
}

/// What precedes an answer's body does not come to an end.
#[derive(Debug)]
pub(crate) struct EndlessHead;

impl fmt::Display for EndlessHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the head of the answer, with what precedes it, does not come to an end")
    }
}

impl std::error::Error for EndlessHead {}

/// Whether an instance may still use the network through HTTP. Clones are the same.
#[derive(Clone)]
pub(crate) struct Running(Arc<watch::Sender<bool>>);

impl Default for Running {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }
}

impl Running {
    /// From now on no byte is sent or received.
    pub(crate) fn stop(&self) {
        self.0.send_replace(false);
    }

    /// The call ends over it, so nobody need wait for anything any more.
    pub(crate) fn overdrawn(&self, _: Spent) {
        self.stop();
    }

    /// Ready when [`Running::stop`] was called.
    pub(crate) async fn stopped(&self) {
        // The sender is in `self`.
        let _ = self.0.subscribe().wait_for(|running| !*running).await;
    }

    fn check(&self) -> io::Result<()> {
        match *self.0.borrow() {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// A connection whose bytes are charged to the instance that it belongs to. Above TLS: what is encrypted is counted in the
/// clear.
pub(crate) struct Wire {
    inner: Box<dyn Duplex>,
    traffic: Traffic,
    head: HeadMeter,
    running: Running,
}

impl Wire {
    pub(crate) fn new(inner: Box<dyn Duplex>, traffic: Traffic, head: HeadMeter, running: Running) -> Self {
        Self { inner, traffic, head, running }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.running.check()?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let arrived = buffer.filled().len().saturating_sub(before);
        self.head.take(arrived)?;
        Poll::Ready(self.traffic.down(arrived).map_err(io::Error::other))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.running.check()?;
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        Poll::Ready(self.traffic.up(written).map(|()| written).map_err(io::Error::other))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.running.check()?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.running.check()?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
