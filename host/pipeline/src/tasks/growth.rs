//! Tells a writer that holds more and more from one that works.
//!
//! Of stretches of epochs, each as long as all before it together, the least that was held in each is compared: what is
//! given back in time never counts, however much it is.

use tidegate_protocol::plugin::Usage;

/// The first stretch, in epochs.
const FIRST: u64 = 4;
/// So many stretches that each held more than the one before are a leak. The last of them ends with epoch 128.
const STRETCHES: u32 = 5;

/// One writer's use of memory and handles, from epoch to epoch.
#[derive(Debug)]
pub(crate) struct Growth {
    epochs: u64,
    ends_at: u64,
    memory: Held,
    handles: Held,
    told: bool,
}

#[derive(Debug, Default)]
struct Held {
    least: Option<u64>,
    before: Option<u64>,
    from: u64,
    rising: u32,
}

impl Held {
    fn note(&mut self, held: u64) {
        self.least = Some(self.least.map_or(held, |least| least.min(held)));
    }

    /// A stretch is over. The least of the stretches' beginning and that of its end, if all of them rose.
    fn end_stretch(&mut self) -> Option<(u64, u64)> {
        let least = self.least.take()?;
        match self.before.replace(least) {
            Some(before) if least > before => {
                self.from = if self.rising == 0 { before } else { self.from };
                self.rising += 1;
            }
            _ => self.rising = 0,
        }
        (self.rising >= STRETCHES).then_some((self.from, least))
    }
}

impl Default for Growth {
    fn default() -> Self {
        Self { epochs: 0, ends_at: FIRST, memory: Held::default(), handles: Held::default(), told: false }
    }
}

impl Growth {
    /// An epoch is prepared. Words for a person, once, when what is held has grown for long enough.
    pub(crate) fn note(&mut self, usage: Usage) -> Option<String> {
        self.epochs += 1;
        self.memory.note(usage.memory_bytes);
        self.handles.note(usage.handles);
        if self.epochs < self.ends_at {
            return None;
        }
        self.ends_at = self.ends_at.saturating_mul(2);
        let memory = self.memory.end_stretch();
        let handles = self.handles.end_stretch();
        let grown = [(memory, "bytes of memory"), (handles, "connections, files and streams")];
        let grown = grown.into_iter().filter_map(|(grown, what)| {
            let (from, to) = grown?;
            Some(format!("from {from} to {to} {what}"))
        });
        let grown: Vec<String> = grown.collect();
        if grown.is_empty() || std::mem::replace(&mut self.told, true) {
            return None;
        }
        let (grown, epochs) = (grown.join(" and "), self.epochs);
        Some(format!(
            "the plugin holds more and more, {grown} within {epochs} epochs: it seems to leak; tell who wrote it"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(held: impl Fn(u64) -> u64) -> Vec<String> {
        let mut growth = Growth::default();
        let note = |epoch| growth.note(Usage { memory_bytes: 1 << 20, handles: held(epoch) });
        (1..=1_000).filter_map(note).collect()
    }

    #[test]
    fn a_handle_more_in_each_epoch_is_told_once() {
        let told = words(|epoch| 3 + epoch);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("from 4 to 68 connections") && told[0].contains("128 epochs"), "{}", told[0]);
    }

    #[test]
    fn what_is_given_back_now_and_then_is_no_leak() {
        assert_eq!(words(|epoch| epoch % 50), Vec::<String>::new());
        assert_eq!(words(|epoch| epoch.min(20)), Vec::<String>::new());
        assert_eq!(words(|_| 7), Vec::<String>::new());
    }
}
