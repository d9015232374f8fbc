//! Text from plugins, made safe to show: bounded, one line, no control characters, no secrets, no host paths.

use std::sync::{Arc, Mutex, PoisonError};

/// Longest message of an error or a log line, in bytes, where nothing else is set.
pub(crate) const MAX_MESSAGE: usize = 4096;
/// Longest code, name, kind or label, in bytes.
pub(crate) const MAX_NAME: usize = 200;
const CUT: &str = " … (cut)";

/// Escapes what could forge a line, move a cursor or reorder text, and cuts at `max` bytes.
pub(crate) fn clean(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for c in text.chars() {
        let before = out.len();
        if is_unsafe(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        if out.len() > max {
            out.truncate(before);
            out.push_str(CUT);
            break;
        }
    }
    out
}

/// Whether nothing in it needs escaping.
pub(crate) fn is_safe(text: &str) -> bool {
    !text.chars().any(is_unsafe)
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{61c}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Replaces what must not leave the sandbox in readable text: revealed secrets and host paths. Shared between an
/// instance and its owner, since secrets become known while the plugin runs.
#[derive(Debug, Clone)]
pub struct Redactor {
    needles: Arc<Mutex<Vec<Needle>>>,
    max_message: usize,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(MAX_MESSAGE)
    }
}

#[derive(Clone)]
struct Needle {
    text: String,
    instead: String,
    secret: bool,
}

impl std::fmt::Debug for Needle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.instead)
    }
}

impl Redactor {
    /// Messages are cut at `max_message` bytes.
    pub(crate) fn new(max_message: usize) -> Self {
        Self { needles: Arc::default(), max_message }
    }

    /// Longest message, in bytes.
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    /// The text of an error or a log line: as [`Redactor::show`], cut where messages are.
    pub(crate) fn message(&self, text: &str) -> String {
        self.show(text, self.max_message)
    }

    /// Shows the grant's name instead of this path.
    pub fn hide_path(&self, path: &str, grant: &str) {
        if path.len() > 1 {
            self.add(Needle { text: path.to_owned(), instead: format!("<{grant}>"), secret: false });
        }
    }

    /// Shows a marker with the secret's name instead of its value.
    pub fn hide_secret(&self, value: &str, name: &str) {
        // A very short value would blank out ordinary text and tell more than it hides.
        if value.len() >= 4 {
            self.add(Needle { text: value.to_owned(), instead: format!("<secret {name}>"), secret: true });
        }
    }

    fn add(&self, needle: Needle) {
        let mut needles = self.needles.lock().unwrap_or_else(PoisonError::into_inner);
        if !needles.iter().any(|n| n.text == needle.text) {
            needles.push(needle);
            // Longest first, so that a secret that contains another one is hidden whole.
            needles.sort_by_key(|n| std::cmp::Reverse(n.text.len()));
        }
    }

    /// `text` with everything hidden, cleaned and cut.
    pub(crate) fn show(&self, text: &str, max: usize) -> String {
        let needles = self.needles.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = std::borrow::Cow::Borrowed(text);
        for needle in needles.iter() {
            if text.contains(&needle.text) {
                text = text.replace(&needle.text, &needle.instead).into();
            }
        }
        clean(&text, max)
    }

    /// The marker of the secret that stands in `bytes`, if one does.
    pub(crate) fn secret_in(&self, bytes: &[u8]) -> Option<String> {
        let needles = self.needles.lock().unwrap_or_else(PoisonError::into_inner);
        needles
            .iter()
            .find(|n| n.secret && memchr::memmem::find(bytes, n.text.as_bytes()).is_some())
            .map(|n| n.instead.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_bidi_marks_are_escaped() {
        assert_eq!(clean("a\nb\x1b[31m\u{202e}", 100), "a\\u{a}b\\u{1b}[31m\\u{202e}");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(clean("äää", 4), format!("ää{CUT}"));
    }

    #[test]
    fn secrets_and_paths_are_replaced() {
        let redactor = Redactor::default();
        redactor.hide_secret("hunter22", "token");
        redactor.hide_path("/srv/out", "output");
        assert_eq!(redactor.show("hunter22 at /srv/out/x", 100), "<secret token> at <output>/x");
        assert_eq!(redactor.secret_in(b"..hunter22.."), Some("<secret token>".to_owned()));
        assert_eq!(redactor.secret_in(b"/srv/out"), None);
    }
}
