//! What can be wrong with a pipeline file.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong, where, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line and column of the place in the file, both from 1; `None` when the file as a whole is meant.
    pub at: Option<(usize, usize)>,
    /// What is wrong, in one line.
    pub message: String,
    /// How to mend it, one line each.
    pub hints: Vec<String>,
}

/// Longest message, in bytes: what it quotes from the file may have any length.
const LONGEST: usize = 1000;

impl Problem {
    /// A problem at a place. Of a message that quotes too much the middle is left out, and what would move a terminal's
    /// cursor is spelled out.
    pub(crate) fn new(at: Option<(usize, usize)>, message: impl Into<String>, hints: Vec<String>) -> Self {
        Self { at, message: in_one_line(message.into()), hints: hints.into_iter().map(in_one_line).collect() }
    }

    /// A problem of the file as a whole.
    pub(crate) fn of_file(message: impl Into<String>) -> Self {
        Self::new(None, message, Vec::new())
    }

    /// Adds a way to mend it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(in_one_line(hint.into()));
        self
    }
}

fn in_one_line(text: String) -> String {
    let mut shown = String::with_capacity(text.len().min(2 * LONGEST));
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    let text = shown;
    if text.len() <= LONGEST {
        return text;
    }
    let start = text.floor_char_boundary(LONGEST / 2);
    let end = text.ceil_char_boundary(text.len() - LONGEST / 2 + '…'.len_utf8());
    format!("{}…{}", &text[..start], &text[end..])
}

/// A pipeline file that cannot be used. Holds every problem found, in the order of the file.
///
/// Trying again without editing the file does not help, except for [`ConfigError::unreadable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Never empty.
    pub problems: Vec<Problem>,
    /// The file could not be read at all.
    pub unreadable: bool,
}

impl ConfigError {
    /// The problem's place as `file:line:column`.
    pub fn place(&self, problem: &Problem) -> String {
        match problem.at {
            Some((line, column)) => format!("{}:{line}:{column}", self.file.display()),
            None => self.file.display().to_string(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: {}", self.place(problem), problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
