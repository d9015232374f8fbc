//! P5: a request that its plugin did not finish has no end, whatever ended the plugin. Seen from the server.

use std::time::Duration;

use tidegate_protocol::plugin::FaultKind;
use tidegate_wasm::Limits;

use super::servers::Server;
use super::{Bound, bind, options, secured, service, short, step, to};
use crate::network::servers::Authority;

/// A server of each kind, and a plugin that may send to it.
struct Scene {
    server: Server,
    bound: Bound,
    url: String,
    _authority: Authority,
}

impl Scene {
    async fn new(secure: bool, http2: bool, limits: Limits) -> Self {
        let authority = Authority::new();
        let server = match (secure, http2) {
            (true, _) => Server::tls(&authority.issue("127.0.0.1"), http2).await,
            (false, true) => Server::http2().await,
            (false, false) => Server::plain().await,
        };
        let mut grant = match secure {
            true => secured("127.0.0.1", server.port, authority.roots()),
            false => service("127.0.0.1", server.port),
        };
        grant.http2_only = http2;
        let mut options = options(grant);
        options.limits = limits;
        let url = format!("{}://127.0.0.1:{}/", if secure { "https" } else { "http" }, server.port);
        Self { server, bound: bind(options), url, _authority: authority }
    }

    fn begin(&self, length: Option<usize>) -> String {
        let length = length.map_or(String::new(), |n| format!(r#","headers":[["content-length","{n}"]]"#));
        to("begin", &self.url, &format!(r#""method":"PUT"{length}"#))
    }
}

async fn each(limits: Limits, check: impl AsyncFn(Scene)) {
    for (secure, http2) in [(false, false), (true, false), (false, true), (true, true)] {
        check(Scene::new(secure, http2, limits.clone()).await).await;
    }
}

const HELLO: &str = r#"{"do":"write","body":"hello"}"#;

#[tokio::test]
async fn a_plugin_that_is_stopped_in_mid_body_leaves_no_whole_request() {
    let computing = Limits { cpu_time: Duration::from_millis(300), ..Limits::default() };
    for (act, kind, limits) in [
        ("loop", FaultKind::Budget("cpu time"), computing),
        ("trap", FaultKind::Trap, Limits::default()),
        ("nap", FaultKind::Timeout, short()),
    ] {
        each(limits, async |scene| {
            // With a declared length that has been written in full as well.
            for length in [None, Some(5), Some(6)] {
                let steps = [scene.begin(length), HELLO.to_owned(), step(act)];
                assert_eq!(scene.bound.take(&steps).await.unwrap_err().kind, kind);
                scene.server.saw_nothing_whole().await;
            }
            assert_eq!(scene.bound.tenant.held("connections"), 0);
        })
        .await;
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_and_not_finished_is_no_whole_request() {
    each(Limits::default(), async |scene| {
        for length in ["", r#","headers":[["content-length","5"]]"#] {
            let said = scene.bound.says(to("bare-drop", &scene.url, &format!(r#""body":"hello"{length}"#))).await;
            assert!(!said.starts_with("200"), "{said}");
            scene.server.saw_nothing_whole().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_call_and_an_instance_that_is_closed_leave_no_whole_request() {
    each(Limits::default(), async |scene| {
        let steps = [scene.begin(Some(5)), HELLO.to_owned()];
        let mut committer = scene.bound.plugin.committer().await.unwrap();
        assert_eq!(super::on(committer.as_mut(), &steps).await.unwrap(), "begun; written");
        // The head goes out while the plugin waits for an answer to another request.
        let other = [to("send", &scene.url, "")];
        assert_eq!(super::on(committer.as_mut(), &other).await.unwrap(), "200 ok");
        assert!(scene.server.only().await.line.starts_with("GET"));
        drop(committer);
        scene.server.saw_nothing_whole().await;
    })
    .await;
}

#[tokio::test]
async fn requests_without_an_answer_are_told_when_their_instance_ends() {
    let (listener, port) = crate::network::servers::listen().await;
    let mut options = options(service("127.0.0.1", port));
    options.limits = short();
    let bound = bind(options);
    let silent = async {
        let mut stream = crate::network::servers::accept(&listener).await;
        super::servers::head(&mut stream).await;
        std::future::pending::<()>().await;
    };
    let steps = [to("send", &format!("http://127.0.0.1:{port}/"), "")];
    let fault = tokio::select! {
        fault = bound.take(&steps) => fault.unwrap_err(),
        () = silent => unreachable!("it never ends"),
    };
    assert_eq!(fault.kind, FaultKind::Timeout);
    let lines = bound.kept.lines.lock().unwrap();
    assert!(lines.iter().any(|line| line.message.contains("1 HTTP requests sent and not answered")), "{lines:?}");
}
