//! An open connection, as the streams that a plugin reads and writes.
//!
//! All of it happens on the instance's own thread, inside the calls that the plugin makes: there is no task that could
//! go on sending for a plugin that was killed. Whoever waits for input also pushes what is to be sent.
//!
//! A connection that is dropped is reset. It ends in order, with TLS's own end mark where there is TLS, only when the
//! plugin itself let go of the output after everything was sent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, InputStream, OutputStream, Pollable, StreamError, StreamResult,
};

use super::dial;
use super::traffic::{Slot, Spent, Traffic};

/// Bytes that are read at once, and with TLS the size of a record.
const CHUNK: usize = 16 << 10;
/// Bytes that the plugin may write before they are on their way.
const PERMIT: usize = 64 << 10;

/// A connection with or without TLS.
pub(crate) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Io {
    fn tcp(&self) -> &TcpStream {
        match self {
            Io::Plain(stream) => stream,
            Io::Tls(stream) => stream.get_ref().0,
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Io::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Io::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Io::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Io::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Io::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// One direction of a connection.
enum Direction {
    Open,
    /// Ended, or its error was told.
    Closed,
    /// Told once.
    Failed(io::Error),
    /// Ends the call, however often it is asked.
    Overdrawn(Spent),
}

impl Direction {
    fn tell(&mut self) -> StreamResult<()> {
        match std::mem::replace(self, Direction::Closed) {
            Direction::Open => {
                *self = Direction::Open;
                Ok(())
            }
            Direction::Closed => Err(StreamError::Closed),
            Direction::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
            Direction::Overdrawn(spent) => {
                *self = Direction::Overdrawn(spent);
                Err(StreamError::Trap(spent.into()))
            }
        }
    }

    fn is_open(&self) -> bool {
        matches!(self, Direction::Open)
    }
}

/// A connection, shared by its handle and its streams.
pub(crate) struct Link(Mutex<Inner>);

struct Inner {
    /// `None` while TLS is being begun, and after that failed.
    io: Option<Io>,
    input: Direction,
    arrived: Bytes,
    scratch: Vec<u8>,
    output: Direction,
    unsent: Bytes,
    /// Streams that the plugin holds.
    has_input: bool,
    has_output: bool,
    /// The plugin may still ask for streams, or for TLS and then for streams.
    more_to_come: bool,
    /// Nothing more will be written; when all is sent, the other side is told.
    ending: bool,
    traffic: Traffic,
    _slot: Slot,
}

fn no_waker() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Why TLS was not begun.
pub(crate) enum NoTls {
    /// A stream is still held.
    StreamsHeld,
    /// The server said something before TLS that nobody has read: an attacker's words would count as the server's.
    SpokenBefore,
    /// The connection has TLS, or has failed.
    NotPlain,
}

impl Link {
    pub(crate) fn new(io: Io, traffic: Traffic, slot: Slot) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inner {
            io: Some(io),
            input: Direction::Open,
            arrived: Bytes::new(),
            scratch: Vec::new(),
            output: Direction::Open,
            unsent: Bytes::new(),
            has_input: false,
            has_output: false,
            more_to_come: true,
            ending: false,
            traffic,
            _slot: slot,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both streams. After the last time, letting go of the output ends the connection.
    pub(crate) fn streams(self: &Arc<Self>, last_time: bool) -> (DynInputStream, DynOutputStream) {
        let mut inner = self.lock();
        inner.has_input = true;
        inner.has_output = true;
        inner.more_to_come = !last_time;
        (Box::new(Input(self.clone())), Box::new(Output { link: self.clone(), permit: 0 }))
    }

    /// The bare connection, to begin TLS on it. What is given back goes to [`Link::secured`].
    pub(crate) fn take_plain(&self) -> Result<TcpStream, NoTls> {
        let mut inner = self.lock();
        if inner.has_input || inner.has_output {
            return Err(NoTls::StreamsHeld);
        }
        if !inner.arrived.is_empty() {
            return Err(NoTls::SpokenBefore);
        }
        if !(inner.input.is_open() && inner.output.is_open() && inner.unsent.is_empty()) {
            return Err(NoTls::NotPlain);
        }
        match inner.io.take() {
            Some(Io::Plain(stream)) => Ok(stream),
            other => {
                inner.io = other;
                Err(NoTls::NotPlain)
            }
        }
    }

    pub(crate) fn secured(&self, stream: TlsStream<TcpStream>) {
        self.lock().io = Some(Io::Tls(Box::new(stream)));
    }

    /// The plugin let go of the connection's handle.
    pub(crate) async fn let_go(&self) {
        self.lock().more_to_come = false;
        self.end_if_unused().await;
    }

    /// Ends in order what nobody can write to any more. An error leaves the connection to be reset.
    async fn end_if_unused(&self) {
        std::future::poll_fn(|cx| self.lock().poll_end(cx)).await;
    }

    /// Tells the other side that nothing follows, as soon as all that was written is sent.
    pub(crate) fn end_output(&self) {
        let mut inner = self.lock();
        inner.ending = true;
        let _ = inner.poll_send(&mut no_waker());
    }

    /// Reads no more.
    pub(crate) fn end_input(&self) {
        let mut inner = self.lock();
        inner.input = Direction::Closed;
        inner.arrived = Bytes::new();
    }

    /// For options of the socket.
    pub(crate) fn with_tcp(&self, change: impl FnOnce(&TcpStream)) {
        if let Some(io) = &self.lock().io {
            change(io.tcp());
        }
    }

    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        let inner = self.lock();
        inner.unsent.len() + inner.arrived.len() + inner.scratch.capacity()
    }
}

impl Inner {
    /// Sends what was written, and then the end if it is due. An error is kept in `output`.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.output.is_open() {
            return Poll::Ready(());
        }
        let Some(io) = &mut self.io else { return Poll::Ready(()) };
        let sent = loop {
            if self.unsent.is_empty() {
                break ready!(io.poll_flush(cx));
            }
            match ready!(io.poll_write(cx, &self.unsent)) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.unsent.advance(n),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = sent {
            self.unsent = Bytes::new();
            self.output = Direction::Failed(error);
        } else if self.ending {
            let ended = ready!(io.poll_shutdown(cx)).and_then(|()| dial::end_well(io.tcp()));
            self.output = ended.map_or_else(Direction::Failed, |()| Direction::Closed);
        }
        Poll::Ready(())
    }

    /// Reads once, if nothing that was read waits. An error is kept in `input`.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.arrived.is_empty() || !self.input.is_open() {
            return Poll::Ready(());
        }
        let Some(io) = &mut self.io else { return Poll::Ready(()) };
        self.scratch.resize(CHUNK, 0);
        let mut buffer = ReadBuf::new(&mut self.scratch);
        match ready!(io.poll_read(cx, &mut buffer)) {
            Ok(()) => {
                let read = buffer.filled();
                self.arrived = Bytes::copy_from_slice(read);
                match self.traffic.down(read.len()) {
                    Err(spent) => self.input = Direction::Overdrawn(spent),
                    Ok(()) if read.is_empty() => self.input = Direction::Closed,
                    Ok(()) => {}
                }
            }
            Err(error) => self.input = Direction::Failed(error),
        }
        Poll::Ready(())
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ending |= !self.has_output && !self.more_to_come;
        self.poll_send(cx)
    }
}

