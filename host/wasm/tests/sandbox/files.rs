//! The built-in `files` plugin, call by call.

use std::path::Path;
use std::sync::Arc;

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{
    Batch, CallContext, Encoding, ErrorKind, FaultKind, FileChunk, Outcome, Plugin, Position, Prepared, Unsealed,
    Visibility,
};
use tidegate_wasm::{BindOptions, Isolation, Runtime, RuntimeOptions, builtin};

use crate::support::{Intents, both_ways, context, files, observe, part, rows};

fn bind(isolation: Isolation, sink: &str, dir: &Path) -> Arc<dyn Plugin> {
    let mut options = BindOptions { isolation: Some(isolation), ..BindOptions::new(sink) };
    options.dirs.insert("output".to_owned(), dir.to_owned().into());
    files().bind(options).unwrap()
}

/// Opens a writer, writes `batches` as one part and prepares it.
async fn stage(plugin: &dyn Plugin, ctx: &CallContext, epoch: u64, ordinal: u32, batches: &[&str]) -> Prepared {
    let mut writer = plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(ctx, &part(ctx, epoch, ordinal)).await.unwrap();
    for batch in batches {
        assert_eq!(writer.write(ctx, rows(batch)).await.unwrap(), vec![]);
    }
    writer.prepare(ctx).await.unwrap()
}

/// Contents of all published files, in order of their names.
fn published(dir: &Path) -> Vec<String> {
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn the_built_in_plugin_describes_itself() {
    assert_eq!(builtin::names().collect::<Vec<_>>(), ["files"]);
    assert!(builtin::component("nothing").is_none());
    let files = files();
    let description = files.description();
    assert_eq!(description.name, "files");
    assert_eq!(description.encodings[0], Encoding::JsonLines);
    assert_eq!(description.abilities.visibility, Visibility::WholeEpoch);
    assert!(files.digest().starts_with("sha256:") && files.digest().len() == 71);
    assert!(files.imports().iter().any(|name| name == "tidegate:sink/rows@0.1.0"));
}

#[test]
fn the_built_in_plugin_names_no_path_of_the_machine_that_built_it() {
    let bytes = builtin::component("files").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_str().unwrap();
    assert!(!String::from_utf8_lossy(bytes).contains(root));
}

both_ways!(an_epoch_from_open_to_release);

async fn an_epoch_from_open_to_release(isolation: Isolation) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = bind(isolation, "out", dir.path());
    let ctx = context("out", 1, "{}");

    let start = observe(&*plugin, &ctx).await;
    assert_eq!(start.last, vec![]);
    let mut committer = plugin.committer().await.unwrap();
    let fenced = committer.fence(&ctx, &start).await.unwrap();
    assert_eq!(fenced.fence, Some(ctx.run));

    let prepared = stage(&*plugin, &ctx, 1, 0, &["{\"a\":1}\n{\"a\":2}\n", "{\"a\":3}\n"]).await;
    assert_eq!((prepared.rows, prepared.committable.rows), (3, 3));
    assert_eq!(published(dir.path()), Vec::<String>::new(), "nothing is visible before commit");

    let committables = [prepared.committable.clone()];
    assert_eq!(committer.reconcile(&ctx, &committables).await.unwrap(), [Outcome::NotCommitted]);
    assert_eq!(committer.commit(&ctx, &[], &committables).await.unwrap(), [Outcome::Committed]);
    assert_eq!(published(dir.path()), ["{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n"]);
    drop(committer);

    let mut fresh = plugin.committer().await.unwrap();
    assert_eq!(fresh.commit(&ctx, &[], &committables).await.unwrap(), [Outcome::AlreadyCommitted]);
    assert_eq!(fresh.reconcile(&ctx, &committables).await.unwrap(), [Outcome::AlreadyCommitted]);
    assert_eq!(observe(&*plugin, &ctx).await.last, vec![prepared.committable.part.clone()]);

    let mut janitor = plugin.janitor().await.unwrap();
    let released = janitor.release(&ctx, &prepared.resources).await.unwrap();
    assert!(released.iter().all(|o| matches!(o, Outcome::Committed | Outcome::AlreadyCommitted)), "{released:?}");
    assert_eq!(published(dir.path()).len(), 1, "releasing what was published touches nothing");
}

/// A piece of one of the host's files: number `n` goes into a folder of its own, every tenth into none.
fn piece(number: u32, text: &str, last: bool) -> Batch {
    let folder = if number.is_multiple_of(10) { String::new() } else { format!("carrier=C{number}/day=é %2F") };
    let file = FileChunk { number, folder: folder.into(), extension: "jsonl".into(), last };
    Batch { encoding: Encoding::Files, file: Some(file), ..rows(text) }
}

