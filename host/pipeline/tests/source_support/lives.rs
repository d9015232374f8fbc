//! Parts of the many short lives of a log directory.

use std::sync::Arc;

use tidegate_pipeline::source::files::{FilesSource, Moment, Moments};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::followed::Followed;

/// Numbers that are the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    /// Once in so many times.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len() as u64) as usize]
    }
}

/// A log and what is still to be done to it.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) name: &'static str,
    /// The rest of a line that was written in part, and of which row it is.
    pub(crate) torn: Option<(String, String)>,
    /// What comes next of a rotation under way; the last comes first.
    pub(crate) todo: Vec<Step>,
    /// A program still writes to the file that was renamed.
    pub(crate) late: bool,
}

/// A copy that was made before the last rows of its original were written.
#[derive(Debug)]
pub(crate) struct Short {
    /// All that was in the original.
    pub(crate) original: Vec<u8>,
    /// How much of it is in the copy.
    pub(crate) length: usize,
}

impl Short {
    /// Whether it can be told that something else than a part of the original is in the copy, by who has read so much of
    /// the original: its first bytes are known in powers of two.
    pub(crate) fn tells(&self, copy: &[u8], read: usize) -> bool {
        let known = read.min(copy.len());
        copy.len() >= read || (5..12).map(|n| 1 << n).any(|n| n <= known && copy[..n] != self.original[..n])
    }
}

/// What a rotation consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// From the file with this number, 0 being the log itself, to the next one.
    Rename(u64),
    Create,
    /// An empty one, under this number.
    CopyBegin,
    /// So many bytes of it at most.
    Copy(usize),
    Truncate,
    Delete(u64),
}

/// Something happens in the middle of what the reader does, which waits for it.
pub(crate) struct Amid {
    /// A moment, or that the reader is done.
    pub(crate) moments: UnboundedReceiver<Option<Moment>>,
    pub(crate) done: UnboundedSender<Option<Moment>>,
    pub(crate) go_on: std::sync::mpsc::Sender<()>,
}

impl Amid {
    pub(crate) fn new(followed: &mut Followed) -> Self {
        let (tell, moments) = tokio::sync::mpsc::unbounded_channel();
        let (go_on, wait) = std::sync::mpsc::channel();
        let (done, wait) = (tell.clone(), std::sync::Mutex::new(wait));
        followed.source = Arc::new(FilesSource::clone(&followed.source).telling(Moments::told(move |moment| {
            if tell.send(Some(moment)).is_ok() {
                let _ = wait.lock().unwrap().recv();
            }
        })));
        Self { moments, done, go_on }
    }
}

pub(crate) fn name(log: &str, number: u64) -> String {
    if number == 0 { log.to_owned() } else { format!("{log}.{number}") }
}

pub(crate) fn clip(text: &str) -> &str {
    &text[..text.len().min(10)]
}
