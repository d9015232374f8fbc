//! Pipeline files, and the sizes and durations in them.

use std::path::Path;

use tidegate_server::config::{ConfigError, PipelineFile, parse, show_duration};

use crate::input::Input;
use crate::{Met, words};

pub(crate) fn run(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    match input.byte() % 2 {
        0 => file(&input.text()),
        _ => units(&input.text()),
    }
}

fn read(text: &str) -> Result<PipelineFile, ConfigError> {
    let read = parse(text, Path::new("p.toml"), Path::new("/base"));
    if let Err(error) = &read {
        assert!(!error.problems.is_empty(), "refused, and nothing is wrong");
        words(error);
        let lines: Vec<&str> = text.split('\n').collect();
        for problem in &error.problems {
            assert!(problem.message.len() < 4096, "a message of {} bytes", problem.message.len());
            if let Some((line, column)) = problem.at {
                let there =
                    line >= 1 && column >= 1 && lines.get(line - 1).is_some_and(|line| column <= line.len() + 1);
                assert!(there, "{line}:{column} is not in the file: {}", problem.message);
            }
        }
    }
    read
}

fn file(text: &str) -> Met {
    let first = read(text);
    let again = read(text);
    match (&first, &again) {
        (Ok(first), Ok(again)) => assert_eq!(format!("{first:?}"), format!("{again:?}")),
        (Err(first), Err(again)) => assert_eq!(first, again),
        _ => panic!("read once and refused once"),
    }
    Met::of(&first)
}

/// A text as duration and as size; what a duration is shown as is that duration.
fn units(text: &str) -> Met {
    let with = |key: &str, text: &str| {
        let text = serde_json::to_string(text).expect("a text is JSON");
        // The other key goes first: a text may have its name.
        let other = if key == "MEMORY" { "INTERVAL" } else { "MEMORY" };
        let line = format!("{} = {text}", key.to_lowercase());
        read(&FILE.replacen(other, "", 1).replacen(key, &line, 1))
    };
    let interval = with("INTERVAL", text);
    if let Ok(file) = &interval {
        let shown = show_duration(file.checkpoint.interval);
        let again = with("INTERVAL", &shown).expect("a duration is shown as one");
        assert_eq!(again.checkpoint.interval, file.checkpoint.interval, "`{text}` is shown as {shown}");
    }
    let memory = with("MEMORY", text);
    assert!(interval.is_err() || memory.is_err(), "`{text}` is a duration and a size");
    Met::of(&interval).min(Met::of(&memory))
}

const FILE: &str = r#"[pipeline]
name = "flights"
state = "state"
[checkpoint]
INTERVAL
[sources.flights]
kind = "files"
paths = ["data/*.jsonl"]
format = "json-lines"
[sinks.out]
plugin = "builtin:files"
[sinks.out.dirs]
output = "out"
[sinks.out.limits]
MEMORY
"#;
