//! Barrier alignment over several inputs.
//!
//! An input on which the barrier has come is held back until it has come on all; an input that has ended counts as
//! aligned from then on.

use std::collections::BTreeSet;
use std::fmt;

use crate::ids::Epoch;

/// What to do after a barrier or an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// Hold this input back: others are still before the barrier.
    Hold,
    /// The barrier is on all inputs: hand it on, then read all inputs again.
    Aligned(Epoch),
    /// An input ended and no barrier is waiting. Read on.
    Nothing,
    /// All inputs have ended and no barrier is waiting: nothing more will come.
    AllEnded,
}

/// A barrier or row that cannot come there. The host's own tasks are broken: the epoch is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlignError {
    /// There is no such input.
    UnknownInput {
        /// Its number.
        input: usize,
        /// How many there are.
        inputs: usize,
    },
    /// A second barrier on an input that is held back.
    Duplicate {
        /// The input.
        input: usize,
        /// The barrier.
        epoch: Epoch,
    },
    /// The barrier of another epoch than the one being aligned, or than the next one.
    WrongEpoch {
        /// The input.
        input: usize,
        /// What came.
        epoch: Epoch,
        /// What should have come.
        expected: Epoch,
    },
    /// Something came on an input that had ended.
    AfterEnd {
        /// The input.
        input: usize,
    },
}

impl fmt::Display for AlignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownInput { input, inputs } => write!(f, "input {input} does not exist, there are {inputs}"),
            Self::Duplicate { input, epoch } => write!(f, "input {input} sent the barrier of epoch {epoch} twice"),
            Self::WrongEpoch { input, epoch, expected } => {
                write!(f, "input {input} sent the barrier of epoch {epoch} where {expected} should come")
            }
            Self::AfterEnd { input } => write!(f, "input {input} sent something after its end"),
        }
    }
}

impl std::error::Error for AlignError {}

/// Aligns the barriers of a fixed number of inputs.
#[derive(Debug, Clone)]
pub struct Aligner {
    inputs: usize,
    next: Epoch,
    waiting: BTreeSet<usize>,
    ended: BTreeSet<usize>,
    begun: bool,
}

impl Aligner {
    /// For `inputs` inputs; `first` is the epoch that the first barrier ends.
    pub fn new(inputs: usize, first: Epoch) -> Self {
        Self { inputs, next: first, waiting: BTreeSet::new(), ended: BTreeSet::new(), begun: false }
    }

    /// The barrier of `epoch` came on `input`.
    ///
    /// # Errors
    /// It cannot come there.
    pub fn on_barrier(&mut self, input: usize, epoch: Epoch) -> Result<Alignment, AlignError> {
        self.check(input)?;
        if self.waiting.contains(&input) {
            return Err(AlignError::Duplicate { input, epoch });
        }
        if epoch != self.next {
            return Err(AlignError::WrongEpoch { input, epoch, expected: self.next });
        }
        self.begun = true;
        self.waiting.insert(input);
        Ok(self.settle())
    }

    /// `input` has ended. Also in the middle of an alignment.
    ///
    /// # Errors
    /// It cannot end there.
    pub fn on_end(&mut self, input: usize) -> Result<Alignment, AlignError> {
        self.check(input)?;
        if self.waiting.contains(&input) {
            // Held back, so nothing could be read from it. The end waits behind the barrier with everything else.
            return Err(AlignError::Duplicate { input, epoch: self.next });
        }
        self.ended.insert(input);
        Ok(match self.settle() {
            Alignment::Hold if !self.begun => Alignment::Nothing,
            other => other,
        })
    }

    /// Whether `input` must not be read for now.
    pub fn held(&self, input: usize) -> bool {
        self.waiting.contains(&input)
    }

    /// The epoch that the next barrier ends.
    pub fn next_epoch(&self) -> Epoch {
        self.next
    }

