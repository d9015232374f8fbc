//! Servers: whole ones of hyper, and scripted ones that say what no server should.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::network::servers::{Identity, accept, listen};

/// What a server saw of one request.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
    /// The body came to its end.
    pub(crate) whole: bool,
}

/// A server of hyper that remembers all requests, and answers each as its URL says: see [`answer`].
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// The ports of all clients whose connections have ended.
    ended: Arc<Mutex<Vec<u16>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn plain() -> Self {
        Self::start(None, false).await
    }

    pub(crate) async fn tls(identity: &Identity, http2: bool) -> Self {
        let protocol = if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() };
        Self::start(Some(identity.acceptor_for(vec![protocol])), http2).await
    }

    /// HTTP/2 without TLS.
    pub(crate) async fn http2() -> Self {
        Self::start(None, true).await
    }

    async fn start(acceptor: Option<TlsAcceptor>, http2: bool) -> Self {
        let (listener, port) = listen().await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (kept, counted, over) = (seen.clone(), connections.clone(), ended.clone());
        let task = tokio::spawn(async move {
            loop {
                let stream = accept(&listener).await;
                counted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, kept, over) = (acceptor.clone(), kept.clone(), over.clone());
                tokio::spawn(async move {
                    let client = stream.peer_addr().map_or(0, |address| address.port());
                    serve(stream, acceptor, http2, kept).await;
                    over.lock().unwrap().push(client);
                });
            }
        });
        Self { port, seen, connections, ended, task }
    }

    /// All connections so far have ended, and no request on them was whole. There may have been none at all.
    pub(crate) async fn saw_nothing_whole(&self) {
        // Who knocks now is heard after all who came before.
        let knock = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let port = knock.local_addr().unwrap().port();
        drop(knock);
        while !self.ended.lock().unwrap().contains(&port)
            || self.ended.lock().unwrap().len() < self.connections.load(Ordering::SeqCst)
        {
            tokio::task::yield_now().await;
        }
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        assert!(seen.iter().all(|seen| !seen.whole), "{seen:?}");
    }

    /// The one request that came, once its end, good or bad, has been seen.
    pub(crate) async fn only(&self) -> Seen {
        loop {
            if let Some(seen) = self.seen.lock().unwrap().pop() {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>, http2: bool, seen: Arc<Mutex<Vec<Seen>>>) {
    match acceptor {
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                speak(stream, http2, seen).await;
            }
        }
        None => speak(stream, http2, seen).await,
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, http2: bool, seen: Arc<Mutex<Vec<Seen>>>) {
    let service = service_fn(move |request| {
        let seen = seen.clone();
        async move { Ok::<_, Infallible>(handle(request, &seen).await) }
    });
    let io = TokioIo::new(stream);
    // How it ends shows in what was seen.
    let _ = match http2 {
        true => hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await,
        false => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
    };
}

async fn handle(request: Request<Incoming>, seen: &Mutex<Vec<Seen>>) -> Response<Frames> {
    let line = format!("{} {}", request.method(), request.uri());
    let path = request.uri().path().to_owned();
    let (head, mut incoming) = request.into_parts();
    if path == "/early" {
        // The answer before the request's end; what becomes of that nobody here reads.
        return answer("/", &head.headers);
    }
    let mut now = Seen { line, headers: head.headers, body: Vec::new(), trailers: HeaderMap::new(), whole: true };
    while let Some(frame) = incoming.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => now.body.extend_from_slice(&data),
            Ok(Err(frame)) => now.trailers = frame.into_trailers().unwrap_or_default(),
            Err(_) => {
                now.whole = false;
                break;
            }
        }
    }
    let answer = answer(&path, &now.headers);
    seen.lock().unwrap().push(now);
    answer
}

/// `/echo`: its authorization in a header, in the body and in trailers. `/moved`: elsewhere. Else `ok` and a trailer.
fn answer(path: &str, asked: &HeaderMap) -> Response<Frames> {
    let said = asked.get("authorization").cloned().unwrap_or(HeaderValue::from_static("nothing"));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-after", HeaderValue::from_static("done"));
    if path == "/echo" {
        trailers.insert("x-echo-after", said.clone());
    }
    let frames = [Frame::data(Bytes::from_static(b"ok")), Frame::trailers(trailers)];
    let mut answer = Response::new(Frames(frames.into_iter().collect()));
    answer.headers_mut().insert("trailer", HeaderValue::from_static("x-after, x-echo-after"));
    match path {
        "/echo" => {
            answer.headers_mut().insert("x-echo", said.clone());
            answer.headers_mut().insert("authorization", said);
        }
        "/moved" => {
            *answer.status_mut() = http::StatusCode::FOUND;
            answer.headers_mut().insert("location", HeaderValue::from_static("http://169.254.169.254/"));
        }
        _ => {}
    }
    answer
}

struct Frames(VecDeque<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

/// Reads the head of one request.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
            break;
        }
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

/// Answers one request with `first`, and then with `again` for as long as anybody reads.
pub(crate) async fn script(listener: &TcpListener, first: &[u8], again: &[u8]) {
    let mut stream = accept(listener).await;
    head(&mut stream).await;
    let mut done = stream.write_all(first).await;
    while done.is_ok() && !again.is_empty() {
        done = stream.write_all(again).await;
    }
    // Until the client goes.
    let _ = stream.read(&mut [0]).await;
}
