//! P5: whoever is killed in mid-stream does not look like somebody who finished. Seen from the server.

use std::time::Duration;

use tidegate_protocol::plugin::{CallFault, FaultKind};
use tidegate_wasm::Limits;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::servers::{Authority, End, accept, listen, to_the_end};
use super::{Bound, bind, on, options, place, secured};

/// A loop ends soon, also on a busy machine.
fn limits() -> Limits {
    Limits { call_time: Duration::from_secs(60), cpu_time: Duration::from_millis(500), ..Limits::default() }
}

/// Waiting ends soon.
fn impatient() -> Limits {
    Limits { call_time: Duration::from_secs(2), ..Limits::default() }
}

/// A server with or without TLS, and a plugin that may talk to it.
struct Scene {
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    bound: Bound,
    /// Its files are read again when they have changed.
    _authority: Option<Authority>,
}

impl Scene {
    async fn plain(limits: Limits) -> Self {
        let (listener, port) = listen().await;
        let mut options = options(place("127.0.0.1", port), place("127.0.0.1", port));
        options.limits = limits;
        Self { listener, acceptor: None, bound: bind(options), _authority: None }
    }

    async fn tls(limits: Limits) -> Self {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let grant = secured("127.0.0.1", port, authority.roots());
        let mut options = options(grant.clone(), grant);
        options.limits = limits;
        let acceptor = Some(authority.issue("127.0.0.1").acceptor());
        Self { listener, acceptor, bound: bind(options), _authority: Some(authority) }
    }

    /// What the server read, and how it ended. It answers the first words, and then `after` runs.
    async fn serve(&self, after: impl AsyncFnOnce()) -> (Vec<u8>, End) {
        async fn read(mut stream: impl AsyncRead + AsyncWrite + Unpin, after: impl AsyncFnOnce()) -> (Vec<u8>, End) {
            let mut first = vec![0; 5];
            stream.read_exact(&mut first).await.unwrap();
            stream.write_all(b"ok").await.unwrap();
            after().await;
            let (rest, end) = to_the_end(&mut stream).await;
            first.extend(rest);
            (first, end)
        }
        let stream = accept(&self.listener).await;
        match &self.acceptor {
            Some(acceptor) => read(acceptor.accept(stream).await.unwrap(), after).await,
            None => read(stream, after).await,
        }
    }
}

async fn both(limits: Limits, check: impl AsyncFn(Scene)) {
    check(Scene::plain(limits.clone()).await).await;
    check(Scene::tls(limits).await).await;
}

#[tokio::test]
async fn what_the_plugin_finished_ends_in_order() {
    both(limits(), async |scene| {
        for steps in [
            &["connect a", "write hello", "flush", "read 2", "drop"][..],
            &["connect a", "write hello", "flush", "read 2", "write  and goodbye", "drop"],
            &["connect a", "write hello", "flush", "read 2", "write  and goodbye", "flush", "drop", "loop"],
        ] {
            let (_, (read, end)) = tokio::join!(scene.bound.take(steps), scene.serve(async || {}));
            assert!(read.starts_with(b"hello"), "{read:?}");
            assert_eq!(end, End::Clean, "{steps:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn h10_a_plugin_that_is_stopped_in_mid_stream_resets_its_connection() {
    for (step, kind, limits) in [
        ("loop", FaultKind::Budget("cpu time"), limits()),
        ("trap", FaultKind::Trap, limits()),
        ("nap", FaultKind::Timeout, impatient()),
    ] {
        both(limits, async |scene| {
            let steps = ["connect a", "write hello", "flush", "read 2", step];
            let (fault, (read, end)) = tokio::join!(scene.bound.take(&steps), scene.serve(async || {}));
            assert_eq!(fault.unwrap_err().kind, kind);
            assert_eq!((read.as_slice(), end), (&b"hello"[..], End::Broken), "{step}");
            assert_eq!(scene.bound.tenant.held("connections"), 0);
        })
        .await;
    }
}

#[tokio::test]
async fn a_cancelled_call_and_an_instance_that_is_closed_reset_their_connections() {
    both(limits(), async |scene| {
        // The call's future is dropped when the server has the first words.
        let (told, heard) = tokio::sync::oneshot::channel::<()>();
        let cancelled = async {
            tokio::select! {
                answer = scene.bound.take(&["connect a", "write hello", "flush", "read 2", "nap"]) => panic!("{answer:?}"),
                _ = heard => {}
            }
        };
        let ((), (_, end)) = tokio::join!(cancelled, scene.serve(async || told.send(()).unwrap()));
        assert_eq!(end, End::Broken, "a cancelled call");

        let (told, heard) = tokio::sync::oneshot::channel::<()>();
        let closed = async {
            let mut committer = scene.bound.plugin.committer().await.unwrap();
            on(committer.as_mut(), &["connect a", "write hello", "flush", "read 2"]).await.unwrap();
            heard.await.unwrap();
            drop(committer);
        };
        let ((), (_, end)) = tokio::join!(closed, scene.serve(async || told.send(()).unwrap()));
        assert_eq!(end, End::Broken, "an instance without a call");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_reads_nothing_holds_up_a_call_until_its_time_and_no_longer() {
    let scene = Scene::plain(impatient()).await;
    let server = async {
        let stream = accept(&scene.listener).await;
        // Keeps it open, and never reads.
        std::future::pending::<()>().await;
        drop(stream);
    };
    let fault: CallFault = tokio::select! {
        answer = scene.bound.take(&["connect a", "write-many 100000000", "flush"]) => answer.unwrap_err(),
        () = server => unreachable!("it never ends"),
    };
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert_eq!(scene.bound.tenant.held("connections"), 0);
}
