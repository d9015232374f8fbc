//! How long a row waits in one of very many followed files until it is read, and what waiting costs.
//!
//! `cargo run --release -p tidegate-pipeline --example follow_many_files -- 10000` makes that many files, waits without
//! anything happening, appends rows to files chosen at random, then rows to few of them, and prints one JSON line per
//! figure.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures, and prints what it measured")]

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_pipeline::source::files::{FilesOptions, FilesSource, FollowOptions, Format};
use tidegate_pipeline::source::{Read, Source, SourceError};

/// Rows in each file at the start.
const ROWS: usize = 10;
/// Rows that are appended and waited for.
const APPENDED: usize = 60;
/// Files that change again and again.
const BUSY: usize = 10;
/// Time in which nothing happens.
const IDLE: Duration = Duration::from_secs(10);
/// A row that is not read by then is missing.
const PATIENCE: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let files = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse::<usize>())?.max(BUSY);
    let dir = tempfile::tempdir()?;
    for number in 0..files {
        let text: String = (0..ROWS).map(|row| format!("file {number} row {row} and the rest of it\n")).collect();
        fs::write(dir.path().join(format!("{number:06}.log")), text)?;
    }
    let mut options = FilesOptions::new(dir.path(), vec!["*.log".to_owned()], Format::Raw);
    options.follow = Some(FollowOptions::default());
    let source = FilesSource::new(options)?;
    let (sender, rows) = channel();
    thread::spawn(move || follow(&source, &sender));

    let start = Instant::now();
    for _ in 0..files * ROWS {
        rows.recv_timeout(PATIENCE)??;
    }
    let show = |figure: &str, value: f64| println!("{{\"figure\":\"{figure}\",\"value\":{value:.1},\"n\":{files}}}");
    show("follow-first-rows-ms", start.elapsed().as_secs_f64() * 1e3);
    thread::sleep(Duration::from_secs(1));
    let (before, start) = (cpu_ms()?, Instant::now());
    thread::sleep(IDLE);
    show("follow-idle-cpu-ms-per-second", (cpu_ms()? - before) / start.elapsed().as_secs_f64());
    for (figure, among) in [("any", files), ("busy", BUSY)] {
        let mut waits = Vec::new();
        for number in 0..APPENDED {
            // At all moments between two looks.
            thread::sleep(Duration::from_millis(100 + number as u64 * 7919 % 400));
            let name = format!("{:06}.log", (number * 7_654_321 + 17) % among);
            let start = append(&dir.path().join(name), number)?;
            waits.push(rows.recv_timeout(PATIENCE)??.duration_since(start).as_secs_f64() * 1e3);
        }
        waits.sort_by(f64::total_cmp);
        show(&format!("follow-wait-{figure}-median-ms"), waits[APPENDED / 2]);
        show(&format!("follow-wait-{figure}-p95-ms"), waits[APPENDED * 95 / 100]);
    }
    Ok(())
}

/// Tells when each row came.
fn follow(source: &FilesSource, sender: &Sender<Result<Instant, SourceError>>) {
    let read = async || -> Result<(), SourceError> {
        let encoding = source.contract().encodings[0];
        let mut readers = source.open(encoding, None, 1)?;
        loop {
            for reader in &mut readers {
                let Read::Rows(batch) = reader.next(1 << 20).await? else { continue };
                let now = Instant::now();
                if (0..batch.rows).any(|_| sender.send(Ok(now)).is_err()) {
                    return Ok(());
                }
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Err(error) = runtime.expect("a runtime needs a few handles only").block_on(read()) {
        let _ = sender.send(Err(error));
    }
}

fn append(path: &Path, number: usize) -> io::Result<Instant> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    let row = format!("appended row {number}\n");
    let start = Instant::now();
    file.write_all(row.as_bytes())?;
    Ok(start)
}

/// User and system time of this process so far.
fn cpu_ms() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| -> Result<f64, Failure> { Ok(fields.get(at).ok_or("too few fields")?.parse()?) };
    // SAFETY: it takes a number and gives one.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Ok((ticks(11)? + ticks(12)?) * 1e3 / per_second)
}