both_ways!(many_open_files_in_folders_are_staged_and_published_as_one_part);

async fn many_open_files_in_folders_are_staged_and_published_as_one_part(isolation: Isolation) {
    const FILES: u32 = 300;
    let dir = tempfile::tempdir().unwrap();
    let plugin = bind(isolation, "out", dir.path());
    assert!(plugin.description().encodings.contains(&Encoding::Files));
    let ctx = context("out", 1, "{}");
    let mut writer = plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    let mut previous = Vec::new();
    let mut held = Vec::new();
    for epoch in 1..=3 {
        writer.begin(&ctx, &part(&ctx, epoch, 0)).await.unwrap();
        for number in 0..FILES {
            writer.write(&ctx, piece(number, "{\"a\":1}\n", false)).await.unwrap();
        }
        for number in 0..FILES {
            writer.write(&ctx, piece(number, "{\"a\":2}\n", false)).await.unwrap();
            writer.write(&ctx, piece(number, "", true)).await.unwrap();
        }
        let prepared = writer.prepare(&ctx).await.unwrap();
        assert_eq!((prepared.rows, prepared.committable.version), (u64::from(FILES) * 2, 2));
        assert_eq!(prepared.resources.len(), 1);
        let page = plugin.janitor().await.unwrap().list_orphans(&ctx, "tg-", None).await.unwrap();
        assert_eq!(page.orphans.len(), 1);
        assert_eq!(page.orphans[0].bytes, Some(u64::from(FILES) * 16));
        let mut committer = plugin.committer().await.unwrap();
        let committables = [prepared.committable];
        assert_eq!(committer.commit(&ctx, &previous, &committables).await.unwrap(), [Outcome::Committed]);
        assert_eq!(committer.reconcile(&ctx, &committables).await.unwrap(), [Outcome::AlreadyCommitted]);
        previous = committables.map(|committable| committable.part).to_vec();
        let found = std::fs::read_dir(dir.path().join("carrier=C7/day=é %2F")).unwrap();
        let texts: Vec<String> = found.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
        assert_eq!(texts, vec!["{\"a\":1}\n{\"a\":2}\n"; usize::try_from(epoch).unwrap()]);
        assert_eq!(published(dir.path()).len() as u64, u64::from(FILES) / 10 * epoch);
        held.push(writer.usage().expect("measured at the end of prepare"));
    }
    assert!(held[0].memory_bytes > 0, "{held:?}");
    // The files of the first part are closed when it is prepared.
    assert!(held[2].handles <= held[1].handles && held[2].handles < u64::from(FILES), "{held:?}");
}

both_ways!(what_was_never_sealed_is_found_and_given_back);

async fn what_was_never_sealed_is_found_and_given_back(isolation: Isolation) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = bind(isolation, "out", dir.path());
    let ctx = context("out", 1, "{}");
    let prepared = stage(&*plugin, &ctx, 1, 0, &["{}\n"]).await;

    let mut janitor = plugin.janitor().await.unwrap();
    let page = janitor.list_orphans(&ctx, &ctx.sink_hash.prefix(), None).await.unwrap();
    assert_eq!(
        page.orphans.iter().map(|o| o.short.as_str()).collect::<Vec<_>>(),
        [prepared.committable.part.short.as_str()]
    );

    let unsealed = Unsealed {
        part: prepared.committable.part.clone(),
        committable: Some(prepared.committable),
        resources: prepared.resources,
    };
    for _ in 0..2 {
        let outcomes = janitor.abandon(&ctx, std::slice::from_ref(&unsealed)).await.unwrap();
        assert!(matches!(outcomes[..], [Outcome::Committed | Outcome::AlreadyCommitted]), "{outcomes:?}");
    }
    let page = janitor.list_orphans(&ctx, &ctx.sink_hash.prefix(), None).await.unwrap();
    assert_eq!(page.orphans, vec![]);
    assert_eq!(published(dir.path()), Vec::<String>::new());
}

both_ways!(an_older_run_cannot_publish_after_a_fence);

async fn an_older_run_cannot_publish_after_a_fence(isolation: Isolation) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = bind(isolation, "out", dir.path());
    let (old, new) = (context("out", 1, "{}"), context("out", 2, "{}"));
    let prepared = stage(&*plugin, &old, 1, 0, &["{}\n"]).await;
    let position = observe(&*plugin, &new).await;
    plugin.committer().await.unwrap().fence(&new, &position).await.unwrap();

    let outcomes = plugin.committer().await.unwrap().commit(&old, &[], &[prepared.committable]).await;
    match outcomes {
        Ok(outcomes) => assert_eq!(outcomes, [Outcome::Fenced]),
        Err(fault) => assert_eq!(fault.error().map(|e| e.kind), Some(ErrorKind::Fenced), "{fault}"),
    }
    assert_eq!(published(dir.path()), Vec::<String>::new());
}

