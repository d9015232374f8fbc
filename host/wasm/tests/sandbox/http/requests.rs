//! What a plugin may send, and where to.

use std::time::Duration;

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{Batch, Encoding};
use tidegate_wasm::WasmError;

use super::servers::Server;
use super::{bind, on, options, secured, service, step, to};
use crate::network::Names;
use crate::network::servers::{Authority, listen};
use crate::support::{Intents, context, fetcher, part};

#[tokio::test]
async fn h43_a_request_names_the_granted_host_however_the_plugin_writes_it() {
    let server = Server::plain().await;
    let mut options = options(service("api.example", server.port));
    options.resolver = Names::here(&["api.example"]);
    let bound = bind(options);
    for host in ["api.example", "API.Example", "api.example."] {
        let url = format!("http://{host}:{}/v1?q=1", server.port);
        assert_eq!(bound.says(to("send", &url, r#""headers":[["x-a","b"]]"#)).await, "200 ok");
        let seen = server.only().await;
        assert_eq!(seen.line, "GET /v1?q=1");
        assert_eq!(seen.headers["host"], format!("api.example:{}", server.port).as_str());
        assert_eq!(seen.headers["x-a"], "b");
    }
}

#[tokio::test]
async fn h43_what_no_grant_covers_is_denied_counted_and_not_dialled() {
    let (listener, port) = listen().await;
    let mut grant = service("127.0.0.1", port);
    grant.path = "/v1/".to_owned();
    let bound = bind(options(grant));
    let urls = [
        format!("https://127.0.0.1:{port}/v1/a"),
        format!("http://127.0.0.1:{}/v1/a", port ^ 1),
        "http://127.0.0.1/v1/a".to_owned(),
        format!("http://127.0.0.2:{port}/v1/a"),
        format!("http://[::1]:{port}/v1/a"),
        format!("http://localhost:{port}/v1/a"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}/v10/a"),
        format!("http://127.0.0.1:{port}/v1/../admin"),
        format!("http://127.0.0.1:{port}/v1/%2e%2e/admin"),
        format!("http://127.0.0.1:{port}/v1//admin"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ];
    for url in &urls {
        assert!(bound.says(to("send", url, "")).await.starts_with("Denied not-granted"), "{url}");
    }
    let granted = format!("http://127.0.0.1:{port}/v1/a");
    for method in ["CONNECT", "TRACE", "trace", "TRACK"] {
        let said = bound.says(to("send", &granted, &format!(r#""method":"{method}""#))).await;
        assert!(said.starts_with("Denied not-granted"), "{method}: {said}");
    }
    assert_eq!(bound.tenant.denied().get("http"), Some(&(urls.len() as u64 + 4)));
    let user = bound.says(to("send", &format!("http://user@127.0.0.1:{port}/v1/a"), "")).await;
    assert!(user.starts_with("Denied") || user.starts_with("Permanent"), "{user}");
    let nobody = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(nobody.is_err(), "something was dialled");
    assert!(bound.kept.lines.lock().unwrap().iter().any(|line| line.message.contains("/v1/../admin")));
}

#[tokio::test]
async fn h43_fields_of_the_host_are_refused_in_heads_and_trailers() {
    let server = Server::plain().await;
    let bound = bind(options(service("127.0.0.1", server.port)));
    let url = format!("http://127.0.0.1:{}/", server.port);
    for name in ["Host", "Authorization", "Proxy-Authorization", "Connection", "Transfer-Encoding", "Upgrade", "Expect"]
    {
        let field = format!(r#""headers":[["{name}","x"]]"#);
        let said = bound.says(to("send", &url, &field)).await;
        assert!(said.starts_with("Denied forbidden-field"), "{name}: {said}");
        let field = format!(r#""method":"POST","body":"b","trailers":[["{name}","x"]]"#);
        let said = bound.says(to("trailers", &url, &field)).await;
        assert!(said.starts_with("Denied forbidden-field"), "{name} in trailers: {said}");
        server.saw_nothing_whole().await;
    }
    for value in [r"a\r\nx-b: c", r"a\nb", r"a\u0000b"] {
        let said = bound.says(to("send", &url, &format!(r#""headers":[["x-a","{value}"]]"#))).await;
        assert!(said.starts_with("Permanent bad-field"), "{value}: {said}");
    }
    let said = bound.says(to("send", &url, r#""headers":[["te","gzip"]]"#)).await;
    assert!(said.starts_with("Denied"), "{said}");
    let rest = r#""method":"POST","body":"b","trailers":[["Content-Length","7"]]"#;
    assert!(bound.says(to("trailers", &url, rest)).await.starts_with("Denied"));
    server.saw_nothing_whole().await;
}

#[tokio::test]
async fn a_declared_length_is_kept_or_the_request_breaks_off() {
    let server = Server::plain().await;
    let bound = bind(options(service("127.0.0.1", server.port)));
    let url = format!("http://127.0.0.1:{}/", server.port);
    let send = |length: &str| {
        to("send", &url, &format!(r#""method":"PUT","body":"hello","headers":[["content-length","{length}"]]"#))
    };
    assert_eq!(bound.says(send("5")).await, "200 ok");
    assert_eq!(server.only().await.body, b"hello");
    for length in ["4", "6"] {
        let said = bound.says(send(length)).await;
        assert!(!said.starts_with("200"), "{length}: {said}");
        server.saw_nothing_whole().await;
    }
}

#[tokio::test]
async fn trailers_pass_both_ways_over_http1() {
    let server = Server::plain().await;
    let bound = bind(options(service("127.0.0.1", server.port)));
    let url = format!("http://127.0.0.1:{}/", server.port);
    let rest = r#""method":"POST","body":"hello","headers":[["trailer","x-sum"],["te","trailers"]],"trailers":[["x-sum","42"]]"#;
    assert_eq!(bound.says(to("trailers", &url, rest)).await, "200 x-after=done");
    let seen = server.only().await;
    assert_eq!(
        (seen.body.as_slice(), &seen.trailers["x-sum"], seen.whole),
        (&b"hello"[..], &"42".parse().unwrap(), true)
    );
    // Unannounced they would be lost without a word.
    let rest = r#""method":"POST","body":"hello","trailers":[["x-sum","42"]]"#;
    let said = bound.says(to("trailers", &url, rest)).await;
    assert!(said.contains("must announce the trailer x-sum"), "{said}");
}

#[tokio::test]
async fn http2_is_spoken_over_tls_with_trailers_both_ways() {
    let authority = Authority::new();
    let server = Server::tls(&authority.issue("api.example"), true).await;
    let mut options = options(secured("api.example", server.port, authority.roots()));
    options.resolver = Names::here(&["api.example"]);
    let bound = bind(options);
    let url = format!("https://api.example:{}/", server.port);
    let rest = r#""method":"POST","body":"hello","trailers":[["x-sum","42"]]"#;
    let steps = [to("trailers", &url, rest), to("send", &url, ""), to("send", &url, r#""method":"PUT","body":"more""#)];
    assert_eq!(bound.take(&steps).await.unwrap(), "200 x-after=done; 200 ok; 200 ok");
    assert_eq!(server.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
    let seen = std::mem::take(&mut *server.seen.lock().unwrap());
    assert_eq!(seen.len(), 3);
    assert_eq!((&seen[0].trailers["x-sum"], seen[0].body.as_slice()), (&"42".parse().unwrap(), &b"hello"[..]));
    assert_eq!(seen[0].line, format!("POST https://api.example:{}/", server.port));
    // The instance has ended, and its thread is about to.
    while bound.tenant.held("connections") > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_server_without_http2_is_refused_where_nothing_else_is_granted() {
    let authority = Authority::new();
    let server = Server::tls(&authority.issue("127.0.0.1"), false).await;
    let mut grant = secured("127.0.0.1", server.port, authority.roots());
    let url = format!("https://127.0.0.1:{}/", server.port);
    assert_eq!(bind(options(grant.clone())).says(to("send", &url, "")).await, "200 ok");
    grant.http2_only = true;
    let said = bind(options(grant)).says(to("send", &url, "")).await;
    assert!(said.starts_with("Retryable"), "{said}");
    let plain = Server::http2().await;
    let mut grant = service("127.0.0.1", plain.port);
    grant.http2_only = true;
    let url = format!("http://127.0.0.1:{}/", plain.port);
    assert_eq!(bind(options(grant)).says(to("send", &url, "")).await, "200 ok");
}

#[tokio::test]
async fn connections_are_used_again_by_the_same_instance_alone() {
    let server = Server::plain().await;
    let bound = bind(options(service("127.0.0.1", server.port)));
    let url = format!("http://127.0.0.1:{}/", server.port);
    let connections = || server.connections.load(std::sync::atomic::Ordering::SeqCst);
    let mut one = bound.plugin.committer().await.unwrap();
    let body = r#""method":"POST","body":"hello""#;
    for _ in 0..2 {
        let said = on(one.as_mut(), &[to("send", &url, ""), to("send", &url, body)]).await.unwrap();
        assert_eq!(said, "200 ok; 200 ok");
    }
    assert_eq!(connections(), 1);
    let mut two = bound.plugin.committer().await.unwrap();
    on(two.as_mut(), &[to("send", &url, "")]).await.unwrap();
    assert_eq!(connections(), 2);
    assert_eq!(bound.tenant.held("connections"), 2);
    drop((one, two));
    while bound.tenant.held("connections") > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn batches_pass_straight_into_the_body() {
    let server = Server::plain().await;
    let bound = bind(options(service("127.0.0.1", server.port)));
    let config = format!(r#"{{"url":"http://127.0.0.1:{}/rows"}}"#, server.port);
    let ctx = context("out", 1, &config);
    let rows = format!("{{\"row\":\"{}\"}}\n", "x".repeat(1000)).repeat(4 << 10);
    let batch = Batch::new(rows.clone().into(), 4 << 10, Encoding::JsonLines);
    let mut writer = bound.plugin.writer(std::sync::Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
    for _ in 0..2 {
        assert!(writer.write(&ctx, batch.clone()).await.unwrap().is_empty());
    }
    assert_eq!(writer.prepare(&ctx).await.unwrap().rows, 8 << 10);
    let seen = server.only().await;
    assert!(seen.whole && seen.body == rows.repeat(2).into_bytes(), "{} bytes came", seen.body.len());
}

#[tokio::test]
async fn h39_a_name_that_leads_inside_is_refused_when_it_is_dialled() {
    let (listener, port) = listen().await;
    let mut grant = service("api.example", port);
    grant.allow.clear();
    let mut options = options(grant);
    options.resolver = Names::here(&["api.example"]);
    let bound = bind(options);
    let said = bound.says(to("send", &format!("http://api.example:{port}/"), "")).await;
    assert!(said.starts_with("Denied destination-prohibited"), "{said}");
    assert_eq!(bound.tenant.denied().get("http"), Some(&1));
    assert!(tokio::time::timeout(Duration::ZERO, listener.accept()).await.is_err());
}

#[test]
fn operator_and_plugin_must_mean_the_same_services() {
    let mut lacking = options(service("127.0.0.1", 1));
    lacking.http.remove("b");
    let error = fetcher().bind(lacking).err().unwrap();
    assert!(error.to_string().contains("asks for the http `b`"), "{error}");
    let mut bad = service("127.0.0.1", 1);
    bad.path = "/a/../b".to_owned();
    let refused = fetcher().bind(options(bad)).err();
    assert!(
        matches!(&refused, Some(WasmError::Grant { detail, .. }) if detail.contains("is not a path")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn two_requests_can_be_under_way_at_once() {
    let server = Server::plain().await;
    let bound = bind(options(service("127.0.0.1", server.port)));
    let url = format!("http://127.0.0.1:{}/", server.port);
    let begin = |path: &str| to("begin", &format!("{url}{path}"), r#""method":"PUT""#);
    let write = |text: &str| format!(r#"{{"do":"write","body":"{text}"}}"#);
    let steps = [begin("one"), write("1"), begin("two"), write("2"), step("finish"), write("3"), step("finish")];
    assert_eq!(bound.take(&steps).await.unwrap(), "begun; written; begun; written; 200 ok; written; 200 ok");
    let bodies: Vec<_> = server.seen.lock().unwrap().iter().map(|seen| seen.body.clone()).collect();
    assert_eq!(bodies, [b"2".to_vec(), b"13".to_vec()]);
}
