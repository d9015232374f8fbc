//! A pipeline inside another program.
//!
//! Writes a small file of JSON lines into a temporary directory, runs a pipeline that carries its rows into whole files,
//! exactly once, and prints what came out. Run it with `cargo run -p embed`.

#![allow(clippy::print_stdout, reason = "an example speaks")]

use std::path::Path;

use tidegate_server::{End, Host, RunOptions, assemble, config};

fn main() -> anyhow::Result<()> {
    // Plugins are compiled in child processes of this program: first of all it looks whether it is one of them.
    tidegate_server::run_if_asked();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    let dir = std::env::temp_dir().join(format!("tidegate-embed-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let rows: String = (1..=1000).map(|n| format!("{{\"n\":{n},\"square\":{}}}\n", n * n)).collect();
    std::fs::write(dir.join("numbers.jsonl"), rows)?;

    // The same text could stand in a file, read with `config::load`. Relative paths count from `dir`.
    let text = r#"
        [pipeline]
        name = "embedded"
        state = "state"

        [sources.numbers]
        kind = "files"
        paths = ["numbers.jsonl"]
        format = "json-lines"

        [sinks.out]
        plugin = "builtin:files"
        subtasks = 2
        [sinks.out.dirs]
        output = "out"
    "#;
    let file = config::parse(text, Path::new("embedded pipeline"), &dir)?;

    // One host for all pipelines of a process. Compiling plugins blocks, so that it has no place among async tasks.
    let ready = tokio::task::spawn_blocking(move || {
        let assembled = assemble(&Host::new(None)?, &file)?;
        println!("guarantee: {}", assembled.guarantee().delivery);
        assembled.open()
    });
    // `RunOptions` takes an observer for progress and a control that asks the run to stop.
    let report = ready.await??.run(RunOptions::default()).await?;
    anyhow::ensure!(report.end == End::Finished, "the pipeline ended with {:?}", report.end);
    println!("{} rows read, {} epochs sealed", report.progress.rows_read, report.progress.epochs_sealed);

    let mut rows = 0;
    for entry in std::fs::read_dir(dir.join("out"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            rows += std::fs::read_to_string(&path)?.lines().count();
        }
    }
    println!("{rows} rows arrived");
    std::fs::remove_dir_all(&dir)?;
    anyhow::ensure!(rows == 1000, "every row arrives once");
    Ok(())
}
