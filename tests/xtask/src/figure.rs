//! Figures: what a check measured, what was asked for, and whether it holds. One JSON line each, on stdout.

use serde::Serialize;

/// How a value is compared with what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Op {
    /// Not less than.
    #[serde(rename = ">=")]
    AtLeast,
    /// Not more than.
    #[serde(rename = "<=")]
    AtMost,
    /// Exactly.
    #[serde(rename = "==")]
    Exactly,
}

/// One measured figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    figure: String,
    #[serde(serialize_with = "plain")]
    value: f64,
    op: Op,
    #[serde(serialize_with = "plain")]
    must: f64,
    holds: bool,
    /// Of how many measurements the value is the median.
    n: usize,
    /// (largest - smallest) / median of those measurements.
    #[serde(serialize_with = "plain")]
    spread: f64,
}

impl Figure {
    /// A figure measured once.
    pub(crate) fn new(figure: impl Into<String>, value: f64, op: Op, must: f64) -> Self {
        Self::with_spread(figure, value, op, must, 1, 0.0)
    }

    /// The median of several measurements. None at all is a figure that does not hold.
    pub(crate) fn median(figure: impl Into<String>, values: &[f64], op: Op, must: f64) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
            return Self::with_spread(figure, f64::NAN, op, must, 0, 0.0);
        };
        let middle = sorted[sorted.len() / 2];
        let median = if sorted.len() % 2 == 1 { middle } else { (middle + sorted[sorted.len() / 2 - 1]) / 2.0 };
        let spread = if median == 0.0 { 0.0 } else { (last - first) / median };
        Self::with_spread(figure, median, op, must, sorted.len(), spread)
    }

    /// What was measured.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// A figure that was made of several measurements, and how far these lie apart.
    pub(crate) fn with_spread(figure: impl Into<String>, value: f64, op: Op, must: f64, n: usize, spread: f64) -> Self {
        let holds = match op {
            Op::AtLeast => value >= must,
            Op::AtMost => value <= must,
            Op::Exactly => value == must,
        };
        Self {
            figure: figure.into(),
            value: rounded(value),
            op,
            must: rounded(must),
            holds,
            n,
            spread: rounded(spread),
        }
    }
}

/// Whole numbers without a decimal point.
fn plain<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

/// Four decimals are enough for a person, and whole numbers stay whole.
fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// The figures of one command.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    shown: usize,
    broken: Vec<String>,
}

impl Figures {
    /// Prints a figure and remembers whether it holds.
    pub(crate) fn show(&mut self, figure: Figure) -> anyhow::Result<()> {
        use std::io::Write as _;
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &figure)?;
        out.write_all(b"\n")?;
        out.flush()?;
        self.shown += 1;
        if !figure.holds {
            self.broken.push(figure.figure);
        }
        Ok(())
    }

    /// The verdict: fails when a figure does not hold, or when there was none.
    pub(crate) fn verdict(self) -> anyhow::Result<()> {
        anyhow::ensure!(self.shown > 0, "no figure was measured");
        anyhow::ensure!(self.broken.is_empty(), "does not hold: {}", self.broken.join(", "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_nothing_does_not_hold() {
        assert!(!Figure::median("f", &[], Op::AtLeast, 0.0).holds);
        assert!(!Figure::median("f", &[], Op::AtMost, 1.0).holds);
    }

    #[test]
    fn a_median_is_the_middle_and_the_spread_spans_the_extremes() {
        let figure = Figure::median("f", &[4.0, 1.0, 2.0], Op::AtLeast, 2.0);
        assert!(figure.holds);
        assert_eq!((figure.value, figure.n, figure.spread), (2.0, 3, 1.5));
        assert_eq!(Figure::median("f", &[1.0, 3.0], Op::Exactly, 2.0).value, 2.0);
    }

    #[test]
    fn a_broken_figure_and_no_figure_both_fail() {
        assert!(Figures::default().verdict().is_err());
        let mut figures = Figures::default();
        figures.show(Figure::new("lost", 1.0, Op::Exactly, 0.0)).expect("stdout is there in tests");
        assert!(figures.verdict().is_err());
    }
}
