//! What is told in the log. For one test at a time in a process.

use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span;

/// Warnings since they were taken last.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Begins to listen. Once in a process.
pub(crate) fn listen() {
    tracing::subscriber::set_global_default(Listener).unwrap();
}

#[allow(clippy::print_stdout, reason = "asked for, to look into one life")]
pub(crate) fn show(text: &str) {
    println!("{text}");
}

/// All warnings since the last time.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut *TOLD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps warnings. With a seed given, for looking into one life, prints everything.
struct Listener;

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN || std::env::var_os("TIDEGATE_SEED").is_some()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        if *event.metadata().level() <= tracing::Level::INFO && std::env::var_os("TIDEGATE_SEED").is_some() {
            show(&format!("        {text}"));
        }
        if *event.metadata().level() <= tracing::Level::WARN {
            TOLD.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
