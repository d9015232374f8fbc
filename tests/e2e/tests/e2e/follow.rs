//! Files that are followed, with a writer that goes on while the pipeline is killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tidegate_e2e::{Scene, lines, numbered, until};

/// How a log is rotated.
#[derive(Clone, Copy, PartialEq)]
enum Rotation {
    Rename,
    CopyAndTruncate,
}

/// A process of its own, a shell, that appends rows to a log and rotates it. It goes on for as long as `go` grows: one
/// line of it is one turn, so that nothing depends on time.
struct Writer {
    shell: Child,
    folder: PathBuf,
    turns: usize,
}

/// Rows of one turn.
const ROWS: usize = 40;

impl Writer {
    fn start(scene: &Scene, rotation: Rotation) -> Self {
        let rotate = match rotation {
            Rotation::Rename => "mv app.jsonl app.jsonl.1; : > app.jsonl",
            Rotation::CopyAndTruncate => "cp app.jsonl app.jsonl.1; : > app.jsonl",
        };
        // A row is written in two pieces, so that there are torn lines all the time.
        let script = format!(
            "while read -r first last rotates; do
                 if [ \"$rotates\" = yes ]; then
                     for n in 9 8 7 6 5 4 3 2 1; do
                         [ -e app.jsonl.$n ] && mv app.jsonl.$n app.jsonl.$((n + 1))
                     done
                     {rotate}
                 fi
                 n=$first
                 while [ $n -lt $last ]; do
                     printf '{{\"n\":%d,' $n >> app.jsonl
                     printf '\"note\":\"row %d\"}}\\n' $n >> app.jsonl
                     n=$((n + 1))
                 done
                 echo $last >> done
             done"
        );
        let folder = scene.path("in");
        File::create(folder.join("app.jsonl")).expect("a file can be made");
        let shell = Command::new("sh").args(["-c", &script]).current_dir(&folder).stdin(Stdio::piped()).spawn();
        Self { shell: shell.expect("a shell can be started"), folder, turns: 0 }
    }

    /// One more turn, beginning with a rotation if asked for. Does not wait for its end.
    fn turn(&mut self, rotates: bool) {
        let first = self.turns * ROWS;
        self.turns += 1;
        let word = if rotates { "yes" } else { "no" };
        let input = self.shell.stdin.as_mut().expect("standard input was asked for");
        writeln!(input, "{first} {} {word}", first + ROWS).expect("the shell listens");
    }

    fn wait(&self) {
        let last = format!("{}\n", self.turns * ROWS);
        let done = self.folder.join("done");
        until("the writer is done", || fs::read_to_string(&done).is_ok_and(|text| text.ends_with(&last)));
    }

    fn rows(&self) -> Vec<String> {
        (0..self.turns * ROWS).map(|n| format!(r#"{{"n":{n},"note":"row {n}"}}"#)).collect()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn followed(paths: &str) -> Scene {
    let scene = Scene::new();
    scene.pipeline("follow = true\ntasks = 2", "");
    scene.edit("in/*", paths);
    scene
}

fn survives_kills(rotation: Rotation, paths: &str) {
    let scene = followed(paths);
    let mut writer = Writer::start(&scene, rotation);
    writer.turn(false);
    writer.wait();
    // Before the first checkpoint nothing is known of a log that was rotated out of the patterns' sight.
    let running = scene.start(&[]);
    until("the first rows are there", || scene.rows("out").len() == ROWS);
    running.kill();
    // A log must be whole when it is copied, or rows are lost with any reader.
    let rotates = |writer: &Writer, wanted: bool| {
        if wanted && rotation == Rotation::CopyAndTruncate {
            writer.wait();
        }
        wanted
    };
    for (round, moment) in ["open:1", "preparing:1", "sealed:1", "sent:1"].iter().enumerate() {
        // Killed at a moment of its first epoch, while the log is written and rotated.
        let mut running = scene.start(&["--hold-at", moment]);
        writer.turn(rotates(&writer, round % 2 == 1));
        writer.turn(false);
        running.hear(&format!("held {}", moment.trim_end_matches(":1")));
        running.kill();
        // While nobody looks.
        writer.turn(rotates(&writer, round % 3 == 0));
        writer.wait();
        // Killed wherever it is when it has shown something new.
        let before = scene.rows("out").len();
        let mut running = scene.start(&[]);
        writer.turn(rotates(&writer, true));
        writer.turn(false);
        until("new rows are there", || scene.rows("out").len() > before);
        assert!(running.lives(), "it has no end");
        running.kill();
        writer.turn(false);
        writer.wait();
    }
    let mut running = scene.start(&[]);
    writer.turn(true);
    writer.turn(false);
    writer.wait();
    let expected = writer.rows();
    until("every row is there", || scene.rows("out").len() >= expected.len());
    assert!(running.lives(), "it has no end");
    running.signal(libc::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.code(), 0, "{ended}");
    scene.expect_rows("out", &expected);
}

#[test]
fn a_log_rotated_by_renaming_is_there_once_whatever_is_killed() {
    survives_kills(Rotation::Rename, "in/app.jsonl");
}

#[test]
fn rotated_names_that_a_pattern_matches_are_read_once_whatever_is_killed() {
    survives_kills(Rotation::Rename, "in/app.jsonl*");
}

#[test]
fn a_log_that_is_copied_and_truncated_is_there_once_whatever_is_killed() {
    survives_kills(Rotation::CopyAndTruncate, "in/app.jsonl*");
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file can be opened");
    file.write_all(text.as_bytes()).expect("a file can be written");
}

#[test]
fn a_torn_line_waits_over_a_stop_and_a_stop_seals_what_was_read() {
    let scene = followed("in/*.jsonl");
    let rows = numbered(0..60);
    let text = lines(&rows);
    let (whole, torn) = (lines(&rows[..30]).len(), lines(&rows[..30]).len() + 7);
    let path = scene.path("in/a.jsonl");
    append(&path, &text[..torn]);
    let mut running = scene.start(&[]);
    until("the whole rows are there", || scene.rows("out").len() == 30);
    assert!(running.lives() && whole < torn);
    running.signal(libc::SIGINT);
    running.end().expect(0);
    append(&path, &text[torn..torn + 20]);
    let running = scene.start(&[]);
    append(&path, &text[torn + 20..]);
    append(&scene.path("in/b.jsonl"), &lines(&numbered(60..70)));
    until("the rest is there", || scene.rows("out").len() == 70);
    running.signal(libc::SIGTERM);
    running.end().expect(0);
    scene.expect_rows("out", &numbered(0..70));
}

#[test]
fn rows_that_are_gone_stop_the_pipeline_and_say_how_to_go_on() {
    let scene = followed("in/*.jsonl");
    append(&scene.path("in/a.jsonl"), &format!("{}{{\"torn\":", lines(&numbered(0..10))));
    let running = scene.start(&[]);
    until("the whole rows are there", || scene.rows("out").len() == 10);
    running.signal(libc::SIGTERM);
    running.end().expect(0);
    fs::remove_file(scene.path("in/a.jsonl")).expect("it can be removed");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["a.jsonl", "line 10", "on-lost-rows"]);
    scene.edit("follow = true", "follow = true\non-lost-rows = \"warn\"");
    append(&scene.path("in/b.jsonl"), &lines(&numbered(10..12)));
    let running = scene.start(&[]);
    until("the new rows are there", || scene.rows("out").len() == 12);
    running.signal(libc::SIGTERM);
    running.end().expect(0);
    scene.expect_rows("out", &numbered(0..12));
}