struct Input(Arc<Link>);

impl Drop for Input {
    fn drop(&mut self) {
        self.0.lock().has_input = false;
    }
}

#[async_trait]
impl Pollable for Input {
    async fn ready(&mut self) {
        std::future::poll_fn(|cx| {
            let mut inner = self.0.lock();
            let _ = inner.poll_send(cx);
            inner.poll_fill(cx)
        })
        .await;
    }
}

#[async_trait]
impl InputStream for Input {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut inner = self.0.lock();
        let _ = inner.poll_send(&mut no_waker());
        let _ = inner.poll_fill(&mut no_waker());
        if let Direction::Overdrawn(_) = inner.input {
            inner.input.tell()?;
        }
        if inner.arrived.is_empty() {
            inner.input.tell()?;
        }
        let size = size.min(inner.arrived.len());
        Ok(inner.arrived.split_to(size))
    }
}

struct Output {
    link: Arc<Link>,
    permit: usize,
}

impl Output {
    async fn sent(&self) -> StreamResult<()> {
        std::future::poll_fn(|cx| self.link.lock().poll_send(cx)).await;
        self.link.lock().output.tell()
    }
}

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {
        std::future::poll_fn(|cx| self.link.lock().poll_send(cx)).await;
    }
}

#[async_trait]
impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut inner = self.link.lock();
        inner.output.tell()?;
        if inner.ending {
            return Err(StreamError::Closed);
        }
        if bytes.len() > self.permit || !inner.unsent.is_empty() {
            return Err(StreamError::trap("more was written than `check-write` permitted"));
        }
        self.permit = 0;
        // Nothing is kept of an empty write, however many there are.
        if bytes.is_empty() {
            return Ok(());
        }
        inner.traffic.up(bytes.len()).map_err(|spent| StreamError::Trap(spent.into()))?;
        inner.unsent = bytes;
        let _ = inner.poll_send(&mut no_waker());
        inner.output.tell()
    }

    fn flush(&mut self) -> StreamResult<()> {
        let mut inner = self.link.lock();
        let _ = inner.poll_send(&mut no_waker());
        inner.output.tell()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        let mut inner = self.link.lock();
        let sent = inner.poll_send(&mut no_waker()).is_ready();
        inner.output.tell()?;
        self.permit = if sent { PERMIT } else { 0 };
        Ok(self.permit)
    }

    /// In one go, however long: this is how whole batches pass.
    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.sent().await?;
        {
            let mut inner = self.link.lock();
            if inner.ending {
                return Err(StreamError::Closed);
            }
            inner.traffic.up(bytes.len()).map_err(|spent| StreamError::Trap(spent.into()))?;
            inner.unsent = bytes;
        }
        self.sent().await
    }

    /// The plugin let go of the stream. An instance that is dropped never comes here.
    async fn cancel(&mut self) {
        std::future::poll_fn(|cx| self.link.lock().poll_send(cx)).await;
        self.link.lock().has_output = false;
        self.link.end_if_unused().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::tenant::Tenant;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    /// Both ends of a connection.
    async fn pair() -> (Arc<Link>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        stream.set_zero_linger().unwrap();
        let traffic = Traffic::new(Tenant::default(), &Limits::default());
        traffic.begin_call(&Limits::default());
        let slot = traffic.open().unwrap().unwrap();
        (Link::new(Io::Plain(stream), traffic, slot), listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_million_empty_writes_leave_nothing_behind() {
        let (link, mut server) = pair().await;
        let (_input, mut output) = link.streams(true);
        for _ in 0..1_000_000 {
            output.write(Bytes::new()).unwrap();
        }
        assert_eq!(link.held_bytes(), 0);
        output.blocking_write_and_flush(Bytes::from_static(b"x")).await.unwrap();
        output.cancel().await;
        drop((output, link));
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"x");
    }

    #[tokio::test]
    async fn what_waits_for_a_slow_reader_is_bounded() {
        let (link, _server) = pair().await;
        let (_input, mut output) = link.streams(true);
        let mut sent = 0;
        loop {
            let permit = output.check_write().unwrap();
            if permit == 0 {
                break;
            }
            output.write(Bytes::from(vec![7; permit])).unwrap();
            sent += permit;
            assert!(sent < 1 << 30, "nobody reads, and it goes on");
        }
        assert!(link.held_bytes() <= PERMIT);
        assert!(matches!(output.write(Bytes::from_static(b"more")), Err(StreamError::Trap(_))));
    }

    #[tokio::test]
    async fn who_waits_for_an_answer_sends_the_question() {
        let (link, mut server) = pair().await;
        let (mut input, mut output) = link.streams(true);
        let question = vec![7; 8 << 20];
        let client = async {
            // More than the system takes at once, and nobody waits for its end.
            let mut left = Bytes::from(question.clone());
            while !left.is_empty() {
                output.ready().await;
                let permit = output.check_write().unwrap();
                output.write(left.split_to(permit.min(left.len()))).unwrap();
            }
            input.blocking_read(10).await.unwrap()
        };
        let server = async {
            let mut read = vec![0; question.len()];
            server.read_exact(&mut read).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut server, b"answer").await.unwrap();
        };
        assert_eq!(tokio::join!(client, server).0, "answer");
    }
}