    fn check(&self, input: usize) -> Result<(), AlignError> {
        if input >= self.inputs {
            return Err(AlignError::UnknownInput { input, inputs: self.inputs });
        }
        if self.ended.contains(&input) { Err(AlignError::AfterEnd { input }) } else { Ok(()) }
    }

    fn settle(&mut self) -> Alignment {
        if self.waiting.len() + self.ended.len() < self.inputs {
            return Alignment::Hold;
        }
        if !self.begun {
            return Alignment::AllEnded;
        }
        let epoch = self.next;
        self.next = epoch.next();
        self.waiting.clear();
        self.begun = false;
        Alignment::Aligned(epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_is_handed_on_when_it_is_on_all_inputs() {
        let mut aligner = Aligner::new(3, Epoch(5));
        assert_eq!(aligner.on_barrier(0, Epoch(5)), Ok(Alignment::Hold));
        assert_eq!(aligner.on_barrier(2, Epoch(5)), Ok(Alignment::Hold));
        assert!(aligner.held(0) && !aligner.held(1));
        assert_eq!(aligner.on_barrier(1, Epoch(5)), Ok(Alignment::Aligned(Epoch(5))));
        assert!(!aligner.held(0));
        assert_eq!(aligner.next_epoch(), Epoch(6));
    }

    #[test]
    fn an_input_that_ends_late_counts_as_aligned() {
        let mut aligner = Aligner::new(2, Epoch(1));
        assert_eq!(aligner.on_barrier(0, Epoch(1)), Ok(Alignment::Hold));
        assert_eq!(aligner.on_end(1), Ok(Alignment::Aligned(Epoch(1))));
        assert_eq!(aligner.on_barrier(0, Epoch(2)), Ok(Alignment::Aligned(Epoch(2))));
        assert_eq!(aligner.on_end(0), Ok(Alignment::AllEnded));
    }

    #[test]
    fn an_input_that_ends_while_others_are_waited_for_aligns_nothing_yet() {
        let mut aligner = Aligner::new(3, Epoch(1));
        assert_eq!(aligner.on_barrier(0, Epoch(1)), Ok(Alignment::Hold));
        assert_eq!(aligner.on_end(1), Ok(Alignment::Hold));
        assert_eq!(aligner.on_end(0), Err(AlignError::Duplicate { input: 0, epoch: Epoch(1) }), "it is held back");
        assert_eq!(aligner.on_barrier(2, Epoch(1)), Ok(Alignment::Aligned(Epoch(1))));
    }

    #[test]
    fn an_end_without_a_barrier_changes_nothing_for_the_others() {
        let mut aligner = Aligner::new(2, Epoch(1));
        assert_eq!(aligner.on_end(0), Ok(Alignment::Nothing));
        assert_eq!(aligner.on_end(1), Ok(Alignment::AllEnded));
    }

    #[test]
    fn what_cannot_come_is_named() {
        let mut aligner = Aligner::new(2, Epoch(1));
        assert_eq!(aligner.on_barrier(7, Epoch(1)), Err(AlignError::UnknownInput { input: 7, inputs: 2 }));
        let wrong = AlignError::WrongEpoch { input: 0, epoch: Epoch(2), expected: Epoch(1) };
        assert_eq!(aligner.on_barrier(0, Epoch(2)), Err(wrong));
        assert_eq!(aligner.on_barrier(0, Epoch(1)), Ok(Alignment::Hold));
        assert_eq!(aligner.on_barrier(0, Epoch(1)), Err(AlignError::Duplicate { input: 0, epoch: Epoch(1) }));
        assert_eq!(aligner.on_end(1), Ok(Alignment::Aligned(Epoch(1))));
        assert_eq!(aligner.on_barrier(1, Epoch(2)), Err(AlignError::AfterEnd { input: 1 }));
        assert_eq!(aligner.on_end(1), Err(AlignError::AfterEnd { input: 1 }));
    }
}
