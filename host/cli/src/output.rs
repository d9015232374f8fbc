//! Printing: data on standard output, talk on standard error. Neither may ever end the process by failing; that data
//! could not be printed is told by the exit code.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::MultiProgress;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_server::ServerError;

use crate::exit::Exit;

/// A command that did not do what was asked: one line what happened, then ways to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Messages with their hints; the first line says what happened.
    pub(crate) messages: Vec<(String, Vec<String>)>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, messages: vec![(message.into(), Vec::new())] }
    }

    pub(crate) fn of(error: &ServerError) -> Self {
        Self { exit: error.kind().into(), messages: error.messages() }
    }

    /// For machines: `event` is what the object is called.
    pub(crate) fn json(&self, event: &str) -> Value {
        let errors: Vec<_> =
            self.messages.iter().map(|(message, hints)| json!({"message": message, "hints": hints})).collect();
        json!({"event": event, "result": "error", "exit": self.exit as u8, "errors": errors})
    }

    /// As printed: `error:` lines, each followed by its `hint:` lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (message, hints) in &self.messages {
            lines.push(format!("error: {}", one_line(message)));
            lines.extend(hints.iter().map(|hint| format!("hint: {}", one_line(hint))));
        }
        lines
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        Self::of(&error)
    }
}

/// Puts a text that may come from elsewhere on one line, without control characters that would move the cursor.
pub(crate) fn one_line(text: &str) -> String {
    let parts = text.lines().map(str::trim).filter(|line| !line.is_empty());
    parts.collect::<Vec<_>>().join("; ").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// As [`one_line`], for text that was laid out in columns.
pub(crate) fn one_line_keeping_blanks(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The live display, while there is one: talk has to go above it.
static LIVE: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Sets or removes the live display.
pub(crate) fn set_live(live: Option<MultiProgress>) {
    *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = live;
}

/// Prints one line of talk. A closed standard error is no reason to stop.
pub(crate) fn say(line: &str) {
    // One write, so that lines of several processes do not mix.
    talk(format!("{line}\n").as_bytes());
}

fn talk(bytes: &[u8]) {
    let write = || {
        let _ = io::stderr().lock().write_all(bytes);
    };
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match live {
        Some(live) => live.suspend(write),
        None => write(),
    }
}

/// Standard error as a writer that never fails, for log lines.
pub(crate) struct Talk;

impl Write for Talk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        talk(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Data could not be printed.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints data. Whoever closed standard output has seen enough; every other failure counts, see [`judge`].
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    noted(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Notes what became of printing data.
pub(crate) fn noted(printed: io::Result<()>) {
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        say(&format!("error: standard output cannot be written: {error}"));
    }
}

/// The exit code of a process that would end with `exit`: one that could not print its data has not done what was asked.
pub(crate) fn judge(exit: Exit) -> Exit {
    if exit == Exit::Done && LOST.load(Ordering::Relaxed) { Exit::Failed } else { exit }
}

/// Prints one line of data.
pub(crate) fn print_line(line: &str) {
    print(&format!("{line}\n"));
}

/// Prints data as JSON, readable.
pub(crate) fn print_json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print_line(&text),
        Err(error) => say(&format!("error: cannot write JSON: {error}")),
    }
}

/// Prints data as one line of JSON.
pub(crate) fn print_json_line(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => print_line(&text),
        Err(error) => say(&format!("error: cannot write JSON: {error}")),
    }
}

/// A table with columns as wide as needed. The first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                line.extend(std::iter::repeat_n(' ', widths[column] - cell.chars().count() + 2));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_one_line_and_hints() {
        let mut failure = Failure::new(Exit::Failed, "it broke\nbadly \u{1b}[2J");
        failure.messages[0].1.push("mend it".to_owned());
        assert_eq!(failure.lines(), ["error: it broke; badly \u{fffd}[2J", "hint: mend it"]);
    }

    #[test]
    fn tables_line_up_without_trailing_blanks() {
        let rows = [vec!["a".into(), "long".into(), "c".into()], vec!["übel".into(), "x".into(), "".into()]];
        assert_eq!(table(&rows), "a     long  c\nübel  x\n");
    }
}
