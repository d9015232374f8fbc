//! What is left of an instance that was killed while it wrote.

use std::sync::Arc;
use std::task::{Context, Waker};

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{Batch, Encoding, Plugin};
use tidegate_wasm::BindOptions;

use super::{Desk, Hand};
use crate::support::{Intents, context, files, part};

const BATCH: usize = 512 << 20;

fn large() -> Batch {
    Batch::new(vec![b'x'; BATCH].into(), 1, Encoding::Raw)
}

fn length(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Polls a call until something of `path` is written, and drops it.
fn drop_while_it_writes<R>(call: impl Future<Output = R>, path: &std::path::Path) {
    let mut call = Box::pin(call);
    let mut context = Context::from_waker(Waker::noop());
    while length(path) == 0 {
        if call.as_mut().poll(&mut context).is_ready() {
            return;
        }
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_fresh_instance_starts_when_the_write_of_a_killed_one_has_ended() {
    let desk = Desk::new();
    let Hand::Writer(mut writer) = Hand::writer(&desk).await else { unreachable!() };
    let ctx = context("out", 1, r#"{"do":"staged"}"#);
    drop_while_it_writes(writer.write(&ctx, large()), &desk.at("staged"));
    let mut fresh = Hand::writer(&desk).await;
    let left = length(&desk.at("staged"));
    assert!(left > 0 && left < BATCH as u64, "killed between two pieces, {left} bytes are there");
    assert_eq!(fresh.does("open staged; rm staged; rename staged published").await, ["not-permitted"; 3].join(" "));
    assert_eq!(length(&desk.at("staged")), left, "nobody writes any more");
    let mut janitor = Hand::janitor(&desk).await;
    assert_eq!(janitor.does("rm staged; list .").await, "ok []");
}

#[tokio::test]
async fn what_a_killed_writer_staged_is_never_published() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = BindOptions::new("out");
    options.dirs.insert("output".to_owned(), dir.path().to_owned().into());
    let plugin: Arc<dyn Plugin> = files().bind(options).unwrap();
    let ctx = context("out", 1, "{}");
    let part = part(&ctx, 1, 0);
    let mut writer = plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(&ctx, &part).await.unwrap();
    let staged = dir.path().join(format!("_tidegate/{}/staging/{}", ctx.sink_hash.as_str(), part.short));
    drop_while_it_writes(writer.write(&ctx, large()), &staged);

    // The instance is gone: what it wrote cannot be prepared any more.
    writer.prepare(&ctx).await.unwrap_err();
    let mut janitor = plugin.janitor().await.unwrap();
    let page = janitor.list_orphans(&ctx, &ctx.sink_hash.prefix(), None).await.unwrap();
    assert_eq!(page.orphans.len(), 1);
    assert!(page.orphans[0].bytes < Some(BATCH as u64), "{page:?}");
    janitor.release(&ctx, &[page.orphans[0].resource.clone()]).await.unwrap();
    assert_eq!(length(&staged), 0);
    let visible = std::fs::read_dir(dir.path()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file());
    assert_eq!(visible.count(), 0);
}
