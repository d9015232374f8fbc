//! Arguments that several commands read alike.

use std::str::FromStr;

/// A number of which there must be some: with none nothing would be checked, and every figure would hold.
pub(crate) fn some<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number >= T::from(1));
    number.ok_or_else(|| "expected a whole number from 1 on; 0 would check nothing".to_owned())
}

/// No seed is greater, and nobody can run more of them: a slip of the hand is told before anything is built.
pub(crate) const MOST_SEEDS: u64 = 1_000_000_000_000_000;

/// A number of seeds.
pub(crate) fn seeds(text: &str) -> Result<u64, String> {
    let number = some(text)?;
    if number <= MOST_SEEDS { Ok(number) } else { Err(format!("expected at most {MOST_SEEDS}")) }
}

#[cfg(test)]
mod tests {
    use super::{MOST_SEEDS, seeds, some};

    #[test]
    fn nothing_is_no_number_of_checks() {
        assert_eq!(some::<u64>("7"), Ok(7));
        for text in ["0", "-1", "abc", "", "1.5", "18446744073709551616"] {
            assert!(some::<u64>(text).is_err(), "{text}");
        }
        assert_eq!(seeds(&MOST_SEEDS.to_string()), Ok(MOST_SEEDS));
        assert!(seeds(&(MOST_SEEDS + 1).to_string()).is_err());
        assert!(seeds("0").is_err());
    }
}
