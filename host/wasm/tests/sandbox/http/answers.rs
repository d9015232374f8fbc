//! Servers that answer what they should not, or never.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tidegate_wasm::HttpGrant;
use tokio::io::AsyncWriteExt as _;

use super::servers::{Server, head, script};
use super::{bind, options, service, to};
use crate::network::servers::{accept, listen};

/// What a plugin says of a server that answers `first` and then `again` for ever.
async fn of(first: &[u8], again: &[u8], change: impl FnOnce(&mut HttpGrant)) -> String {
    let (listener, port) = listen().await;
    let mut grant = service("127.0.0.1", port);
    change(&mut grant);
    let bound = bind(options(grant));
    let url = format!("http://127.0.0.1:{port}/");
    let (said, ()) = tokio::join!(bound.says(to("send", &url, "")), script(&listener, first, again));
    assert_eq!(bound.tenant.held("connections"), 0);
    said
}

#[tokio::test]
async fn h42_a_redirect_is_an_answer_and_nothing_is_followed() {
    let server = Server::plain().await;
    let bound = bind(options(service("127.0.0.1", server.port)));
    let url = format!("http://127.0.0.1:{}/moved", server.port);
    let said = bound.says(to("send", &url, r#""trailers":[["location",""]]"#)).await;
    assert_eq!(said, "302 location=http://169.254.169.254/ ok");
    assert_eq!((server.seen.lock().unwrap().len(), bound.tenant.denied().get("http")), (1, None));
}

#[tokio::test]
async fn h45_a_body_without_end_is_cut_at_its_cap() {
    let said = of(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096], |grant| grant.response_bytes = 100_000).await;
    assert!(said.starts_with("200 ") && said.contains("lost: HTTP response body size exceeds limit"), "{said}");
}

#[tokio::test]
async fn h45_a_slow_answer_costs_the_request_time_and_no_more() {
    let (listener, port) = listen().await;
    for first in ["", "HTTP/1.1 200 OK\r\n\r\n"] {
        let mut grant = service("127.0.0.1", port);
        grant.request_time = Duration::from_millis(300);
        let bound = bind(options(grant));
        // Each byte is progress, and none is the end: of the head, and of the body.
        let drip = async {
            let mut stream = accept(&listener).await;
            head(&mut stream).await;
            let mut done = stream.write_all(first.as_bytes()).await;
            while done.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                done = stream.write_all(b"H").await;
            }
        };
        let url = format!("http://127.0.0.1:{port}/");
        let (said, ()) = tokio::join!(bound.says(to("send", &url, "")), drip);
        assert!(said.to_lowercase().replace(' ', "").contains("httpresponsetimeout"), "{said}");
    }
}

#[tokio::test]
async fn h45_a_server_that_never_answers_costs_the_request_time() {
    let said = of(b"", b"", |grant| grant.request_time = Duration::from_millis(300)).await;
    assert!(said.contains("HttpResponseTimeout"), "{said}");
}

#[tokio::test]
async fn h45_ten_thousand_header_fields_are_refused() {
    let mut many = b"HTTP/1.1 200 OK\r\n".to_vec();
    (0..10_000).for_each(|i| write!(many, "x-{i}: 1\r\n").unwrap());
    let said = of(&many, b"", |_| {}).await;
    assert!(said.contains("HttpResponseHeaderSectionSize"), "{said}");
    let long = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "x".repeat(1 << 20));
    let said = of(long.as_bytes(), b"", |_| {}).await;
    assert!(said.contains("HttpResponseHeaderSectionSize"), "{said}");
}

#[tokio::test]
async fn h45_interim_answers_without_end_are_cut() {
    let said = of(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", |_| {}).await;
    assert!(said.contains("HttpResponseHeaderSectionSize"), "{said}");
    let few =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(of(few, b"", |_| {}).await, "200 ok");
}

#[tokio::test]
async fn h45_what_is_compressed_stays_compressed() {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![0; 64 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    let mut answer =
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bomb.len()).into_bytes();
    answer.extend_from_slice(&bomb);
    assert_eq!(of(&answer, b"", |_| {}).await, format!("200 {} bytes", bomb.len()));
}

#[tokio::test]
async fn nonsense_is_no_answer() {
    for nonsense in [
        &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nx-a: \0\r\n\r\n",
    ] {
        let (listener, port) = listen().await;
        let bound = bind(options(service("127.0.0.1", port)));
        let url = format!("http://127.0.0.1:{port}/");
        let (said, ()) = tokio::join!(bound.says(to("send", &url, "")), script(&listener, nonsense, b""));
        assert!(said.starts_with("Retryable no-answer"), "{said}: {}", String::from_utf8_lossy(nonsense));
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let (listener, port) = listen().await;
    let bound = bind(options(service("127.0.0.1", port)));
    let url = format!("http://127.0.0.1:{port}/");
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let mut committer = bound.plugin.committer().await.unwrap();
    for _ in 0..2 {
        let server = async {
            let mut stream = accept(&listener).await;
            head(&mut stream).await;
            stream.write_all(answer).await.unwrap();
        };
        let steps = [to("send", &url, "")];
        let (said, ()) = tokio::join!(super::on(committer.as_mut(), &steps), server);
        assert_eq!(said.unwrap(), "200 ok");
    }
}