both_ways!(b34_two_sinks_with_equal_configuration_share_nothing);

async fn b34_two_sinks_with_equal_configuration_share_nothing(isolation: Isolation) {
    let base = tempfile::tempdir().unwrap();
    let (left_dir, right_dir) = (base.path().join("left"), base.path().join("right"));
    let (left, right) = (bind(isolation, "left", &left_dir), bind(isolation, "right", &right_dir));
    let (left_ctx, right_ctx) = (context("left", 1, "{}"), context("right", 1, "{}"));
    let prepared = stage(&*left, &left_ctx, 1, 0, &["{\"left\":1}\n"]).await;
    left.committer().await.unwrap().commit(&left_ctx, &[], std::slice::from_ref(&prepared.committable)).await.unwrap();

    assert_eq!(published(&left_dir).len(), 1);
    assert_eq!(published(&right_dir).len(), 0);
    assert_eq!(
        observe(&*right, &right_ctx).await,
        Position { token: observe(&*right, &right_ctx).await.token, ..Position::default() }
    );
    let mut janitor = right.janitor().await.unwrap();
    assert_eq!(janitor.list_orphans(&right_ctx, "tg-", None).await.unwrap().orphans, vec![]);

    // In one directory, too, each sees only what is its own.
    let shared = bind(isolation, "right", &left_dir);
    assert_eq!(observe(&*shared, &right_ctx).await.last, vec![]);
}

both_ways!(a_configuration_that_does_not_fit_is_an_error_of_the_plugin_and_the_instance_lives_on);

async fn a_configuration_that_does_not_fit_is_an_error_of_the_plugin_and_the_instance_lives_on(isolation: Isolation) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = bind(isolation, "out", dir.path());
    let mut writer = plugin.writer(Arc::new(Intents::default())).await.unwrap();
    let fault = writer.open(&context("out", 1, r#"{"no-such-key":1}"#), KeyRange::ALL, &[]).await.unwrap_err();
    assert_eq!(fault.error().map(|e| e.kind), Some(ErrorKind::BadConfig), "{fault}");
    assert!(matches!(fault.kind, FaultKind::Error(_)) && fault.to_string().starts_with("files "), "{fault}");
    writer.open(&context("out", 1, "{}"), KeyRange::ALL, &[]).await.unwrap();
}

#[test]
fn grants_must_fit_what_the_plugin_asks_for() {
    let dir = tempfile::tempdir().unwrap();
    let message = |options| files().bind(options).err().map(|e| e.to_string()).unwrap_or_default();
    let missing = message(BindOptions::new("out"));
    assert!(missing.contains("sink `out`") && missing.contains("`output`"), "{missing}");

    let mut unknown = BindOptions::new("out");
    unknown.dirs.insert("output".to_owned(), dir.path().join("a").into());
    unknown.dirs.insert("outptu".to_owned(), dir.path().join("b").into());
    assert!(files().check_grants(&unknown).is_err());
    let unknown = message(unknown);
    assert!(unknown.contains("`outptu`") && unknown.contains("output"), "{unknown}");
    assert!(!dir.path().join("a").exists(), "nothing is created before everything fits");

    let mut file = BindOptions::new("out");
    std::fs::write(dir.path().join("file"), "").unwrap();
    file.dirs.insert("output".to_owned(), dir.path().join("file").into());
    assert!(message(file).contains("cannot be created"));
}

#[test]
fn no_grant_reaches_what_is_the_hosts_own() {
    let base = tempfile::tempdir().unwrap();
    let (cache, state) = (base.path().join("cache"), base.path().join("state"));
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::symlink(&state, base.path().join("link")).unwrap();
    let options = RuntimeOptions { cache_dir: Some(cache), ..RuntimeOptions::default() };
    let plugin = Runtime::new(options).unwrap().admit("files", builtin::component("files").unwrap()).unwrap();
    for (dir, fits) in [("", false), ("cache/x", false), ("state", false), ("link/x", false), ("out", true)] {
        let mut options = BindOptions::new("out");
        options.dirs.insert("output".to_owned(), base.path().join(dir).into());
        options.keep_out.push(state.clone());
        assert_eq!(plugin.bind(options).is_ok(), fits, "{dir}");
    }
}
